"""The order after a failure, in the plain-Python door, when another process goes on."""

from collections.abc import Callable
from typing import Literal

import pytest

from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.testing import (
    SteppedSpout,
)
from tests.support.consumer.world import SteppedWorld

pytestmark = pytest.mark.no_second_run

MEMBERS = ("process-1", "process-2")


def world_of(order: Literal["key", "shard"]) -> SteppedWorld:
    return SteppedWorld(scheme="text", order=order, retry_backoff_seconds=2.0)


def restarts(world: SteppedWorld, spout: SteppedSpout) -> SteppedSpout:
    spout.close()
    return world.spout()


def crashes(world: SteppedWorld, spout: SteppedSpout) -> SteppedSpout:
    spout.crash()
    return world.spout()


def loses_its_session(world: SteppedWorld, spout: SteppedSpout) -> SteppedSpout:
    """It goes on and does not know yet that its shard is another's."""
    del spout
    world.zookeeper.end_session(MEMBERS[0])
    return world.spout()


def values(taken: list[Emitted]) -> list[str]:
    return [emitted.values for emitted in taken]


@pytest.mark.parametrize("ends", [restarts, crashes, loses_its_session])
@pytest.mark.parametrize(("order", "others"), [("key", ["b1"]), ("shard", [])])
def test_what_waited_behind_a_failed_record_waits_for_it_at_the_next_owner(
    order: Literal["key", "shard"],
    others: list[str],
    ends: Callable[[SteppedWorld, SteppedSpout], SteppedSpout],
) -> None:
    world = world_of(order)
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
    (again,) = world.takes(second, seconds=10.0)
    assert again.values == "a1"
    assert second.ack(again.message_id)
    rest = world.takes(second, seconds=10.0)
    assert values(rest)[:1] == ["a2"]
    for emitted in rest:
        second.ack(emitted.message_id)
    rest += world.takes(second, seconds=10.0)
    assert values([emitted for emitted in rest if emitted.values.startswith("a")]) == ["a2", "a3"]


def test_what_the_owner_before_says_too_late_frees_nothing_at_the_next() -> None:
    world = world_of("key")
    world.stream.put(b"a1", "a")
    first = world.spout()
    (a1,) = world.takes(first, seconds=1.0)
    first.fail(a1.message_id)
    world.takes(first, seconds=1.2)
    world.stream.put(b"a2", "a")
    second = loses_its_session(world, first)
    assert values(world.takes(second, seconds=3.0)) == ["a1"]
    first.ack(a1.message_id)
    assert world.takes(second, seconds=10.0) == []
