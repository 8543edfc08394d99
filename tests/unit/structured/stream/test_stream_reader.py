"""The streaming reader under a Spark in memory, over a stream in memory."""

import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kinesis_spout.kinesis.read.shard_reader import PAGE_BYTES
from kinesis_spout.model.errors import (
    AccessDenied,
    CheckpointUnreadable,
    DataLoss,
    InvalidConfig,
    StreamNotFound,
    StreamRecreated,
)
from kinesis_spout.structured.pages.page_buffer import PageBuffer
from kinesis_spout.structured.stream import fetched_shards, shard_fetcher
from kinesis_spout.structured.stream.stream_reader import ReadAllAvailable
from kinesis_spout.testing import InMemoryStream, ManualClock
from tests.support import threads
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient, client_error
from tests.support.waiting import wait_until
from tests.unit.structured import spark_in_memory
from tests.unit.structured.spark_in_memory import Batch, Row, SparkInMemory, options, rows_of

pytestmark = pytest.mark.no_second_run

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"

Start = Callable[..., SparkInMemory]


@pytest.fixture
def query() -> Iterator[Start]:
    started: list[SparkInMemory] = []

    def start(
        stream: InMemoryStream, *, available_now: bool = False, room_bytes: int | None = None, **given: str
    ) -> SparkInMemory:
        asked = options(stream, **given)
        if room_bytes is not None:  # less than a user may ask for
            asked = replace(asked, max_buffered_bytes=PAGE_BYTES + room_bytes)
        started.append(SparkInMemory(asked, available_now=available_now))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def put(stream: InMemoryStream, count: int, prefix: str = "r") -> list[bytes]:
    data = [f"{prefix}{number}".encode() for number in range(count)]
    for each in data:
        stream.put(each, partition_key=each.decode())
    return data


def let_a_millisecond_pass() -> None:
    """Arrivals are whole milliseconds: what arrives in the one in which a query begins at LATEST is in it."""
    now = time.time()
    while time.time() < now + 0.001:
        pass


def data_of(rows: list[Row]) -> Counter[bytes]:
    return Counter(data for _, _, data in rows)


def test_every_record_is_in_one_batch_in_the_order_of_its_shard(query: Start) -> None:
    stream = InMemoryStream(shards=3)
    expected = put(stream, 500)
    rows = query(stream).until_idle()
    assert data_of(rows) == Counter(expected)
    for shard in stream.list_shards():
        numbers = [int(number) for shard_id, number, _ in rows if shard_id == shard.shard_id]
        assert numbers == sorted(numbers)


def test_a_second_action_reads_the_same_rows(query: Start) -> None:
    stream = InMemoryStream(shards=2)
    put(stream, 100)
    batch = query(stream).trigger()
    assert batch is not None
    put(stream, 100, "later")
    assert rows_of(batch.partitions) == batch.rows


def test_a_second_action_reads_the_same_rows_when_the_pages_are_gone(query: Start) -> None:
    stream = InMemoryStream(shards=2)
    put(stream, 100)
    spark = query(stream)
    batch = spark.next_batch()
    put(stream, 100, "later")
    spark.until_idle()
    assert sorted(rows_of(batch.partitions)) == sorted(batch.rows)


def test_a_replay_after_a_restart_reads_the_same_rows_in_the_same_order(query: Start) -> None:
    stream = InMemoryStream(shards=2)
    put(stream, 100)
    spark = query(stream, maxRecordsPerTrigger="30")
    spark.trigger()
    lost = spark.next_batch(fail=True)
    put(stream, 100, "later")
    replayed = spark.next_batch()
    for shard in (FIRST, SECOND):
        assert [row for row in replayed.rows if row[0] == shard] == [
            row for row in lost.rows if row[0] == shard
        ]


def test_a_replay_of_the_first_batch_starts_where_latest_was(query: Start) -> None:
    stream = InMemoryStream()
    put(stream, 10, "before")
    let_a_millisecond_pass()
    spark = query(stream, initialPosition="latest")
    spark.ask_initial_offset()
    expected = put(stream, 10)
    lost = spark.next_batch(fail=True)
    put(stream, 10, "later")
    spark.next_batch()
    assert spark.batches[0].rows == lost.rows
    rows = spark.rows + spark.until_idle()
    assert not data_of(rows) & data_of([("", "", f"before{n}".encode()) for n in range(10)])
    assert data_of(rows) >= Counter(expected)


