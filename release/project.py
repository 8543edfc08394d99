"""What a release is made from: a commit of this repository, and what its ``pyproject.toml`` says."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]


class ReleaseError(Exception):
    """One line: what was expected, what came, what to do."""


@dataclass(frozen=True)
class Project:
    """The commit that is checked out; what is not committed does not count."""

    root: Path
    version: str
    """With ``.devN`` for a build between releases."""

    @classmethod
    def of(cls, root: Path = ROOT, *, between_releases: bool = False) -> Self:
        """Read it; between releases the version says how many commits there were before."""
        version = _pyproject(root)["project"]["version"]
        if between_releases:
            version += f".dev{git(root, 'rev-list', '--count', 'HEAD').strip()}"
        return cls(root, version)

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """What ``pyproject.toml`` says."""
        return _pyproject(self.root)

    @property
    def repository(self) -> str:
        """The address that all others are made from."""
        return str(self.pyproject["project"]["urls"]["Repository"])

    @property
    def ref(self) -> str:
        """Where README's links lead to, in the repository."""
        return "main" if "dev" in self.version else f"v{self.version}"

    @cached_property
    def files(self) -> frozenset[str]:
        """Every file of the commit, from the root on."""
        return frozenset(
            git(self.root, "ls-tree", "-r", "-z", "--name-only", "HEAD").rstrip("\0").split("\0")
        )

    @cached_property
    def seconds(self) -> int:
        """When the commit was made, in seconds since 1970."""
        return int(git(self.root, "log", "-1", "--format=%ct"))

    def text(self, file: str) -> str:
        """Give the text of a file of the commit."""
        return git(self.root, "show", f"HEAD:{file}")


def git(root: Path, *arguments: str) -> str:
    """Ask git in a repository; give what it answers."""
    return run("git", "-C", root, *arguments)


def run(*command: str | Path, folder: Path | None = None, variables: Mapping[str, str] = {}) -> str:
    """Run a command, one of this environment if it has it, to its end; give what it printed.

    Raises:
        ReleaseError: it did not end with 0; with what it printed.
    """
    done = subprocess.run(  # noqa: S603 - our own commands
        command,
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1", "PATH": _path()} | dict(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        called = " ".join(map(str, command))
        raise ReleaseError(
            f"expected `{called}` to end with 0, got {done.returncode}:\n{done.stdout.rstrip()}"
        )
    return done.stdout


def _path() -> str:
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _pyproject(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())
