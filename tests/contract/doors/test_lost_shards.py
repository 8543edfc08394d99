"""Shards of which retention took what nobody had read."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from kinesis_spout.model.errors import DataLoss, KinesisSpoutError
from kinesis_spout.testing import InMemoryStream
from tests.support.consumer.doors import FIRST, DoorWorld

_RETENTION_SECONDS = 30.0


@pytest.fixture
def world(doors: Callable[..., DoorWorld]) -> DoorWorld:
    """Make one whose stream soon forgets."""
    made = doors()
    made.stream = InMemoryStream("orders", retention_seconds=_RETENTION_SECONDS, clock=made.clock)
    return made


def read_one(world: DoorWorld) -> None:
    """Have progress stored."""
    world.put("read")
    reader = world.start()
    world.run(reader, 5.0)
    reader.close()


def start_in_vain(world: DoorWorld, said: str) -> None:
    """Start a reader that ends with a data loss."""
    reader = world.start()
    with pytest.raises(DataLoss, match=said):
        world.run(reader)
    with suppress(KinesisSpoutError):  # it says again what ended it
        reader.close()


def lose(world: DoorWorld) -> None:
    """Have retention take the shard, with a record that nobody has read."""
    world.put("unread")
    world.stream.split(FIRST)
    world.clock.advance(_RETENTION_SECONDS + 5.0)
    assert FIRST not in {shard.shard_id for shard in world.stream.list_shards()}


@pytest.mark.parametrize("earlier_starts", [0, 1])
def test_it_is_a_loss_at_each_start_until_the_loss_is_accepted(world: DoorWorld, earlier_starts: int) -> None:
    read_one(world)
    lose(world)
    for _ in range(earlier_starts + 1):
        start_in_vain(world, f"{FIRST}' of stream 'orders' is gone")
        assert not world.stored().is_shard_end

    world.put("in a child")
    reader = world.start(fail_on_data_loss=False)
    assert world.run(reader) == ["in a child"]
    assert world.stored().is_shard_end
    assert reader.handle.counters.shards_trimmed == 1


def test_it_is_counted_once_although_a_record_of_it_waits_for_its_retry(world: DoorWorld) -> None:
    world.put("fails")
    world.outcomes["fails"] = [ValueError("later")]
    reader = world.start(fail_on_data_loss=False, retry_backoff_seconds=2 * _RETENTION_SECONDS)
    world.run(reader, 5.0)
    lose(world)
    assert world.run(reader, 30.0) == ["fails"]
    assert world.attempts("fails") == [1, 2]
    assert reader.handle.counters.shards_trimmed == 1


@pytest.mark.parametrize("earlier_starts", [0, 1])
def test_a_gap_in_a_shard_is_a_loss_at_each_start(world: DoorWorld, earlier_starts: int) -> None:
    read_one(world)
    world.put("unread")
    world.clock.advance(25 * 3600.0)
    world.put("kept")
    for _ in range(earlier_starts + 1):
        start_in_vain(world, "that record before it is gone")