def test_latest_is_in_the_log_before_anything_is_read(query: Start) -> None:
    stream = InMemoryStream()
    spark = query(stream, initialPosition="latest")
    batch = spark.next_batch()
    assert batch.rows == []
    assert spark.trigger() is None
    spark.stop()
    expected = put(stream, 10, "while down")
    spark.start()
    assert data_of(spark.until_idle()) == Counter(expected)


def test_a_child_born_while_a_query_at_latest_was_down_is_read_from_its_beginning(query: Start) -> None:
    stream = InMemoryStream()
    spark = query(stream, initialPosition="latest")
    spark.until_idle()
    spark.stop()
    expected = put(stream, 10, "parent")
    stream.split(FIRST)
    expected += put(stream, 10, "child")
    spark.start()
    assert data_of(spark.until_idle()) == Counter(expected)


def test_parents_are_in_earlier_batches_than_their_children(query: Start) -> None:
    stream = InMemoryStream(shards=2)
    expected = put(stream, 50, "parents")
    child = stream.merge(FIRST, SECOND)
    expected += put(stream, 50, "child")
    spark = query(stream, maxRecordsPerTrigger="20")
    spark.until_idle()
    assert data_of(spark.rows) == Counter(expected)
    of_child = [
        batch.number for batch in spark.batches if any(row[0] == child.shard_id for row in batch.rows)
    ]
    of_parents = [
        batch.number for batch in spark.batches if any(row[0] != child.shard_id for row in batch.rows)
    ]
    assert max(of_parents) < min(of_child)


def test_a_split_between_batch_and_restart_loses_nothing(query: Start) -> None:
    stream = InMemoryStream()
    expected = put(stream, 20, "parent")
    spark = query(stream)
    spark.trigger()
    stream.split(FIRST)
    expected += put(stream, 20, "child")
    spark.trigger(fail=True)
    spark.until_idle()
    assert data_of(spark.rows) == Counter(expected)


def test_a_batch_keeps_to_its_record_limit_and_shards_share_it(query: Start) -> None:
    stream = InMemoryStream(shards=2)
    put(stream, 300)
    spark = query(stream, maxRecordsPerTrigger="50")
    spark.until_idle()
    sizes = [len(batch.rows) for batch in spark.batches]
    assert sum(sizes) == 300
    assert max(sizes) == 50
    assert {row[0] for row in spark.batches[1].rows} == {FIRST, SECOND}


def test_a_batch_keeps_to_its_byte_limit_and_has_a_record_at_least(query: Start) -> None:
    stream = InMemoryStream()
    for _ in range(5):
        stream.put(b"x" * 10_000, "k")
    spark = query(stream, maxBytesPerTrigger="1k")
    spark.until_idle()
    assert [len(batch.rows) for batch in spark.batches] == [1] * 5


def test_a_query_that_is_triggered_once_takes_all_that_is_available_in_one_batch(query: Start) -> None:
    stream = InMemoryStream(shards=3)
    put(stream, 100)
    spark = query(stream, maxRecordsPerTrigger="10", maxRecordsPerFetch="7")
    start = spark.reader.initialOffset()
    end = spark.reader.latestOffset(start, ReadAllAvailable())
    assert len(rows_of(list(spark.reader.partitions(start, end)))) == 100


def test_too_few_records_wait_for_more(query: Start) -> None:
    stream = InMemoryStream()
    put(stream, 5)
    spark = query(stream, minRecordsPerTrigger="10")
    assert spark.trigger() is None
    put(stream, 5, "more")
    batch = spark.next_batch()
    assert len(batch.rows) == 10


def test_too_few_records_wait_no_longer_than_they_may(query: Start) -> None:
    stream = InMemoryStream()
    put(stream, 5)
    spark = query(stream, minRecordsPerTrigger="10", maxTriggerDelay="300ms")
    batch = spark.next_batch()
    assert len(batch.rows) == 5


