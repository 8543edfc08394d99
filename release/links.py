"""Whether links lead to something: README's on PyPI, and those of every page outside the documentation's site.

The site's own links are mkdocs' part, which takes a broken one for an error. Other hosts are not asked.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote

from release.project import Project, ReleaseError, git

_LINK = re.compile(r"\[(?:[^][]|\[[^]]*\])*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_NOT_OF_TESTS = ":!tests/unit/release"
"""Which are about other addresses."""
_OUR_ADDRESS = r"(github\.com/|githubusercontent\.com/|repository == ')[A-Za-z0-9_.-]+/kinesis-spout"


def check_readme_on_pypi(project: Project, description: str) -> str:
    """See that each link is absolute, and that what it leads to in the repository is there.

    Raises:
        ReleaseError: a link is relative, or leads to a file or a heading that the commit does not have.
    """
    raw = project.repository.replace("https://github.com/", "https://raw.githubusercontent.com/")
    ours = (f"{project.repository}/blob/{project.ref}/", f"{raw}/{project.ref}/")
    links = _links(description)
    for link in links:
        if link.startswith(ours):
            target = next(link.removeprefix(begin) for begin in ours if link.startswith(begin))
            _leads_somewhere(project, "README on PyPI", target, link)
        elif link.startswith("#"):
            _has_heading(description, link[1:], "README on PyPI", link)
        elif not link.startswith("https://"):
            raise ReleaseError(f"README on PyPI: expected absolute links, got {link}; setup.py makes them")
    return f"{len(links)} links"


def check_pages(project: Project) -> str:
    """See the same of each Markdown page outside the site, in the repository."""
    pages = [file for file in sorted(project.files) if file.endswith(".md") and not file.startswith("docs/")]
    count = 0
    for page in pages:
        text = project.text(page)
        for link in _links(text):
            count += 1
            if link.startswith("#"):
                _has_heading(text, link[1:], page, link)
            elif not re.match(r"[a-z]+:", link):
                target = posixpath.normpath(posixpath.join(PurePosixPath(page).parent, link))
                _leads_somewhere(project, page, target, link)
    return f"{count} links of {len(pages)} pages"


def check_addresses(project: Project) -> str:
    """See that whoever names the repository's address names the one that ``pyproject.toml`` names."""
    found = git(
        project.root, "grep", "-I", "-n", "-o", "-E", _OUR_ADDRESS, "HEAD", "--", _NOT_OF_TESTS
    ).splitlines()
    expected = project.repository.split("/")[-2:]
    for line in found:
        _, file, number, address = line.split(":", 3)
        if re.split("[/']", address)[-2:] != expected:
            raise ReleaseError(f"{file}:{number}: expected the address {project.repository}, got {address}")
    return f"{len(found)} times {project.repository}"


def _links(text: str) -> list[str]:
    return _LINK.findall(_FENCE.sub("", text))


def _leads_somewhere(project: Project, page: str, target: str, link: str) -> None:
    path, _, heading = unquote(target).partition("#")
    path = path.rstrip("/")
    if path not in project.files:
        if any(file.startswith(f"{path}/") for file in project.files):
            return
        raise ReleaseError(f"{page}: expected {link} to lead to a file of the repository, found no {path}")
    if heading:
        _has_heading(project.text(path), heading, page, link)


def _has_heading(text: str, heading: str, page: str, link: str) -> None:
    if heading not in set(_anchors(text)):
        raise ReleaseError(f"{page}: expected {link} to lead to a heading, found no #{heading}")


def _anchors(text: str) -> Iterator[str]:
    """Give the names by which GitHub knows the headings of a page."""
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        yield re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
