"""One moment of a run: what is shown of a query, or of a topology and its components."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.cli.output import duration, plain_lines
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.trouble_reports import trouble_text
from shard_state import ShardStatus

if TYPE_CHECKING:
    from kinesis_spout.spark.driver.query import SpoutQuery
    from kinesis_spout.storm.running.counts import ComponentCounts
    from kinesis_spout.storm.spark.topology_query import TopologyQuery

_COMPONENT_HEADINGS: Final = ("component", "executed", "emitted", "acked", "failed", "timed out", "latency")
_OUTCOMES: Final = ("delivered", "acked", "retried", "dead_lettered")
_OTHER_COUNTERS: Final = (
    "throttled", "timed_out", "bytes_read", "damaged_aggregates", "records_outside_shard", "commits",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    state: str
    """starting, running, slowed, stopping, stopped or failed."""
    counters: Counters
    """Since its start."""
    records_per_second: float
    """Deliveries since the snapshot before."""
    lag_millis: int | None = None
    """The lag of the last shard at the newest micro-batch; None before the first."""
    last_error: str | None = None
    """The error that is being retried."""
    paused: str | None = None
    """Why deliveries pause; None while they do not."""
    shards: tuple[ShardStatus, ...] = ()
    assigned: Mapping[str, int] = field(default_factory=dict)
    """The number of shards of each living member, by the newest assignment."""
    is_done: bool = False
    """It came up to its end."""

    @property
    def in_flight(self) -> int:
        return sum(shard.in_flight for shard in self.shards)

    @property
    def waiting(self) -> int:
        """Retries that are not due yet."""
        return sum(shard.waiting for shard in self.shards)

    @property
    def lag_text(self) -> str:
        return "?" if self.lag_millis is None else duration(self.lag_millis)

    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            **{name: getattr(self.counters, name) for name in _OUTCOMES},
            "records_per_second": self.records_per_second,
            "lag_millis": self.lag_millis,
            **{name: getattr(self.counters, name) for name in _OTHER_COUNTERS},
            "last_error": self.last_error,
            "paused": self.paused,
            "members": dict(self.assigned),
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }

    def plus(self, other: "Snapshot") -> "Snapshot":
        lags = [lag for lag in (self.lag_millis, other.lag_millis) if lag is not None]
        return Snapshot(
            state=other.state if other.paused is not None else self.state,
            counters=Counters.total([self.counters, other.counters]),
            records_per_second=self.records_per_second + other.records_per_second,
            lag_millis=max(lags, default=None),
            last_error=self.last_error or other.last_error,
            paused=self.paused or other.paused,
            shards=self.shards + other.shards,
            assigned=_added(self.assigned, other.assigned),
            is_done=self.is_done and other.is_done,
        )

    def line(self) -> str:
        counters = self.counters
        return (
            f"{self.state}: delivered {counters.delivered:,}  acked {counters.acked:,}  "
            f"retried {counters.retried:,}  dead-lettered {counters.dead_lettered:,}  "
            f"lag {self.lag_text}  {self.records_per_second:,.0f} records/s"
        )

    def details(self) -> list[str]:
        """Lines that follow."""
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySnapshot(Snapshot):
    """One moment of a topology: its spouts, and its components with counts since the start."""

    spouts: Mapping[str, Snapshot]
    """Those of your own come last."""
    components: "Mapping[str, ComponentCounts]"

    def document(self) -> dict[str, Any]:
        document = Snapshot.document(self)
        document["spouts"] = {name: each.document() for name, each in self.spouts.items()}
        document["components"] = {name: counts.told() for name, counts in self.components.items()}
        return document

    def details(self) -> list[str]:
        from kinesis_spout.storm.picture import latency_text  # noqa: PLC0415 - slow to import

        rows = [
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
        return ["  " + line for line in plain_lines(_COMPONENT_HEADINGS, rows)]


class QuerySnapshots:
    """Takes snapshots of a query. Mutable: rates are over the time since the last one."""

    def __init__(self, query: "SpoutQuery") -> None:
        self._query = query
        self._at = time.monotonic()
        self._delivered = 0

    def counted(self, state: str) -> Snapshot:
        counters, now = Counters.total([self._query.counters]), time.monotonic()
        rate = (counters.delivered - self._delivered) / max(now - self._at, 1e-3)
        self._at, self._delivered = now, counters.delivered
        return Snapshot(
            state=state, counters=counters, records_per_second=round(rate, 1), is_done=self._query.is_done
        )

    def take(self, state: str) -> Snapshot:
        query = self._query
        progress = query.lastProgress
        sources = () if progress is None else progress["sources"]
        error, trouble = query.last_error, query.trouble
        return replace(
            self.counted(
                "slowed" if trouble is not None and trouble.slowed and state == "running" else state
            ),
            lag_millis=max((int(source["metrics"]["maxMsBehindLatest"]) for source in sources), default=None),
            last_error=None if error is None else str(error),
            paused=query.paused_by_operator if trouble is None else trouble_text(trouble),
            shards=tuple(query.shards()),
            assigned=query.assigned,
        )


class TopologySnapshots:
    def __init__(self, query: "TopologyQuery") -> None:
        self._query = query
        self._takes = {name: QuerySnapshots(spout).take for name, spout in query.spouts.items()}
        self._takes |= {name: QuerySnapshots(spout).counted for name, spout in query.own_spouts.items()}  # type: ignore[arg-type]

    def take(self, state: str) -> TopologySnapshot:
        spouts = {name: take(state) for name, take in self._takes.items()}
        together = reduce(Snapshot.plus, spouts.values())
        return TopologySnapshot(
            **{each.name: getattr(together, each.name) for each in fields(Snapshot)},
            spouts=spouts,
            components=self._query.components,
        )


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}
