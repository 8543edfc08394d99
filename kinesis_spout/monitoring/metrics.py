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
    _counter("records_acked", _STREAM, "Records that were acked."),
    _counter("records_retried", _STREAM, "Deliveries that failed and will come again."),
    _counter("records_timed_out", _STREAM, "Deliveries that the message time-out ended."),
    _counter("records_given_up", (*_STREAM, "reason", "error"),
        "Records that were given up, by the reason in their dead letter and the type of the exception (at most 50 "
        "kinds, then `others`)."),
    _counter("records_dead_lettered", _STREAM, "Given-up records whose dead letter is stored."),
    _counter("failures", (*_STREAM, "error"),
        "Failures, by the exception's type and the line that raised it (at most 100 kinds, then `others`).",
        "{failure}"),
    _counter("records_expired", _STREAM, "Records that were too old when they were to be delivered."),
    _counter("records_skipped", _STREAM, "Of the expired records, those that were skipped."),
    _counter("read_bytes", _STREAM, "Bytes of records that were read.", "By"),
    _counter("read_throttles", _STREAM, "Reads that Kinesis refused because of its limits.", "{call}"),
    _counter("batches_timed_out", _STREAM, "Micro-batches that outlived the message time-out.", "{batch}"),
    _counter("damaged_aggregates", _STREAM, "Damaged aggregated records; they are delivered as they are."),
    _counter("records_outside_shard", _STREAM,
        "User records outside their shard by their hash keys; they are delivered like others."),
    _counter("shards_trimmed", _STREAM,
        "How often retention can have trimmed records of a shard before they were read.", "{shard}"),
    _counter("commits", _STREAM, "Commits of progress to ZooKeeper.", "{commit}"),
    _histogram("commit_seconds", _STREAM, "How long a commit took.", "s", CALLS),
    _histogram("record_attempts", _STREAM, "How many deliveries an acked record took.", "{attempt}", ATTEMPTS),
    _histogram("record_age_seconds", _STREAM,
        "How old a record was when it had been handled, from its arrival in Kinesis; of a sample.", "s", AGES),
    _histogram("handler_seconds", _STREAM,
        "How long the handler took for a record; the mean of each slice, on Spark.", "s", HANDLING),
    _gauge("lag_max_seconds", _STREAM,
        "How far behind the tip the shard is that is furthest behind, of this member's.", "s"),
    _gauge("lag_avg_seconds", _STREAM, "How far behind the tip this member's shards are on average.", "s"),
    _gauge("oldest_unfinished_seconds", _STREAM,
        "For how long the checkpoint of a shard has not moved although records behind it are unfinished: of the "
        "shard that waits longest.", "s"),
    _gauge("records_in_flight", _STREAM, "Records that are handed out and not finished.", "{record}"),
    _gauge("retries_waiting", _STREAM, "Failed records that wait for their next delivery.", "{record}"),
    _gauge("dead_letters_waiting", _STREAM, "Given-up records whose dead letter is not stored yet.", "{record}"),
    _gauge("holes", _STREAM, "Finished runs of records beyond a record that is not finished.", "{hole}"),
    _gauge("records_uncommitted", _STREAM, "Finished records that are not stored as such yet.", "{record}"),
    _gauge("buffered_bytes", _STREAM, "What is kept in memory of unfinished records and of what was read ahead.",
        "By"),
    _gauge("shards", (*_STREAM, "state"), "This member's shards, and those it knows of, by their state.",
        "{shard}"),
    _gauge("shards_congested", _STREAM,
        "Shards that are not read on because too much of them is unfinished.", "{shard}"),
    _gauge("shards_stalled", _STREAM,
        "Shards that have something to deliver and have not moved for `stalled_after_seconds`.", "{shard}"),
    _gauge("members", _STREAM, "Living members of the application, as of the newest assignment.", "{member}"),
    _gauge("leads", _STREAM, "1 if this member leads the application.", "1"),
    _counter("assignment_changes", _STREAM,
        "Assignments that the application's leaders have written since it began.", "{assignment}"),
    _gauge("paused", (*_STREAM, "by"),
        "1 while nothing is handed out by an `operator`, or while the `handler` fails for most records.", "1"),
    _gauge("last_progress_timestamp_seconds", _STREAM,
        "When a record was finished last, in seconds since the epoch; 0 before the first.", "s"),
    _gauge("last_commit_timestamp_seconds", _STREAM,
        "When everything finished had been stored last, in seconds since the epoch; 0 before the first.", "s"),
    _gauge("retried_error", _STREAM, "1 while an error of reading or storing is being retried.", "1"),
    _gauge("info", (*_STREAM, "version", "member", "door"), "Always 1: what runs here.", "1"),
)  # fmt: skip
"""For each stream that a consumer of this process reads, with its application."""

