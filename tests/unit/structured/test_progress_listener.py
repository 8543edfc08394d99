import json
import logging
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.structured.progress_listener import (
    MAX_QUERIES,
    KinesisProgress,
    KinesisProgressListener,
    kinesis_progress,
)
from kinesis_spout.structured.source_progress import SourceProgress
from tests.support.spark.versions import since_4_2

QUERY = UUID(int=7)


def reported(stream: str = "orders") -> dict[str, Any]:
    return SourceProgress(
        streams=(stream,),
        mode="polling",
        min_ms_behind_latest=1,
        avg_ms_behind_latest=2,
        max_ms_behind_latest=3,
        total_shards=4,
        closed_shards=1,
        processed_records=10,
        processed_bytes=1000,
        throttles=5,
        buffered_bytes=600,
        aggregates=4,
        damaged_aggregates=2,
        records_outside_shard=1,
    ).as_document()


def source(latest_offset: Any, **others: Any) -> dict[str, Any]:
    return {
        "description": "a source",
        "startOffset": None,
        "endOffset": {"0": 23},
        "latestOffset": latest_offset,
        "numInputRows": 9,
        "inputRowsPerSecond": 2.5,
        "processedRowsPerSecond": 30.0,
    } | others


def progress(*sources: dict[str, Any], query: UUID = QUERY, batch: int = 3) -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(
        {
            "id": str(query),
            "runId": str(UUID(int=8)),
            "name": "billing",
            "timestamp": "2026-01-02T03:04:05.678Z",
            "batchId": batch,
            "batchDuration": 12,
            "stateOperators": [],
            "sources": list(sources),
            "sink": {"description": "a sink", "numOutputRows": -1},
        }
    )


def event(*sources: dict[str, Any], query: UUID = QUERY, batch: int = 3) -> QueryProgressEvent:
    return QueryProgressEvent(progress(*sources, query=query, batch=batch))


@since_4_2
def test_everything_a_reader_reports_is_told_with_the_querys_own_figures() -> None:
    assert kinesis_progress(progress(source(reported()))) == [
        KinesisProgress(
            name="billing",
            query_id=str(QUERY),
            run_id=str(UUID(int=8)),
            batch_id=3,
            timestamp=datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
            streams=("orders",),
            mode="polling",
            rows=9,
            input_rows_per_second=2.5,
            processed_rows_per_second=30.0,
            min_ms_behind_latest=1,
            avg_ms_behind_latest=2,
            max_ms_behind_latest=3,
            total_shards=4,
            closed_shards=1,
            processed_records=10,
            processed_bytes=1000,
            throttles=5,
            buffered_bytes=600,
            aggregates=4,
            damaged_aggregates=2,
            records_outside_shard=1,
        )
    ]


def test_the_report_is_found_as_text_too() -> None:
    assert len(kinesis_progress(progress(source(json.dumps(reported()))))) == 1


@since_4_2
def test_each_kinesis_source_of_a_query_is_told_and_other_sources_are_not() -> None:
    found = kinesis_progress(
        progress(source(reported("a")), source({"topic": {"0": 23}}), source(None), source(reported("b")))
    )

    assert [each.streams for each in found] == [("a",), ("b",)]


@since_4_2
@pytest.mark.parametrize("rate", [float("nan"), float("inf"), None])
def test_a_rate_that_spark_does_not_have_is_zero(rate: float | None) -> None:
    [found] = kinesis_progress(
        progress(source(reported(), inputRowsPerSecond=rate, processedRowsPerSecond=rate))
    )

    assert (found.input_rows_per_second, found.processed_rows_per_second) == (0.0, 0.0)


@since_4_2
def test_a_listener_hands_on_every_progress_and_keeps_the_last_of_each_query() -> None:
    told: list[KinesisProgress] = []
    listener = KinesisProgressListener(told.append, keep=2)
    for batch in range(4):
        listener.onQueryProgress(event(source(reported()), batch=batch))
    listener.onQueryProgress(event(source(reported()), query=UUID(int=9), batch=50))
    listener.onQueryProgress(event(source({"other": 1}), batch=4))

    assert [each.batch_id for each in told] == [0, 1, 2, 3, 50]
    assert [each.batch_id for each in listener.recent(QUERY)] == [2, 3]
    assert listener.latest(str(QUERY)) == told[3]
    assert listener.latest(UUID(int=9)) == told[4]


def test_nothing_is_known_of_a_query_that_was_not_seen() -> None:
    listener = KinesisProgressListener()

    assert (listener.recent(QUERY), listener.latest(QUERY)) == ((), None)


@since_4_2
def test_the_query_that_was_silent_for_longest_is_forgotten_beyond_the_bound() -> None:
    listener = KinesisProgressListener()
    queries = [UUID(int=number) for number in range(MAX_QUERIES)]
    for query in [*queries, queries[0], UUID(int=MAX_QUERIES)]:
        listener.onQueryProgress(event(source(reported()), query=query))

    assert listener.latest(queries[1]) is None
    assert len(listener.recent(queries[0])) == 2
    assert listener.latest(UUID(int=MAX_QUERIES)) is not None


@since_4_2
def test_a_callback_that_raises_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(progress: KinesisProgress) -> None:
        raise ValueError(f"no room for {progress.streams[0]}")

    listener = KinesisProgressListener(fail)
    with caplog.at_level(logging.ERROR):
        listener.onQueryProgress(event(source(reported("a")), source(reported("b"))))

    assert [each.streams for each in listener.recent(QUERY)] == [("a",), ("b",)]
    assert "no room for a" in caplog.text
    assert "no room for b" in caplog.text


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="keep: expected at least 1, got 0"):
        KinesisProgressListener(keep=0)
