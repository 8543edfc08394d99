"""Outcomes that the runner refuses, as one with state must when what the batch began with is no longer there."""

from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, Diary, EngineWorld

SHARDS = 2


def test_a_batch_whose_outcomes_are_refused_is_planned_again_and_finishes_nothing_before(
    world: EngineWorld,
) -> None:
    records = world.put_in(FIRST, "a", "b")
    diary = Diary()
    running = world.start(diary, hanging=True)
    running.runner.refuses_outcomes = True
    running.runner.open_gate()
    wait_until(lambda: len(diary.attempts("b")) >= 2, "the batch has been run twice")
    assert running.query.counters.acked == 0

    running.runner.refuses_outcomes = False
    running.query.processAllAvailable()

    assert running.query.counters.acked == len(records)
    assert running.query.exception() is None
    world.until_stored(records[-1])


def test_a_batch_is_whole_while_all_its_shards_are_owned(world: EngineWorld) -> None:
    world.put_in(FIRST, "a")
    world.put_in(SECOND, "b")
    running = world.start(Diary())
    running.query.processAllAvailable()

    assert set(running.runner.settled_whole.values()) == {True}


def test_a_batch_is_not_whole_once_a_shard_of_it_was_lost_even_if_it_is_owned_again(
    world: EngineWorld,
) -> None:
    """What was done to it in between is another ownership's."""
    world.put_in(FIRST, "a")
    world.put_in(SECOND, "b")
    running = world.start(Diary(), hanging=True)
    wait_until(lambda: running.runner.hanging, "a batch is under way")
    [tag] = running.runner.begun
    epoch = world.stored(FIRST).epoch
    running.runner.cancels_missed = 1_000  # It ends by itself.
    world.zookeeper.expire("member-1")
    wait_until(lambda: world.stored(FIRST).epoch > epoch, "the shard is acquired anew")

    running.runner.open_gate()
    running.query.processAllAvailable()

    assert running.runner.settled_whole.pop(tag) is False
    assert set(running.runner.settled_whole.values()) == {True}
