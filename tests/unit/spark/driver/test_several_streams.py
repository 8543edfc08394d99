"""A query on several streams, without Spark: the engines run their batches in this process."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig, StreamNotFound
from kinesis_spout.model.record import Record
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver.query import SpoutQuery, start_query
from kinesis_spout.spark.tasks.jobs import HandlerBroken
from kinesis_spout.testing import InMemoryStreams
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import InProcessRunner, StreamClient, task_settings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from kinesis_spout.consumer.ports import Companion

CONTEXT = cast("SparkContext", SimpleNamespace(defaultParallelism=2))


class World:
    """Streams, a handler that notes what it is given, and the queries of the test."""

    def __init__(self) -> None:
        self.streams = InMemoryStreams()
        self.runners: dict[str, InProcessRunner] = {}
        self.handled: Counter[tuple[str, str]] = Counter()
        self.act: Callable[[Record], None] = lambda _: None
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()
        self._queries: list[SpoutQuery] = []

    def create(self, *names: str) -> None:
        for name in names:
            self.streams.create(name)

    def put(self, stream: str, *payloads: str) -> None:
        for payload in payloads:
            self.streams.streams[stream].put(payload.encode(), "key")

    def start(self, stream: str | list[str], **settings: Any) -> SpoutQuery:
        settings = {
            "app": "billing",
            "initial_position": "trim_horizon",
            "retry_backoff_seconds": 0.01,
            "max_spared_seconds": 0,
            "retry_jitter": 0.0,
            "poll_interval_seconds": 0.2,
            "idle_poll_interval_seconds": 0.2,
            "commit_interval_seconds": 0.02,
            "shard_list_interval_seconds": 0.2,
            "stream_list_interval_seconds": 0.2,
            **settings,
        }
        config = SpoutConfig.of(stream=stream, **settings)
        ports = self.streams.process()
        query = start_query(config, ports, CONTEXT, self._runner, "billing", door="foreach_record")
        self._queries.append(query)
        return query

    def _runner(self, config: SpoutConfig) -> InProcessRunner:
        client = StreamClient(self.streams.streams[config.stream])
        settings = task_settings(client, stream=config.stream)
        runner = self.runners[config.stream] = InProcessRunner(settings, self._handle)
        if not self.gate.is_set():
            runner.gate.clear()
        return runner

    def _handle(self, record: Record) -> None:
        with self._lock:
            self.handled[record.stream, record.data.decode()] += 1
        self.act(record)

    def until_handled(self, stream: str, payload: str) -> None:
        wait_until(lambda: self.handled[stream, payload] > 0, f"{payload} of {stream} is handled")

    def close(self) -> None:
        for runner in self.runners.values():
            runner.open_gate()
        for query in self._queries:
            query.stop()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_records_of_all_streams_are_handled_and_the_counts_are_sums(world: World) -> None:
    world.create("orders", "refunds")
    world.put("orders", "one", "two")
    world.put("refunds", "one")
    query = world.start(["orders", "refunds"])
    query.processAllAvailable()
    assert world.handled == {("orders", "one"): 1, ("orders", "two"): 1, ("refunds", "one"): 1}
    assert (query.counters.delivered, query.counters.acked) == (3, 3)
    assert {name: each.counters.acked for name, each in query.streams.items()} == {"orders": 2, "refunds": 1}
    assert {shard.shard_id.partition("/")[0] for shard in query.shards()} == {"orders", "refunds"}


def test_the_newest_progress_is_that_of_all_streams(world: World) -> None:
    world.create("orders", "refunds")
    world.put("orders", "one", "two")
    world.put("refunds", "one")
    query = world.start(["orders", "refunds"])
    query.processAllAvailable()
    query.stop()
    last = query.lastProgress
    assert last is not None
    assert last["totals"]["acked"] == 3
    assert (last["name"], last["id"], last["runId"]) == ("billing", query.id, query.runId)
    assert {source["description"] for source in last["sources"]} == {"Kinesis[orders]", "Kinesis[refunds]"}
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 3
    assert query.status["message"] == "Stopped"
    assert query.exception() is None


def test_a_record_that_fails_is_tried_again_on_its_stream(world: World) -> None:
    world.create("orders", "refunds")
    world.put("orders", "bad")
    world.put("refunds", "bad")

    def act(record: Record) -> None:
        if record.stream == "refunds":
            raise ValueError("always")

    world.act = act
    query = world.start(["orders", "refunds"], retry_limit=2)
    query.processAllAvailable()
    assert world.handled == {("orders", "bad"): 1, ("refunds", "bad"): 3}
    query.stop()
    letters = [letter for sink in world.streams.dead_letters.values() for letter in sink.read()]
    assert [(letter.stream, letter.attempts) for letter in letters] == [("refunds", 3)]
    assert sum(query.failures.values()) == 3


def test_a_deleted_stream_ends_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create("orders", "refunds")
    world.put("refunds", "one")
    query = world.start(["orders", "refunds"])
    query.processAllAvailable()
    with caplog.at_level(logging.ERROR):
        world.streams.streams["refunds"].delete()
        wait_until(lambda: "stream refunds has ended" in caplog.text, "it is told that refunds has ended")
    assert set(query.gone) == {"refunds"}
    world.put("orders", "goes on")
    world.until_handled("orders", "goes on")
    assert query.isActive
    wait_until(lambda: query.counters.acked == 2, "what was counted of the stream that is gone stays")


def test_a_query_whose_streams_are_all_deleted_ends(world: World) -> None:
    world.create("orders", "refunds")
    query = world.start(["orders", "refunds"])
    for name in ("orders", "refunds"):
        world.streams.streams[name].delete()
    with pytest.raises(StreamNotFound):
        query.awaitTermination(60)
    assert not query.isActive


def test_another_error_that_ends_one_stream_ends_the_query(world: World) -> None:
    world.create("orders", "refunds")
    query = world.start(["orders", "refunds"])
    query.processAllAvailable()
    world.runners["refunds"].failures.append(HandlerBroken("no such module"))
    world.put("refunds", "one")
    with pytest.raises(HandlerBroken):
        query.awaitTermination(60)
    assert not query.streams["orders"].isActive
    assert "HandlerBroken" in query.status["message"]
    members = [zookeeper.member_names for zookeeper in world.streams.progress.values()]
    assert members == [set(), set()], "another process may take over at once"


def test_a_pattern_finds_a_stream_that_is_made_later(world: World) -> None:
    world.create("orders-de")
    query = world.start("orders-*", initial_position="latest")
    world.create("orders-fr", "parcels")
    world.put("orders-fr", "written before it was noticed")
    world.until_handled("orders-fr", "written before it was noticed")
    assert set(query.streams) == {"orders-de", "orders-fr"}


def test_so_many_batches_run_at_a_time_over_all_streams(world: World) -> None:
    names = [f"orders-{at}" for at in range(5)]
    world.create(*names)
    world.gate.clear()
    for name in names:
        world.put(name, "one")
    query = world.start(names, max_concurrent_batches=2)

    def hanging() -> int:
        return sum(runner.hanging for runner in world.runners.values())

    wait_until(lambda: hanging() == 2, "two batches hang")
    assert sum(len(runner.batches) for runner in world.runners.values()) == 2
    for left in (4, 3, 2, 1, 0):  # each that ends lets the next begin
        ended = next(runner for runner in world.runners.values() if runner.hanging)
        ended.open_gate()
        wait_until(lambda: not ended.hanging and hanging() == min(2, left), "the next one runs")  # noqa: B023
    query.processAllAvailable()
    assert all(world.handled[name, "one"] == 1 for name in names)


def test_what_the_driver_may_keep_is_divided(world: World) -> None:
    world.create("orders", "refunds")
    query = world.start(["orders", "refunds"])
    assert {each.consumer.sharers for each in query._engines} == {2}
    world.streams.streams["refunds"].delete()
    wait_until(lambda: [each.consumer.sharers for each in query._engines] == [1], "orders has it all")


def test_a_query_with_an_end_ends_by_itself_when_every_stream_has_come_up_to_it(world: World) -> None:
    world.create("orders", "refunds")
    world.put("orders", "one")
    world.put("refunds", "two")
    query = world.start("orders,re*", until="latest")
    query.awaitTermination(60)
    assert query.is_done
    assert not query.isActive
    assert query.status["message"] == "Done: came up to its end"
    assert query.counters.acked == 2


def test_a_stream_may_be_paused_by_an_operator(world: World) -> None:
    world.create("orders", "refunds")
    query = world.start(["orders", "refunds"])
    query.processAllAvailable()
    query.pause_shards("refunds/shardId-000000000000")
    wait_until(lambda: query.paused_shards == {"refunds/shardId-000000000000"}, "refunds is paused")
    world.put("refunds", "two")
    world.put("orders", "one")
    world.until_handled("orders", "one")
    assert ("refunds", "two") not in world.handled
    assert query.resume_shards("refunds/shardId-000000000000")
    world.until_handled("refunds", "two")


def test_one_error_names_every_stream_that_is_not_there(world: World) -> None:
    world.create("orders")
    with pytest.raises(StreamNotFound, match=r"2 of 3 streams cannot be read: refnds.*retuns"):
        world.start(["orders", "refnds", "retuns"])


def test_it_goes_on_where_it_ended_with_one_more_stream(world: World) -> None:
    world.create("orders", "refunds")
    world.put("orders", "one")
    first = world.start(["orders", "o*"])
    first.processAllAvailable()
    first.stop()
    world.put("orders", "two")
    world.put("refunds", "three")
    world.start(["orders", "refunds"]).processAllAvailable()
    assert world.handled == {("orders", "one"): 1, ("orders", "two"): 1, ("refunds", "three"): 1}


def test_state_that_is_stored_with_the_progress_wants_one_stream() -> None:
    spout = KinesisSpout(stream=["orders", "refunds"], app="billing")
    with pytest.raises(InvalidConfig, match="expected one stream for a topology that keeps state"):
        spout.start_batches(
            cast("SparkSession", None),
            lambda *_: pytest.fail("made a runner"),
            None,
            door="a topology",
            companion=cast("Companion", object()),
        )


def test_a_bounded_query_ends_when_every_stream_has_come_up_to_its_end(world: World) -> None:
    world.create("orders", "refunds")
    world.put("orders", "one", "two")
    world.put("refunds", "one")
    query = world.start(["orders", "refunds"], until="latest")
    assert query.awaitTermination(60.0)
    assert query.is_done
    assert not query.isActive
    assert query.status["message"] == "Done: came up to its end"
    assert world.handled == {("orders", "one"): 1, ("orders", "two"): 1, ("refunds", "one"): 1}


def test_shards_are_paused_by_their_stream_or_all_together(world: World) -> None:
    world.create("orders", "refunds")
    query = world.start(["orders", "refunds"])
    first = "orders/shardId-000000000000"
    query.pause_shards(first)
    wait_until(lambda: query.paused_shards == {first}, "it is paused")
    assert query.paused_by_operator == "paused by an operator: 1 shard of orders: shardId-000000000000"
    world.put("orders", "waits")
    world.put("refunds", "goes")
    world.until_handled("refunds", "goes")
    assert ("orders", "waits") not in world.handled
    assert query.resume_shards()
    world.until_handled("orders", "waits")
    with pytest.raises(InvalidConfig, match="stream/shardId"):
        query.pause_shards("shardId-000000000000")
