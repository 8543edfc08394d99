"""Every metric as a row, from which come Prometheus, OpenTelemetry, the documentation, the dashboard, the alerts.

A name is a contract: dashboards and alerts stand on it. A metric that is given up keeps its name for a year
and says so in its meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kinesis_spout.model.distribution import AGES, ATTEMPTS, CALLS, HANDLING

PREFIX: Final = "kinesis_spout_"


class Kind(StrEnum):
    """The use that monitors make of a metric."""

    COUNTER = "counter"
    """Only grows; begins at 0 with the process. Look at its rate."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table."""

    name: str
    """With the prefix, and without what a monitor appends (``_total``, ``_bucket``)."""
    kind: Kind
    unit: str
    """As OpenTelemetry writes it: s, By, or what is counted in braces."""
    labels: tuple[str, ...]
    doc: str
    bounds: tuple[float, ...] = ()
    """The upper bounds of a histogram's ranges."""

    @property
    def exposed_name(self) -> str:
        """As Prometheus shows it: a counter ends in ``_total``."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


_STREAM: Final = ("app", "stream")
_SHARD: Final = (*_STREAM, "shard")
_QUERY: Final = ("query", "stream")
_PRODUCER: Final = ("stream",)
_COMPONENT: Final = ("topology", "component")


def _counter(name: str, labels: tuple[str, ...], doc: str, unit: str = "{record}") -> Metric:
    return Metric(name=PREFIX + name, kind=Kind.COUNTER, unit=unit, labels=labels, doc=doc)


def _gauge(name: str, labels: tuple[str, ...], doc: str, unit: str) -> Metric:
    return Metric(name=PREFIX + name, kind=Kind.GAUGE, unit=unit, labels=labels, doc=doc)


def _histogram(name: str, labels: tuple[str, ...], doc: str, unit: str, bounds: tuple[float, ...]) -> Metric:
    return Metric(name=PREFIX + name, kind=Kind.HISTOGRAM, unit=unit, labels=labels, doc=doc, bounds=bounds)


CONSUMER: Final = (
    _counter("records_delivered", _STREAM, "Deliveries to the handler, retries included."),
    _counter("records_acked", _STREAM, "Records acked."),
    _counter("records_retried", _STREAM, "Deliveries that failed and come again."),
    _counter("records_timed_out", _STREAM, "Deliveries that the message time-out ended."),
    _counter("records_given_up", (*_STREAM, "reason", "error"),
        "Records given up, by reason and type of exception (50 kinds, then `others`)."),
    _counter("records_dead_lettered", _STREAM, "Given-up records whose dead letter is stored."),
    _counter("failures", (*_STREAM, "error"),
        "Failed deliveries, by the exception's type and line (100 kinds, then `others`), or `no exception`.",
        "{failure}"),
    _counter("records_expired", _STREAM, "Records too old to be delivered."),
    _counter("records_skipped", _STREAM, "Expired records that were skipped."),
    _counter("read_bytes", _STREAM, "Bytes of records read.", "By"),
    _counter("read_throttles", _STREAM, "Reads that Kinesis refused for its limits.", "{call}"),
    _counter("batches_timed_out", _STREAM, "Micro-batches that outlived the message time-out.", "{batch}"),
    _counter("damaged_aggregates", _STREAM, "Damaged aggregated records, delivered as they are."),
    _counter("records_outside_shard", _STREAM,
        "User records outside their shard's hash keys, delivered like others."),
    _counter("shards_trimmed", _STREAM,
        "How often retention can have taken records unread.", "{shard}"),
    _counter("commits", _STREAM, "Commits to ZooKeeper.", "{commit}"),
    _histogram("commit_seconds", _STREAM, "The time of a commit.", "s", CALLS),
    _histogram("record_attempts", _STREAM, "Deliveries of an acked record.", "{attempt}", ATTEMPTS),
    _histogram("record_age_seconds", _STREAM,
        "A record's age when it was handled, since its arrival; a sample.", "s", AGES),
    _histogram("handler_seconds", _STREAM,
        "The time of user code for a record: the mean of its slice on Spark; in plain Python from the hand-out to "
        "the ack or the fail.", "s", HANDLING),
    _gauge("lag_max_seconds", _STREAM,
        "How far this member's furthest shard is behind the tip.", "s"),
    _gauge("lag_avg_seconds", _STREAM, "How far this member's shards are behind the tip, on average.", "s"),
    _gauge("oldest_unfinished_seconds", _STREAM,
        "The longest time for which a checkpoint has stood before unfinished records.", "s"),
    _gauge("records_in_flight", _STREAM, "Records handed out and not finished.", "{record}"),
    _gauge("retries_waiting", _STREAM, "Failed records that wait.", "{record}"),
    _gauge("dead_letters_waiting", _STREAM, "Given-up records whose dead letter is not stored.", "{record}"),
    _gauge("holes", _STREAM, "Finished runs beyond an unfinished record.", "{hole}"),
    _gauge("records_uncommitted", _STREAM, "Finished records not yet stored as such.", "{record}"),
    _gauge("buffered_bytes", _STREAM, "Memory for unfinished records and what was read ahead.",
        "By"),
    _gauge("shards", (*_STREAM, "state"), "Known shards, by their state.",
        "{shard}"),
    _gauge("shards_congested", _STREAM,
        "Shards not read on, as too much is unfinished.", "{shard}"),
    _gauge("shards_stalled", _STREAM,
        "Shards that have something to deliver and have not moved for `stalled_after_seconds`.", "{shard}"),
    _gauge("members", _STREAM, "Living members of the application.", "{member}"),
    _gauge("leads", _STREAM, "1 if this member leads the application.", "1"),
    _counter("assignment_changes", _STREAM,
        "Assignments of the application since it began.", "{assignment}"),
    _gauge("paused", (*_STREAM, "by"),
        "1 while an `operator` has paused it, or the `handler` fails for most records.", "1"),
    _gauge("last_progress_timestamp_seconds", _STREAM,
        "When a record was finished last, since the epoch; or 0.", "s"),
    _gauge("last_commit_timestamp_seconds", _STREAM,
        "When all that was finished was stored last; or 0.", "s"),
    _gauge("retried_error", _STREAM, "1 while reading or storing fails and is retried.", "1"),
    _gauge("info", (*_STREAM, "version", "member", "door"), "Always 1: what runs here.", "1"),
)  # fmt: skip
"""For each stream that a consumer of this process reads, with its application."""

SHARDS: Final = (
    _gauge("shard_lag_seconds", _SHARD, "How far the shard is behind the tip.", "s"),
    _gauge("shard_oldest_unfinished_seconds", _SHARD,
        "For how long its checkpoint has stood before unfinished records.", "s"),
    _gauge("shard_records_in_flight", _SHARD, "Records handed out and not finished.", "{record}"),
    _gauge("shard_retries_waiting", _SHARD, "Failed records that wait.", "{record}"),
    _gauge("shard_holes", _SHARD, "Finished runs beyond an unfinished record.", "{hole}"),
    _gauge("shard_stalled", _SHARD, "1 if it has something to deliver and has not moved.", "1"),
)  # fmt: skip
"""For each shard that this member owns; only where they are asked for."""

QUERIES: Final = (
    _gauge("query_lag_max_seconds", _QUERY, "How far the furthest shard is behind the tip.",
        "s"),
    _gauge("query_lag_avg_seconds", _QUERY, "How far the shards are behind the tip, on average.", "s"),
    _counter("query_records", _QUERY, "Records read in this run.", "{record}"),
    _counter("query_bytes", _QUERY, "Bytes read in this run.", "By"),
    _counter("query_throttles", _QUERY, "Reads that Kinesis refused for its limits.", "{call}"),
    _gauge("query_buffered_bytes", _QUERY, "What is read ahead.", "By"),
    _gauge("query_shards", _QUERY, "Shards read.", "{shard}"),
    _gauge("query_input_rows_per_second", _QUERY, "Spark's rate of arrival.",
        "{record}/s"),
    _gauge("query_processed_rows_per_second", _QUERY, "Spark's rate of processing.",
        "{record}/s"),
    _gauge("query_batch_id", _QUERY, "The number of the newest micro-batch.", "1"),
    _gauge("query_batch_timestamp_seconds", _QUERY, "When the newest micro-batch was triggered.", "s"),
    _gauge("query_active", _QUERY, "1 while the query runs.", "1"),
)  # fmt: skip
"""For a query that reads ``format("kinesis")``, from its ``lastProgress``."""

PRODUCER: Final = (
    _counter("producer_records_put", _PRODUCER, "Records put, those from the spool included."),
    _counter("producer_records_sent", _PRODUCER, "Records in Kinesis."),
    _counter("producer_records_failed", _PRODUCER, "Records given up with an error."),
    _counter("producer_records_dropped", _PRODUCER, "Records dropped to make room."),
    _counter("producer_records_refused", _PRODUCER, "Records not taken over, for want of room."),
    _counter("producer_records_dead_lettered", _PRODUCER, "Failed records whose letter is stored."),
    _counter("producer_records_recovered", _PRODUCER, "Records of an earlier producer, from the spool."),
    _counter("producer_records_retried", _PRODUCER, "Times that a call did not put a record."),
    _counter("producer_calls", _PRODUCER, "Calls of PutRecords.", "{call}"),
    _histogram("producer_call_seconds", _PRODUCER, "The time of a call of PutRecords.", "s", CALLS),
    _gauge("producer_records_waiting", _PRODUCER, "Records that have not ended.", "{record}"),
    _gauge("producer_waiting_bytes", _PRODUCER, "Data and keys of records that have not ended.", "By"),
    _gauge("producer_spool_bytes", _PRODUCER, "The spool's files.", "By"),
)  # fmt: skip
"""For each producer."""

TOPOLOGY: Final = (
    _counter("component_executed", _COMPONENT, "Tuples given to a bolt.", "{tuple}"),
    _counter("component_emitted", _COMPONENT, "Tuples emitted.", "{tuple}"),
    _counter("component_acked", _COMPONENT, "Tuples acked; of a spout: trees done.", "{tuple}"),
    _counter("component_failed", _COMPONENT, "Tuples failed; of a spout: trees failed.", "{tuple}"),
    _counter("component_timed_out", _COMPONENT, "Tuples neither acked nor failed in time.", "{tuple}"),
    _counter("component_errors", _COMPONENT, "Errors reported or raised.", "{error}"),
    _gauge("component_execute_seconds", _COMPONENT,
        "The time of a call of `execute`, on average of ten minutes.", "s"),
    _gauge("component_complete_seconds", _COMPONENT,
        "Of a spout: the time until a tree is done, on average of ten minutes.", "s"),
)  # fmt: skip
"""For each component of a topology."""

MONITORING: Final = (
    _counter("source_failures", ("source",),
        "Times that something watched could not be read.", "{failure}"),
)  # fmt: skip
"""For the monitoring itself."""

METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric for metric in (*CONSUMER, *SHARDS, *QUERIES, *PRODUCER, *TOPOLOGY, *MONITORING)
}
"""All of them, by name."""
