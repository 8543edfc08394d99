"""The wheel, installed alone into an empty environment.

It is the one that ``WHEEL`` names, and without it one that is built from a copy of this checkout.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compiled_pyspark import compile_pyspark
from tests.spark_classes import keep_classes
from tests.wheel.documents import REPOSITORY

SECONDS = 1_500
CONSTRAINTS = () if os.environ.get("KINESIS_SPOUT_UNPINNED") else ("-c", REPOSITORY / "constraints.txt")
"""Without it, by ``make test-unpinned``: what a user's pip installs on this day."""
SOURCES = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "kinesis_spout",
    "pyspark_kinesis",
    "pyspark_kinesis_spout",
    "shard_state",
)
IMPORT_ALL = """
import importlib, pkgutil, sys
import kinesis_spout, pandas

without = tuple(sys.argv[1:])
for module in pkgutil.walk_packages(kinesis_spout.__path__, "kinesis_spout."):
    if not (without and module.name.startswith(without)):
        importlib.import_module(module.name)
"""
"""So that each module is compiled before a process needs it to which Spark gives ten seconds to start in."""
OF_EXTRAS = tuple(
    f"kinesis_spout.{name}" for name in ("monitoring.otel", "monitoring.prometheus", "tracing", "web")
)
EXTRAS = "metrics,otel,web"
REFUSED_WITHOUT = {
    "metrics": "from kinesis_spout.monitoring import PrometheusCollector",
    "otel": "from kinesis_spout.monitoring import export_to_opentelemetry",
    "web": "from kinesis_spout.cli.app import main; import sys; sys.argv[1:] = ['web']; main()",
}
"""What needs each extra, and says so."""


@dataclass(frozen=True, slots=True)
class InstalledWheel:
    environment: Path
    """The virtual environment."""
    version: str

    def program(self, name: str) -> Path:
        return self.environment / "bin" / name


@pytest.fixture(scope="session")
def installed_wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledWheel]:
    folder = tmp_path_factory.mktemp("wheel")
    environment = folder / "environment"
    wheel = Path(given) if (given := os.environ.get("WHEEL")) else _built_wheel(folder)
    _run(sys.executable, "-m", "venv", environment)
    installed = InstalledWheel(environment, version=wheel.name.split("-")[1])
    # pip would compile everything, most of which nobody imports.
    pip_install = ("-m", "pip", "install", *_QUIETLY, "--no-compile", *CONSTRAINTS)
    _run(installed.program("python"), *pip_install, wheel)
    compile_pyspark(environment)
    _run(installed.program("python"), "-c", IMPORT_ALL, *OF_EXTRAS)
    for extra, code in REFUSED_WITHOUT.items():
        assert f'pip install "kinesis-spout[{extra}]"' in _refusal(installed.program("python"), "-c", code)
    _run(installed.program("python"), *pip_install, f"{wheel}[{EXTRAS}]")
    _run(installed.program("python"), "-c", IMPORT_ALL)
    keep_classes(environment)
    yield installed
    shutil.rmtree(folder)  # 1.3 GB, of which pytest would keep three


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


def _refusal(*command: str | Path) -> str:
    done = _done(*command)
    assert done.returncode != 0, done.stdout
    return done.stderr


def _run(*command: str | Path) -> None:
    done = _done(*command)
    if done.returncode != 0:
        pytest.fail(
            f"expected {' '.join(map(str, command))} to end with 0, got {done.returncode}. It needs PyPI, or a "
            f"pip cache that has everything:\n{done.stdout}{done.stderr}"
        )
