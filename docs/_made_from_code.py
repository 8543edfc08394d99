"""Fills in what the site takes from the code: its edit links, the page of the command line. A hook of MkDocs."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.pages import Page

_PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"
_CUT: Final = re.compile(r"^(\* `[a-z-]+`): .*\.\.\.$", re.MULTILINE)
"""A command in a list, with a text that was cut; the whole text stands below."""
_SETTING: Final = re.compile(r"^\* `--([a-z-]+) TEXT`: .*\n", re.MULTILINE)
_SETTINGS: Final = re.compile(r"(?:^\* `--[a-z-]+ TEXT`: .*\n)+(?=\* `--config)", re.MULTILINE)
"""The options of a command that are settings; the page of the options has them."""
_ALIKE: Final = re.compile(r"^\* `--(?:config FILE|set NAME=VALUE|help)`: .*\n", re.MULTILINE)
_FOR_MAINTAINERS: Final = {"Contribute", "Decisions"}
"""Groups of the navigation."""
_HEADING: Final = re.compile(r"^## (.*)$")
_OPTION: Final = re.compile(r"^\| `(\w+)` \|")


@event_priority(-100)  # after mike, which would call each version's own address the one to be found
def on_config(config: MkDocsConfig) -> None:
    """Say where the site is, and where its pages are edited."""
    urls = tomllib.loads(_PROJECT.read_text())["project"]["urls"]
    config.site_url = f"{urls['Documentation']}latest/"
    # Not as repo_url: for that the theme has each reader's browser ask GitHub for the stars.
    config.edit_uri = f"{urls['Repository']}/edit/main/docs/"
    if "MIKE_DOCS_VERSION" in os.environ:  # make docs-version; a site of one version has no list of them
        config.extra["version"] = {"provider": "mike", "default": "latest"}
    config.extra["social"] = [
        {"icon": "fontawesome/brands/github", "link": urls["Repository"], "name": "The repository"},
        {
            "icon": "fontawesome/brands/python",
            "link": "https://pypi.org/project/kinesis-spout/",
            "name": "PyPI",
        },
    ]


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the commands and the options' anchors where they belong; MkDocs calls it for every page."""
    if any(section.title in _FOR_MAINTAINERS for section in page.ancestors):
        page.meta.setdefault("search", {"boost": 0.3})  # after the pages that say what to do
    if page.file.src_uri == "reference/options.md":
        return "\n".join(_with_anchors(markdown.splitlines()))
    return markdown.replace("<!-- commands -->", _commands()) if "<!-- commands -->" in markdown else markdown


def _with_anchors(lines: list[str]) -> Iterator[str]:
    """Let each option link to itself: by its name, and where it stands again by the heading and its name."""
    heading, seen = "", set[str]()
    for line in lines:
        if found := _HEADING.match(line):
            heading = slugify(found[1], "-")
        if found := _OPTION.match(line):
            anchor = found[1] if found[1] not in seen else f"{heading}-{found[1]}"
            seen.add(found[1])
            yield f"| [`{found[1]}`](#{anchor}){{ #{anchor} }} |{line[found.end() :]}"
        else:
            yield line


def _commands() -> str:
    describe = [
        sys.executable,
        "-m",
        "typer",
        "kinesis_spout.cli.app",
        "utils",
        "docs",
        "--name",
        "kinesis-spout",
    ]
    described = subprocess.run(describe, capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    text = described.stdout.partition("\n")[2].replace("\n#", "\n##")
    text = _ALIKE.sub("", _SETTINGS.sub(_links, _CUT.sub(r"\1", text)))
    return text.replace("**Options**:\n\n\n", "")


def _links(found: re.Match[str]) -> str:
    """Link each setting to its row, where a command would say all of it again."""
    names = ((name, name.replace("-", "_")) for name in _SETTING.findall(found[0]))
    return f"* Settings: {', '.join(f'[`--{name}`](options.md#{setting})' for name, setting in names)}.\n"
