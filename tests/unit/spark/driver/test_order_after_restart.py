"""The order after a failure, in micro-batches, when another process goes on."""

import pytest

from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, NEVER, Diary, EngineWorld

pytestmark = pytest.mark.no_second_run


@pytest.mark.parametrize(("order", "others"), [("key", ["b1"]), ("shard", [])])
@pytest.mark.parametrize("cleanly", [True, False])
def test_what_waited_behind_a_failed_record_waits_for_it_at_the_next_owner(
    world: EngineWorld, order: str, others: list[str], *, cleanly: bool
) -> None:
    failing = Diary(a1=[ValueError("bad")] * 9)
    first = world.start(failing, order=order, retry_backoff_seconds=NEVER, retry_backoff_cap_seconds=NEVER)
    world.put("a1", key="a")
    failing.until(["a1"])
    world.put("a2", key="a")
    world.put("b1", key="b")
    failing.until(["a1", *others])
    wait_until(lambda: len(world.stored().attempts) == 1, "the failure is stored")
    assert "a2" not in failing.payloads
    if cleanly:
        first.stop()
    else:
        first.consumer.close(commit=False)  # as a killed process ends: it stores nothing more

    failing_again = Diary(a1=[ValueError("bad"), None])
    second = world.start(failing_again, order=order, retry_backoff_seconds=0.05)
    second.query.processAllAvailable()
    seen = [delivery for delivery in failing_again.deliveries if delivery[0] != "b1"]
    assert seen == [("a1", 2), ("a1", 3), ("a2", 1)]
    assert second.consumer.manager.shard(FIRST) is not None
