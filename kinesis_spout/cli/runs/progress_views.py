"""What is shown during a run: a line now and then, with a bar where the run has an end, or JSON lines."""

import contextlib
import json as json_text
import logging
import math
import sys
import time
from collections.abc import Iterator
from typing import Final, Literal, Protocol, TextIO

import typer

from kinesis_spout.cli.output import note, plain_lines, printable, spelled
from kinesis_spout.cli.runs.goal import Goal
from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.processes.worker_log import LINE_FORMAT, LINE_TIME_FORMAT

LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN_SECONDS: Final = 10.0
"""How often a log, rather than a terminal, gets a line."""
_REPEAT_SECONDS: Final = 60.0
"""How often a log, or a terminal, gets the same warning while no other comes."""


_BAR: Final = 20
"""Characters."""


class View(Protocol):
    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot; the newest replaces those before."""


@contextlib.contextmanager
def open_view(
    *,
    goal: Goal | None = None,
    json: bool = False,
    progress: bool = True,
    detailed: bool,
    log_level: LogLevel = "warning",
) -> Iterator[View]:
    """Choose what is shown, with the log, on standard error; with ``json`` that is on standard output.

    ``goal``: for the bar. ``progress``: without, a line only when the state changes. ``detailed``: the details as
    well, for ``run`` each shard. ``log_level``: the least that is shown of our own log; of others' it is always
    warnings.
    """
    if json:
        output = sys.stdout
        # What a handler prints on the driver must not come between the lines.
        with _logging_to(logging.StreamHandler(), log_level), contextlib.redirect_stdout(sys.stderr):
            yield _JsonLines(output, detailed=detailed)
    else:
        with _logging_to(logging.StreamHandler(), log_level):
            if progress and sys.stderr.isatty():
                note("starting Spark")
            yield _PlainLines(_PLAIN_SECONDS if progress else math.inf, goal, detailed=detailed)


class _JsonLines:
    def __init__(self, output: TextIO, *, detailed: bool) -> None:
        self._output = output
        self._detailed = detailed

    def show(self, snapshot: Snapshot) -> None:
        typer.echo(json_text.dumps(snapshot.document(detailed=self._detailed)), file=self._output)


class _PlainLines:
    """Mutable: a line is due now and then, and when the state changes."""

    def __init__(self, seconds: float, goal: Goal | None, *, detailed: bool) -> None:
        self._seconds = seconds
        self._goal = goal
        self._detailed = detailed
        self._state = ""
        self._due = 0.0

    def show(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        reached = None if self._goal is None else self._goal.reached(snapshot, time.time())
        if snapshot.state == self._state and now < self._due:
            return
        self._state, self._due = snapshot.state, now + self._seconds
        lines = [snapshot.line()]
        if self._goal is not None:
            lines[0] += f"  {_bar(reached)} until {self._goal.name}"
        if self._detailed:
            lines += ["  " + line for line in plain_lines(*snapshot.details())]
        typer.echo("\n".join(lines), err=True)


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
    """A message, and the lines of a traceback, printable, in the words of the command line."""

    def __init__(self) -> None:
        super().__init__(LINE_FORMAT, LINE_TIME_FORMAT)
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        said = spelled(super().format(record))
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
