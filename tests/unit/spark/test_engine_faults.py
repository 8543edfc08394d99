"""What must not hang the engine, cost it its bounds, or blame a record that did nothing."""

import threading
from collections.abc import Iterator

import pytest

from kinesis_spout.errors import HandlerKilledWorker, KinesisSpoutError
from kinesis_spout.record import Record
from shard_state import SliceKind
from tests.unit.spark.world import FIRST, Diary, EngineWorld
from tests.zookeeper_server import wait_until


@pytest.fixture
def world() -> Iterator[EngineWorld]:
    world = EngineWorld()
    yield world
    world.close()


@pytest.fixture
def two_shards() -> Iterator[EngineWorld]:
    world = EngineWorld(shards=2)
    yield world
    world.close()


def texts(count: int) -> list[str]:
    return [f"r{number}" for number in range(count)]


# Ends that nobody expects


def test_a_batch_that_ends_by_no_ordinary_exception_ends_the_query_and_is_not_waited_for(
    world: EngineWorld,
) -> None:
    """A handler on the driver may call ``sys.exit``. Unnoticed, its batch would be under way for ever."""
    world.put("a")
    running = world.start(Diary(), hanging=True)
    running.runner.failures = [SystemExit("enough")]
    running.runner.open_gate()

    with pytest.raises(KinesisSpoutError, match="SystemExit: enough"):
        running.query.awaitTermination(20)
    assert world.zookeeper.owners == {}


# Stopping


def test_a_handler_on_the_driver_may_stop_its_query(world: EngineWorld) -> None:
    records = world.put("a")
    diary = Diary()

    def handle(record: Record) -> None:
        diary(record)
        running.stop()

    running = world.start(handle, hanging=True)
    running.runner.open_gate()

    assert running.query.awaitTermination(20) is True
    running.stop()
    assert diary.deliveries == [("a", 1)]
    assert world.stored().base == records[0].sequence
    assert world.zookeeper.owners == {}


def test_a_batch_that_no_cancel_ends_is_left_behind(world: EngineWorld) -> None:
    """A handler on the driver that hangs in Python is met by no cancel."""
    world.put("a")
    running = world.start(Diary(), hanging=True, stop_timeout_seconds=0, engine={"abandon_seconds": 0.1})
    running.runner.cancels_missed = 1_000_000
    wait_until(lambda: running.runner.hanging, "a batch is under way")
    stopping = threading.Thread(target=running.stop, daemon=True)
    stopping.start()

    wait_until(lambda: not stopping.is_alive(), "the query has stopped")
    assert world.zookeeper.owners == {}
    running.runner.open_gate()
    diary = Diary()
    world.start(diary).query.processAllAvailable()
    assert diary.payloads == ["a"]


# Blame


def test_a_retry_that_has_no_data_to_deliver_is_not_blamed_for_the_death_of_a_job(world: EngineWorld) -> None:
    """It makes no job: one that dies would convict a record that no handler saw."""
    records = world.put("a", "b")
    diary = Diary(a=[ValueError("no")])
    running = world.start(diary, engine={"max_buffered_bytes": 0}, retry_backoff_seconds=0.5, retry_limit=1)
    wait_until(lambda: running.query.counters.retried == 1, "the record has failed")
    world.stream.trim(FIRST, records[0].sequence)
    running.runner.failures = [HandlerKilledWorker("an executor was lost")] * 2

    wait_until(lambda: world.dead_letters.letters or not running.query.isActive, "it is given up")
    assert running.query.exception() is None
    assert "trimmed" in world.dead_letters.letters[0].error
    assert running.runner.slices(SliceKind.RETRY) == []
