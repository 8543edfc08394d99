"""What is shown during a run: a live view on a terminal, a line now and then elsewhere, or JSON lines."""

import contextlib
import json as json_text
import logging
import math
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, Literal, Protocol, TextIO

import typer
from rich.console import Console, Group, RenderableType
from rich.logging import RichHandler
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.output import duration, live_table, plain_lines, printable, spelled
from kinesis_spout.cli.runs.goal import Goal
from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.cli.runs.terminal_bottom import TerminalBottom
from kinesis_spout.processes.worker_log import LINE_FORMAT, LINE_TIME_FORMAT

LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN_SECONDS: Final = 10.0
"""How often a log, rather than a terminal, gets a line."""
_REPEAT_SECONDS: Final = 60.0
"""How often a log, or a terminal, gets the same warning while no other comes."""


_CELL: Final = 24
_APART: Final = 3
_NAMED_OWNERS: Final = 4
_STATES: Final = {"running": "green", "slowed": "yellow", "failed": "red"}


class View(Protocol):
    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot; the newest replaces those before."""

    def look(self) -> None:
        """Called several times a second."""


@contextlib.contextmanager
def open_view(
    *,
    title: str = "",
    goal: Goal | None = None,
    json: bool = False,
    progress: bool = True,
    detailed: bool,
    log_level: LogLevel = "warning",
) -> Iterator[View]:
    """Choose what fits where the output goes, and show the log in it.

    ``title`` and ``goal``: for the live view. ``json``: JSON on standard output, and everything else on standard
    error. ``progress``: without, a line only when the state changes. ``detailed``: the details as well, for
    ``run`` each shard. ``log_level``: the least that is shown of our own log; of others' it is always warnings.
    """
    if json:
        output = sys.stdout
        # What a handler prints on the driver must not come between the lines.
        with _logging_to(logging.StreamHandler(), log_level), contextlib.redirect_stdout(sys.stderr):
            yield _JsonLines(output, detailed=detailed)
    elif progress and is_redrawable(sys.stderr):
        bottom = TerminalBottom(sys.stderr)
        bottom.console.print("starting Spark")
        with bottom.taking_all(), _logging_to(_LogAbove(bottom), log_level, _Message()):
            yield LiveView(bottom, title, goal, detailed=detailed)
    else:
        with _logging_to(logging.StreamHandler(), log_level):
            yield _PlainLines(_PLAIN_SECONDS if progress else math.inf, detailed=detailed)


def is_redrawable(stream: TextIO) -> bool:
    """Whether it is a terminal whose cursor can be moved; ``FORCE_COLOR`` alone makes none of a pipe."""
    return stream.isatty() and not Console(file=stream).is_dumb_terminal


class _JsonLines:
    def __init__(self, output: TextIO, *, detailed: bool) -> None:
        self._output = output
        self._detailed = detailed

    def show(self, snapshot: Snapshot) -> None:
        typer.echo(json_text.dumps(snapshot.document(detailed=self._detailed)), file=self._output)

    def look(self) -> None:
        """Nothing changes between two lines."""


class _PlainLines:
    """Mutable: a line is due now and then, and when the state changes."""

    def __init__(self, seconds: float, *, detailed: bool) -> None:
        self._seconds = seconds
        self._detailed = detailed
        self._state = ""
        self._due = 0.0

    def show(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        if snapshot.state == self._state and now < self._due:
            return
        self._state, self._due = snapshot.state, now + self._seconds
        lines = [snapshot.line()]
        if self._detailed:
            lines += ["  " + line for line in plain_lines(*snapshot.details())]
        typer.echo("\n".join(lines), err=True)

    def look(self) -> None:
        """Nothing changes between two lines."""


class _NoRepeats(logging.Filter):
    """Mutable. Holds back a warning that equals the one before: each try to connect again says the same."""

    def __init__(self) -> None:
        super().__init__()
        self._said = ""
        self._at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text == self._said and record.created - self._at < _REPEAT_SECONDS:
            return False
        self._said, self._at = text, record.created
        return True


class _Message(logging.Formatter):
    """A message, and the lines of a traceback, printable, in the words of the command line."""

    def format(self, record: logging.LogRecord) -> str:
        said = spelled(super().format(record))
        return "\n".join(printable(line) for line in said.split("\n"))


class _Line(_Message):
    def __init__(self) -> None:
        super().__init__(LINE_FORMAT, LINE_TIME_FORMAT)
        self.converter = time.gmtime


class _LogAbove(RichHandler):
    def __init__(self, bottom: TerminalBottom) -> None:
        super().__init__(
            console=bottom.console, show_path=False, omit_repeated_times=False, log_time_format="[%X]"
        )
        self._bottom = bottom

    def emit(self, record: logging.LogRecord) -> None:
        with self._bottom.above():
            super().emit(record)


@contextlib.contextmanager
def _logging_to(
    handler: logging.Handler, level: LogLevel, formatter: logging.Formatter | None = None
) -> Iterator[None]:
    handler.addFilter(_NoRepeats())
    handler.setFormatter(formatter or _Line())
    root, ours = logging.getLogger(), logging.getLogger("kinesis_spout")
    before = ours.level
    ours.setLevel(level.upper())
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)


class LiveView:
    """Mutable; one thread calls it."""

    def __init__(self, bottom: TerminalBottom, title: str, goal: Goal | None, *, detailed: bool) -> None:
        self._bottom = bottom
        self._title = printable(title)
        self._goal = goal
        self._detailed = detailed
        self._began = time.monotonic()
        self._snapshot: Snapshot | None = None
        self._size = bottom.console.size

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._size = self._bottom.console.size
        self._bottom.draw(Group(*self._parts(snapshot)))

    def look(self) -> None:
        """Fit the window again if its size has changed."""
        if self._snapshot is not None and self._bottom.console.size != self._size:
            self.show(self._snapshot)

    def _parts(self, snapshot: Snapshot) -> Iterator[RenderableType]:
        width = self._bottom.width
        state = Text(snapshot.state, style=_STATES.get(snapshot.state, ""))
        yield _in_a_row(Text(self._title, style="bold"), state, Text(self._elapsed()))
        if self._goal is not None:
            yield _bar(self._goal, self._goal.reached(snapshot, time.time()))
        yield _cells(_figures(snapshot), width)
        if len(snapshot.assigned) > 1:
            yield _labelled("owners", _owners(snapshot))
        if self._detailed:
            yield Text()
            yield live_table(*snapshot.details(), width)
        if snapshot.paused is not None:
            yield Text(printable(snapshot.paused), style="yellow")
        if snapshot.last_error is not None:
            yield Text(f"retrying after: {printable(snapshot.last_error)}", style="yellow")

    def _elapsed(self) -> str:
        return duration(1000 * max(1, round(time.monotonic() - self._began)))


def _figures(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    counters = snapshot.counters
    yield "records/s", f"{snapshot.records_per_second:,.0f}"
    yield "lag", snapshot.lag_text
    yield "in flight", f"{snapshot.in_flight:,}"
    yield "delivered", f"{counters.delivered:,}"
    yield "acked", f"{counters.acked:,}"
    yield "waiting retries", f"{snapshot.waiting:,}"
    yield "retried", f"{counters.retried:,}"
    yield "dead letters", f"{counters.dead_lettered:,}"
    yield "shards owned", f"{snapshot.owned:,} of {snapshot.readable:,}"


def _owners(snapshot: Snapshot) -> str:
    most = sorted(snapshot.assigned.items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{printable(member)} {shards:,}" for member, shards in most[:_NAMED_OWNERS])
    others = len(most) - _NAMED_OWNERS
    return named if others <= 0 else f"{named}, and {others} more members"


def _cells(figures: Iterable[tuple[str, str]], width: int) -> Table:
    columns = max(1, (width + _APART) // (_CELL + _APART))
    grid = Table.grid(padding=(0, _APART))
    for _ in range(columns):
        grid.add_column(width=_CELL, no_wrap=True)
    cells = [_cell(label, value) for label, value in figures]
    for at in range(0, len(cells), columns):
        grid.add_row(*cells[at : at + columns])
    return grid


def _cell(label: str, value: str) -> Text:
    return Text.assemble((label, "dim"), f" {value:>{_CELL - len(label) - 1}}")


def _labelled(label: str, value: str) -> Text:
    return Text.assemble((label, "dim"), f"  {value}")


def _in_a_row(first: Text, *others: Text) -> Table:
    row = Table.grid(padding=(0, 2), expand=True)
    row.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for _ in others:
        row.add_column(no_wrap=True)
    row.add_row(first, *others)
    return row


def _bar(goal: Goal, reached: float | None) -> Table:
    row = Table.grid(padding=(0, 2), expand=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True, justify="right")
    row.add_column(no_wrap=True, overflow="ellipsis", max_width=_CELL)
    share = "  ?" if reached is None else f"{int(100 * reached):>3} %"
    row.add_row(ProgressBar(total=1.0, completed=reached or 0.0), share, f"until {goal.name}")
    return row
