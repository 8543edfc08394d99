"""The output of commands: tables for people, plain columns for pipes, JSON for programs; and messages.

Text of others (errors of handlers, keys, data) never reaches a terminal as it is: control characters would
move its cursor, change its title or hide lines, and marks of writing direction would show text in another
order than it has. They are shown as escapes, as JSON shows them anyway.
"""

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import typer
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from kinesis_spout.operations.stored_progress import Listener
from kinesis_spout.settings.setting_messages import respelled
from kinesis_spout.settings.table import SETTINGS

_KEPT_DIGITS: Final = 12
_LONG_NUMBER: Final = re.compile(r"\d{25,}")
_SHARD_ID: Final = re.compile(r"shardId-0*(?=\d{4})")
_BETWEEN: Final = 2
_INDENT: Final = 2
_PAIRS_APART: Final = 3
_READABLE: Final = 24
"""The least width of a column of sentences."""
_CUT_CHARS: Final = 16
"""The length of a cell that was cut: of a member's name its process id and its random part."""
_WHOLE_WORDS: Final[dict[str, Any]] = {
    "break_long_words": False,  # people copy paths, commands and ids
    "break_on_hyphens": False,
    "replace_whitespace": False,
    "drop_whitespace": True,
}
_CONTROLS: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
"""C0, DEL and C1; marks of direction and of lines; halves of characters, which cannot be encoded."""
_WITHOUT_VALUE: Final = re.compile(r"`--set (\w+)`")
_ARGUMENTS: Final = frozenset({"from", "shard", "to", "why"})
"""Arguments of operations that are options of commands."""


def print_json(value: Any) -> None:
    """The only thing that goes to standard output with ``--json``."""
    # JSON leaves DEL as it is; it can only be inside of strings.
    typer.echo(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def print_blank() -> None:
    typer.echo()


def printable(text: str) -> str:
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None = None,
    *,
    folding: Collection[str] = (),
    cutting: Collection[str] = (),
    whole: Collection[str] = (),
    alarming: Collection[str] = (),
) -> None:
    """Print a table: on a terminal fitted to it, elsewhere in plain columns, where nothing is cut or left out.

    On a terminal columns that say nothing ("-" or "0" throughout) are left out, sequence numbers are shortened
    to their last digits, and the columns named in ``folding`` are wrapped. If the rest is too wide, shard ids
    and the columns named in ``cutting`` are cut in front, where they are alike. If that does not help, or wrapped
    columns would be narrow, each row is printed as separate lines. The columns named in ``whole`` are never
    shortened: people copy them. Cells with one of the texts ``alarming`` are red.
    """
    console = Console()
    if not console.is_terminal:
        print_plain(headings, rows, title)
        return
    if title is not None:
        console.print(Text(printable(title), style="italic"))
    told = [at for at, _ in enumerate(headings) if at == 0 or not rows or any(_says(row[at]) for row in rows)]
    names = [headings[at] for at in told]
    cells = [
        [text if name in whole else shortened(text) for name, text in zip(names, row, strict=True)]
        for row in ([printable(row[at]) for at in told] for row in rows)
    ]
    if folding:
        kept = [at for at, name in enumerate(names) if name not in folding]
        taken = _width([names[at] for at in kept], [[row[at] for at in kept] for row in cells])
        is_wide = console.width - taken >= (len(names) - len(kept)) * (_BETWEEN + _READABLE)
        wrapped = _table(names, cells, folding, alarming)
        console.print(wrapped if is_wide else _lines(names, cells, console.width))
        return
    cut = [_cut_row(names, row, cutting, whole) for row in cells]
    fitting = next((fit for fit in (cells, cut) if _width(names, fit) <= console.width), None)
    if fitting is None:
        console.print(_lines(names, cells, console.width))
    else:
        console.print(_table(names, fitting, (), alarming))


def _says(cell: str) -> bool:
    return cell not in {"-", "0"}


def _table(
    headings: Sequence[str],
    cells: Sequence[Sequence[str]],
    folding: Collection[str],
    alarming: Collection[str],
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading not in folding, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell, "bold red" if cell in alarming else "") for cell in row))
    return table


