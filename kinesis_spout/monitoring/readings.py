"""Reads every metric of what runs in this process: consumers, topologies, queries, producers.

A source is read when a monitor asks. Nothing is counted here: a reading copies what the doors have counted
anyway.
"""

import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeGuard, TypeVar, runtime_checkable

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.handle import Handle
from kinesis_spout.model.distribution import Counted, Distribution
from kinesis_spout.model.errors import InvalidConfig, SpoutClosed
from kinesis_spout.model.logs import package_version
from kinesis_spout.monitoring.consumer_look import ConsumerLook, Life
from kinesis_spout.monitoring.consumer_watch import ConsumerWatch
from kinesis_spout.monitoring.metrics import METRICS, PREFIX, Metric
from kinesis_spout.producer import KinesisProducer

T = TypeVar("T")

_log = logging.getLogger(__name__)

_NOT_ADDED: Final = frozenset({"s", "1", "{member}", "{assignment}"})
"""Units of metrics of which two members in one process do not have the sum, but both have the larger one."""


class Sample(NamedTuple):
    """The value of one series now."""

    metric: Metric
    labels: Mapping[str, str]
    """A value for each label of the metric."""
    value: float | Counted
    """A number; of a histogram, what was counted."""


@runtime_checkable
class HasComponents(Protocol):
    """A running topology."""

    @property
    def name(self) -> str: ...

    @property
    def components(self) -> Mapping[str, Any]: ...


@runtime_checkable
class HasProgress(Protocol):
    """A streaming query of Spark that reads ``format("kinesis")``."""

    @property
    def name(self) -> str | None: ...

    @property
    def id(self) -> Any: ...

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name

    @property
    def lastProgress(self) -> Any: ...  # noqa: N802

    def exception(self) -> BaseException | None: ...


Watched = Handle | KinesisProducer | HasProgress
"""A spout, a query, a topology; a producer; a streaming query of Spark."""


