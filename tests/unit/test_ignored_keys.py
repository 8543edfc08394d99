"""Streams whose keys AWS ignores (record distribution strategy AUTO), and records without a key.

Large records without a key go through every door in ``test_large_records`` of ``consumer``, ``spark.driver`` and
``structured.stream``.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from kinesis_spout.kinesis import ReadSettings
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.kinesis.read.arrow import ArrowForm
from kinesis_spout.kinesis.read.page import decode_reply, page_of
from kinesis_spout.kinesis.read.user_records import with_user_records
from kinesis_spout.model.errors import InvalidConfig, Unavailable
from kinesis_spout.operations.streams import record_document
from kinesis_spout.storm.multilang.kinesis_component import RecordValues
from kinesis_spout.testing import InMemoryStream, ManualClock
from tests.support.consumer.world import FIRST, World
from tests.support.storm.scripted_topology import Scripted, acks, begin, tasks_by_value
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import EngineWorld, StreamClient

pytestmark = pytest.mark.no_second_run

KEYS = ["a", "b", None] * 4
REFUSED = r"order: expected 'unordered' or 'shard' for stream 'orders', got 'key': .* AUTO, so AWS ignores"


@pytest.fixture
def ignoring() -> Iterator[World]:
    world = World()
    world.stream = InMemoryStream("orders", shards=2, clock=world.clock, ignores_keys=True)
    yield world
    world.close()


@pytest.fixture
def batches() -> Iterator[EngineWorld]:
    world = EngineWorld()
    world.stream = InMemoryStream("orders", shards=2, clock=ManualClock(), ignores_keys=True)
    world.client = StreamClient(world.stream)
    yield world
    world.close()


def test_a_stream_that_ignores_keys_spreads_the_records_of_one_key_over_its_shards() -> None:
    stream = InMemoryStream("orders", shards=2, ignores_keys=True)
    for _ in range(4):
        stream.put(b"x", "a")

    assert [len(stream.records(shard.shard_id)) for shard in stream.list_shards()] == [2, 2]


# --- the order by key


def test_plain_python_refuses_the_order_by_key_before_anything_is_begun(ignoring: World) -> None:
    with pytest.raises(InvalidConfig, match=REFUSED):
        ignoring.spout(order="key", initial_position="latest")

    ignoring.put("one", "two")
    spout = ignoring.spout(initial_position="trim_horizon")
    assert {emitted.values for emitted in ignoring.take(spout, 2)} == {"one", "two"}, (
        "the refused start left no position"
    )


def test_micro_batches_refuse_the_order_by_key(batches: EngineWorld) -> None:
    with pytest.raises(InvalidConfig, match=REFUSED):
        batches.start(lambda _record: None, order="key")


@pytest.mark.parametrize("order", ["key", "shard"])
def test_a_stream_that_ignores_keys_since_a_consumer_runs_ends_the_order_by_key_at_a_reshard(
    order: str,
) -> None:
    world = World(shards=2)
    try:
        spout = world.spout(order=order)
        world.put("one")
        (emitted,) = world.take(spout, 1)
        spout.ack(emitted.message_id)
        world.stream.ignores_keys = True
        world.stream.split(FIRST)
        if order == "key":
            with pytest.raises(InvalidConfig, match=REFUSED):
                world.until(lambda: spout.next_tuple() is not None, lambda: "the spout ends")
        else:
            world.put("two")
            assert [each.values for each in world.take(spout, 1)] == ["two"]
    finally:
        world.close()


def test_it_is_noticed_later_if_the_stream_could_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shards=2)
    try:
        spout = world.spout(order="key", shard_list_interval_seconds=0.2)
        errors, asked = [Unavailable("the stream does not answer")], world.stream.summary
        monkeypatch.setattr(world.stream, "summary", lambda: asked() if not errors else _raised(errors.pop()))
        world.stream.ignores_keys = True
        world.stream.split(FIRST)
        with pytest.raises(InvalidConfig, match=REFUSED):
            world.until(lambda: spout.next_tuple() is not None, lambda: "the spout ends")
        assert not errors
    finally:
        world.close()


def _raised(error: Exception) -> NoReturn:
    raise error


def test_the_leaders_successor_notices_it_when_its_term_begins() -> None:
    world = World()
    try:
        first, second = world.spout(order="key"), world.spout(order="key")
        world.put("one")
        (emitted,) = world.take(first, 1)
        first.ack(emitted.message_id)
        world.stream.ignores_keys = True
        first.close()
        with pytest.raises(InvalidConfig, match=REFUSED):
            world.until(lambda: second.next_tuple() is not None, lambda: "the spout ends")
    finally:
        world.close()


def test_micro_batches_end_with_it(batches: EngineWorld) -> None:
    batches.stream.ignores_keys = False
    running = batches.start(lambda _record: None, order="key", shard_list_interval_seconds=0.1)
    batches.stream.ignores_keys = True
    batches.stream.split(FIRST)
    wait_until(lambda: running.query.exception() is not None, "the query ends")

    assert re.match(REFUSED, str(running.query.exception()))


@pytest.mark.parametrize("order", ["unordered", "shard"])
def test_records_with_and_without_keys_are_retried_in_the_other_orders(ignoring: World, order: str) -> None:
    for number, key in enumerate(KEYS):
        ignoring.put(str(number), key=key)
    spout = ignoring.spout(order=order, retry_limit=1)
    failed: set[str] = set()
    acked: set[str] = set()

    def all_are_acked() -> bool:
        while (emitted := spout.next_tuple()) is not None:
            if emitted.values not in failed:
                failed.add(emitted.values)
                spout.fail(emitted.message_id)
            else:
                acked.add(emitted.values)
                spout.ack(emitted.message_id)
        return len(acked) == len(KEYS)

    ignoring.until(all_are_acked, lambda: f"all are acked, only {acked} are")


# --- records without a key


@pytest.mark.usefixtures("each_decoder")
def test_an_aggregated_record_may_come_without_a_key() -> None:
    inside = [UserRecord(partition_key=key, data=key.encode()) for key in ("a", "b")]
    data = aggregate(inside)
    number = "4" * 50
    alone = {"SequenceNumber": "5" * 50, "Data": b"alone"}
    carrier = {"SequenceNumber": number, "Data": data}
    page: dict[str, Any] = {"Records": [carrier, alone], "NextShardIterator": "n", "MillisBehindLatest": 0}
    body = json.dumps(page, default=_text).encode()

    read = with_user_records(page_of(decode_reply(body)), start=None, hash_keys=None)
    batch = ArrowForm(stream="s", shard_id="i", settings=ReadSettings()).decode(body).batch

    assert [(record.partition_key, record.data) for record in read.records] == [
        ("a", b"a"),
        ("b", b"b"),
        (None, b"alone"),
    ]
    assert batch.column("partitionKey").to_pylist() == ["a", "b", None]
    assert batch.schema.field("partitionKey").nullable


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_tuples_without_a_key_go_to_one_task() -> None:
    builder = begin(["partition_key"])
    builder.set_bolt("count", Scripted(acks), 4).fields_grouping("numbers", ["partition_key"])
    result = builder.build().local().run([(key,) for key in KEYS])

    assert not result.failed
    assert {key: len(set(tasks)) for key, tasks in tasks_by_value("count").items()} == {
        "a": 1,
        "b": 1,
        None: 1,
    }


def test_what_shows_a_record_without_a_key_says_null() -> None:
    record = InMemoryStream("orders").put(b"data")

    assert RecordValues(fields=("partition_key", "data"))(record) == [None, "data"]
    assert record_document(record)["partition_key"] is None
