"""The live view of a run on a terminal: figures, how far it has come, and what is wrong."""

import time
from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.output import duration, live_table, printable
from kinesis_spout.cli.runs.goal import Goal
from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.cli.runs.terminal_bottom import TerminalBottom

_CELL: Final = 24
_APART: Final = 3
_NAMED_OWNERS: Final = 4
_STATES: Final = {"running": "green", "paused": "yellow", "failed": "red"}


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
