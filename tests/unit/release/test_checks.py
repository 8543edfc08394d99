"""A repository of three files, and what is said when one thing is wrong with it or with what was built from it."""

import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from release import archives, build, links, versions
from release.project import Project, ReleaseError

PYPROJECT = """
[project]
name = "kinesis-spout"
version = "1.2.0"

[project.urls]
Repository = "https://github.com/us/kinesis-spout"
"""
FILES = {
    "pyproject.toml": PYPROJECT,
    "README.md": "# A spout\n\n[How](docs/how.md#how-it-works)\n",
    "docs/how.md": "# How it works\n",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 (2026-11-24)\n",
    "CITATION.cff": "version: 1.2.0\n",
    "kinesis_spout/__init__.py": "",
    "kinesis_spout/_native.c": "",
    ".github/workflows/release.yml": "if: github.repository == 'us/kinesis-spout'\n",
}
BLOB = "https://github.com/us/kinesis-spout/blob/v1.2.0"
MODULE = "kinesis_spout/_native.abi3.so"

Commits = Callable[..., Project]


@pytest.fixture
def commits(tmp_path: Path) -> Commits:
    """Commit the files, with some of them changed."""

    def commit(**changed: str) -> Project:
        for name, text in (FILES | {name.replace("__", "."): text for name, text in changed.items()}).items():
            file = tmp_path / "repository" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        git: list[str | Path] = [
            "git",
            "-C",
            tmp_path / "repository",
            "-c",
            "user.name=us",
            "-c",
            "user.email=us@example.org",
        ]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "All of it"]):
            subprocess.run([*git, *command], check=True)
        return Project.of(tmp_path / "repository")

    return commit


def sdist_of(folder: Path, files: set[str]) -> Path:
    sdist = folder / "kinesis_spout-1.2.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in files:
            archive.addfile(tarfile.TarInfo(f"kinesis_spout-1.2.0/{name}"))
    return sdist


def wheel_of(folder: Path, *files: str, tag: str = "py3-none-any", version: str = "1.2.0") -> Path:
    wheel = folder / f"kinesis_spout-1.2.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "kinesis_spout-1.2.0.dist-info/METADATA", f"Name: kinesis-spout\nVersion: {version}\n\n"
        )
        for name in ("kinesis_spout/__init__.py", *files):
            archive.writestr(name, "")
    return wheel


def test_nothing_is_said_of_a_sound_release(commits: Commits, tmp_path: Path) -> None:
    project = commits()
    sdist, wheel = sdist_of(tmp_path, set(FILES)), wheel_of(tmp_path)
    assert versions.check_versions(project, [sdist, wheel], "v1.2.0") == "1.2.0"
    assert archives.check_sdist(project, sdist) == f"{len(FILES) - 1} files"
    assert archives.check_wheel(project, wheel) == "1 files, pure"
    assert links.check_pages(project) == "1 links of 2 pages"
    assert links.check_addresses(project) == "2 times https://github.com/us/kinesis-spout"
    assert links.check_readme_on_pypi(project, f"[How]({BLOB}/docs/how.md#how-it-works)") == "1 links"


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("[How](docs/how.md)", "expected absolute links, got docs/how.md"),
        (f"[How]({BLOB}/docs/why.md)", "found no docs/why.md"),
        (f"[How]({BLOB}/docs/how.md#why)", "found no #why"),
    ],
)
def test_a_broken_link_of_the_readme_on_pypi_is_told(commits: Commits, description: str, said: str) -> None:
    with pytest.raises(ReleaseError, match=said):
        links.check_readme_on_pypi(commits(), description)


def test_a_broken_link_of_a_page_is_told(commits: Commits) -> None:
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md: expected docs/why\.md to lead to a file"):
        links.check_pages(commits(CHANGELOG__md="[Why](docs/why.md)"))


def test_another_address_is_told_with_its_place(commits: Commits) -> None:
    project = commits(CITATION__cff="\nurl: https://github.com/them/kinesis-spout\n")
    with pytest.raises(ReleaseError, match=r"CITATION\.cff:2: expected the address .*/us/kinesis-spout"):
        links.check_addresses(project)


def test_a_file_that_the_sdist_lacks_is_told(commits: Commits, tmp_path: Path) -> None:
    sdist = sdist_of(tmp_path, set(FILES) - {"docs/how.md"})
    with pytest.raises(ReleaseError, match=r"missing docs/how\.md; name it in MANIFEST\.in"):
        archives.check_sdist(commits(), sdist)


@pytest.mark.parametrize(
    ("files", "tag", "said"),
    [
        (["kinesis_spout/_native.c"], "py3-none-any", r"got kinesis_spout/_native\.c too"),
        (["tests/conftest.py"], "py3-none-any", r"got tests/conftest\.py too"),
        ([MODULE], "py3-none-any", "expected no compiled module, got 1"),
        ([], "cp311-abi3-linux_x86_64", "expected one compiled module, got 0"),
    ],
)
def test_a_wheel_with_something_else_in_it_is_told(
    commits: Commits, tmp_path: Path, files: list[str], tag: str, said: str
) -> None:
    with pytest.raises(ReleaseError, match=said):
        archives.check_wheel(commits(), wheel_of(tmp_path, *files, tag=tag))


def test_a_platform_without_a_wheel_is_told(tmp_path: Path) -> None:
    tags = [
        "py3-none-any",
        "cp311-abi3-manylinux1_x86_64.manylinux_2_28_x86_64.manylinux_2_5_x86_64",
        "cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.manylinux_2_28_aarch64",
        "cp311-abi3-macosx_10_9_x86_64",
        "cp311-abi3-macosx_11_0_arm64",
    ]
    wheels = [wheel_of(tmp_path, tag=tag) for tag in tags]
    assert archives.check_platforms(wheels) == "5 wheels"
    with pytest.raises(ReleaseError, match="aarch64, got 0"):
        archives.check_platforms([wheel for wheel in wheels if "aarch64" not in wheel.name])


@pytest.mark.parametrize(
    ("changed", "tag", "said"),
    [
        (
            {"CITATION__cff": "version: 1.1.0\n"},
            None,
            r"CITATION\.cff: expected version 1\.2\.0, got 1\.1\.0",
        ),
        ({"CHANGELOG__md": "## Unreleased\n\n## 1.1.0 (2026-01-01)\n"}, "v1.2.0", 'got "## Unreleased"'),
        ({"CHANGELOG__md": "## 1.1.0 (2026-01-01)\n"}, None, r'expected "Unreleased" or 1\.2\.0'),
        ({}, "v1.3.0", r"the tag: expected version v1\.2\.0, got v1\.3\.0"),
    ],
)
def test_another_version_is_told(
    commits: Commits, changed: dict[str, str], tag: str | None, said: str
) -> None:
    with pytest.raises(ReleaseError, match=said):
        versions.check_versions(commits(**changed), [], tag)


def test_a_wheel_of_another_version_is_told(commits: Commits, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"METADATA of .*: expected version 1\.2\.0, got 1\.1\.0"):
        versions.check_versions(commits(), [wheel_of(tmp_path, version="1.1.0")], None)


def test_a_build_that_is_not_reproducible_is_told(
    commits: Commits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writes_where_it_is(project: Project, into: Path, *chosen: object) -> None:
        del project, chosen
        (into / "kinesis_spout-1.2.0.tar.gz").write_text(str(into))

    monkeypatch.setattr(build, "build", writes_where_it_is)
    with pytest.raises(ReleaseError, match=r"got two digests of kinesis_spout-1\.2\.0\.tar\.gz"):
        build.build_twice(commits(), tmp_path / "dist")
