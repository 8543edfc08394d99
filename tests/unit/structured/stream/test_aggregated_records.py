"""The streaming reader over aggregated records: whole ones in each batch, and the same rows in each replay."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kinesis_spout.kinesis.aggregated_record import MAGIC, UserRecord
from kinesis_spout.structured.pages import page_channel
from kinesis_spout.structured.stream import partitions
from kinesis_spout.structured.stream.stream_reader import KinesisStreamReader
from kinesis_spout.testing import InMemoryStream
from tests.unit.structured.spark_in_memory import Batch, Row, SparkInMemory, options, rows_of

SIZES = [1, 3, 40, 2, 1, 7, 25, 1, 1, 12]
"""Of the aggregates that are put, with an ordinary record before each."""


def put_all(stream: InMemoryStream) -> list[Row]:
    """Give the rows that a reader is to give."""
    expected: list[Row] = []
    for number, size in enumerate(SIZES):
        plain = stream.put(f"plain-{number}".encode(), f"key-{number}")
        inside = [UserRecord(f"user-{at}", f"{number}/{at}".encode(), "7") for at in range(size)]
        damaged = stream.put(MAGIC + bytes(20), f"key-{number}")
        expected += [
            (record.shard_id, record.sequence_number, record.data)
            for record in (plain, damaged, *stream.put_aggregated(inside))
        ]
    return expected


@pytest.fixture
def stream() -> InMemoryStream:
    return InMemoryStream(shards=2)


@pytest.fixture
def expected(stream: InMemoryStream) -> list[Row]:
    return put_all(stream)


class Queries:
    def __init__(self) -> None:
        self._started: list[SparkInMemory] = []

    def __call__(self, stream: InMemoryStream, **given: str) -> SparkInMemory:
        self._started.append(SparkInMemory(options(stream, **given)))
        return self._started[-1]

    def stop(self) -> None:
        for each in self._started:
            each.stop()


@pytest.fixture
def query() -> Iterator[Queries]:
    queries = Queries()
    yield queries
    queries.stop()


def batch_of(spark: SparkInMemory, *, fail: bool = False) -> Batch:
    """Trigger until there is a batch: after a second a reader says that nothing came, also on a slow machine."""
    deadline = time.monotonic() + 60
    while (batch := spark.trigger(fail=fail)) is None:
        assert time.monotonic() < deadline, "expected a batch"
    return batch


def read_all(spark: SparkInMemory, rows: int) -> list[Row]:
    while len(spark.rows) < rows:
        batch_of(spark)
    assert spark.trigger() is None
    return spark.rows


def of_shards(rows: list[Row]) -> list[Row]:
    """Bring rows in an order that leaves that of each shard as it is."""
    return sorted(rows, key=lambda row: row[0])


def carriers(rows: list[Row]) -> set[tuple[str, str]]:
    return {(shard_id, number) for shard_id, number, _ in rows}


def test_every_user_record_is_in_one_batch_in_its_order(
    query: Queries, stream: InMemoryStream, expected: list[Row]
) -> None:
    assert of_shards(read_all(query(stream), len(expected))) == of_shards(expected)


@pytest.mark.parametrize("limit", [{"maxRecordsPerTrigger": "5"}, {"maxBytesPerTrigger": "1000"}])
def test_an_aggregate_is_never_divided_and_goes_alone_if_it_exceeds_the_limit(
    query: Queries, stream: InMemoryStream, expected: list[Row], limit: dict[str, str]
) -> None:
    spark = query(stream, **limit)

    assert of_shards(read_all(spark, len(expected))) == of_shards(expected)
    seen: set[tuple[str, str]] = set()
    for batch in spark.batches:
        assert not seen & carriers(batch.rows)
        seen |= carriers(batch.rows)
        assert len(batch.rows) <= 5 or len(carriers(batch.rows)) == 1
    assert len(spark.batches) > 5


def test_a_replay_after_a_restart_has_the_same_rows(
    query: Queries, stream: InMemoryStream, expected: list[Row]
) -> None:
    spark = query(stream, maxRecordsPerTrigger="30")
    while len(spark.rows) < len(expected):
        lost = batch_of(spark, fail=True)
        replayed = batch_of(spark)
        assert of_shards(replayed.rows) == of_shards(lost.rows)
    assert of_shards(spark.rows) == of_shards(expected)


def test_a_second_action_has_the_same_rows_when_the_pages_are_gone(
    query: Queries, stream: InMemoryStream, expected: list[Row]
) -> None:
    spark = query(stream, maxRecordsPerTrigger="30")
    assert of_shards(read_all(spark, len(expected))) == of_shards(expected)

    for batch in spark.batches:
        assert of_shards(rows_of(batch.partitions)) == of_shards(batch.rows)


def test_pages_that_end_in_the_middle_of_an_aggregate_are_completed_from_kinesis(
    query: Queries, stream: InMemoryStream, expected: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aggregate may come from the reader in several pieces, and the reader may die after any of them."""
    fetch = page_channel.fetch_segments
    given_rows = [0]

    def some_rows(*given: Any, **more: Any) -> Iterator[pa.RecordBatch]:
        asked = given_rows[0]
        for batch in fetch(*given, **more):
            for row in range(batch.num_rows):
                if not asked:
                    return
                asked -= 1
                yield batch.slice(row, 1)

    batch = batch_of(query(stream))
    while len(batch.rows) < len(expected):  # not all of it had been read
        batch = batch_of(query(stream))
    monkeypatch.setattr(partitions, "fetch_segments", some_rows)
    for given_rows[0] in range(len(expected)):
        assert of_shards(rows_of(batch.partitions)) == of_shards(expected)


