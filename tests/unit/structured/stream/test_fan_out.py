"""The streaming reader while Kinesis pushes to it, under a Spark in memory."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kinesis_spout.testing import InMemoryStream
from tests.support.kinesis.pushed_stream import FanOutServer, PushingClient, serve
from tests.support.waiting import wait_until
from tests.unit.structured import spark_in_memory
from tests.unit.structured.spark_in_memory import Row, SparkInMemory, options

PUSHED = {"consumerMode": "efo", "consumerName": "app"}


class Pushed:
    """A stream and a query of it. Mutable."""

    def __init__(self, server: FanOutServer, opened: ExitStack) -> None:
        self.stream = InMemoryStream("pushed", shards=2)
        self.service = serve(self.stream, server, opened)
        asked = options(self.stream, **PUSHED)
        spark_in_memory._clients[self.stream.name] = PushingClient(self.stream, server)
        self._asked = asked

    def query(self, *, available_now: bool = False) -> SparkInMemory:
        return SparkInMemory(self._asked, available_now=available_now)

    def put(self, first: int, after: int) -> list[bytes]:
        data = [b"%d" % number for number in range(first, after)]
        for each in data:
            self.stream.put(each, each.decode())
        return data


@pytest.fixture
def pushed(fan_out_server: FanOutServer) -> Iterator[Pushed]:
    with ExitStack() as opened:
        yield Pushed(fan_out_server, opened)


def data_of(rows: list[Row]) -> list[bytes]:
    return sorted((data for _, _, data in rows), key=int)


def until_rows(spark: SparkInMemory, count: int) -> None:
    def has_all() -> bool:
        spark.until_idle()
        return len(spark.rows) >= count

    wait_until(has_all, f"{count} rows")


def test_what_is_pushed_is_in_one_batch_and_a_replay_has_the_same_rows(pushed: Pushed) -> None:
    spark = pushed.query()
    try:
        first = pushed.put(0, 100)
        until_rows(spark, 100)
        later = pushed.put(100, 200)
        lost = spark.next_batch(fail=True)
        again = spark.next_batch()
        assert again.rows == lost.rows  # read with GetRecords: the reader that was told them is gone
        until_rows(spark, 200)
        assert data_of(spark.rows) == first + later
    finally:
        spark.stop()


def test_a_query_of_what_is_available_ends_when_the_events_have_said_so(pushed: Pushed) -> None:
    expected = pushed.put(0, 300)
    spark = pushed.query(available_now=True)
    try:
        spark.until_idle()
    finally:
        spark.stop()

    assert data_of(spark.rows) == expected


def test_a_query_that_stops_ends_its_subscriptions(pushed: Pushed) -> None:
    spark = pushed.query()
    pushed.put(0, 10)
    until_rows(spark, 10)
    assert pushed.service.is_pushing

    spark.stop()

    wait_until(lambda: not pushed.service.is_pushing, "the subscriptions to end")
