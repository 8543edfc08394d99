"""How commands print: tables for people, plain columns for pipes, JSON for programs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_json(value: Any) -> None:
    """Print one JSON value, the only thing that goes to standard output with ``--json``."""
    typer.echo(json.dumps(value, indent=2))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a table: drawn on a terminal, in plain columns elsewhere, where nothing is cut or folded."""
    console = Console()
    if console.is_terminal:
        table = Table(*headings, title=title, title_justify="left", title_style="bold", header_style="bold")
        for row in rows:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        console.print(table)
        return
    if title is not None:
        typer.echo(title)
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def note(text: str) -> None:
    """Say something to the person at the terminal, beside the result."""
    typer.echo(text, err=True)


def moment(seconds: float) -> str:
    """Write seconds since the epoch as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(millis: int) -> str:
    """Write milliseconds as people say them."""
    if millis < 1000:  # noqa: PLR2004 - below a second
        return f"{millis} ms"
    return f"{timedelta(seconds=millis // 1000)}"
