"""How a run goes at one moment: what is shown of a query, or of a topology and its components."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from kinesis_spout.cli.output import duration
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.pause_reports import pause_text
from shard_state import ShardStatus

if TYPE_CHECKING:
    from kinesis_spout.spark.driver.query import SpoutQuery
    from kinesis_spout.storm.running.component_counts import ComponentCounts
    from kinesis_spout.storm.spark.query import TopologyQuery

_SHARD_HEADINGS: Final = ("shard", "phase", "checkpoint", "in flight", "waiting", "exhausted", "holes")
_COMPONENT_HEADINGS: Final = ("component", "executed", "emitted", "acked", "failed", "timed out", "latency")
_SUMMED: Final = (
    "delivered", "acked", "retried", "dead_lettered", "records_per_second", "throttled", "timed_out", "bytes_read",
    "damaged_aggregates", "records_outside_shard", "commits", "shards",
)  # fmt: skip


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
    lag_millis: int | None = None
    """How far the shard furthest behind was, as of the newest micro-batch; None before the first."""
    throttled: int
    timed_out: int
    bytes_read: int
    damaged_aggregates: int
    records_outside_shard: int
    commits: int
    last_error: str | None = None
    """What is being retried."""
    paused: str | None = None
    """Why deliveries pause; None while they do not."""
    shards: tuple[ShardStatus, ...] = ()

    def document(self, *, detailed: bool) -> dict[str, Any]:
        """Give it as JSON, with keys that stay; in detail, with its shards."""
        document = asdict(self)
        document["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        document["shards"] = [_shard_document(shard) for shard in self.shards] if detailed else None
        return document

    def plus(self, other: Self) -> Self:
        """Give both together: sums, the largest lag, the first error."""
        return replace(
            self,
            state=other.state if other.paused is not None else self.state,
            **{name: getattr(self, name) + getattr(other, name) for name in _SUMMED},
            lag_millis=max(
                (lag for lag in (self.lag_millis, other.lag_millis) if lag is not None), default=None
            ),
            last_error=self.last_error or other.last_error,
            paused=self.paused or other.paused,
        )

    def line(self) -> str:
        """Give it as a line of text."""
        lag = "?" if self.lag_millis is None else duration(self.lag_millis)
        return (
            f"{self.state}: delivered {self.delivered:,}  acked {self.acked:,}  "
            f"retried {self.retried:,}  dead-lettered {self.dead_lettered:,}  "
            f"lag {lag}  {self.records_per_second:,.0f} records/s"
        )

    def details(self) -> tuple[Sequence[str], list[list[str]]]:
        """Give the headings and the rows of a table: its shards."""
        return _SHARD_HEADINGS, [_shard_cells(shard) for shard in self.shards]


class Counting(Protocol):
    """A query that counts."""

    @property
    def counters(self) -> Counters:
        """What happened since the start."""
        ...


class CountersReading:
    """Takes snapshots of what a query counts. Mutable: rates are over the time since the last one."""

    def __init__(self, query: Counting) -> None:
        self._query = query
        self._at = time.monotonic()
        self._delivered = 0

    def take(self, state: str) -> Snapshot:
        """Look now."""
        counters, now = self._query.counters, time.monotonic()
        rate = (counters.delivered - self._delivered) / max(now - self._at, 1e-3)
        self._at, self._delivered = now, counters.delivered
        return Snapshot(
            state=state,
            delivered=counters.delivered,
            acked=counters.acked,
            retried=counters.retried,
            dead_lettered=counters.dead_lettered,
            records_per_second=round(rate, 1),
            throttled=counters.throttled,
            timed_out=counters.timed_out,
            bytes_read=counters.bytes_read,
            damaged_aggregates=counters.damaged_aggregates,
            records_outside_shard=counters.records_outside_shard,
            commits=counters.commits,
        )


class Reading:
    """Takes snapshots of a query. Mutable, as what it reads the counters by."""

    def __init__(self, query: "SpoutQuery") -> None:
        self._query = query
        self._counters = CountersReading(query)

    def take(self, state: str) -> Snapshot:
        """Look now."""
        query = self._query
        progress = query.lastProgress
        sources = () if progress is None else progress["sources"]
        behind = max((int(source["metrics"]["maxMsBehindLatest"]) for source in sources), default=None)
        error, pause = query.last_error, query.breaker_pause
        return replace(
            self._counters.take("paused" if pause is not None and state == "running" else state),
            lag_millis=behind,
            last_error=None if error is None else str(error),
            paused=query.paused_by_operator if pause is None else pause_text(pause),
            shards=tuple(query.shards()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySnapshot:
    """What is shown of a topology; the counts are since its start, the latencies of ten minutes."""

    spouts: Mapping[str, Snapshot]
    """Those of your own come last."""
    components: "Mapping[str, ComponentCounts]"

    @property
    def state(self) -> str:
        """starting, running, paused, stopping, stopped or failed."""
        return self._together.state

    @property
    def paused(self) -> str | None:
        """Why deliveries pause; None while they do not."""
        return self._together.paused

    @property
    def last_error(self) -> str | None:
        """What is being retried."""
        return self._together.last_error

    def document(self, *, detailed: bool) -> dict[str, Any]:
        """Give it as JSON, with keys that stay: the sums of all spouts, each spout, each component."""
        document = self._together.document(detailed=False)
        del document["shards"]
        document["spouts"] = {
            name: snapshot.document(detailed=detailed) for name, snapshot in self.spouts.items()
        }
        document["components"] = {name: counts.told() for name, counts in self.components.items()}
        return document

    def line(self) -> str:
        """Give it as a line of text."""
        return self._together.line()

    def details(self) -> tuple[Sequence[str], list[list[str]]]:
        """Give the headings and the rows of a table: its components."""
        from kinesis_spout.storm.picture.count_rows import latency_text  # noqa: PLC0415 - slow to import

        return _COMPONENT_HEADINGS, [
            [
                name,
                "-" if name in self.spouts else f"{counts.executed:,}",
                f"{counts.emitted:,}",
                f"{counts.acked:,}",
                f"{counts.failed:,}",
                f"{counts.timed_out:,}",
                latency_text(counts) or "-",
            ]
            for name, counts in self.components.items()
        ]

    @property
    def _together(self) -> Snapshot:
        first, *others = self.spouts.values()
        for other in others:
            first = first.plus(other)
        return first


class TopologyReading:
    """Takes snapshots of a running topology. Mutable: rates are over the time since the last one."""

    def __init__(self, query: "TopologyQuery") -> None:
        self._query = query
        self._readings: dict[str, Reading | CountersReading] = {
            **{name: Reading(spout) for name, spout in query.spouts.items()},
            **{name: CountersReading(spout) for name, spout in query.own_spouts.items()},
        }

    def take(self, state: str) -> TopologySnapshot:
        """Look now."""
        return TopologySnapshot(
            spouts={name: reading.take(state) for name, reading in self._readings.items()},
            components=self._query.components,
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
