"""Runs tests in a corner of what is supported: ``python -m tests.corners oldest``.

The corners are oldest, newest, lowest, unpinned and migrations. Each has a virtual environment of its own,
``.venv-<corner>``, which is made again when ``pyproject.toml`` changed. PYTHON, a variable, names another Python.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PYPROJECT = ROOT / "pyproject.toml"
OLDEST_PYTHON, NEWEST_PYTHON = "python3.11", "python3.14"
UV = "uv==0.13.9"
MIGRATED = ("boto3", "bytewax==0.21.1", "faust-streaming==0.15.3")
"""The libraries that the guides lead away from."""
KCLPY = "amazon_kclpy==3.2.0"
"""Only its Python: installing it would download Java's half from Maven."""
NOT_WITH_THE_LOWEST = ("kinesis-spout", "pyspark", "mkdocs", "playwright")
"""Development packages that need newer versions of what the package needs, or other packages than the tests."""

PIP_INSTALL = (
    "-m",
    "pip",
    "install",
    "-qq",
    "--disable-pip-version-check",
    "--prefer-binary",
    "--no-compile",
)
EDITABLE = ("--config-settings", "editable_mode=compat", "-e")
FILES_OF_SPARK = (
    "test_micro_batches.py",
    "test_topologies.py",
    "test_structured_*.py",
    "test_each_record*.py",
)
OF_SPARK = (
    "tests/unit/spark",
    "tests/unit/structured",
    *sorted(str(each) for pattern in FILES_OF_SPARK for each in Path("tests/integration").glob(pattern)),
)


@dataclass(frozen=True, kw_only=True)
class Corner:
    tests: Sequence[str]
    install: Callable[[Path], None] | None = None
    """Without it, what is installed for all other tests serves."""
    python: str = sys.executable
    runs_inside: bool = True
    """In the corner's environment; else the tests start programs there themselves."""
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def main(name: str) -> int:
    corner, folder = CORNERS[name], Path(f".venv-{name}")
    if corner.install is not None:
        _make(folder, corner)
    python = folder / "bin/python" if corner.runs_inside and corner.install else sys.executable
    command = [
        python,
        "-m",
        "pytest",
        "-m",
        "",
        "-n",
        "4",
        "--dist",
        "loadfile",
        *corner.options,
        *corner.tests,
    ]
    return subprocess.run(command, env={**os.environ, **corner.variables}, check=False).returncode


def _make(folder: Path, corner: Corner) -> None:
    """Make the environment and install into it, unless that was done since the requirements changed."""
    done = folder / ".installed"
    if done.exists() and done.stat().st_mtime > max(
        PYPROJECT.stat().st_mtime, Path(__file__).stat().st_mtime
    ):
        return
    python = os.environ.get("PYTHON") or corner.python
    if shutil.which(python) is None:
        sys.exit(f"Expected {python} on PATH; install it, or name one: make PYTHON=/path/to/python3")
    sys.stderr.write(f"Installing into {folder}: about a minute and a half.\n")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    assert corner.install is not None
    corner.install(folder)
    if corner.runs_inside:
        _python(folder, "tests/compiled_pyspark.py", folder)
    done.touch()


def _python(folder: Path, *arguments: str | Path) -> str:
    command = [folder / "bin/python", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _install_oldest(folder: Path) -> None:
    pins = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    with TemporaryDirectory() as temporary:
        constraints = Path(temporary, "constraints.txt")
        constraints.write_text("".join(pin for pin in pins if not pin.startswith(("pyspark==", "pandas=="))))
        _python(folder, *PIP_INSTALL, "-c", constraints, *EDITABLE, ".[demo,dev]", "pyspark==4.0.*")


def _install_newest(folder: Path) -> None:
    _python(folder, *PIP_INSTALL, *EDITABLE, ".[demo,dev]")


def _install_lowest(folder: Path) -> None:
    """Install the lower bounds of what the package asks for, and around these what its tests need."""
    _python(folder, *PIP_INSTALL, UV)
    subprocess.run(
        [
            *(folder / "bin/uv", "pip", "install", "--quiet", "--python", folder / "bin/python"),
            *("--resolution", "lowest-direct", "--config-setting", "editable_mode=compat"),
            *("-e", ".[arrow,metrics,otel,sasl,spark,web]"),
        ],
        check=True,
    )
    declared = tomllib.loads(PYPROJECT.read_text())
    extras = declared["project"]["optional-dependencies"]
    needed = [line for line in extras["dev"] + extras["demo"] if not line.startswith(NOT_WITH_THE_LOWEST)]
    needed += declared["build-system"]["requires"]
    with TemporaryDirectory() as temporary:
        frozen = Path(temporary, "frozen.txt")
        frozen.write_text(_python(folder, "-m", "pip", "freeze", "--exclude-editable"))
        _python(folder, *PIP_INSTALL, "-c", frozen, *needed)


def _install_migrated(folder: Path) -> None:
    _python(folder, *PIP_INSTALL, *MIGRATED)
    with TemporaryDirectory() as temporary:
        download = ("-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps")
        _python(folder, *download, "--no-binary", ":all:", "--dest", temporary, KCLPY)
        [source] = Path(temporary).glob("*.tar.gz")
        with tarfile.open(source) as archive:
            archive.extractall(temporary, filter="data")
        [package] = Path(temporary).glob("*/amazon_kclpy")
        [site_packages] = folder.glob("lib/python3*/site-packages")
        shutil.copytree(package, site_packages / package.name)


IGNORED_OF_OLD_SPARK = (
    *("-W", "ignore::ResourceWarning"),
    *("-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
)
"""An old PySpark leaves sockets to the garbage collector, which is no fault of ours."""

CORNERS = {
    "oldest": Corner(
        install=_install_oldest, python=OLDEST_PYTHON, options=IGNORED_OF_OLD_SPARK, tests=OF_SPARK
    ),
    "newest": Corner(
        install=_install_newest, python=NEWEST_PYTHON, tests=("tests/unit", "tests/contract", *OF_SPARK)
    ),
    "lowest": Corner(
        install=_install_lowest,
        python=OLDEST_PYTHON,
        # Old packages call what new ones deprecate.
        options=("-W", "ignore::DeprecationWarning", *IGNORED_OF_OLD_SPARK),
        tests=(
            *("tests/unit", "tests/model", "tests/contract"),
            # The tests of Spark's parts and Connect's are those of the oldest.
            "tests/integration/test_micro_batches.py::test_the_record_door_acks_fails_rejects_and_dead_letters",
        ),
    ),
    "unpinned": Corner(variables={"UNPINNED": "1"}, tests=("tests/wheel",)),
    "migrations": Corner(
        install=_install_migrated,
        runs_inside=False,
        tests=("tests/integration/test_migrations.py", "tests/integration/test_kcl_positions.py"),
    ),
}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