def test_records_that_are_late_come_in_few_batches(query: Start) -> None:
    stream = InMemoryStream(clock=(clock := ManualClock()))
    expected = put(stream, 50)
    clock.advance(3600)
    spark = query(stream, maxRecordsPerFetch="5", maxRecordsPerTrigger="20")
    batches = [spark.trigger() for _ in range(3)]
    assert [len(batch.rows) for batch in batches if batch is not None] == [20, 20, 10]
    assert data_of([row for batch in batches if batch is not None for row in batch.rows]) == Counter(expected)


def test_expired_iterators_and_throttles_and_lost_connections_lose_nothing(query: Start) -> None:
    stream = InMemoryStream()
    expected = put(stream, 20)
    spark = query(stream, maxRecordsPerTrigger="7", maxRecordsPerFetch="5")
    spark.trigger()
    stream.expire_iterators()
    stream.make_unavailable()
    expected += put(stream, 20, "more")
    spark.until_idle()
    assert data_of(spark.rows) == Counter(expected)


@pytest.mark.parametrize("fails", [True, False])
def test_a_trimmed_position_ends_the_query_or_is_given_up(query: Start, *, fails: bool) -> None:
    stream = InMemoryStream(clock=ManualClock())  # years behind: no time proves that nothing is missing
    put(stream, 10)
    spark = query(stream, failOnDataLoss=str(fails))
    spark.until_idle()
    spark.stop()
    put(stream, 10, "lost")
    stream.trim(FIRST, stream.records(FIRST)[-5].sequence)
    spark.start()
    if fails:
        with pytest.raises(DataLoss, match=FIRST):
            spark.until_idle()
    else:
        assert len(spark.until_idle()) == 4


@pytest.mark.parametrize("days_ago", [0, 3])
def test_the_log_says_when_a_shard_was_whole_which_tells_an_idle_one_from_one_that_lost_records(
    query: Start, days_ago: int
) -> None:
    stream = InMemoryStream()
    put(stream, 1)
    spark = query(stream)
    spark.until_idle()
    spark.stop()
    stream.trim(FIRST, stream.records(FIRST)[-1].sequence)
    put(stream, 1, "kept")
    logged = json.loads(spark.offsets[-1])
    logged["streams"]["stream"]["shards"][FIRST]["since"] -= days_ago * 24 * 3600.0
    spark.offsets[-1] = json.dumps(logged)
    spark.start()
    if days_ago:
        with pytest.raises(DataLoss, match=FIRST):
            spark.until_idle()
    else:
        assert len(spark.until_idle()) == 1


@pytest.mark.parametrize("began_before", [False, True])
def test_a_shard_that_retention_takes_while_a_query_begins_at_the_horizon_is_no_loss(
    query: Start, *, began_before: bool
) -> None:
    stream = InMemoryStream(clock=(clock := ManualClock()))
    put(stream, 10)
    first, second = stream.split(FIRST)
    stream.split(first.shard_id)
    clock.advance(20 * 3600.0)
    spark = query(stream)
    spark.ask_initial_offset()
    if began_before:
        spark.trigger(fail=True)
        spark.trigger()
        spark.stop()
        put(stream, 10, "lost")
        stream.split(second.shard_id)
        clock.advance(20 * 3600.0)
        logged = json.loads(spark.offsets[-1])
        for shard in logged["streams"]["stream"]["shards"].values():
            shard["since"] -= 30 * 3600.0  # the query's own clock did not go on
        spark.offsets[-1] = json.dumps(logged)
    clock.advance(10 * 3600.0)
    expected = put(stream, 20, "kept")
    if began_before:
        spark.start()
        with pytest.raises(DataLoss, match="is gone: retention trimmed it"):
            spark.until_idle()
    else:
        assert data_of(spark.until_rows(20)) == Counter(expected)
        assert (spark.reader.reportLatestOffset() or {})["kinesis"]["numDataLosses"] == 0


