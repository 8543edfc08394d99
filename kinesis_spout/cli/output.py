"""How commands print: tables for people, plain columns for pipes, JSON for programs.

What others wrote (errors of handlers, keys, data) never reaches a terminal as it is: control characters would move
its cursor, change its title or hide lines, and marks of writing direction would show text in another order than it
has. They are shown as escapes; JSON escapes them by itself.
"""

import json
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_KEPT_DIGITS: Final = 12
_LONG_NUMBER: Final = re.compile(r"\d{25,}")
_CONTROLS: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
"""C0, DEL and C1; marks of direction and of lines; halves of characters, which cannot be encoded."""


def print_json(value: Any) -> None:
    """Print one JSON value, the only thing that goes to standard output with ``--json``."""
    # JSON leaves DEL as it is; it can only be inside of strings.
    typer.echo(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def printable(text: str) -> str:
    """Show control characters as escapes."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None = None,
    *,
    folding: Collection[str] = (),
) -> None:
    """Print a table: on a terminal fitted to it, elsewhere in plain columns, where nothing is cut or left out.

    On a terminal columns that say nothing ("-" throughout) are left out, sequence numbers are shortened to
    their last digits, and the columns named in ``folding`` give way first.
    """
    console = Console()
    if not console.is_terminal:
        print_plain(headings, rows, title)
        return
    told = [at for at, _ in enumerate(headings) if not rows or any(row[at] != "-" for row in rows)]
    table = Table(
        box=None,
        pad_edge=False,
        title=None if title is None else printable(title),
        title_justify="left",
        header_style="bold",
    )
    for at in told:
        folds = headings[at] in folding
        table.add_column(headings[at], no_wrap=not folds, overflow="fold" if folds else "ellipsis")
    for row in rows:
        table.add_row(*(Text(shortened(printable(row[at]))) for at in told))
    console.print(table)


def print_plain(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print columns of text, however wide: for pipes, and for what people copy."""
    if title is not None:
        typer.echo(printable(title))
    shown = [headings, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def shortened(text: str) -> str:
    """Leave of each sequence number (56 digits, at AWS) what tells it from its neighbours."""
    return _LONG_NUMBER.sub(lambda found: "…" + found[0][-_KEPT_DIGITS:], text)


def note(text: str) -> None:
    """Say something to the person at the terminal, beside the result."""
    for line in text.split("\n"):
        typer.echo(printable(line), err=True)


def moment(seconds: float) -> str:
    """Write seconds since the epoch as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(millis: int) -> str:
    """Write milliseconds as people say them."""
    if millis < 1000:  # noqa: PLR2004 - below a second
        return f"{millis} ms"
    return f"{timedelta(seconds=millis // 1000)}"
