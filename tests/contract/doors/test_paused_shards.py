"""Shards that an operator has paused."""

import logging
from collections.abc import Callable

import pytest

from kinesis_spout.model.errors import InvalidConfig
from tests.support.consumer.doors import FIRST, SECOND, DoorWorld


@pytest.fixture
def world(doors: Callable[..., DoorWorld]) -> DoorWorld:
    return doors(shards=2)


def test_a_paused_shard_is_not_handed_out_and_does_not_stop_the_others(world: DoorWorld) -> None:
    first, second = world.put_in_both()
    reader = world.start()
    reader.handle.pause_shards(FIRST)
    assert set(world.run(reader, seconds=5.0)) == second
    assert reader.handle.paused_shards == {FIRST}
    assert [(status.shard_id, status.paused_by_operator) for status in reader.handle.shards()] == [
        (FIRST, True),
        (SECOND, False),
    ]
    assert reader.handle.trouble is None, "no handler is at fault"
    assert reader.handle.resume_shards(FIRST)
    assert set(world.run(reader, seconds=5.0)) == first
    assert not reader.handle.resume_shards()


def test_retries_of_a_paused_application_wait_and_go_on_with_their_attempt(world: DoorWorld) -> None:
    world.put("fails once")
    world.outcomes["fails once"] = [ValueError("no")]
    reader = world.start(retry_backoff_seconds=1.0)
    assert world.run(reader, seconds=0.5) == ["fails once"]
    reader.handle.pause_shards()
    world.put_in_both("later")
    assert world.run(reader, seconds=10.0) == []
    reader.handle.resume_shards()
    assert len(world.run(reader, seconds=10.0)) == 21
    assert world.attempts("fails once") == [1, 2]


def test_a_pause_outlives_the_consumer_that_it_was_said_to(world: DoorWorld) -> None:
    world.put_in_both()
    reader = world.start()
    reader.handle.pause_shards()
    world.run(reader, seconds=1.0)
    reader.crash()
    world.clock.advance(30.0)
    following = world.start()
    assert world.run(following, seconds=5.0) == []
    following.handle.resume_shards()
    assert len(world.run(following, seconds=5.0)) == 20


def test_a_bounded_run_with_a_paused_shard_says_so_and_does_not_end_before_it_is_resumed(
    world: DoorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = world.put_in_both()
    reader = world.start(until="latest")
    reader.handle.pause_shards(FIRST)
    with caplog.at_level(logging.WARNING):
        assert set(world.run(reader, seconds=30.0)) == second
    assert not reader.is_done
    assert f"paused by an operator: 1 shard of orders: {FIRST}" in caplog.text
    assert "the run does not end before that" in caplog.text
    reader.handle.resume_shards()
    assert set(world.run(reader)) == first
    assert reader.is_done


def test_children_of_a_paused_shard_wait_for_it(world: DoorWorld) -> None:
    first, second = world.put_in_both()
    world.stream.split(FIRST)
    reader = world.start()
    reader.handle.pause_shards(FIRST)
    assert set(world.run(reader, seconds=5.0)) == second
    world.put_in_both("later")
    assert set(world.run(reader, seconds=5.0)).isdisjoint(first)
    assert FIRST in reader.handle.paused_shards
    reader.handle.resume_shards()
    assert first <= set(world.run(reader, seconds=10.0))


def test_a_shard_that_is_none_is_refused(world: DoorWorld) -> None:
    with pytest.raises(InvalidConfig, match="expected a shard of orders to pause"):
        world.start().handle.pause_shards("shardId-000000000009")
