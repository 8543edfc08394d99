"""A process that was stopped, and does not know yet whether its shards are another's."""

import pytest

from kinesis_spout.testing import (
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)
from kinesis_spout.testing.zookeeper.coordinator import InMemoryCoordinator
from shard_state import Checkpoint, Position, Shard, StartPositions

pytestmark = pytest.mark.no_second_run


def test_it_hands_out_nothing_before_zookeeper_has_answered() -> None:
    clock = ManualClock()
    stream = InMemoryStream("orders", clock=clock)
    ports = in_memory_ports(stream, InMemoryZooKeeper())
    coordinator = ports.coordinator
    assert isinstance(coordinator, InMemoryCoordinator)
    for number in range(3):
        stream.put(str(number).encode(), "key")
    with SteppedSpout(
        ports=ports, stream="orders", app="billing", initial_position="trim_horizon"
    ).open() as spout:
        first = spout.next_tuple()
        assert first is not None
        coordinator.is_heard = False
        clock.advance(0.01)  # a run lasts no longer
        assert spout.next_tuple() is None
        assert spout.ack(first.message_id), "what it has handed out may end"
        coordinator.is_heard = True
        assert spout.next_tuple() is not None


def test_what_was_lost_and_not_said_yet_is_not_certain() -> None:
    zookeeper = InMemoryZooKeeper()
    process = zookeeper.process()
    process.store.open(1.0, StartPositions(default=Position.trim_horizon()), [Shard(shard_id="a")])
    process.coordinator.join()
    assert process.coordinator.acquire("a", Checkpoint(start=Position.trim_horizon())) is not None
    assert process.coordinator.is_certain()
    process.coordinator.lose("a")
    assert not process.coordinator.is_certain()
    assert process.coordinator.take_lost() == {"a"}
    assert process.coordinator.is_certain()
