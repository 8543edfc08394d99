"""What is shown during a run: a live view on a terminal, a line now and then elsewhere, or JSON lines."""

import contextlib
import json as json_text
import logging
import math
import sys
import time
from collections.abc import Iterator
from typing import Final, Literal, Protocol, TextIO

import typer
from rich.console import Console
from rich.logging import RichHandler

from kinesis_spout.cli.output import plain_lines, printable, spelled
from kinesis_spout.cli.runs.goal import Goal
from kinesis_spout.cli.runs.live_view import LiveView
from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.cli.runs.terminal_bottom import TerminalBottom
from kinesis_spout.processes.worker_log import LINE_FORMAT, LINE_TIME_FORMAT

LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN_SECONDS: Final = 10.0
"""How often a log, rather than a terminal, gets a line."""
_REPEAT_SECONDS: Final = 60.0
"""How often a log, or a terminal, gets the same warning while no other comes."""


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
