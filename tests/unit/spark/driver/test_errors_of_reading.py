"""What the micro-batches do when Kinesis refuses: the same as the plain-Python door."""

import logging
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kinesis_spout.model.errors import AccessDenied, DataLoss, KeyUnavailable, ShardNotFound
from kinesis_spout.ports import Page
from kinesis_spout.testing import InMemoryShardGetter, ManualClock
from shard_state import SliceKind
from tests.support import threads
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, Diary, EngineWorld, RunningQuery


def query_that_has_read(world: EngineWorld, **settings: Any) -> RunningQuery:
    """Start a query, and let it reach the tip, where the driver polls."""
    running = world.start(Diary(), **settings)
    world.until_stored(world.put("before")[0])
    wait_until(lambda: world.getters_opened, "the driver polls")
    return running


def test_access_denied_before_anything_was_read_ends_the_query(world: EngineWorld) -> None:
    world.stream.fail_next(AccessDenied("never had it"), times=100)
    running = world.start(Diary())
    wait_until(lambda: not running.query.isActive, "the query ends")
    assert isinstance(running.query.exception(), AccessDenied)


def test_a_query_that_an_error_ended_leaves_no_thread_that_polls(world: EngineWorld) -> None:
    before = threads.named("kinesis-io")
    world.stream.fail_next(AccessDenied("never had it"), times=100)
    running = world.start(Diary())
    wait_until(lambda: not running.query.isActive, "the query ends")

    wait_until(lambda: threads.named("kinesis-io") <= before, "the threads that polled end")


def test_a_page_that_cannot_be_taken_in_ends_the_query(world: EngineWorld) -> None:
    class BrokenGetter(InMemoryShardGetter):
        def read(self, limit: int) -> Page:
            return replace(super().read(limit), millis_behind_latest=None)  # type: ignore[arg-type] # as said

    world.fresh_getter = partial(BrokenGetter, world.stream)
    running = world.start(Diary())
    wait_until(lambda: not running.query.isActive, "the query ends")
    assert isinstance(running.query.exception(), TypeError)


def test_a_key_that_is_refused_ends_no_query_and_is_said_once(
    world: EngineWorld, caplog: pytest.LogCaptureFixture
) -> None:
    running = query_that_has_read(world)
    world.stream.fail_next(KeyUnavailable("key disabled"), times=1)
    wait_until(lambda: isinstance(running.query.last_error, KeyUnavailable), "a poll is refused")
    assert running.query.isActive
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert FIRST in said[0]
    assert "key disabled" in said[0]


def test_a_shard_that_was_trimmed_is_counted_once_and_said(
    world: EngineWorld, caplog: pytest.LogCaptureFixture
) -> None:
    running = query_that_has_read(world, fail_on_data_loss=False)
    world.stream.fail_next(ShardNotFound("trimmed"), times=1)
    wait_until(lambda: running.query.counters.shards_trimmed == 1, "the shard is ended")
    assert [
        FIRST in record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ] == [True]


def test_a_shard_that_was_trimmed_ends_a_query_that_must_not_lose_data(world: EngineWorld) -> None:
    running = query_that_has_read(world)
    world.stream.fail_next(ShardNotFound("trimmed"), times=1)
    with pytest.raises(DataLoss, match=f"{FIRST}' of stream .* is gone"):
        running.query.awaitTermination(30)


@pytest.mark.parametrize("backlog", [1, 3_000])
def test_records_that_were_trimmed_while_nobody_read_end_a_query_or_are_counted(
    world: EngineWorld, backlog: int
) -> None:
    first = world.start(Diary())
    world.until_stored(world.put("one")[0])
    first.stop()
    assert isinstance(world.stream.clock, ManualClock)
    world.stream.clock.jump(
        -3600.0
    )  # what comes looks older than the tip that was seen, which proves nothing then
    world.put("lost")
    world.stream.trim(FIRST, world.stream.records(FIRST)[-1].sequence)
    kept = world.put(*(f"kept {number}" for number in range(backlog)))

    with pytest.raises(DataLoss, match=FIRST):
        world.start(Diary()).query.awaitTermination(30)
    diary = Diary()
    running = world.start(diary, fail_on_data_loss=False)
    world.until_stored(kept[-1])
    assert len(diary.payloads) == backlog
    assert running.query.counters.shards_trimmed == 1
    assert world.stored().data_losses == 1


def test_a_position_that_is_refused_but_was_not_trimmed_repeats_nothing(world: EngineWorld) -> None:
    first = world.start(Diary())
    world.until_stored(world.put("one", "two")[1])
    first.stop()
    world.getters_opened.clear()

    world.stream.refuse_sequence_numbers(times=2)  # to an executor, and then to the driver at the tip
    diary = Diary()
    running = world.start(diary, fail_on_data_loss=False)
    world.until_stored(world.put("three")[0])
    wait_until(lambda: world.getters_opened, "the driver polls")
    assert world.getters_opened[0][1].sequence_number is not None
    world.until_stored(world.put("four")[0])
    assert running.runner.slices(SliceKind.READ)
    assert running.runner.slices(SliceKind.CARRIED)
    assert diary.payloads == ["three", "four"]
    assert running.query.exception() is None
