"""The order after a failure at the plain-Python door, when the owner before comes too late."""

import pytest

from tests.support.consumer.world import SteppedWorld, values_of

pytestmark = pytest.mark.no_second_run


def test_what_the_owner_before_says_too_late_frees_nothing_at_the_next() -> None:
    world = SteppedWorld(scheme="text", order="key", retry_backoff_seconds=2.0)
    world.put("a1", key="a")
    first = world.spout()
    (a1,) = world.takes(first, seconds=1.0)
    first.fail(a1.message_id)
    world.takes(first, seconds=1.2)
    world.put("a2", key="a")
    world.zookeeper.end_session("process-1")
    second = world.spout()
    assert values_of(world.takes(second, seconds=3.0)) == ["a1"]
    first.ack(a1.message_id)
    assert world.takes(second, seconds=10.0) == []
