"""Fills in what the page of the command line says, from the code: a hook of MkDocs."""

import re
import subprocess
import sys
from typing import Any, Final

_CUT: Final = re.compile(r"^(\* `[a-z-]+`): .*\.\.\.$", re.MULTILINE)
"""A command in a list, with a text that was cut; the whole text stands below."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the mark of that page; MkDocs calls it for every page."""
    return markdown.replace("<!-- commands -->", _commands()) if "<!-- commands -->" in markdown else markdown


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
    return _CUT.sub(r"\1", text)
