"""Shows a run while it goes on: a line now and then, with a bar where the run has an end, or JSON lines."""

import contextlib
import json as json_text
import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, Self, TextIO

import typer

from kinesis_spout.cli.output import note, printable, spelled
from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.model.logs import FirstFailure
from kinesis_spout.processes.worker_log import LINE_FORMAT, LINE_TIME_FORMAT
from kinesis_spout.settings import SpoutConfig
from shard_state import ShardPhase

LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN_SECONDS: Final = 10.0
"""The time between two lines."""
_REPEAT_SECONDS: Final = 60.0
"""The time after which the same warning is shown again while no other comes."""
_BAR: Final = 20
"""Characters."""
_ENDED: Final = frozenset({ShardPhase.AT_BOUND, ShardPhase.FINISHED, ShardPhase.OVER})
_NEARLY: Final = 0.99
"""The most before the run has ended."""


@dataclass(slots=True)
class Goal:
    """Estimates how far a run is on its way to its end, for its bar. Mutable: the share only grows.

    A run up to a time (of its beginning, if it is up to the newest record) is as far as its reads have come in
    time, times the share that is finished of what was read. A run up to records is as far as many of its shards.
    """

    name: str
    """As the user wrote it."""
    time: float | None
    """Seconds since the epoch; None: ends at records of shards."""
    _from: float | None = None
    _reached: float | None = None

    @classmethod
    def of(cls, configs: Sequence[SpoutConfig]) -> Self | None:
        """The goal of a run; None if it has none, or not all of its spouts have."""
        ends = [config.run_end for config in configs]
        if not ends or None in ends:
            return None
        texts = sorted({config.until or "" for config in configs})
        name = texts[0] if len(texts) == 1 and not texts[0].startswith("{") else "the end of each shard"
        now = time.time()
        times = [
            position.resolved(now).timestamp for end in ends if end is not None for position in end.every
        ]
        known = [each for each in times if each is not None]
        return cls(name, max(known) if len(known) == len(times) else None)

    def reached(self, snapshot: Snapshot, now: float) -> float | None:
        """The share of the way, from 0 to 1; None while nothing is known."""
        if snapshot.state == "stopped" and snapshot.is_done:
            return 1.0
        share = self._by_shards(snapshot) if self.time is None else self._by_time(snapshot, self.time, now)
        if share is not None:
            self._reached = max(self._reached or 0.0, min(share, _NEARLY))
        return self._reached

    def _by_shards(self, snapshot: Snapshot) -> float | None:
        if not snapshot.shards:
            return None
        return sum(shard.phase in _ENDED for shard in snapshot.shards) / len(snapshot.shards)

    def _by_time(self, snapshot: Snapshot, end: float, now: float) -> float | None:
        if snapshot.lag_millis is None:
            return None
        at = now - snapshot.lag_millis / 1000
        if self._from is None:
            self._from = at
        read = 1.0 if end <= self._from else min(1.0, (at - self._from) / (end - self._from))
        finished, left = snapshot.counters.finished, snapshot.in_flight + snapshot.waiting
        return read * finished / max(1, finished + left)


class View(Protocol):
    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot; the newest replaces those before."""


@contextlib.contextmanager
def open_view(
    *,
    goal: Goal | None = None,
    json: bool = False,
    progress: bool = True,
    log_level: LogLevel = "warning",
) -> Iterator[View]:
    """Choose what is shown, with the log, on standard error; with ``json`` that is on standard output.

    ``goal``: for the bar. ``progress``: without, a line only when the state changes. ``log_level``: the least that
    is shown of our own log; of others' it is always warnings.
    """
    if json:
        output = sys.stdout
        # Output of a handler on the driver must not come between the lines.
        with _logging_to(logging.StreamHandler(), log_level), contextlib.redirect_stdout(sys.stderr):
            yield _JsonLines(output)
    else:
        with _logging_to(logging.StreamHandler(), log_level):
            if progress and sys.stderr.isatty():
                note("starting Spark")
            yield _PlainLines(_PLAIN_SECONDS if progress else math.inf, goal)


class _JsonLines:
    def __init__(self, output: TextIO) -> None:
        self._output = output

    def show(self, snapshot: Snapshot) -> None:
        typer.echo(json_text.dumps(snapshot.document()), file=self._output)


class _PlainLines:
    """Mutable: a line is due now and then, and when the state changes."""

    def __init__(self, seconds: float, goal: Goal | None) -> None:
        self._seconds = seconds
        self._goal = goal
        self._state = ""
        self._due = 0.0

    def show(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        reached = None if self._goal is None else self._goal.reached(snapshot, time.time())
        if snapshot.state == self._state and now < self._due:
            return
        self._state, self._due = snapshot.state, now + self._seconds
        bar = "" if self._goal is None else f"  {_bar(reached)} until {self._goal.name}"
        note(snapshot.line() + bar)
        for line in snapshot.details():
            typer.echo(line, err=True)


def _bar(reached: float | None) -> str:
    full = int(_BAR * (reached or 0.0))
    share = "?" if reached is None else str(int(100 * reached))
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:>3} %"


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


class _Line(logging.Formatter):
    """A message, and the lines of a traceback, printable, in the words of the command line.

    The user who runs a handler sees its exception; the logs of other doors leave the exception's text out.
    """

    def __init__(self) -> None:
        super().__init__(LINE_FORMAT, LINE_TIME_FORMAT)
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        said = spelled(super().format(record))
        failure = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if isinstance(failure, FirstFailure) and ": " in failure.error_text:
            said += ": " + failure.error_text.partition(": ")[2]
        return "\n".join(printable(line) for line in said.split("\n"))


@contextlib.contextmanager
def _logging_to(handler: logging.Handler, level: LogLevel) -> Iterator[None]:
    handler.addFilter(_NoRepeats())
    handler.setFormatter(_Line())
    root, ours = logging.getLogger(), logging.getLogger("kinesis_spout")
    before = ours.level
    ours.setLevel(level.upper())
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)
