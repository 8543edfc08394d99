"""A streaming read of the streams that patterns find: they come, they go, and batches stay exact."""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kinesis_spout.model.errors import CheckpointUnreadable, DataLoss, StreamNotFound, StreamRecreated
from kinesis_spout.structured.stream import read_ahead
from tests.support.kinesis.in_memory_account import ARN, InMemoryAccountClient
from tests.support.kinesis.in_memory_client import client_error
from tests.support.waiting import wait_until
from tests.unit.structured.spark_in_memory import Batch, SparkInMemory, options_over

HOUR = 3600.0


class World:
    """Streams, and the queries on them."""

    def __init__(self) -> None:
        self.account = InMemoryAccountClient()
        self.queries: list[SparkInMemory] = []

    def query(self, pattern: str = "orders-*", *, available_now: bool = False, **given: str) -> SparkInMemory:
        named = "streamARN" if pattern.startswith("arn:") else "streamName"
        options = options_over(self.account, "account", **{named: pattern} | given)
        self.queries.append(SparkInMemory(options, available_now=available_now))
        return self.queries[-1]

    def until(self, spark: SparkInMemory, is_so: Callable[[], bool], what: str) -> list[bytes]:
        """Trigger until something is so; give what the batches had."""
        data: list[bytes] = []

        def look() -> bool:
            data.extend(data_of(spark.trigger()))
            return is_so()

        wait_until(look, what)
        return data

    def next_batch(self, spark: SparkInMemory, *, fail: bool = False) -> Batch:
        """Trigger until there is a batch; see ``SparkInMemory.trigger``."""
        batches: list[Batch | None] = []

        def look() -> bool:
            batches.append(spark.trigger(fail=fail))
            return batches[-1] is not None

        wait_until(look, "a batch")
        assert batches[-1] is not None
        return batches[-1]

    def until_data(self, spark: SparkInMemory, *expected: bytes) -> None:
        """Trigger until all of this came; nothing else may come."""
        data: list[bytes] = []

        def look() -> bool:
            data.extend(data_of(spark.trigger()))
            return len(data) >= len(expected)

        wait_until(look, f"{expected} to come")
        assert sorted(data) == sorted(expected)


def data_of(batch: Batch | None) -> list[bytes]:
    return [] if batch is None else [data for _, _, data in batch.rows]


def streams_of(spark: SparkInMemory) -> set[str]:
    """The streams of the newest offset that Spark has."""
    return set(json.loads(spark.offsets[-1])["streams"]) if spark.offsets else set()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(read_ahead, "_LONGEST_WAIT_SECONDS", 0.3)
    made = World()
    yield made
    for query in made.queries:
        query.stop()


def test_a_pattern_finds_the_streams_that_there_are_and_no_others(world: World) -> None:
    world.account.create("orders-de", b"de")
    world.account.create("orders-at", b"at")
    world.account.create("refunds", b"no")
    world.until_data(world.query(), b"at", b"de")


def test_a_pattern_may_be_an_arn_and_stand_beside_names(world: World) -> None:
    for name in ("orders-de", "refunds", "returns"):
        world.account.create(name, name.encode())
    world.until_data(world.query(f"{ARN}orders-*,{ARN}returns"), b"orders-de", b"returns")


def test_a_pattern_that_finds_nothing_at_the_start_is_an_error(world: World) -> None:
    world.account.create("refunds")
    with pytest.raises(StreamNotFound, match=r"streamName or streamARN finds, orders-\* finds none"):
        world.query().trigger()


@pytest.mark.parametrize("position", ["latest", "trim_horizon"])
def test_a_stream_that_is_made_later_is_read_from_its_oldest_record(world: World, position: str) -> None:
    world.account.create("orders-de")
    spark = world.query(initialPosition=position)
    spark.trigger()
    world.account.create("orders-at", b"the first", b"the second")
    world.until_data(spark, b"the first", b"the second")
    assert streams_of(spark) == {"orders-at", "orders-de"}