def test_the_progress_counts_aggregates_damaged_records_and_user_records(
    query: Queries, stream: InMemoryStream, expected: list[Row]
) -> None:
    spark = query(stream)
    read_all(spark, len(expected))

    progress = (spark.reader.reportLatestOffset() or {})["kinesis"]

    assert progress["numProcessedRecords"] == len(expected)
    assert progress["numAggregates"] == progress["numDamagedAggregates"] == len(SIZES)
    assert progress["numRecordsOutsideShard"] == 0


def test_user_records_outside_of_a_shard_that_a_reshard_made_are_counted(
    query: Queries, stream: InMemoryStream
) -> None:
    child, _ = stream.split("shardId-000000000000")
    inside, outside = str(child.hash_range[1]), str(child.hash_range[1] + 1)
    stream.put_aggregated([UserRecord("k", b"", inside), UserRecord("k", b"", outside)])
    spark = query(stream)

    read_all(spark, 2)

    assert (spark.reader.reportLatestOffset() or {})["kinesis"]["numRecordsOutsideShard"] == 1


def test_whole_aggregates_are_given_where_that_is_asked_for(query: Queries, stream: InMemoryStream) -> None:
    put_all(stream)

    rows = read_all(query(stream, deaggregate="false"), 3 * len(SIZES))

    assert len(rows) == 3 * len(SIZES)
    assert sum(data.startswith(MAGIC) for _, _, data in rows) == 2 * len(SIZES)


@pytest.mark.parametrize(("before", "afterwards"), [("false", "true"), ("true", "false")])
def test_a_batch_that_was_read_under_the_other_option_is_replayed_as_it_was(
    query: Queries, stream: InMemoryStream, before: str, afterwards: str
) -> None:
    put_all(stream)
    spark = query(stream, deaggregate=before, maxRecordsPerTrigger="20")
    batch_of(spark)
    lost = batch_of(spark, fail=True)
    spark.options = options(stream, deaggregate=afterwards, maxRecordsPerTrigger="20")
    spark.reader.stop()
    spark.start()

    replayed = batch_of(spark)

    assert of_shards(replayed.rows) == of_shards(lost.rows)
    assert not carriers(spark.until_idle()) & carriers(lost.rows)


def test_a_batch_of_a_version_that_left_aggregates_whole_is_replayed_with_its_rows(
    query: Queries, stream: InMemoryStream
) -> None:
    put_all(stream)
    spark = query(stream, deaggregate="false")
    lost = batch_of(spark, fail=True)
    assert "deaggregated" not in json.loads(spark.offsets[0])  # as such a version wrote it
    spark.options = options(stream)
    spark.reader.stop()
    spark.start()

    replayed = batch_of(spark)

    assert of_shards(replayed.rows) == of_shards(lost.rows)


def test_columns_tell_where_a_user_record_was_and_its_hash_key(stream: InMemoryStream) -> None:
    put_all(stream)
    asked = options(stream, extraColumns="subSequenceNumber,explicitHashKey")
    reader = KinesisStreamReader(asked)
    try:
        start = end = reader.initialOffset()
        deadline = time.monotonic() + 60
        while end == start:
            assert time.monotonic() < deadline, "expected a batch"
            end = reader.latestOffset(start)
        batches = [batch for partition in reader.partitions(start, end) for batch in reader.read(partition)]
    finally:
        reader.stop()

    rows = pa.Table.from_batches(batches).select(["data", "subSequenceNumber", "explicitHashKey"]).to_pylist()

    for row in rows:
        is_user_record = b"/" in row["data"]
        at = int(row["data"].partition(b"/")[2]) if is_user_record else None
        assert row["subSequenceNumber"] == at
        assert row["explicitHashKey"] == ("7" if is_user_record else None)
