"""Whether everything says one version."""

import re
from pathlib import Path

from release.archives import metadata
from release.project import Project, ReleaseError

CITATION = "CITATION.cff"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def check_versions(project: Project, archives: list[Path], tag: str | None) -> str:
    """Compare ``pyproject.toml`` with what was built, the citation, the changelog and the tag.

    Before a release the changelog's newest part may be "Unreleased"; with a tag it has the version and its date.

    Raises:
        ReleaseError: one of them says another version.
    """
    released = project.pyproject["project"]["version"]
    says = {path.name: _version_in_name(path.name) for path in archives}
    says |= {
        f"METADATA of {path.name}": metadata(path)["Version"] for path in archives if path.suffix == ".whl"
    }
    _all_say(project.version, says)
    [cited] = re.findall(r"^version: (.+)$", project.text(CITATION), re.MULTILINE)
    _all_say(released, {CITATION: cited.strip("\"'")})
    newest = _HEADING.findall(project.text("CHANGELOG.md"))[0]
    if tag is not None:
        _all_say(f"v{released}", {"the tag": tag})
        if not re.fullmatch(rf"{re.escape(released)} \(\d{{4}}-\d\d-\d\d\)", newest):
            raise ReleaseError(
                f'CHANGELOG.md: expected "## {released} (year-month-day)" as its newest part, got "## {newest}"'
            )
    elif newest != "Unreleased" and not newest.startswith(f"{released} ("):
        raise ReleaseError(
            f'CHANGELOG.md: expected "Unreleased" or {released} as its newest part, got "{newest}"'
        )
    return project.version


def _version_in_name(name: str) -> str:
    return re.sub(r"\.tar\.gz$", "", name).split("-")[1]


def _all_say(version: str, says: dict[str, str]) -> None:
    for who, said in says.items():
        if said != version:
            raise ReleaseError(f"{who}: expected version {version}, got {said}")
