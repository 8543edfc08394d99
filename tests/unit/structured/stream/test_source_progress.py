import json
from typing import Any

from kinesis_spout.structured.stream.source_progress import SourceProgress

DOCUMENT: dict[str, Any] = {
    "kinesis": {
        "streams": ["orders"],
        "mode": "polling",
        "minMsBehindLatest": 0,
        "avgMsBehindLatest": 5,
        "maxMsBehindLatest": 10,
        "numTotalShards": 2,
        "numClosedShards": 1,
        "numProcessedRecords": 10,
        "numProcessedBytes": 1000,
        "numAwsRateLimitErrors": 3,
        "bufferedBytes": 500,
        "numAggregates": 4,
        "numDamagedAggregates": 2,
        "numRecordsOutsideShard": 1,
        "numDataLosses": 0,
    }
}
PROGRESS = SourceProgress(
    streams=("orders",),
    mode="polling",
    min_ms_behind_latest=0,
    avg_ms_behind_latest=5,
    max_ms_behind_latest=10,
    total_shards=2,
    closed_shards=1,
    processed_records=10,
    processed_bytes=1000,
    throttles=3,
    buffered_bytes=500,
    aggregates=4,
    damaged_aggregates=2,
    records_outside_shard=1,
)


def test_the_document_has_the_names_that_users_of_other_sources_know_in_a_fixed_order() -> None:
    assert json.dumps(PROGRESS.as_document()) == json.dumps(DOCUMENT)
