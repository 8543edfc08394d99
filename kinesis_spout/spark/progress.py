"""What a query tells of each micro-batch, in the shape of ``StreamingQuery.lastProgress``."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from kinesis_spout.spark.shard_reader import ShardReader
from kinesis_spout.spark.work import WorkResult


def batch_progress(
    *,
    name: str,
    stream: str,
    number: int,
    seconds: float,
    results: Sequence[WorkResult],
    readers: Collection[ShardReader],
) -> dict[str, Any]:
    """Describe one micro-batch. The metrics have the names of Databricks' Kinesis source."""
    rows = sum(result.delivered for result in results)
    behind = [reader.millis_behind_latest for reader in readers]
    metrics = {
        "minMsBehindLatest": min(behind, default=0),
        "avgMsBehindLatest": sum(behind) / max(1, len(behind)),
        "maxMsBehindLatest": max(behind, default=0),
        "numTotalShards": len(readers),
        "numProcessedRecords": rows,
        "numProcessedBytes": sum(result.bytes_read for result in results),
        "numAwsRateLimitErrors": sum(result.throttles for result in results),
    }
    return {
        "name": name,
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "batchId": number,
        "numInputRows": rows,
        "processedRowsPerSecond": rows / seconds if seconds > 0 else 0.0,
        "durationMs": {"triggerExecution": round(seconds * 1000)},
        "sources": [
            {
                "description": f"Kinesis[{stream}]",
                "numInputRows": rows,
                "metrics": {name: str(value) for name, value in metrics.items()},
            }
        ],
    }
