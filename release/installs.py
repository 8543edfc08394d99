"""Whether the package installs in each way that somebody may take, and is then the version that it should be."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from release.archives import sdist_of, wheels_of
from release.project import Project, ReleaseError, run

_ASK = (
    "import kinesis_spout; from kinesis_spout.kinesis import native; "
    "print(kinesis_spout.__version__, 'native' if native.decoder else 'pure')"
)


class Environment:
    """A virtual environment with the package's dependencies, in a folder of its own."""

    def __init__(self, folder: Path, constraints: Path) -> None:
        self._folder, self._constraints = folder, constraints
        run(sys.executable, "-m", "venv", folder / "venv")

    def installs(self, package: Path, *, anew: bool, variables: Mapping[str, str]) -> str:
        """Install it; give the version that it says and how it decodes replies."""
        python = self._folder / "venv/bin/python"
        again = ("--no-deps", "--force-reinstall", "--no-cache-dir") if anew else ()
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
        run(*pip, "install", "--no-compile", *again, "-c", self._constraints, package, variables=variables)
        said = run(self._folder / "venv/bin/kinesis-spout", "--version", folder=self._folder).split()
        told = run(python, "-I", "-c", _ASK, folder=self._folder).split()
        if said[1] != told[0]:
            raise ReleaseError(f"{package.name}: expected one version, got {said[1]} and {told[0]}")
        return " ".join(told)


@contextmanager
def empty_environment(project: Project) -> Iterator[Environment]:
    """Make one, for as long as it is wanted."""
    with tempfile.TemporaryDirectory(prefix="installs-") as folder:
        yield Environment(Path(folder), project.root / "constraints.txt")


def check_installs(project: Project, dist: Path) -> str:
    """Install the native wheel, the pure one, and the sdist with and without a C compiler.

    Raises:
        ReleaseError: one cannot be installed, says another version, or decodes in another way.
    """
    wheels = wheels_of(dist)
    ways: list[tuple[Path, Mapping[str, str], str]] = [
        (wheel, {}, "pure" if wheel.match("*-none-any.whl") else "native") for wheel in wheels
    ]
    ways.append((sdist_of(dist), {"CC": "/bin/false"}, "pure"))
    if shutil.which("cc"):
        ways.append((sdist_of(dist), {}, "native"))
    with empty_environment(project) as environment:
        for number, (package, variables, decoder) in enumerate(ways):
            found = environment.installs(package, anew=number > 0, variables=variables)
            if found != (expected := f"{project.version} {decoder}"):
                raise ReleaseError(f"{package.name}: expected {expected} to be installed, got {found}")
    return f"{len(ways)} ways"


def check_choice(dist: Path) -> str:
    """See that pip takes the native wheel where both fit."""
    with tempfile.TemporaryDirectory() as folder:
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps")
        run(*pip, "--no-index", "--pre", "--find-links", dist, "--dest", folder, "kinesis-spout")
        [chosen] = Path(folder).iterdir()
    if chosen.match("*-none-any.whl") and len(wheels_of(dist)) > 1:
        raise ReleaseError(f"expected pip to choose the native wheel, got {chosen.name}")
    return chosen.name
