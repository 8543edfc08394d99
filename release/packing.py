"""What setup.py adds to the archives: an SBOM in the wheel, and an sdist that comes out the same each time."""

# setuptools has no types.
# mypy: disable-error-code="import-untyped, misc, no-any-return"

import gzip
import json
import os
import tarfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

PROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
EXTRAS_OF_DEVELOPERS = {"dev", "demo"}


def bill_of_materials() -> dict[str, Any]:
    """Say in CycloneDX what the package depends on; no file of the wheel is by others."""
    package = f"pkg:pypi/{PROJECT['name']}@{PROJECT['version']}"
    required = dict(map(_requirement, PROJECT["dependencies"]))
    optional = {
        name: specifiers
        for extra, requirements in PROJECT["optional-dependencies"].items()
        if extra not in EXTRAS_OF_DEVELOPERS
        for name, specifiers in map(_requirement, requirements)
        if name not in {PROJECT["name"], *required}
    }
    dependencies = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "name": name,
            "versionRange": f"vers:pypi/{specifiers}",
            "isExternal": True,
            "scope": "required" if name in required else "optional",
            "purl": f"pkg:pypi/{name}",
        }
        for name, specifiers in sorted((required | optional).items())
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": package,
                "name": PROJECT["name"],
                "version": PROJECT["version"],
                "description": PROJECT["description"],
                "licenses": [{"license": {"id": PROJECT["license"]}}],
                "purl": package,
                "externalReferences": [{"type": "vcs", "url": PROJECT["urls"]["Repository"]}],
            }
        },
        "components": dependencies,
        "dependencies": [
            {"ref": package, "dependsOn": [part["bom-ref"] for part in dependencies]},
            *({"ref": part["bom-ref"]} for part in dependencies),
        ],
    }


def _requirement(text: str) -> tuple[str, str]:
    requirement = Requirement(text)
    by_version = sorted(requirement.specifier, key=lambda each: (each.version, each.operator))
    return requirement.name, "|".join(f"{each.operator}{each.version}" for each in by_version) or "*"


class WheelWithBillOfMaterials(bdist_wheel):
    """Its SBOM is where PEP 770 says: in ``.dist-info/sboms``. Without the native module it is no platform's."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag of what was built: where no compiler was found, there is no native module."""
        outputs = self.get_finalized_command("build_ext").get_outputs()
        if any(Path(each).exists() for each in outputs):
            return super().get_tag()
        self.root_is_pure = True
        return ("py3", "none", "any")

    def write_wheelfile(self, wheelfile_base: str, *arguments: Any, **named: Any) -> None:
        """Write it, as the last of the files that come into the wheel."""
        super().write_wheelfile(wheelfile_base, *arguments, **named)
        sboms = Path(wheelfile_base, "sboms")
        sboms.mkdir(exist_ok=True)
        text = json.dumps(bill_of_materials(), indent=2)
        (sboms / f"{PROJECT['name']}.cdx.json").write_text(f"{text}\n", encoding="utf-8")
        for path in Path(wheelfile_base).parent.rglob("*"):
            if path.is_file():  # whatever umask they were made under
                path.chmod(_mode(path.stat().st_mode))


class ReproducibleSdist(sdist):
    """With ``SOURCE_DATE_EPOCH`` set, the same files make the same archive, whoever packs them and when."""

    def make_archive(self, *arguments: Any, **named: Any) -> str:
        """Make it as ever, then once more from its members in one order, with one owner and one time."""
        archive = super().make_archive(*arguments, **named)
        if "SOURCE_DATE_EPOCH" in os.environ:
            _pack_again(Path(archive), int(os.environ["SOURCE_DATE_EPOCH"]))
        return archive


def _mode(mode: int) -> int:
    return 0o755 if mode & 0o100 else 0o644


def _pack_again(archive: Path, seconds: int) -> None:
    again = archive.with_suffix(".again")
    with (
        tarfile.open(archive) as old,
        again.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=seconds) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = seconds, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() else _mode(member.mode)
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    again.replace(archive)
