"""The progress of each micro-batch, in the shape of ``StreamingQuery.lastProgress``."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.trouble_reports import trouble_text
from kinesis_spout.spark.driver.driver_shards import DriverShards
from kinesis_spout.spark.tasks.work import WorkResult

_OUTCOMES: Final = {
    "delivered": "delivered",
    "acked": "acked",
    "retried": "retried",
    "timedOut": "timed_out",
    "deadLettered": "given_up",
    "expired": "expired",
}
"""The counters that are reported, and under which names."""


def totals_of(counters: Counters) -> dict[str, int]:
    return {told: getattr(counters, field) for told, field in _OUTCOMES.items()}


def batch_progress(
    *,
    name: str,
    number: int,
    started: float,
    results: Sequence[WorkResult],
    shards: DriverShards,
    before: Counters,
) -> dict[str, Any]:
    """Metrics have the names of Databricks' Kinesis source. ``before``: counters at the last progress."""
    consumer = shards.consumer
    counters, trouble, stream = consumer.counters, consumer.trouble, consumer.stream
    seconds = consumer.now - started
    totals = totals_of(counters)
    rows = sum(result.delivered for result in results)
    behind = [shard.view.millis_behind_latest or 0 for shard in shards.by_id.values()]
    metrics = {
        "minMsBehindLatest": min(behind, default=0),
        "avgMsBehindLatest": sum(behind) / max(1, len(behind)),
        "maxMsBehindLatest": max(behind, default=0),
        "numTotalShards": len(behind),
        "numProcessedRecords": rows,
        "numProcessedBytes": sum(result.bytes_read for result in results),
        "numUncommittedRecords": consumer.uncommitted,
        "numAwsRateLimitErrors": sum(result.throttles for result in results),
        "numDamagedAggregates": counters.damaged_aggregates,
        "numRecordsOutsideShard": counters.records_outside_shard,
    }
    return {
        "name": name,
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "batchId": number,
        "numInputRows": rows,
        "processedRowsPerSecond": rows / seconds if seconds > 0 else 0.0,
        "durationMs": {"triggerExecution": round(seconds * 1000)},
        "outcomes": {told: totals[told] - getattr(before, field) for told, field in _OUTCOMES.items()},
        "totals": totals,
        "paused": None if trouble is None else trouble_text(trouble),
        "pausedByOperator": sorted(consumer.manager.paused_shards),
        "sources": [
            {
                "description": f"Kinesis[{stream}]",
                "numInputRows": rows,
                "metrics": {name: str(value) for name, value in metrics.items()},
            }
        ],
    }
