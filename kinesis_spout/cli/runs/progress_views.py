"""What is shown of a run meanwhile: a live table on a terminal, a line now and then elsewhere, or JSON lines."""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.text import Text

from kinesis_spout.cli.output import live_table, plain_lines, printable, spelled
from kinesis_spout.processes.worker_log import LINE_FORMAT, LINE_TIME_FORMAT

LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN_SECONDS: Final = 10.0
"""How often a log, rather than a terminal, gets a line."""
_REPEAT_SECONDS: Final = 60.0
"""How often a log, or a terminal, gets the same warning while no other comes."""


class Shown(Protocol):
    """What a view can show; see ``Snapshot``."""

    @property
    def state(self) -> str:
        """starting, running, paused, stopping, stopped or failed."""
        ...

    @property
    def paused(self) -> str | None:
        """Why deliveries pause; None while they do not."""
        ...

    @property
    def last_error(self) -> str | None:
        """What is being retried."""
        ...

    def document(self, *, detailed: bool) -> dict[str, Any]:
        """Give it as JSON."""
        ...

    def line(self) -> str:
        """Give it as a line of text."""
        ...

    def details(self) -> tuple[Sequence[str], list[list[str]]]:
        """Give the headings and the rows of a table."""
        ...


class ProgressView(Protocol):
    """Where snapshots go."""

    def show(self, snapshot: Shown) -> None:
        """Show one; the newest replaces those before."""
        ...


@contextlib.contextmanager
def open_view(*, json: bool, detailed: bool, log_level: LogLevel = "warning") -> Iterator[ProgressView]:
    """Choose the view that fits where the output goes, and let the log be seen beside it.

    Args:
        json: print JSON on standard output, and everything else on standard error.
        detailed: show the details as well: of ``run`` each shard.
        log_level: the least that is shown of our own log; of others' it is always warnings.
    """
    console = Console(stderr=True)
    if json:
        output = sys.stdout
        # What a handler prints on the driver must not come between the lines.
        with _logging_to(logging.StreamHandler(), log_level), contextlib.redirect_stdout(sys.stderr):
            yield _JsonLines(output, detailed=detailed)
    elif console.is_terminal:
        console.print("starting Spark")
        # Drawn from the first snapshot on: until then the JVM writes here what it likes.
        live = Live(console=console, refresh_per_second=4)
        with _logging_to(_on_terminal(console), log_level, _Message()):
            try:
                yield _LiveTable(live, detailed=detailed)
            finally:
                live.stop()
    else:
        with _logging_to(logging.StreamHandler(), log_level):
            yield _PlainLines(sys.stderr, detailed=detailed)


class _JsonLines:
    def __init__(self, output: TextIO, *, detailed: bool) -> None:
        self._output = output
        self._detailed = detailed

    def show(self, snapshot: Shown) -> None:
        self._output.write(json.dumps(snapshot.document(detailed=self._detailed)) + "\n")
        self._output.flush()


class _PlainLines:
    def __init__(self, output: TextIO, *, detailed: bool) -> None:
        self._output = output
        self._detailed = detailed
        self._state = ""
        self._due = 0.0

    def show(self, snapshot: Shown) -> None:
        now = time.monotonic()
        if snapshot.state == self._state and now < self._due:
            return
        self._state, self._due = snapshot.state, now + _PLAIN_SECONDS
        lines = [snapshot.line()]
        if self._detailed:
            lines += ["  " + line for line in plain_lines(*snapshot.details())]
        self._output.write("\n".join(lines) + "\n")
        self._output.flush()


class _LiveTable:
    def __init__(self, live: Live, *, detailed: bool) -> None:
        self._live = live
        self._detailed = detailed

    def show(self, snapshot: Shown) -> None:
        parts: list[RenderableType] = [Text(snapshot.line())]
        if self._detailed:
            parts.append(live_table(*snapshot.details(), self._live.console.width))
        if snapshot.paused is not None:
            parts.append(Text(printable(snapshot.paused), style="yellow"))
        if snapshot.last_error is not None:
            parts.append(Text(f"retrying after: {printable(snapshot.last_error)}", style="yellow"))
        # An empty line at the end: what the JVM writes nevertheless begins at the left.
        self._live.start()
        self._live.update(Group(*parts, Text()), refresh=True)


class _NoRepeats(logging.Filter):
    """Mutable. Holds a warning back that is the one before: each try to connect again says the same."""

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
    """Gives a message as it may be shown, in the words of the command line."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line; of an error with a traceback, the lines."""
        said = spelled(super().format(record))
        return "\n".join(printable(line) for line in said.split("\n"))


class _Line(_Message):
    """Gives time, level and name besides."""

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