def _lines(headings: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Group:
    shown: list[RenderableType] = []
    for first, *others in cells:
        shown.append(Text(first, style="bold"))
        line = ""
        for pair in (
            f"{name} {cell}" for name, cell in zip(headings[1:], others, strict=True) if cell != "-"
        ):
            if line and cell_len(line) + _PAIRS_APART + cell_len(pair) > width - _INDENT:
                shown.append(_indented(line))
                line = ""
            line += " " * _PAIRS_APART * bool(line) + pair
        shown.append(_indented(line))
    return Group(*shown)


def _indented(line: str) -> RenderableType:
    return Padding(Text(line, overflow="fold"), (0, 0, 0, _INDENT), expand=False)


def _width(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    widths = [max(cell_len(cell) for cell in column) for column in zip(headings, *cells, strict=True)]
    return sum(widths) + _BETWEEN * (len(widths) - 1)


def _cut_row(
    headings: Sequence[str], row: Sequence[str], cutting: Collection[str], whole: Collection[str]
) -> list[str]:
    return [
        cell if name in whole else _cut(cell) if name in cutting else _without_zeros(cell)
        for name, cell in zip(headings, row, strict=True)
    ]


def _cut(text: str, longest: int = _CUT_CHARS) -> str:
    return text if len(text) <= longest else "…" + text[1 - longest :]


def _without_zeros(text: str) -> str:
    return _SHARD_ID.sub("…", text)


def print_plain(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    if title is not None:
        typer.echo(printable(title))
    for line in plain_lines(headings, rows):
        typer.echo(line)


def print_labelled(label: str, text: str) -> None:
    """Print a text after its label. A terminal's lines end between words, and go on below the text."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    line = f"{label}  {printable(text)}"
    indent = " " * (len(label) + _BETWEEN)
    if width is None or width <= len(indent):
        typer.echo(line)
        return
    for part in textwrap.wrap(line, width, subsequent_indent=indent, **_WHOLE_WORDS):
        typer.echo(part)


def plain_lines(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    shown = [headings, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]


def shortened(text: str) -> str:
    """Leave of each sequence number (56 digits, at AWS) what tells it from its neighbours."""
    return _LONG_NUMBER.sub(lambda found: "…" + found[0][-_KEPT_DIGITS:], text)


def spelled(text: str) -> str:
    """Translate a message to the words of the command line. Quoted text can be typed."""
    return _WITHOUT_VALUE.sub(r"`--set \1=VALUE`", respelled(text, as_argument))


def as_argument(name: str, value: str | None) -> str | None:
    """Spell a setting, or an argument of an operation, as the commands take it; None for any other word."""
    if name in _ARGUMENTS:
        return f"--{name}"
    if name not in SETTINGS:
        return None
    said = value.lower() if value in {"True", "False"} else value
    if SETTINGS[name].has_argument:
        option = "--" + name.replace("_", "-")
        return option if said is None else f"{option} {said}"
    return f"--set {name}" if said is None else f"--set {name}={said}"


def note(text: str) -> None:
    """Print a remark that is not part of the result. A terminal's lines end between words."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    for line in map(printable, text.split("\n")):
        fitting = [line] if width is None else textwrap.wrap(line, width, **_WHOLE_WORDS)
        for part in fitting or [""]:
            typer.echo(part, err=True)


def duration(millis: int) -> str:
    if millis < 1000:  # noqa: PLR2004 - below a second
        return f"{millis} ms"
    return f"{timedelta(seconds=millis // 1000)}"


class Terminal(Listener):
    """Shows on standard error what an operation says while it works; on a terminal also its progress."""

    def note(self, text: str) -> None:
        note(spelled(text))

    @contextmanager
    def waiting(self) -> Iterator[Callable[[str], None]]:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield lambda _text: None
            return
        with console.status("waiting") as status:
            yield lambda text: status.update(printable(text))

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield lambda _count: None
            return
        columns = (SpinnerColumn(), TextColumn(what), MofNCompleteColumn())
        with Progress(*columns, console=console, transient=True) as shown:
            task = shown.add_task(what, total=total)
            yield lambda count: shown.advance(task, count)
