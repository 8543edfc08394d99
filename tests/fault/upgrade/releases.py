"""Installs releases, each in a virtual environment of its own: built from the repository as a commit has it.

What they depend on is this environment's, PySpark too. The programs that the suite starts are those of the
release's own tests, so that nothing of the present code runs in a process of an older one.
"""

import shutil
import subprocess
import sys
import sysconfig
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

from tests.fault.suite.consumers.supervised import REPOSITORY, Release

BEFORE_THE_FIRST: Final = "651e08271b702e001bcfdd764052156b543d1b07"
"""The commit that stands for the release before the first one, until that one has a tag."""
_TAGS: Final = "v*"
_PROGRAMS: Final = ("tests", "examples")


def last_release() -> str:
    """Name the newest tag of a release that HEAD comes after; before the first one a commit."""
    described = _git("describe", "--tags", "--abbrev=0", "--match", _TAGS, "HEAD", may_fail=True)
    return described.decode().strip() or BEFORE_THE_FIRST


def installed(commit: str, folder: Path) -> Release:
    """Build the wheel of a commit and install it, in an empty folder."""
    name = _git("rev-parse", "--short", f"{commit}^{{commit}}").decode().strip()
    source, programs, environment = folder / "source", folder / "programs", folder / "environment"
    with tarfile.open(fileobj=BytesIO(_git("archive", commit))) as archive:
        archive.extractall(source, filter="data")
    _run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source
    )
    (wheel,) = folder.glob("*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    # A path alone: what is installed for development here (``kinesis-spout`` itself) stays out of it.
    (packages / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    programs.mkdir()
    for each in _PROGRAMS:
        shutil.move(source / each, programs / each)
    shutil.rmtree(source)
    return Release(name=name, python=str(python), folder=programs)


def _git(*arguments: str, may_fail: bool = False) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, check=False)
    if done.returncode and not may_fail:
        raise ValueError(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def _run(*command: object) -> None:
    subprocess.run([str(each) for each in command], check=True)
