"""The wheel, installed alone into empty environments: as it is, and for Spark.

It is the one that ``WHEEL`` names, and without it one that is built from a copy of this checkout.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compiled_pyspark import compile_pyspark
from tests.spark_classes import keep_classes
from tests.wheel.documents import REPOSITORY

SECONDS = 1_500
CONSTRAINTS = () if os.environ.get("UNPINNED") else ("-c", REPOSITORY / "constraints.txt")
"""Without it, by ``make test-unpinned``: what a user's pip installs on this day."""
SOURCES = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "kinesis_spout",
    "pyspark_kinesis",
    "pyspark_kinesis_spout",
    "release",
    "shard_state",
)
IMPORT_ALL = """
import importlib, pkgutil
import kinesis_spout, pandas

for module in pkgutil.walk_packages(kinesis_spout.__path__, "kinesis_spout."):
    importlib.import_module(module.name)
"""
"""So that each module is compiled before a process needs it to which Spark gives ten seconds to start in."""
EXTRAS = "metrics,otel,spark,web"


@dataclass(frozen=True, slots=True)
class InstalledWheel:
    environment: Path
    """The virtual environment."""
    version: str

    def program(self, name: str) -> Path:
        return self.environment / "bin" / name

    @property
    def site_packages(self) -> Path:
        [folder] = self.environment.glob("lib/python3*/site-packages")
        return folder

    def refuses(self, program: str, *arguments: str) -> str:
        """What a program says that does not end well."""
        done = _done(self.program(program), *arguments)
        assert done.returncode != 0, done.stdout
        return done.stderr


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return Path(given) if (given := os.environ.get("WHEEL")) else _built_wheel(folder)


@pytest.fixture(scope="session")
def plain_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledWheel]:
    """``pip install kinesis-spout``."""
    with _installed(wheel, "", tmp_path_factory.mktemp("plain")) as installed:
        yield installed


@pytest.fixture(scope="session")
def installed_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledWheel]:
    """``pip install "kinesis-spout[spark]"``, with the extras that need little."""
    with _installed(wheel, f"[{EXTRAS}]", tmp_path_factory.mktemp("spark")) as installed:
        compile_pyspark(installed.environment)
        _run(installed.program("python"), "-c", IMPORT_ALL)
        keep_classes(installed.environment)
        yield installed


@contextmanager
def _installed(wheel: Path, extras: str, environment: Path) -> Iterator[InstalledWheel]:
    _run(sys.executable, "-m", "venv", environment)
    installed = InstalledWheel(environment, version=wheel.name.split("-")[1])
    # pip would compile everything, most of which nobody imports.
    pip_install = ("-m", "pip", "install", *_QUIETLY, "--no-compile", *CONSTRAINTS)
    _run(installed.program("python"), *pip_install, f"{wheel}{extras}")
    yield installed
    shutil.rmtree(environment)  # up to 1.3 GB, of which pytest would keep three


def _built_wheel(folder: Path) -> Path:
    source, wheels = folder / "source", folder / "wheels"
    source.mkdir()
    for name in SOURCES:
        _copy(REPOSITORY / name, source / name)
    _run(sys.executable, "-m", "pip", "wheel", *_QUIETLY, "--no-deps", "--wheel-dir", wheels, source)
    [wheel] = wheels.iterdir()
    return wheel


_QUIETLY = ("--quiet", "--disable-pip-version-check")


def without_python_variables() -> dict[str, str]:
    """This environment without what would lead another Python to this checkout, or change how it works."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy(source, target)


def _done(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        env=without_python_variables(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def _run(*command: str | Path) -> None:
    done = _done(*command)
    if done.returncode != 0:
        pytest.fail(
            f"expected {' '.join(map(str, command))} to end with 0, got {done.returncode}. It needs PyPI, or a "
            f"pip cache that has everything:\n{done.stdout}{done.stderr}"
        )
