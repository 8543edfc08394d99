"""What ``run`` shows while it runs: a live table on a terminal, a line now and then elsewhere, or JSON lines."""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.text import Text

from kinesis_spout.cli.output import duration, live_table, printable
from kinesis_spout.cli.settings import as_argument
from kinesis_spout.consumer.pause_reports import pause_text
from kinesis_spout.settings.messages import respelled
from kinesis_spout.workers.worker_log import LINE_FORMAT, LINE_TIME_FORMAT
from shard_state import ShardStatus

if TYPE_CHECKING:
    from kinesis_spout.spark.driver.query import SpoutQuery

LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN_SECONDS: Final = 10.0
"""How often a log, rather than a terminal, gets a line."""
_REPEAT_SECONDS: Final = 60.0
"""How often a log, or a terminal, gets the same warning while no other comes."""
_SHARD_HEADINGS: Final = ("shard", "phase", "checkpoint", "in flight", "waiting", "exhausted", "holes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How a run goes at one moment; the counts are since its start."""

    state: str
    """starting, running, paused, stopping, stopped or failed."""
    delivered: int
    acked: int
    retried: int
    dead_lettered: int
    records_per_second: float
    """Deliveries since the snapshot before."""
    lag_millis: int | None
    """How far the shard furthest behind was, as of the newest micro-batch; None before the first."""
    throttled: int
    timed_out: int
    bytes_read: int
    commits: int
    last_error: str | None
    """What is being retried."""
    paused: str | None
    """Why deliveries pause; None while they do not."""
    shards: tuple[ShardStatus, ...]

    def document(self, *, per_shard: bool) -> dict[str, Any]:
        """Give it as JSON, with keys that stay."""
        document = asdict(self)
        document["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        document["shards"] = [_shard_document(shard) for shard in self.shards] if per_shard else None
        return document


class Reading:
    """Takes snapshots of a query. Mutable: rates are over the time since the last one."""

    def __init__(self, query: "SpoutQuery") -> None:
        self._query = query
        self._at = time.monotonic()
        self._delivered = 0

    def take(self, state: str) -> Snapshot:
        """Look now."""
        query, counters, now = self._query, self._query.counters, time.monotonic()
        rate = (counters.delivered - self._delivered) / max(now - self._at, 1e-3)
        self._at, self._delivered = now, counters.delivered
        progress = query.lastProgress
        metrics = {} if progress is None else progress["sources"][0]["metrics"]
        behind = metrics.get("maxMsBehindLatest")
        error, pause = query.last_error, query.pause
        return Snapshot(
            state="paused" if pause is not None and state == "running" else state,
            delivered=counters.delivered,
            acked=counters.acked,
            retried=counters.retried,
            dead_lettered=counters.dead_lettered,
            records_per_second=round(rate, 1),
            lag_millis=None if behind is None else int(behind),
            throttled=counters.throttled,
            timed_out=counters.timed_out,
            bytes_read=counters.bytes_read,
            commits=counters.commits,
            last_error=None if error is None else str(error),
            paused=None if pause is None else pause_text(pause),
            shards=tuple(query.shards()),
        )


class ProgressView(Protocol):
    """Where snapshots go."""

    def show(self, snapshot: Snapshot) -> None:
        """Show one; the newest replaces those before."""
        ...


@contextlib.contextmanager
def open_view(*, json: bool, per_shard: bool, log_level: LogLevel = "warning") -> Iterator[ProgressView]:
    """Choose the view that fits where the output goes, and let the log be seen beside it.

    Args:
        json: print JSON on standard output, and everything else on standard error.
        per_shard: show each shard, too.
        log_level: the least that is shown of our own log; of others' it is always warnings.
    """
    console = Console(stderr=True)
    if json:
        output = sys.stdout
        # What a handler prints on the driver must not come between the lines.
        with _logging_to(logging.StreamHandler(), log_level), contextlib.redirect_stdout(sys.stderr):
            yield _JsonLines(output, per_shard=per_shard)
    elif console.is_terminal:
        console.print("starting Spark")
        # Drawn from the first snapshot on: until then the JVM writes here what it likes.
        live = Live(console=console, refresh_per_second=4)
        with _logging_to(_on_terminal(console), log_level, _Message()):
            try:
                yield _LiveTable(live, per_shard=per_shard)
            finally:
                live.stop()
    else:
        with _logging_to(logging.StreamHandler(), log_level):
            yield _PlainLines(sys.stderr, per_shard=per_shard)


class _JsonLines:
    def __init__(self, output: TextIO, *, per_shard: bool) -> None:
        self._output = output
        self._per_shard = per_shard

    def show(self, snapshot: Snapshot) -> None:
        self._output.write(json.dumps(snapshot.document(per_shard=self._per_shard)) + "\n")
        self._output.flush()


class _PlainLines:
    def __init__(self, output: TextIO, *, per_shard: bool) -> None:
        self._output = output
        self._per_shard = per_shard
        self._state = ""
        self._due = 0.0

    def show(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        if snapshot.state == self._state and now < self._due:
            return
        self._state, self._due = snapshot.state, now + _PLAIN_SECONDS
        lines = [_line(snapshot)]
        if self._per_shard:
            lines += ["  " + "  ".join(_shard_cells(shard)) for shard in snapshot.shards]
        self._output.write("\n".join(lines) + "\n")
        self._output.flush()


class _LiveTable:
    def __init__(self, live: Live, *, per_shard: bool) -> None:
        self._live = live
        self._per_shard = per_shard

    def show(self, snapshot: Snapshot) -> None:
        parts: list[RenderableType] = [Text(_line(snapshot))]
        if self._per_shard:
            rows = [_shard_cells(shard) for shard in snapshot.shards]
            parts.append(live_table(_SHARD_HEADINGS, rows, self._live.console.width))
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
        said = respelled(super().format(record), as_argument)
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


def _line(snapshot: Snapshot) -> str:
    lag = "?" if snapshot.lag_millis is None else duration(snapshot.lag_millis)
    return (
        f"{snapshot.state}: delivered {snapshot.delivered:,}  acked {snapshot.acked:,}  "
        f"retried {snapshot.retried:,}  dead-lettered {snapshot.dead_lettered:,}  "
        f"lag {lag}  {snapshot.records_per_second:,.0f} records/s"
    )


def _shard_document(shard: ShardStatus) -> dict[str, Any]:
    return {
        "shard_id": shard.shard_id,
        "phase": shard.phase.name.lower(),
        "epoch": shard.epoch,
        "checkpoint": None if shard.checkpoint is None else str(shard.checkpoint),
        "in_flight": shard.in_flight,
        "waiting": shard.waiting,
        "exhausted": shard.exhausted,
        "holes": shard.holes,
        "congested": shard.congested,
    }


def _shard_cells(shard: ShardStatus) -> list[str]:
    return [
        shard.shard_id,
        shard.phase.name.lower().replace("_", " "),
        "-" if shard.checkpoint is None else str(shard.checkpoint),
        str(shard.in_flight),
        str(shard.waiting),
        str(shard.exhausted),
        str(shard.holes),
    ]