def test_a_batch_that_retention_took_some_of_is_not_replayed_short(query: Start) -> None:
    stream = InMemoryStream()
    put(stream, 10)
    spark = query(stream)
    spark.trigger(fail=True)
    stream.trim(FIRST, stream.records(FIRST)[4].sequence)
    with pytest.raises(DataLoss):
        spark.trigger()


@pytest.mark.parametrize("fails", [True, False])
def test_a_recreated_stream_is_noticed_or_read_from_its_beginning(query: Start, *, fails: bool) -> None:
    stream = InMemoryStream()
    put(stream, 10)
    spark = query(stream, failOnDataLoss=str(fails))
    spark.until_idle()
    spark.stop()
    document = json.loads(spark.offsets[-1])
    document["streams"][stream.name]["created"] -= 3600
    spark.offsets[-1] = json.dumps(document)
    spark.start()
    if fails:
        with pytest.raises(StreamRecreated, match="checkpointLocation"):
            spark.trigger()
    else:
        assert len(spark.until_idle()) == 10


def test_what_another_source_wrote_is_no_offset(query: Start) -> None:
    spark = query(InMemoryStream())
    with pytest.raises(CheckpointUnreadable, match="another source"):
        spark.reader.latestOffset({"topic": {"0": 3}, "version": 1}, ReadAllAvailable())


def test_an_offset_of_a_newer_version_is_refused(query: Start) -> None:
    spark = query(InMemoryStream())
    with pytest.raises(CheckpointUnreadable, match="upgrade"):
        spark.reader.latestOffset({"version": 2}, ReadAllAvailable())


def test_a_missing_stream_and_a_missing_permission_end_the_query(query: Start) -> None:
    gone = InMemoryStream()
    gone.delete()
    with pytest.raises(StreamNotFound):
        query(gone).trigger()
    forbidden = InMemoryStream("other")
    forbidden.fail_next(AccessDenied("no"))
    with pytest.raises(AccessDenied):
        query(forbidden).until_idle()


def test_available_now_reads_what_was_there_and_ends(query: Start) -> None:
    stream = InMemoryStream(shards=2)
    expected = put(stream, 100)
    spark = query(stream, available_now=True, maxRecordsPerTrigger="30")
    assert data_of(spark.until_idle()) == Counter(expected)
    assert len(spark.batches) == 4
    put(stream, 10, "too late")
    assert spark.trigger() is None


def test_available_now_of_an_empty_stream_ends(query: Start) -> None:
    assert query(InMemoryStream(shards=2), available_now=True).trigger() is None


def test_available_now_reads_children_that_were_there_and_no_later_ones(query: Start) -> None:
    stream = InMemoryStream()
    expected = put(stream, 20, "parent")
    first, _ = stream.split(FIRST)
    expected += put(stream, 20, "child")
    spark = query(stream, available_now=True, maxRecordsPerTrigger="5")
    spark.trigger()
    stream.split(first.shard_id)
    late = put(stream, 20, "grandchild")
    assert data_of(spark.rows + spark.until_idle()) >= Counter(expected)
    spark.stop()
    spark.start(available_now=True)
    spark.until_idle()
    assert data_of(spark.rows) == Counter(expected + late)


def test_the_progress_counts_what_was_processed(query: Start) -> None:
    stream = InMemoryStream(shards=2)
    put(stream, 30)
    spark = query(stream)
    spark.until_idle()
    document = spark.reader.reportLatestOffset()
    assert document is not None
    assert document["kinesis"]["numProcessedRecords"] == 30
    assert document["kinesis"]["numTotalShards"] == 2
    assert document["kinesis"]["bufferedBytes"] == 0


def test_pyspark_before_4_2_says_nothing_of_the_start(query: Start) -> None:
    stream = InMemoryStream()
    put(stream, 10)
    spark = query(stream)
    first = spark.reader.latestOffset()
    assert len(rows_of(list(spark.reader.partitions({}, first)))) == 10
    spark.stop()
    put(stream, 5, "more")
    spark.start()
    assert spark.reader.partitions(first, first) == []  # how it tells a resumed query where it stands
    second = spark.reader.latestOffset()
    assert len(rows_of(list(spark.reader.partitions(first, second)))) == 5


