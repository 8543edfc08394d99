"""The order after a failure, when another process goes on."""

from collections.abc import Callable

import pytest

from tests.support.consumer.doors import DoorWorld, Reader

pytestmark = pytest.mark.no_second_run


def closes(world: DoorWorld, reader: Reader) -> None:
    del world
    reader.close()


def crashes(world: DoorWorld, reader: Reader) -> None:
    del world
    reader.crash()


def loses_its_session(world: DoorWorld, reader: Reader) -> None:
    """It goes on and does not know yet that its shard is another's."""
    del reader
    world.zookeeper.end_session("process-1")


@pytest.mark.parametrize("ends", [closes, crashes, loses_its_session])
@pytest.mark.parametrize(("order", "others"), [("key", ["b1"]), ("shard", [])])
def test_what_waited_behind_a_failed_record_waits_for_it_at_the_next_owner(
    world: DoorWorld, order: str, others: list[str], ends: Callable[[DoorWorld, Reader], None]
) -> None:
    settings = {"order": order, "retry_backoff_seconds": 2.0}
    world.put("a1", key="a")
    world.outcomes["a1"] = [ValueError("bad"), ValueError("bad")]
    first = world.start(**settings)
    assert world.run(first, seconds=1.0) == ["a1"]
    for payload, key in (("a2", "a"), ("b1", "b"), ("a3", "a")):
        world.put(payload, key=key)
    assert world.run(first, seconds=0.8) == others, "only another key goes on"
    ends(world, first)

    second = world.start(**settings)
    came = [payload for payload in world.run(second, seconds=3.0) if payload != "b1"]
    assert came == ["a1"], "what failed comes first, and what waited behind it waits"
    came = [payload for payload in world.run(second, seconds=20.0) if payload != "b1"]
    assert came == ["a1", "a2", "a3"]
    assert world.attempts("a1") == [1, 2, 3]
