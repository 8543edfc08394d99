"""The order after a failure, in the plain-Python door, when another process goes on."""

from collections.abc import Callable
from typing import Literal

import pytest

from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.testing import (
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)

MEMBERS = ("process-1", "process-2")


class World:
    def __init__(self, order: Literal["key", "shard"]) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", clock=self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.order: Literal["key", "shard"] = order

    def spout(self) -> SteppedSpout:
        return SteppedSpout(
            ports=in_memory_ports(self.stream, self.zookeeper),
            stream="orders",
            app="billing",
            initial_position="trim_horizon",
            scheme="text",
            order=self.order,
            retry_backoff_seconds=2.0,
        ).open()

    def takes(self, spout: SteppedSpout, *, seconds: float = 10.0) -> list[Emitted]:
        taken: list[Emitted] = []
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            emitted = spout.next_tuple()
            if emitted is None:
                self.clock.advance(0.05)
            else:
                taken.append(emitted)
        return taken


def restarts(world: World, spout: SteppedSpout) -> SteppedSpout:
    spout.close()
    return world.spout()


def crashes(world: World, spout: SteppedSpout) -> SteppedSpout:
    spout.crash()
    return world.spout()


def loses_its_session(world: World, spout: SteppedSpout) -> SteppedSpout:
    """It goes on and does not know yet that its shard is another's."""
    del spout
    world.zookeeper.end_session(MEMBERS[0])
    return world.spout()


def values(taken: list[Emitted]) -> list[str]:
    return [emitted.values for emitted in taken]


@pytest.mark.parametrize("ends", [restarts, crashes, loses_its_session])
@pytest.mark.parametrize(("order", "others"), [("key", ["b1"]), ("shard", [])])
def test_what_waited_behind_a_failed_record_waits_for_it_at_the_next_owner(
    order: Literal["key", "shard"], others: list[str], ends: Callable[[World, SteppedSpout], SteppedSpout]
) -> None:
    world = World(order)
    world.stream.put(b"a1", "a")
    first = world.spout()
    (a1,) = world.takes(first, seconds=1.0)
    assert first.fail(a1.message_id)
    for payload, key in ((b"a2", "a"), (b"b1", "b"), (b"a3", "a")):
        world.stream.put(payload, key)
    for emitted in world.takes(first, seconds=1.2):
        assert order == "key"
        assert emitted.values == "b1", "only another key goes on"
    second = ends(world, first)

    came = world.takes(second, seconds=4.0)
    assert values(came) == ["a1", *others], "what failed comes first, and what waited behind it waits"
    assert second.fail(came[0].message_id)
    (again,) = world.takes(second)
    assert again.values == "a1"
    assert second.ack(again.message_id)
    rest = world.takes(second)
    assert values(rest)[:1] == ["a2"]
    for emitted in rest:
        second.ack(emitted.message_id)
    rest += world.takes(second)
    assert values([emitted for emitted in rest if emitted.values.startswith("a")]) == ["a2", "a3"]


def test_what_the_owner_before_says_too_late_frees_nothing_at_the_next() -> None:
    world = World("key")
    world.stream.put(b"a1", "a")
    first = world.spout()
    (a1,) = world.takes(first, seconds=1.0)
    first.fail(a1.message_id)
    world.takes(first, seconds=1.2)
    world.stream.put(b"a2", "a")
    second = loses_its_session(world, first)
    assert values(world.takes(second, seconds=3.0)) == ["a1"]
    first.ack(a1.message_id)
    assert world.takes(second) == []