def test_a_stream_that_was_made_while_the_query_was_down_is_read_from_its_oldest_record(world: World) -> None:
    world.account.create("orders-de")
    spark = world.query(initialPosition="latest")
    spark.trigger()
    spark.stop()
    world.account.create("orders-at", b"while down")
    spark.start()
    world.until_data(spark, b"while down")


def test_a_stream_older_than_the_query_that_is_found_later_begins_at_the_initial_position(
    world: World,
) -> None:
    world.account.create("orders-de")
    spark = world.query(initialPosition="latest")
    spark.trigger()
    old = world.account.create("orders-at", b"long ago", age_seconds=HOUR)
    world.until(spark, lambda: "orders-at" in streams_of(spark), "the old stream to be in the log")
    # That it was LATEST is in Spark's log: it holds after a restart.
    spark.stop()
    old.put(b"while down", "key")
    spark.start()
    world.until_data(spark, b"while down")


def test_a_stream_that_is_deleted_ends_alone_after_what_was_read_of_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    kept = world.account.create("orders-de", b"de")
    world.account.create("orders-at", b"at")
    spark = world.query()
    world.until_data(spark, b"at", b"de")
    world.account.delete("orders-at")
    data = world.until(
        spark, lambda: streams_of(spark) == {"orders-de"}, "the deleted stream to leave the log"
    )
    assert data == [], "the batch that only says so repeats nothing"
    assert [
        record.message.startswith("stream orders-at has ended")
        for record in caplog.records
        if record.levelno == logging.ERROR
    ] == [True]
    kept.put(b"goes on", "key")
    world.until_data(spark, b"goes on")


def test_what_was_read_ahead_of_a_deleted_stream_is_handed_out(world: World) -> None:
    world.account.create("orders-de")
    world.account.create("orders-at", *(b"%d" % number for number in range(100)))
    spark = world.query(maxRecordsPerTrigger="10")
    first = data_of(spark.trigger())
    ahead = spark.reader._ahead
    assert ahead is not None
    wait_until(lambda: ahead._buffer.rows == 100, "everything to be read ahead")
    world.account.delete("orders-at")
    data = first + world.until(
        spark, lambda: streams_of(spark) == {"orders-de"}, "the deleted stream to leave"
    )
    assert sorted(data, key=int) == [b"%d" % number for number in range(100)]


def test_a_stream_of_the_same_name_that_is_made_after_the_end_of_the_other_is_read_anew(world: World) -> None:
    world.account.create("orders-de")
    world.account.create("orders-at", b"old")
    spark = world.query(initialPosition="latest")
    spark.trigger()
    world.account.delete("orders-at")
    world.until(spark, lambda: streams_of(spark) == {"orders-de"}, "the deleted stream to leave the log")
    world.account.create("orders-at", b"new")
    world.until_data(spark, b"new")


def test_a_query_waits_for_streams_when_all_are_gone(world: World) -> None:
    world.account.create("orders-de", b"de")
    spark = world.query()
    world.until_data(spark, b"de")
    world.account.delete("orders-de")
    world.until(spark, lambda: streams_of(spark) == set(), "the last stream to leave the log")
    world.account.create("orders-at", b"at")
    world.until_data(spark, b"at")


def test_a_named_stream_that_is_deleted_ends_the_query(world: World) -> None:
    world.account.create("refunds")
    world.account.create("orders-de")
    spark = world.query("orders-*,refunds")
    spark.trigger()
    world.account.delete("refunds")
    with pytest.raises(StreamNotFound, match="refunds"):
        world.until(spark, lambda: False, "the error")


def test_a_restart_with_one_stream_more_and_one_less_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    kept = world.account.create("orders-de", b"de")
    world.account.create("orders-at", b"at")
    spark = world.query()
    world.until_data(spark, b"at", b"de")
    spark.stop()
    world.account.delete("orders-at")
    world.account.create("orders-ch", b"ch")
    kept.put(b"while down", "key")
    spark.start()
    world.until_data(spark, b"ch", b"while down")
    assert streams_of(spark) == {"orders-ch", "orders-de"}
    assert any("stream orders-at has ended" in record.message for record in caplog.records)


