"""What the sdist and the wheels have in them, and what they are called."""

import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

from release.project import Project, ReleaseError, run

ONLY_GITHUB = (".github/", ".pre-commit-config.yaml")
"""What the sdist leaves out: none of it is read by a test, by a page or by a build."""
PACKAGES = ("kinesis_spout/", "pyspark_kinesis/", "pyspark_kinesis_spout/", "shard_state/")
SOURCES_OF_MODULES = (".c", ".h")
"""In the sdist only."""
PLATFORMS = (
    "py3-none-any",
    "cp311-abi3-manylinux*_x86_64",
    "cp311-abi3-manylinux*_aarch64",
    "cp311-abi3-macosx_*_x86_64",
    "cp311-abi3-macosx_*_arm64",
)
"""What PyPI gets: a wheel for whatever is common, and one for all the rest."""


def sdist_of(folder: Path) -> Path:
    """Find the one sdist."""
    return _one(folder, "*.tar.gz")


def wheels_of(folder: Path) -> list[Path]:
    """Find the wheels: at least the one for every platform."""
    _one(folder, "*-py3-none-any.whl")
    return sorted(folder.glob("*.whl"))


def metadata(wheel: Path) -> Message:
    """Give a wheel's METADATA, with README as its payload."""
    [name] = [name for name in files_of_wheel(wheel) if name.endswith(".dist-info/METADATA")]
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(name).decode())


def files_of_wheel(wheel: Path) -> frozenset[str]:
    """Name the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


def files_of_sdist(sdist: Path) -> frozenset[str]:
    """Name the files of an sdist, from its only folder on."""
    with tarfile.open(sdist) as archive:
        return frozenset(each.name.partition("/")[2] for each in archive.getmembers() if each.isfile())


def check_sdist(project: Project, sdist: Path) -> str:
    """See that it has the whole repository: tests, documentation, examples, changelog."""
    wanted = {file for file in project.files if not file.startswith(ONLY_GITHUB)}
    _all_there(sdist.name, wanted, files_of_sdist(sdist), "name it in MANIFEST.in")
    return f"{len(wanted)} files"


def check_wheel(project: Project, wheel: Path) -> str:
    """See that it has the packages' files and nothing else, and the native module if its name says so."""
    files = files_of_wheel(wheel)
    packaged = {file for file in files if ".dist-info/" not in file}
    wanted = {
        file for file in project.files if file.startswith(PACKAGES) and not file.endswith(SOURCES_OF_MODULES)
    }
    compiled = {file for file in packaged if file.endswith(".so")}
    _all_there(wheel.name, wanted, packaged, "name it in [tool.setuptools.package-data]")
    if unexpected := packaged - compiled - wanted:
        raise ReleaseError(f"{wheel.name}: expected the packages' files, got {_few(unexpected)} too")
    pure = wheel.name.endswith("-py3-none-any.whl")
    if len(compiled) != (not pure):
        raise ReleaseError(
            f"{wheel.name}: expected {'no' if pure else 'one'} compiled module, got {len(compiled)}; "
            "see NATIVE_DECODER in setup.py"
        )
    if compiled:
        run("abi3audit", "--strict", "--assume-minimum-abi3", "3.11", wheel)
    return f"{len(packaged)} files, {'pure' if pure else 'native'}"


def check_platforms(wheels: list[Path]) -> str:
    """See that there is one wheel for each platform that PyPI gets one for."""
    for platform in PLATFORMS:
        if (found := sum(wheel.match(f"*-{platform}.whl") for wheel in wheels)) != 1:
            raise ReleaseError(f"expected one wheel {platform}, got {found}; see release.yml")
    if len(wheels) != len(PLATFORMS):
        raise ReleaseError(f"expected {len(PLATFORMS)} wheels, got {len(wheels)}")
    return f"{len(wheels)} wheels"


def _all_there(archive: str, wanted: set[str], found: frozenset[str] | set[str], remedy: str) -> None:
    if missing := wanted - found:
        raise ReleaseError(
            f"{archive}: expected every file of the repository, missing {_few(missing)}; {remedy}"
        )


def _few(files: set[str]) -> str:
    first = sorted(files)[:3]
    return ", ".join(first) + (f" and {len(files) - 3} more" if len(files) > len(first) else "")


def _one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ReleaseError(
            f"expected one {pattern} in {folder}, got {len(found)}; `make release-check` builds it"
        )
    return found[0]
