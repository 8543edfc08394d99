"""What was read is what is retried and dead-lettered, whatever a handler does to its record (invariant 16)."""

import json
import pickle
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from kinesis_spout.model.record import Record
from kinesis_spout.model.scheme import resolve
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.record_outcomes import DeliverRecords
from kinesis_spout.spark.tasks.handlers import AnyHandler, record_handler
from tests.support.consumer.world import World
from tests.unit.spark.driver.world import EngineWorld

pytestmark = pytest.mark.no_second_run

PAYLOAD = json.dumps({"amount": 12})


def compress(record: Record) -> None:
    record.data = zlib.compress(record.data)


def decode(record: Any) -> None:
    record.data = json.loads(record.data)


def forget(record: Any) -> None:
    record.data = None


def rename(record: Record) -> None:
    record.partition_key = "another"


def drop_key(record: Record) -> None:
    record.partition_key = None


def renumber(record: Record) -> None:
    record.sequence_number = "nothing"


def move(record: Any) -> None:
    record.shard_id = record.stream = record.arrival_timestamp = None


def recount(record: Any) -> None:
    record.attempt = "first"


Change = Callable[[Record], None]
every_change = pytest.mark.parametrize(
    "change", [compress, decode, forget, rename, drop_key, renumber, move, recount]
)


@pytest.fixture
def spout_world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


@pytest.fixture
def engine_world() -> Iterator[EngineWorld]:
    world = EngineWorld()
    yield world
    world.close()


def take(world: World, spout: RecordSpout) -> tuple[str, Record]:
    (emitted,) = world.take(spout, 1)
    assert isinstance(emitted.values, Record)
    return emitted.message_id, emitted.values


@every_change
@pytest.mark.parametrize("order", ["unordered", "key"])
def test_the_plain_door_retries_and_dead_letters_what_was_read(
    spout_world: World, change: Change, order: str
) -> None:
    spout = spout_world.spout(scheme="raw", retry_limit=1, order=order)
    (put,) = spout_world.put(PAYLOAD)
    for attempt in (1, 2):
        message_id, record = take(spout_world, spout)
        assert message_id == f"{put}#1.{attempt}"
        assert (record.data, record.partition_key) == (PAYLOAD.encode(), "key")
        assert record.attempt == attempt
        change(record)
        assert spout.fail(message_id, "no use")

    (letter,) = spout_world.letters(1)
    assert (letter.message_id, letter.data, letter.partition_key) == (put, PAYLOAD.encode(), "key")
    spout_world.until_stored(put)


@every_change
def test_the_record_that_the_plain_door_shows_is_not_the_one_it_keeps(
    spout_world: World, change: Change
) -> None:
    spout = spout_world.spout(scheme="raw", retry_limit=1)
    spout_world.put(PAYLOAD)
    message_id, _ = take(spout_world, spout)
    shown = spout.record(message_id)
    assert shown is not None
    change(shown)
    assert spout.fail(message_id)

    assert take(spout_world, spout)[1].data == PAYLOAD.encode()


@every_change
@pytest.mark.parametrize(("order", "concurrency"), [("unordered", 1), ("key", 1), ("shard", 1), ("key", 4)])
def test_the_record_door_retries_and_dead_letters_what_was_read(
    engine_world: EngineWorld, change: Change, order: str, concurrency: int
) -> None:
    seen: list[tuple[bytes, str | None, int]] = []

    def handle(record: Record) -> None:
        seen.append((record.data, record.partition_key, record.attempt))
        change(record)
        raise ValueError("no use")

    (put,) = engine_world.put(PAYLOAD)
    running = engine_world.start(handle, retry_limit=1, order=order, concurrency=concurrency)
    running.query.processAllAvailable()

    assert seen == [(PAYLOAD.encode(), "key", 1), (PAYLOAD.encode(), "key", 2)]
    (letter,) = engine_world.dead_letters.read()
    assert (letter.message_id, letter.data, letter.partition_key) == (
        put.message_id,
        PAYLOAD.encode(),
        "key",
    )


@every_change
def test_each_record_gives_back_what_was_read(change: Change) -> None:
    handler: PickledHandler[AnyHandler] = PickledHandler.of(
        record_handler(_Failing(change), resolve("raw"), concurrency=1, timeout_seconds=None)
    )
    rows = {
        "partitionKey": pa.array(["key"]),
        "data": pa.array([PAYLOAD.encode()], pa.binary()),
        "stream": pa.array(["orders"]),
        "shardId": pa.array(["shard"]),
        "sequenceNumber": pa.array(["7"]),
        "approximateArrivalTimestamp": pa.array([1_500_000], pa.timestamp("us", tz="UTC")),
    }
    (outcome,) = DeliverRecords(handler, 10_000)([pa.RecordBatch.from_pydict(rows)])
    result = pickle.loads(outcome.column(0)[0].as_py())
    (failed,) = result.outcome.failures
    record = result.unfinished[0].record

    assert (record.data, record.partition_key, record.sequence_number) == (PAYLOAD.encode(), "key", "7")
    assert (record.attempt, failed.attempt, result.delivered) == (1, 1, 1)


class _Failing:
    def __init__(self, change: Change) -> None:
        self._change = change

    def __call__(self, record: Record) -> None:
        self._change(record)
        raise ValueError("no use")