def test_at_latest_nobody_waits_for_shards_that_are_closed_already(query: Start) -> None:
    stream = InMemoryStream()
    put(stream, 10, "old")
    first, _ = stream.split(FIRST)
    stream.split(first.shard_id)
    put(stream, 10, "older")
    let_a_millisecond_pass()
    spark = query(stream, initialPosition="latest")
    spark.next_batch()
    expected = put(stream, 20)
    spark.next_batch()
    assert data_of(spark.rows + spark.until_idle()) == Counter(expected)
    assert len(spark.batches) <= 4


@pytest.mark.parametrize("fails", [True, False])
def test_a_replayed_batch_of_a_shard_that_is_gone_is_a_loss_or_given_up(query: Start, *, fails: bool) -> None:
    clock = ManualClock(epoch=1_700_000_000.0)
    stream = InMemoryStream(clock=clock)
    put(stream, 10)
    spark = query(stream, failOnDataLoss=str(fails))
    spark.trigger(fail=True)
    stream.split(FIRST)
    clock.advance(25 * 3600.0)
    expected = put(stream, 10, "child")
    if fails:
        with pytest.raises(DataLoss, match="`fail_on_data_loss=False`"):
            spark.trigger()
        return
    replayed = spark.next_batch()
    assert replayed.rows == []
    assert data_of(spark.until_idle()) == Counter(expected)


def test_too_few_records_do_not_wait_where_their_shard_has_no_more_room(query: Start) -> None:
    stream = InMemoryStream(shards=20)
    for _ in range(15_000):
        stream.put(b"x", partition_key="k")  # all to one shard, which a page of 10,000 gives its share
    spark = query(stream, minRecordsPerTrigger="12000", maxBufferedBytes="32m")
    assert within(spark, 5.0)


def test_too_few_records_do_not_wait_where_the_limit_of_bytes_keeps_the_others_out(query: Start) -> None:
    stream = InMemoryStream()
    for _ in range(4):
        stream.put(b"x" * 1_000, partition_key="k")
    spark = query(stream, minRecordsPerTrigger="4", maxBytesPerTrigger="2500")
    assert within(spark, 5.0)


def test_too_few_records_do_not_keep_the_children_of_a_shard_waiting(query: Start) -> None:
    stream = InMemoryStream()
    put(stream, 2)
    stream.split(FIRST)
    put(stream, 10, "child")
    spark = query(stream, minRecordsPerTrigger="5")
    assert within(spark, 5.0)
    assert within(spark, 5.0)
    assert len(spark.rows) == 12


def within(spark: SparkInMemory, seconds: float) -> bool:
    """Trigger until there is a batch, or for too long."""
    return any(spark.trigger() is not None for _ in range(int(seconds)))


