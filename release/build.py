"""Builds the sdist of a commit, and from that sdist the wheels: ``python -m release.build``.

Nothing but the commit decides what comes out, and so two builds of a commit are equal, byte by byte: in whatever
folder, at whatever time, under whatever umask. A native wheel is equal only where the compiler is the same, too.
"""

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from release.project import Project, ReleaseError, run

KINDS = ("pure", "native")
"""Of wheels: for every platform, and with the native decoder for this one."""
_DECODER = {"pure": "none", "native": "required"}


def build(
    project: Project, into: Path, kinds: tuple[str, ...] = KINDS, variables: Mapping[str, str] = {}
) -> None:
    """Put the sdist and the wheels into an empty folder; ``variables`` are of the environment."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        source = Path(folder, "source")
        _export(project, source)
        variables = {**variables, "SOURCE_DATE_EPOCH": str(project.seconds)}
        python_build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", into)
        run(*python_build, "--sdist", source, variables=variables)
        [sdist] = into.glob("*.tar.gz")
        for kind in kinds:
            unpacked = Path(folder, kind)
            with tarfile.open(sdist) as archive:
                archive.extractall(unpacked, filter="data")
            [only] = unpacked.iterdir()
            run(*python_build, "--wheel", only, variables={**variables, "NATIVE_DECODER": _DECODER[kind]})


def build_twice(project: Project, into: Path, kinds: tuple[str, ...] = KINDS) -> None:
    """Build in two folders, under two umasks and in two time zones, and compare.

    Raises:
        ReleaseError: the two differ.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    build(project, into, kinds)
    with tempfile.TemporaryDirectory(prefix="release-once-more-in-a-folder-with-a-longer-name-") as again:
        umask = os.umask(0o077)
        try:
            build(project, Path(again), kinds, {"TZ": "Pacific/Kiritimati"})
        finally:
            os.umask(umask)
        first, second = digests(into), digests(Path(again))
    if first != second:
        differ = sorted(name for name in first | second if first.get(name) != second.get(name))
        raise ReleaseError(
            f"expected two builds to be equal, got two digests of {', '.join(differ)}; "
            "`python -m release.build` into two folders and diffoscope show where they differ"
        )


def digests(folder: Path) -> dict[str, str]:
    """Give the SHA-256 of each file, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def _export(project: Project, into: Path) -> None:
    archive = subprocess.run(  # noqa: S603 - our own command
        ["git", "-C", project.root, "-c", "tar.umask=0022", "archive", "--format=tar", "HEAD"],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    pyproject = into / "pyproject.toml"
    text, released = pyproject.read_text(), project.pyproject["project"]["version"]
    pyproject.write_text(text.replace(f'\nversion = "{released}"\n', f'\nversion = "{project.version}"\n', 1))


def main() -> None:
    """Build what this platform can build, twice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, default=Path("dist"), help="the folder; it is emptied first")
    parser.add_argument("--dev", action="store_true", help="the version is that of a build between releases")
    parser.add_argument("--only-pure", action="store_true", help="no native wheel: cibuildwheel builds those")
    chosen = parser.parse_args()
    kinds = ("pure",) if chosen.only_pure else KINDS
    try:
        build_twice(Project.of(between_releases=chosen.dev), chosen.into, kinds)
    except ReleaseError as error:
        sys.exit(str(error))
    for name, digest in digests(chosen.into).items():
        print(f"{digest}  {name}")


if __name__ == "__main__":
    main()