SHARDS: Final = (
    _gauge("shard_lag_seconds", _SHARD, "How far behind the tip the shard is.", "s"),
    _gauge("shard_oldest_unfinished_seconds", _SHARD,
        "For how long the shard's checkpoint has not moved although records behind it are unfinished.", "s"),
    _gauge("shard_records_in_flight", _SHARD, "Its records that are handed out and not finished.", "{record}"),
    _gauge("shard_retries_waiting", _SHARD, "Its failed records that wait for their next delivery.", "{record}"),
    _gauge("shard_holes", _SHARD, "Its finished runs beyond a record that is not finished.", "{hole}"),
    _gauge("shard_stalled", _SHARD, "1 if it has something to deliver and has not moved.", "1"),
)  # fmt: skip
"""For each shard that this member owns; only where they are asked for."""

QUERIES: Final = (
    _gauge("query_lag_max_seconds", _QUERY, "How far behind the furthest shard's oldest unfinished record is.",
        "s"),
    _gauge("query_lag_avg_seconds", _QUERY, "The same, on the average of the shards.", "s"),
    _counter("query_records", _QUERY, "Records that the source has read in this run.", "{record}"),
    _counter("query_bytes", _QUERY, "Bytes that the source has read in this run.", "By"),
    _counter("query_throttles", _QUERY, "Reads that Kinesis refused because of its limits.", "{call}"),
    _gauge("query_buffered_bytes", _QUERY, "What is read ahead and in no micro-batch yet.", "By"),
    _gauge("query_shards", _QUERY, "Shards that the source reads.", "{shard}"),
    _gauge("query_input_rows_per_second", _QUERY, "Spark's rate of arrival, of the newest micro-batch.",
        "{record}/s"),
    _gauge("query_processed_rows_per_second", _QUERY, "Spark's rate of processing, of the newest micro-batch.",
        "{record}/s"),
    _gauge("query_batch_id", _QUERY, "The number of the newest micro-batch.", "1"),
    _gauge("query_batch_timestamp_seconds", _QUERY, "When the newest micro-batch was triggered.", "s"),
    _gauge("query_active", _QUERY, "1 while the query runs.", "1"),
)  # fmt: skip
"""For a query that reads ``format("kinesis")``, from its ``lastProgress``."""

PRODUCER: Final = (
    _counter("producer_records_put", _PRODUCER, "Records that were put, those from the spool included."),
    _counter("producer_records_sent", _PRODUCER, "Records that are in Kinesis."),
    _counter("producer_records_failed", _PRODUCER, "Records that were given up with an error."),
    _counter("producer_records_dropped", _PRODUCER, "Records that were dropped to make room."),
    _counter("producer_records_refused", _PRODUCER, "Records that were not taken over, for want of room."),
    _counter("producer_records_dead_lettered", _PRODUCER, "Of the failed ones, those whose letter is stored."),
    _counter("producer_records_recovered", _PRODUCER, "Records that an earlier producer left in the spool."),
    _counter("producer_records_retried", _PRODUCER, "Times that a record was in a call that did not put it."),
    _counter("producer_calls", _PRODUCER, "Calls of PutRecords.", "{call}"),
    _histogram("producer_call_seconds", _PRODUCER, "How long a call of PutRecords took.", "s", CALLS),
    _gauge("producer_records_waiting", _PRODUCER, "Records that have not ended.", "{record}"),
    _gauge("producer_waiting_bytes", _PRODUCER, "Their data and keys.", "By"),
    _gauge("producer_spool_bytes", _PRODUCER, "The size of the spool's files; 0 without one.", "By"),
)  # fmt: skip
"""For each producer."""

TOPOLOGY: Final = (
    _counter("component_executed", _COMPONENT, "Tuples that a bolt was given.", "{tuple}"),
    _counter("component_emitted", _COMPONENT, "Tuples that it emitted.", "{tuple}"),
    _counter("component_acked", _COMPONENT, "Tuples that it acked; of a spout, whose trees are done.", "{tuple}"),
    _counter("component_failed", _COMPONENT, "Tuples that it failed; of a spout, whose trees failed.", "{tuple}"),
    _counter("component_timed_out", _COMPONENT, "Tuples that were neither when their time was over.", "{tuple}"),
    _counter("component_errors", _COMPONENT, "Errors that it reported or raised.", "{error}"),
    _gauge("component_execute_seconds", _COMPONENT,
        "How long a call of `execute` takes, on the average of ten minutes.", "s"),
    _gauge("component_complete_seconds", _COMPONENT,
        "Of a spout: how long its tuples take until their tree is done, on the average of ten minutes.", "s"),
)  # fmt: skip
"""For each component of a topology."""

MONITORING: Final = (
    _counter("source_failures", ("source",),
        "Times that something watched could not be read, by its type; the others still are.", "{failure}"),
)  # fmt: skip
"""For the monitoring itself."""

METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric for metric in (*CONSUMER, *SHARDS, *QUERIES, *PRODUCER, *TOPOLOGY, *MONITORING)
}
"""All of them, by name."""
