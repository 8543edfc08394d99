"""What is shown during a run: a live table on a terminal, a line now and then elsewhere, or JSON lines."""

import contextlib
import json as json_text
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.text import Text

from kinesis_spout.cli.output import live_table, plain_lines, printable, spelled
from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.processes.worker_log import LINE_FORMAT, LINE_TIME_FORMAT

LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN_SECONDS: Final = 10.0
"""How often a log, rather than a terminal, gets a line."""
_REPEAT_SECONDS: Final = 60.0
"""How often a log, or a terminal, gets the same warning while no other comes."""


Show = Callable[[Snapshot], None]
"""Shows a snapshot; the newest replaces those before."""


@contextlib.contextmanager
def open_view(*, json: bool, detailed: bool, log_level: LogLevel = "warning") -> Iterator[Show]:
    """Choose what fits where the output goes, and show the log in it.

    ``json``: JSON on standard output, and everything else on standard error. ``detailed``: the details as
    well, for ``run`` each shard. ``log_level``: the least that is shown of our own log; of others' it is
    always warnings.
    """
    console = Console(stderr=True)
    if json:
        output = sys.stdout
        # What a handler prints on the driver must not come between the lines.
        with _logging_to(logging.StreamHandler(), log_level), contextlib.redirect_stdout(sys.stderr):
            yield lambda snapshot: typer.echo(
                json_text.dumps(snapshot.document(detailed=detailed)), file=output
            )
    elif console.is_terminal:
        console.print("starting Spark")
        # Drawn from the first snapshot on: until then the JVM writes here what it likes.
        live = Live(console=console, refresh_per_second=4)
        with _logging_to(_on_terminal(console), log_level, _Message()):
            try:
                yield lambda snapshot: _draw(live, snapshot, detailed=detailed)
            finally:
                live.stop()
    else:
        with _logging_to(logging.StreamHandler(), log_level):
            yield _PlainLines(detailed=detailed).show


class _PlainLines:
    """Mutable: a line is due now and then, and when the state changes."""

    def __init__(self, *, detailed: bool) -> None:
        self._detailed = detailed
        self._state = ""
        self._due = 0.0

    def show(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        if snapshot.state == self._state and now < self._due:
            return
        self._state, self._due = snapshot.state, now + _PLAIN_SECONDS
        lines = [snapshot.line()]
        if self._detailed:
            lines += ["  " + line for line in plain_lines(*snapshot.details())]
        typer.echo("\n".join(lines), err=True)


def _draw(live: Live, snapshot: Snapshot, *, detailed: bool) -> None:
    parts: list[RenderableType] = [Text(snapshot.line())]
    if detailed:
        parts.append(live_table(*snapshot.details(), live.console.width))
    if snapshot.paused is not None:
        parts.append(Text(printable(snapshot.paused), style="yellow"))
    if snapshot.last_error is not None:
        parts.append(Text(f"retrying after: {printable(snapshot.last_error)}", style="yellow"))
    # An empty line at the end: what the JVM writes nevertheless begins at the left.
    live.start()
    live.update(Group(*parts, Text()), refresh=True)


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


def _on_terminal(console: Console) -> logging.Handler:
    return RichHandler(console=console, show_path=False, omit_repeated_times=False, log_time_format="[%X]")


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
