"""What the demo shows while it runs: a live panel on a terminal, plain lines anywhere else."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_PLAIN_EVERY_SECONDS: Final = 5.0
_REFRESHES_PER_SECOND: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How far everything is."""

    phase: str
    records: int
    """How many there will be."""
    produced: int
    acked: int
    dead_lettered: int
    retries: int
    open_shards: int
    owned: Mapping[str, int]
    """How many shards each consumer owns, closed ones that are read to their end included."""

    @property
    def shares(self) -> str:
        """Say who has how many shards."""
        owned = ", ".join(f"{name} {count}" for name, count in self.owned.items())
        return f"{self.open_shards} open shards; owned: {owned}"

    @property
    def behind(self) -> int:
        """Records on the stream that have no end yet."""
        return max(0, self.produced - self.acked - self.dead_lettered)


class Display(Protocol):
    """Shows what happens. A context manager; one thread calls it."""

    def event(self, text: str) -> None:
        """Show something that has just happened, to stay."""
        ...

    def update(self, snapshot: Snapshot) -> None:
        """Show how far everything is."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class PlainDisplay:
    """A line for each event, and one every few seconds. Mutable."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._shown = time.monotonic()

    def event(self, text: str) -> None:
        """See ``Display``."""
        self._line(text)

    def update(self, snapshot: Snapshot) -> None:
        """See ``Display``."""
        if time.monotonic() - self._shown >= _PLAIN_EVERY_SECONDS:
            self._line(
                f"{snapshot.phase}: {snapshot.produced:,} of {snapshot.records:,} produced, "
                f"{snapshot.acked:,} acked, {snapshot.retries:,} retries, "
                f"{snapshot.dead_lettered:,} dead-lettered, {snapshot.behind:,} behind, "
                f"{snapshot.shares}"
            )

    def _line(self, text: str) -> None:
        self._shown = time.monotonic()
        line = Text(f"{self._shown - self._started:6.1f} s  {text}")
        self._console.print(line, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""


class LiveDisplay:
    """Events scroll by above a panel of bars and counts. Mutable."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._live = Live(console=console, refresh_per_second=_REFRESHES_PER_SECOND, transient=True)

    def event(self, text: str) -> None:
        """See ``Display``."""
        line = Table.grid(padding=(0, 2))
        line.add_row(Text(f"{self._elapsed:6.1f} s", style="dim"), Text(text, overflow="fold"))
        self._console.print(line)

    def update(self, snapshot: Snapshot) -> None:
        """See ``Display``."""
        bars = Table.grid(padding=(0, 2))
        finished = snapshot.acked + snapshot.dead_lettered
        for name, count in (("produced", snapshot.produced), ("finished", finished)):
            bar = ProgressBar(total=snapshot.records, completed=count, width=40)
            bars.add_row(name, bar, f"{count:,} of {snapshot.records:,}")
        counts = Text(
            f"{snapshot.acked:,} acked   {snapshot.retries:,} retries   "
            f"{snapshot.dead_lettered:,} dead letters   {snapshot.behind:,} behind"
        )
        heading = Text.assemble(
            (f"{self._elapsed:6.1f} s  {snapshot.phase} …", "bold"), f"   {snapshot.shares}"
        )
        self._live.update(Group(heading, bars, counts))

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def display_on(console: Console) -> Display:
    """Choose what suits the console."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)