def test_pages_that_cannot_be_served_are_read_from_kinesis(
    query: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stream = InMemoryStream()
    expected = put(stream, 10)
    with caplog.at_level(logging.WARNING):
        rows = query(stream, pageServerHost="192.0.2.1").until_idle()
    assert data_of(rows) == Counter(expected)
    assert len([record for record in caplog.records if "pageServerHost" in record.message]) == 1


def test_a_reader_that_cannot_begin_leaves_no_threads(query: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    class SecondIsGone(InMemoryKinesisClient):
        def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
            if request["StreamName"] == "second":
                raise client_error("ResourceNotFoundException", "DescribeStreamSummary")
            return super().describe_stream_summary(**request)

    stream = InMemoryStream("first")
    spark = query(stream, streamName="first,second")
    monkeypatch.setitem(spark_in_memory._clients, "first", SecondIsGone(stream))
    before = threads.named()
    with pytest.raises(StreamNotFound):
        spark.trigger()
    # Not their number: a thread of an earlier test may end meanwhile.
    wait_until(lambda: threads.named() <= before, "its threads end")


def test_a_page_that_cannot_be_kept_ends_the_query_and_hangs_nobody(
    query: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(PageBuffer):
        def append(self, *_page: object) -> None:
            raise MemoryError("no more")

    monkeypatch.setattr(fetched_shards, "PageBuffer", Full)
    stream = InMemoryStream()
    put(stream, 10)
    with pytest.raises(MemoryError):
        query(stream, available_now=True).trigger()


# --- oldest arrivals first


def put_for_an_hour(stream: InMemoryStream, clock: ManualClock) -> None:
    """Put a record a second into the first shard, and one a minute into the second."""
    keys = keys_of_both_shards(stream)
    for second in range(3600):
        clock.advance(1)
        for key, period in zip(keys, (1, 60), strict=True):
            if second % period == 0:
                stream.put(str(second).encode(), partition_key=key)


def keys_of_both_shards(stream: InMemoryStream) -> tuple[str, str]:
    """Find a partition key of each shard, with a record of each that says so: at the stream's beginning."""
    keys: dict[str, str] = {}
    for number in itertools.count():
        keys.setdefault(stream.put(b"0", partition_key=str(number)).shard_id, str(number))
        if len(keys) == 2:
            return keys[FIRST], keys[SECOND]
    raise AssertionError


def seconds_late(batches: list[Batch]) -> int:
    """Tell by how much a record came after those of an earlier batch that were put later, at most."""
    newest, late = 0, 0
    for batch in batches:
        seconds = [int(data) for _, _, data in batch.rows]
        late = max(late, newest - min(seconds))
        newest = max(newest, *seconds)
    return late


@pytest.mark.parametrize("limits", [{}, {"maxRecordsPerTrigger": "500"}, {"maxBytesPerTrigger": "50k"}])
def test_a_backlog_larger_than_the_buffer_is_read_oldest_first_over_very_unequal_shards(
    query: Start, limits: dict[str, str]
) -> None:
    clock = ManualClock()
    stream = InMemoryStream(shards=2, clock=clock)
    put_for_an_hour(stream, clock)
    spark = query(stream, room_bytes=150_000, maxRecordsPerFetch="400", **limits)
    rows = spark.until_idle()
    shards = [stream.records(shard.shard_id) for shard in stream.list_shards()]
    assert data_of(rows) == Counter(record.data for records in shards for record in records)
    assert len(spark.batches) > 1
    assert seconds_late(spark.batches) <= 1


def test_where_order_does_not_matter_shards_go_on_by_themselves(query: Start) -> None:
    clock = ManualClock()
    stream = InMemoryStream(shards=2, clock=clock)
    put_for_an_hour(stream, clock)
    spark = query(stream, room_bytes=150_000, maxRecordsPerFetch="400", maxArrivalSkew="24h")
    assert len(spark.until_idle()) >= 3660
    assert seconds_late(spark.batches) > 60


def test_the_others_wait_for_a_shard_that_cannot_be_read_and_go_on_after_a_minute(
    query: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    stream = InMemoryStream(shards=2, clock=clock)
    put_for_an_hour(stream, clock)
    stream.make_unavailable(times=1_000_000, shard_id=FIRST)
    spark = query(stream)
    assert spark.trigger() is None
    monkeypatch.setattr(shard_fetcher, "OUTAGE_SECONDS", 0.0)  # the minute is over
    assert within(spark, 10.0)
    assert {shard for shard, _, _ in spark.batches[0].rows} == {SECOND}
    assert "the other shards wait for it no longer" in caplog.text


def test_a_query_that_is_triggered_once_says_what_does_not_fit_into_its_batch(
    query: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stream = InMemoryStream()
    put(stream, 2_000)
    spark = query(stream, room_bytes=100_000, maxRecordsPerFetch="400")
    start = spark.reader.initialOffset()
    end = spark.reader.latestOffset(start, ReadAllAvailable())
    assert 400 <= len(rows_of(list(spark.reader.partitions(start, end)))) < 2_000
    assert "trigger(availableNow=True)" in caplog.text


def test_a_start_that_is_yet_to_come_is_refused_when_the_query_opens(query: Start) -> None:
    tomorrow = json.dumps({"at_timestamp": time.time() + 86400})
    spark = query(InMemoryStream(), initialPosition=tomorrow)
    with pytest.raises(InvalidConfig, match="initialPosition: expected a time that is over"):
        spark.reader.initialOffset()
