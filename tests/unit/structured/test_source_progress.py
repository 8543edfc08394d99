import json
from typing import Any

import msgspec
import pytest

from kinesis_spout.structured.source_progress import SourceProgress

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


def test_the_document_is_read_back_as_text_and_decoded() -> None:
    assert SourceProgress.from_document(json.dumps(DOCUMENT)) == PROGRESS
    assert SourceProgress.from_document(DOCUMENT) == PROGRESS


def test_keys_of_a_newer_version_are_passed_over() -> None:
    newer = {"kinesis": DOCUMENT["kinesis"] | {"numLatePages": 3}, "more": 1}

    assert SourceProgress.from_document(newer) == PROGRESS


@pytest.mark.parametrize("missing", sorted(DOCUMENT["kinesis"].keys() - {"numDataLosses"}))
def test_a_document_that_lacks_a_key_is_none_of_ours(missing: str) -> None:
    rest = {key: value for key, value in DOCUMENT["kinesis"].items() if key != missing}

    assert SourceProgress.from_document({"kinesis": rest}) is None
    assert SourceProgress.from_document(json.dumps({"kinesis": rest})) is None


@pytest.mark.parametrize(
    "foreign", ["", "None", "null", "12", '{"orders":{"0":23}}', '{"kinesis":7}', '{"kinesis":{}}', "\ud800"]
)
def test_the_offsets_of_other_sources_are_none_of_ours(foreign: str) -> None:
    assert SourceProgress.from_document(foreign) is None


def test_a_key_of_another_type_makes_it_none_of_ours() -> None:
    wrong = DOCUMENT["kinesis"] | {"numTotalShards": "two"}

    assert SourceProgress.from_document(msgspec.json.encode({"kinesis": wrong})) is None
