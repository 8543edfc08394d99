"""What is installed here: packages, Java, the Pythons that Spark would start, room on disks."""

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from kinesis_spout.model.directories import check_directory
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.operations.doctor.finding import Finding

_PACKAGES: Final = ("boto3", "botocore", "kazoo", "protobuf", "msgspec")
_ON_SPARK: Final = ("pyspark", "pyarrow", "pandas")
"""What the extra `spark` brings, or a platform."""
_OF_EXTRAS_ON_SPARK: Final = re.compile(r"extra == .(?:spark|arrow).$")
_BOUND: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?.*?>=\s*([0-9.]+)")
_LEAST_JAVA: Final = 17
_JAVA_VERSION: Final = re.compile(r'version "(\d+)([^"]*)"')
_SECONDS: Final = 30.0
_LITTLE_BYTES: Final = 1 << 30
_GIB: Final = 1 << 30
_OTHER_PYTHON: Final = """
import json, sys
from importlib.util import find_spec
print(json.dumps({
    "version": sys.version.split()[0],
    "executable": sys.executable,
    "prefix": sys.prefix,
    "lacks": [name for name in ("kinesis_spout", "pyarrow", "numpy") if find_spec(name) is None],
}))
"""


def versions() -> Iterator[Finding]:
    yield Finding.ok("system", f"{platform.platform()}, {os.cpu_count()} processors")
    yield Finding.ok("Python", f"{platform.python_version()} at {sys.executable}")
    try:
        yield Finding.ok("kinesis-spout", metadata.version("kinesis-spout"))
        least = _bounds(metadata.requires("kinesis-spout") or [])
    except metadata.PackageNotFoundError:
        yield Finding.warning(
            "kinesis-spout", "imported, but not installed", "install it: pip install kinesis-spout"
        )
        least = {}
    for name in (*_ON_SPARK, *_PACKAGES):
        yield _package(name, least.get(name))


def has_spark() -> bool:
    return importlib.util.find_spec("pyspark") is not None


def _package(name: str, least: str | None) -> Finding:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        if name not in _ON_SPARK:
            return Finding.missing(name, "not installed", f"install it: pip install {name}")
        if importlib.util.find_spec(name) is None:
            return Finding.ok(
                name, 'not installed; what runs on Spark needs it: pip install "kinesis-spout[spark]"'
            )
        version = importlib.import_module(name).__version__  # a platform's own, which pip does not know
    if least is not None and _numbers(version) < _numbers(least):
        return Finding.missing(
            name, f"{version}, which is older than {least}", f"update it: pip install '{name}>={least}'"
        )
    return Finding.ok(name, version)


def _bounds(requirements: list[str]) -> dict[str, str]:
    counted = (each for each in requirements if ";" not in each or _OF_EXTRAS_ON_SPARK.search(each))
    found = map(_BOUND.match, counted)
    return {each[1]: each[2] for each in found if each is not None}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def java() -> Finding:
    from kinesis_spout.zookeeper.java_server import find_java  # noqa: PLC0415 - --help does not wait for it

    try:
        path = find_java()
    except InvalidConfig as error:
        return Finding.missing("Java", "not found", str(error))
    try:
        said = _output([path, "-version"])
    except (OSError, subprocess.SubprocessError) as error:
        return Finding.missing(
            "Java", f"{path} does not run: {error}", "install Java 17, or set JAVA_HOME to one"
        )
    version = _JAVA_VERSION.search(said)
    if version is None:
        return Finding.unknown("Java", f"{path}: {said.splitlines()[0] if said else 'says no version'}")
    text = f"{version[1]}{version[2]} at {path}"
    if int(version[1]) < _LEAST_JAVA:
        return Finding.missing(
            "Java", f"{text}; Spark needs {_LEAST_JAVA}", "install Java 17, or set JAVA_HOME to one"
        )
    return Finding.ok("Java", text)


def workers_python() -> Iterator[Finding]:
    """The Python that Spark starts on this machine for tasks, and for the reader of format("kinesis").

    ``run`` and ``session()`` set PYSPARK_PYTHON to the Python that they run in, unless it is set. Spark looks for
    data sources, and reads them, by PYSPARK_DRIVER_PYTHON if that is set.
    """
    given, of_driver = os.environ.get("PYSPARK_PYTHON"), os.environ.get("PYSPARK_DRIVER_PYTHON")
    if given:
        mend = f"set PYSPARK_PYTHON={sys.executable}, or unset it"
        yield _python("PYSPARK_PYTHON", given, Finding.missing, mend)
    else:
        mend = (
            "start a SparkSession of your own by kinesis_spout.session(), or set "
            f"PYSPARK_PYTHON={sys.executable} before"
        )
        yield Finding.ok(
            "Python of `run`", f"its workers run in {sys.executable}, because PYSPARK_PYTHON is not set"
        )
        yield _python("python3 on PATH", "python3", Finding.warning, mend)
    if of_driver:
        mend = f'for format("kinesis") unset it, or set PYSPARK_DRIVER_PYTHON={sys.executable}'
        yield _python("PYSPARK_DRIVER_PYTHON", of_driver, Finding.warning, mend)


def _python(about: str, name: str, found: Callable[[str, str, str], Finding], mend: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return found(about, f"no {name}, which Spark would start for a session of your own", mend)
    try:
        other: dict[str, Any] = json.loads(_output([path, "-c", _OTHER_PYTHON], stderr=subprocess.DEVNULL))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return found(about, f"{path} does not run: {error}", mend)
    text = f"{other['version']} at {other['executable']}"
    if other["prefix"] == sys.prefix:
        return Finding.ok(about, f"{text}, the one that runs this")
    if other["lacks"]:
        lacks = ", ".join(other["lacks"])
        return found(about, f"{text}, which lacks {lacks}; this runs in {sys.executable}", mend)
    if _numbers(other["version"])[:2] != sys.version_info[:2]:
        return found(about, f"{text}; this runs in {platform.python_version()}: both must be equal", mend)
    return Finding.ok(about, f"{text}, another than this, with kinesis_spout")


def disk(about: str, folder: Path) -> Finding:
    place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    try:
        check_directory(folder)
        usage = shutil.disk_usage(place)
    except OSError as error:
        return Finding.missing(
            about, f"{folder} cannot be written: {error}", "allow writing there, or name another folder"
        )
    text = f"{usage.free / _GIB:.1f} of {usage.total / _GIB:.1f} GiB free at {folder}"
    if usage.free < _LITTLE_BYTES:
        return Finding.warning(about, text, "make room: a full disk stops what writes there")
    return Finding.ok(about, text)


def _output(command: list[str], stderr: int = subprocess.STDOUT) -> str:
    ran = subprocess.run(  # noqa: S603 - a Java or a Python of the user's
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    return ran.stdout
