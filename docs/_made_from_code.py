"""Fills in what the pages say of options and commands, from the code: a hook of MkDocs."""

import subprocess
import sys
from typing import Any, Final

from kinesis_spout.settings.documentation import markdown_table, settings_table
from kinesis_spout.settings.option import Use

_TABLES: Final = {"streaming reads": Use.STREAM_READ, "batch reads": Use.BATCH_READ, "writes": Use.WRITE}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks of a page; MkDocs calls it for every page."""
    for name, use in _TABLES.items():
        markdown = markdown.replace(f"<!-- table: {name} -->", markdown_table(use))
    if "<!-- table: settings -->" in markdown:
        markdown = markdown.replace("<!-- table: settings -->", settings_table())
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", _commands())
    return markdown


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
    return described.stdout.partition("\n")[2].replace("\n#", "\n##")