class Sources:
    """Everything that is watched together: each consumer once, also if several handles hold it. Thread-safe.

    Args:
        watched: see ``Watched``.

    Raises:
        InvalidConfig: one of them is something else.
    """

    def __init__(self, watched: Iterable[Watched] = ()) -> None:
        self._lock = threading.Lock()
        """Guards the two below while they change."""
        self._failures = Counter[str]()
        """Failed readings, by the type of what was read."""
        self._failing: dict[int, str] = {}
        """Why the last reading of an object failed, by its id."""
        self._watched: list[Watched] = []
        self._watches: dict[int, ConsumerWatch] = {}
        for each in watched:
            self.add(each)

    def add(self, watched: Watched) -> None:
        """Watch this as well; once, however often it is added. Raises InvalidConfig if it cannot be watched."""
        if not isinstance(watched, Handle | KinesisProducer | HasProgress):
            raise InvalidConfig(
                "expected a spout, a query, a topology's query, a KinesisProducer or a streaming query of Spark, "
                f"got {type(watched).__name__}"
            )
        with self._lock:
            if not any(each is watched for each in self._watched):
                self._watched = [*self._watched, watched]

    def remove(self, watched: Watched) -> None:
        """Watch this no more; does nothing if it is not watched."""
        with self._lock:
            self._watched = [each for each in self._watched if each is not watched]
            consumers = {id(consumer) for handle in self._all_handles for consumer in consumers_of(handle)}
            self._watches = {each: watch for each, watch in self._watches.items() if each in consumers}

    @property
    def _all_handles(self) -> list[Handle]:
        return [each for each in self._watched if isinstance(each, Handle)]

    @property
    def handles(self) -> list[Handle]:
        """The spouts, queries and topologies; a topology stands for its spouts."""
        handles = self._all_handles
        topologies = [each for each in handles if hasattr(type(each), "components")]
        theirs = {id(consumer) for each in topologies for consumer in consumers_of(each)}
        return topologies + [
            each
            for each in handles
            if each not in topologies and not theirs.issuperset(map(id, consumers_of(each)))
        ]

    def watches_of(self, handle: Handle) -> list[ConsumerWatch]:
        """Return the watch of each consumer of a handle; the same ones as long as the consumers live."""
        consumers = consumers_of(handle)
        with self._lock:
            return [self._watch_of(consumer) for consumer in consumers]

    def _watch_of(self, consumer: Consumer) -> ConsumerWatch:
        known = self._watches.get(id(consumer))
        if known is None or known.consumer is not consumer:
            known = self._watches[id(consumer)] = ConsumerWatch(consumer)
        return known

    def _all_watches(self) -> list[ConsumerWatch]:
        """Those of every consumer, each once; those of ended streams are forgotten."""
        none: list[Consumer] = []
        found = [self._alone(handle, partial(consumers_of, handle), none) for handle in self._all_handles]
        consumers = {id(each): each for consumers in found for each in consumers}
        with self._lock:
            watches = {key: self._watch_of(consumer) for key, consumer in consumers.items()}
            self._watches = watches
            return list(watches.values())

    def looks(self) -> list[ConsumerLook]:
        """Every consumer as it is now; looking regularly is what notices shards that do not move."""
        looks = [self._alone(watch, watch.look, None) for watch in self._all_watches()]
        return [look for look in looks if look is not None]

    def lives(self) -> list[Life]:
        """Say of every consumer and every query of Spark whether it lives; takes no consumer's lock."""
        queries = [each for each in self._watched if not isinstance(each, Handle | KinesisProducer)]
        lives = [self._alone(watch, watch.life, None) for watch in self._all_watches()]
        lives += [self._alone(query, partial(_life_of, query), _UNKNOWN) for query in queries]
        return [life for life in lives if life is not None]

    @property
    def failing(self) -> Sequence[str]:
        """Objects whose last reading failed, with the reason."""
        with self._lock:
            known = set(map(id, (*self._watched, *self._watches.values())))
            return [why for source, why in self._failing.items() if source in known]

    def _alone(self, source: Any, read: Callable[[], T], instead: T) -> T:
        """Read one source; its error takes no other away. Counted; logged once until it can be read again."""
        try:
            found = read()
        except Exception as error:  # noqa: BLE001 - it may be the user's, or Spark's
            name = type(getattr(source, "consumer", source)).__name__
            with self._lock:
                self._failures[name] += 1
                is_new = id(source) not in self._failing
                self._failing[id(source)] = f"{name} cannot be read: {type(error).__name__}: {error}"[:300]
            if is_new:
                _log.warning("%s", self._failing[id(source)])
            return instead
        with self._lock:
            self._failing.pop(id(source), None)
        return found

    def read(self, *, per_shard: bool = False) -> list[Sample]:
        """Read every metric there is of what is watched.

        Args:
            per_shard: the metrics of each shard, too: six series for each that is owned here.
        """
        samples = [sample for look in self.looks() for sample in _of_consumer(look, per_shard=per_shard)]
        for watched in self._watched:
            samples += self._alone(watched, lambda: list(_of_watched(watched)), [])  # noqa: B023 - called at once
        with self._lock:
            failures = dict(self._failures)
        for source, count in failures.items():
            samples += _samples({"source": source}, {"source_failures": count})
        return _merged(samples)


def _of_watched(watched: Watched) -> Iterable[Sample]:
    if isinstance(watched, KinesisProducer):
        return _of_producer(watched)
    if is_topology(watched):
        return _of_topology(watched)
    return () if isinstance(watched, Handle) else _of_query(watched)


def is_topology(watched: object) -> TypeGuard[HasComponents]:
    """Say whether something is a running topology; asks its type, as its figures cost something."""
    return hasattr(type(watched), "components")


def _merged(samples: list[Sample]) -> list[Sample]:
    """One sample for each series: two members of an application, or two producers, can be in one process."""
    merged: dict[tuple[str, ...], Sample] = {}
    for sample in samples:
        key = (sample.metric.name, *sample.labels.values())
        other = merged.get(key)
        merged[key] = sample if other is None else _together(sample, other)
    return samples if len(merged) == len(samples) else list(merged.values())