def test_a_stream_of_the_log_that_a_listing_does_not_have_goes_on_from_its_offset(world: World) -> None:
    world.account.create("orders-de")
    lagging = world.account.create("orders-at", b"one")
    spark = world.query()
    world.until_data(spark, b"one")
    spark.stop()
    world.account.unlisted.add("orders-at")
    lagging.put(b"two", "key")
    spark.start()
    world.until_data(spark, b"two")


def test_a_batch_is_replayed_exactly_though_streams_came_meanwhile(world: World) -> None:
    world.account.create("orders-de", *(b"%d" % number for number in range(50)))
    spark = world.query(maxRecordsPerTrigger="20")
    world.next_batch(spark)
    lost = world.next_batch(spark, fail=True)
    world.account.create("orders-at", b"at")
    replayed = world.next_batch(spark)
    assert replayed.rows == lost.rows
    rest = world.until(spark, lambda: len(spark.rows) == 51, "everything to come")
    assert sorted(rest) == sorted([b"at", *(b"%d" % number for number in range(40, 50))])


def test_a_replayed_batch_with_records_of_a_deleted_stream_is_a_data_loss(world: World) -> None:
    kept = world.account.create("orders-de", b"de")
    world.account.create("orders-at", b"at")
    spark = world.query()
    while b"at" not in data_of(world.next_batch(spark, fail=True)):
        spark.trigger()
    world.account.delete("orders-at")
    with pytest.raises(DataLoss, match="'orders-at', of which a batch that is repeated has 1 records"):
        spark.trigger()
    spark.stop()
    read = replace(spark.options.read, fail_on_data_loss=False)
    spark.options = replace(spark.options, read=read)
    spark.start()
    kept.put(b"more", "key")
    world.until(spark, lambda: b"more" in [data for _, _, data in spark.rows], "the others to go on")
    assert b"at" not in [data for _, _, data in spark.rows]


def test_a_stream_that_was_made_anew_while_the_query_was_down_is_an_error(world: World) -> None:
    world.account.create("orders-de", b"de", age_seconds=HOUR)
    spark = world.query()
    world.until_data(spark, b"de")
    spark.stop()
    world.account.create("orders-de", b"new")
    spark.start()
    with pytest.raises(StreamRecreated, match="orders-de"):
        spark.trigger()


def test_a_query_that_ends_with_what_is_available_looks_for_streams_at_its_start_only(world: World) -> None:
    world.account.create("orders-de", b"de")
    spark = world.query(available_now=True)
    assert data_of(spark.trigger()) == [b"de"]
    world.account.create("orders-at", b"at")
    assert spark.until_idle() == []
    spark.stop()
    spark.start(available_now=True)
    assert [data for _, _, data in spark.until_idle()] == [b"at"]


def test_a_listing_that_fails_is_logged_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.account.create("orders-de")
    spark = world.query()
    spark.trigger()
    with monkeypatch.context() as broken:

        def refuse(**_request: object) -> None:
            raise client_error("AccessDeniedException", "ListStreams")

        broken.setattr(world.account, "list_streams", refuse)
        world.account.create("orders-at", b"at")
        wait_until(
            lambda: any("streams cannot be listed now" in record.message for record in caplog.records),
            "the refusal to be logged",
        )
    world.until_data(spark, b"at")


def test_names_may_become_a_pattern_that_finds_them_and_no_other_options_do(world: World) -> None:
    first = world.account.create("orders-de", b"de", age_seconds=HOUR)
    spark = world.query("orders-de", initialPosition="earliest")
    world.until_data(spark, b"de")
    spark.stop()
    first.put(b"more", "key")
    spark.options = replace(spark.options, streams=("orders-*",))
    spark.start()
    world.until_data(spark, b"more")
    spark.stop()
    spark.options = replace(spark.options, streams=("refunds-*", "orders-at"))
    world.account.create("orders-at")
    spark.start()
    with pytest.raises(CheckpointUnreadable, match=r"\['orders-de'\], in the options, got .*refunds-\*"):
        spark.trigger()
