"""Whether a wheel's SBOM is valid CycloneDX, and true."""

import json
import zipfile
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

from release.archives import metadata
from release.project import Project, ReleaseError


def check_bill_of_materials(project: Project, wheel: Path) -> str:
    """Validate it by CycloneDX' schema; compare version and dependencies with the wheel's.

    Raises:
        ReleaseError: the schema refuses it, or the wheel has something else.
    """
    with zipfile.ZipFile(wheel) as archive:
        boms = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        if len(boms) != 1:
            raise ReleaseError(
                f"{wheel.name}: expected one SBOM in .dist-info/sboms, got {len(boms)}; see release/packing.py"
            )
        text = archive.read(boms[0]).decode()
        bill: dict[str, Any] = json.loads(text)
        if (refusal := JsonStrictValidator(SchemaVersion.V1_7).validate_str(text)) is not None:
            raise ReleaseError(f"{wheel.name}: expected a valid {boms[0]}, got {refusal}")
        if (said := bill["metadata"]["component"]["version"]) != project.version:
            raise ReleaseError(f"{wheel.name}: expected an SBOM of {project.version}, got one of {said}")
        if others := [name for name in archive.namelist() if ".min." in name]:
            raise ReleaseError(f"{wheel.name}: expected no file that others wrote, got {others[0]}")
    listed = {part["name"] for part in bill["components"]}
    if project.pyproject["project"]["name"] in listed:
        raise ReleaseError(
            f"{wheel.name}: expected no dependency on itself in its SBOM; see release/packing.py"
        )
    requirements = map(Requirement, metadata(wheel).get_all("Requires-Dist", []))
    required = {each.name for each in requirements if "extra" not in str(each.marker or "")}
    if missing := required - listed:
        raise ReleaseError(f"{wheel.name}: expected the dependency {min(missing)} in its SBOM, found none")
    return f"{len(listed)} dependencies"
