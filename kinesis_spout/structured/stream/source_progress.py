"""A stream reader's metrics, as the document that Spark shows in the progress of the query.

A Python source cannot fill ``sources[].metrics``. Spark shows the result of ``reportLatestOffset`` verbatim
as ``sources[].latestOffset`` (since Spark 4.2), so the metrics travel there, under the names of Databricks'
Kinesis source.
"""

from typing import Any

import msgspec


class SourceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a reader. The counts are of this run of the query: they start from 0 when it is started."""

    streams: tuple[str, ...]
    mode: str
    """The consumer mode: "polling" or "efo"."""
    min_ms_behind_latest: int = msgspec.field(name="minMsBehindLatest")
    """The age of the oldest record that is not done, read or not, of the shard that is furthest ahead."""
    avg_ms_behind_latest: int = msgspec.field(name="avgMsBehindLatest")
    max_ms_behind_latest: int = msgspec.field(name="maxMsBehindLatest")
    total_shards: int = msgspec.field(name="numTotalShards")
    closed_shards: int = msgspec.field(name="numClosedShards")
    """Those of them that were read to their end."""
    processed_records: int = msgspec.field(name="numProcessedRecords")
    processed_bytes: int = msgspec.field(name="numProcessedBytes")
    throttles: int = msgspec.field(name="numAwsRateLimitErrors")
    """Calls that Kinesis refused because of its rate limits."""
    buffered_bytes: int = msgspec.field(name="bufferedBytes")
    """Bytes that were fetched ahead and are in no micro-batch yet."""
    aggregates: int = msgspec.field(name="numAggregates")
    """Aggregated records that were read and taken apart."""
    damaged_aggregates: int = msgspec.field(name="numDamagedAggregates")
    """Records read that begin like an aggregated one and are damaged: they are rows as they are."""
    records_outside_shard: int = msgspec.field(name="numRecordsOutsideShard")
    """User records read that lie outside their shard by their hash keys: they are rows as well."""
    data_losses: int = msgspec.field(name="numDataLosses", default=0)
    """The times that retention can have trimmed records of a shard, or a whole shard, before they were read."""

    def as_document(self) -> dict[str, Any]:
        """For ``reportLatestOffset``: JSON types only, keys in a fixed order."""
        return {"kinesis": msgspec.to_builtins(self, builtin_types=()) | {"streams": list(self.streams)}}