def _together(one: Sample, other: Sample) -> Sample:
    if isinstance(one.value, Counted) and isinstance(other.value, Counted):
        both = Distribution(one.value.bounds)
        both.add_counted(one.value)
        both.add_counted(other.value)
        return one._replace(value=both.counted())
    assert not isinstance(one.value, Counted)
    assert not isinstance(other.value, Counted)
    values = one.value, other.value
    return one._replace(value=max(values) if one.metric.unit in _NOT_ADDED else sum(values))


def consumers_of(handle: Handle) -> list[Consumer]:
    """The consumers behind a handle; none of a spout that is not open."""
    try:
        return [] if handle._is_over else list(handle._consumers().values())  # noqa: SLF001 - what a handle is
    except SpoutClosed:  # it was not opened
        return []


def _samples(
    labels: Mapping[str, str], values: Mapping[str, float | Counted | None], **more: str
) -> Iterator[Sample]:
    for name, value in values.items():
        if value is not None:
            yield Sample(METRICS[PREFIX + name], {**labels, **more}, value)


def _of_consumer(look: ConsumerLook, *, per_shard: bool) -> Iterator[Sample]:
    labels, counters, owned = {"app": look.app, "stream": look.stream}, look.counters, look.owned
    lags = [shard.lag_millis for shard in owned if shard.lag_millis is not None]
    in_flight = waiting = exhausted = holes = congested = 0
    for shard in owned:
        status = shard.status
        in_flight += status.in_flight
        waiting += status.waiting
        exhausted += status.exhausted
        holes += status.holes
        congested += status.congested
    yield from _samples(
        labels,
        {
            "records_delivered": counters.delivered,
            "records_acked": counters.acked,
            "records_retried": counters.retried,
            "records_timed_out": counters.timed_out,
            "records_dead_lettered": counters.dead_lettered,
            "records_expired": counters.expired,
            "records_skipped": counters.skipped,
            "read_bytes": counters.bytes_read,
            "read_throttles": counters.throttled,
            "batches_timed_out": counters.batches_timed_out,
            "damaged_aggregates": counters.damaged_aggregates,
            "records_outside_shard": counters.records_outside_shard,
            "shards_trimmed": counters.shards_trimmed,
            "commits": counters.commits,
            "commit_seconds": look.commits,
            "record_attempts": look.attempts,
            "record_age_seconds": look.ages,
            "handler_seconds": look.handling,
            "lag_max_seconds": max(lags, default=0) / 1000,
            "lag_avg_seconds": sum(lags) / max(1, len(lags)) / 1000,
            "oldest_unfinished_seconds": max((shard.unfinished_seconds for shard in owned), default=0.0),
            "records_in_flight": in_flight,
            "retries_waiting": waiting,
            "dead_letters_waiting": exhausted,
            "holes": holes,
            "records_uncommitted": look.uncommitted,
            "buffered_bytes": look.buffered_bytes,
            "shards_congested": congested,
            "shards_stalled": len(look.stalled),
            "members": len(look.assigned),
            "leads": look.leads,
            "assignment_changes": look.assignment_epoch,
            "last_progress_timestamp_seconds": _epoch(look, look.progressed_at),
            "last_commit_timestamp_seconds": _epoch(look, look.committed_at),
            "retried_error": look.retried_error is not None,
        },
    )
    for kind, count in look.given_up.items():
        yield from _samples(labels, {"records_given_up": count}, reason=kind.reason, error=kind.error)
    for error, count in look.failures.items():
        yield from _samples(labels, {"failures": count}, error=error)
    for state, count in Counter(shard.status.phase for shard in look.shards).items():
        yield from _samples(labels, {"shards": count}, state=state.name.lower())
    yield from _samples(labels, {"paused": look.pause is not None}, by="handler")
    yield from _samples(labels, {"paused": look.paused_by_operator is not None}, by="operator")
    yield from _samples(labels, {"info": 1}, version=package_version(), member=look.member, door=look.door)
    if per_shard:
        yield from _of_shards(look, labels)


