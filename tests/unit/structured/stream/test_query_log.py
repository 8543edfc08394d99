"""What a streaming read says of its life in the log."""

import logging
from collections.abc import Callable

import pytest

from kinesis_spout.structured.offsets import QueryOffset
from kinesis_spout.structured.stream import query_log
from kinesis_spout.structured.stream.query_log import QueryLog
from kinesis_spout.testing import InMemoryStream
from tests.support.waiting import wait_until
from tests.unit.structured.spark_in_memory import SparkInMemory
from tests.unit.structured.stream.test_stream_reader import Start, put, query

assert query  # the fixture

FIRST = "shardId-000000000000"
Told = Callable[[str], list[str]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    """Give the lines at INFO that begin with a word."""
    caplog.set_level(logging.DEBUG)

    def lines(text: str) -> list[str]:
        return [
            record.getMessage()
            for record in list(caplog.records)
            if (record.name, record.levelname) == (query_log.__name__, "INFO")
            and record.getMessage().startswith(text)
        ]

    return lines


def until_told(spark: SparkInMemory, told: Told, text: str) -> None:
    def look() -> bool:
        spark.trigger()
        return bool(told(text))

    wait_until(look, f"the log has {text!r}")


def test_a_query_says_what_it_reads_and_what_latest_means(query: Start, told: Told) -> None:
    stream = InMemoryStream(shards=2)
    spark = query(stream, initialPosition="latest")
    spark.trigger()
    spark.trigger()
    (started,) = told("started")
    assert started.startswith(f"started: stream {stream.name}, 2 shards, kinesis-spout ")
    assert started.endswith('by readStream.format("kinesis")')
    (position,) = told("position")
    assert "AT_TIMESTAMP(2" in position


def test_a_split_and_the_end_of_its_parent_are_said_once(query: Start, told: Told) -> None:
    stream = InMemoryStream()
    put(stream, 10)
    spark = query(stream)
    spark.until_idle()
    stream.split(FIRST)
    put(stream, 10, "child")
    until_told(spark, told, "finished")
    spark.until_idle()
    assert told("split") == [f"split of {stream.name}: {FIRST} -> shardId-000000000001, shardId-000000000002"]
    assert told("finished") == [f"finished 1 shard of {stream.name}: {FIRST}: read to the end"]


def test_a_backlog_larger_than_the_buffer_is_told_once_as_a_pause(query: Start, told: Told) -> None:
    stream = InMemoryStream()
    for _ in range(30):
        stream.put(b"x" * 10_000, "key")
    spark = query(stream, room_bytes=50_000, maxRecordsPerTrigger="1", maxRecordsPerFetch="10")
    for _ in range(3):  # batches that take their time
        spark.trigger()
        ahead = spark.reader._ahead
        assert ahead is not None
        wait_until(ahead._fetched.room.is_short, "no more is read ahead")
    until_told(spark, told, "paused")
    spark.until_idle()
    assert told("paused") == [f"paused reading ahead of {stream.name} (maxBufferedBytes)"]


def test_a_pause_that_comes_and_goes_ends_once_it_stayed_away_for_a_minute(told: Told) -> None:
    life = QueryLog(["orders"])
    done = QueryOffset(streams={}, unlogged=False)
    for second in range(100):
        life.advanced(done, is_short=second % 10 == 0, now=float(second))
    assert (len(told("paused")), len(told("resumed"))) == (1, 0)
    life.advanced(done, is_short=False, now=149.9)
    assert told("resumed") == []
    life.advanced(done, is_short=False, now=150.0)
    life.advanced(done, is_short=False, now=151.0)
    assert told("resumed") == ["resumed reading ahead of orders (maxBufferedBytes)"]


def test_a_summary_comes_once_a_minute_and_each_batch_at_debug(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    life = QueryLog(["orders"])
    for second in range(0, 181, 10):
        life.done(5, "so many", float(second))
    assert told("done") == [
        "done: 7 batches of orders; in this run so many",
        "done: 6 batches of orders; in this run so many",
        "done: 6 batches of orders; in this run so many",
    ]
    assert sum(record.levelno == logging.DEBUG for record in caplog.records) == 19


def test_a_stop_says_what_was_done(query: Start, told: Told) -> None:
    stream = InMemoryStream()
    put(stream, 10)
    spark = query(stream)
    spark.until_idle()
    spark.stop()
    (line,) = told("stopped")
    assert "in this run 10 records" in line