def _of_shards(look: ConsumerLook, labels: Mapping[str, str]) -> Iterator[Sample]:
    stalled = {shard.status.shard_id for shard in look.stalled}
    for shard in look.owned:
        status = shard.status
        yield from _samples(
            labels,
            {
                "shard_lag_seconds": None if shard.lag_millis is None else shard.lag_millis / 1000,
                "shard_oldest_unfinished_seconds": shard.unfinished_seconds,
                "shard_records_in_flight": status.in_flight,
                "shard_retries_waiting": status.waiting,
                "shard_holes": status.holes,
                "shard_stalled": status.shard_id in stalled,
            },
            shard=status.shard_id,
        )


def _epoch(look: ConsumerLook, at: float | None) -> float:
    return 0.0 if at is None else look.time - (look.now - at)


def _of_producer(producer: KinesisProducer) -> Iterator[Sample]:
    counts = producer.counts()
    return _samples(
        {"stream": producer.config.stream},
        {
            "producer_records_put": counts.put,
            "producer_records_sent": counts.sent,
            "producer_records_failed": counts.failed,
            "producer_records_dropped": counts.dropped,
            "producer_records_refused": counts.refused,
            "producer_records_dead_lettered": counts.dead_lettered,
            "producer_records_recovered": counts.recovered,
            "producer_records_retried": counts.retried,
            "producer_calls": counts.calls,
            "producer_call_seconds": producer.call_seconds,
            "producer_records_waiting": counts.waiting,
            "producer_waiting_bytes": counts.waiting_bytes,
            "producer_spool_bytes": producer.spool_bytes,
        },
    )


def _of_topology(topology: HasComponents) -> Iterator[Sample]:
    for component, counts in topology.components.items():
        yield from _samples(
            {"topology": topology.name, "component": component},
            {
                "component_executed": counts.executed,
                "component_emitted": counts.emitted,
                "component_acked": counts.acked,
                "component_failed": counts.failed,
                "component_timed_out": counts.timed_out,
                "component_errors": counts.errors,
                "component_execute_seconds": counts.latency_ms / 1000,
                "component_complete_seconds": counts.complete_latency_ms / 1000,
            },
        )


_UNKNOWN: Final = Life(
    app="a query of Spark",
    stream="",
    fatal="an error: it cannot be asked, as if its JVM were gone",
    unturned_seconds=0.0,
)


def _life_of(query: HasProgress) -> Life:
    """A query of Spark is alive unless an error has ended it."""
    name, error = query.name or str(query.id), None
    if not query.isActive and (raised := query.exception()) is not None:
        error = str(raised).partition("\n")[0][:300]
    return Life(app=name, stream="", fatal=error, unturned_seconds=0.0)


def _of_query(query: HasProgress) -> Iterator[Sample]:
    name = query.name or str(query.id)
    progress = query.lastProgress
    if progress is None:
        yield from _samples({"query": name, "stream": ""}, {"query_active": query.isActive})
        return
    for source in progress["sources"]:
        told = _told(source["latestOffset"])
        if told is None:
            continue
        yield from _samples(
            {"query": name, "stream": ",".join(told["streams"])},
            {
                "query_lag_max_seconds": told["maxMsBehindLatest"] / 1000,
                "query_lag_avg_seconds": told["avgMsBehindLatest"] / 1000,
                "query_records": told["numProcessedRecords"],
                "query_bytes": told["numProcessedBytes"],
                "query_throttles": told["numAwsRateLimitErrors"],
                "query_buffered_bytes": told["bufferedBytes"],
                "query_shards": told["numTotalShards"],
                "query_input_rows_per_second": _rate(source["inputRowsPerSecond"]),
                "query_processed_rows_per_second": _rate(source["processedRowsPerSecond"]),
                "query_batch_id": progress["batchId"],
                "query_batch_timestamp_seconds": datetime.fromisoformat(progress["timestamp"]).timestamp(),
                "query_active": query.isActive,
            },
        )


def _told(offset: Any) -> Mapping[str, Any] | None:
    """Return our reader's part of a query's progress, if it is ours."""
    document = json.loads(offset) if isinstance(offset, str) else offset
    return document.get("kinesis") if isinstance(document, Mapping) else None


def _rate(rows_per_second: float | None) -> float:
    return rows_per_second if rows_per_second is not None and math.isfinite(rows_per_second) else 0.0
