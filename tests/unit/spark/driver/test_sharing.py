"""Two drivers of one application share the shards; what runs may end before its shard is handed over."""

from collections import Counter

from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import Diary, EngineWorld, RunningQuery

SHARDS = 2


def owned(*queries: RunningQuery) -> list[int]:
    return [len(query.consumer.manager.owned) for query in queries]


def put_in_each(world: EngineWorld, name: str) -> None:
    for shard in world.stream.list_shards():
        world.put_in(shard.shard_id, f"{name} in {shard.shard_id}")


def test_a_second_driver_has_its_share_and_each_record_is_handled_once(world: EngineWorld) -> None:
    one, two = Diary(), Diary()
    first = world.start(one)
    assert owned(first) == [2]
    second = world.start(two)
    wait_until(lambda: owned(first, second) == [1, 1], "they share")
    put_in_each(world, "after")
    for query in (first, second):
        query.query.processAllAvailable()
    assert (len(one.payloads), len(two.payloads)) == (1, 1)
    second.stop()
    wait_until(lambda: owned(first) == [2], "the first has everything again")
    put_in_each(world, "later")
    first.query.processAllAvailable()
    assert Counter(one.payloads + two.payloads).most_common(1)[0][1] == 1
    assert len(one.payloads) == 3


def test_a_batch_that_runs_ends_before_its_shard_is_handed_over(world: EngineWorld) -> None:
    one, two = Diary(), Diary()
    first = world.start(one, hanging=True, hand_over_timeout_seconds=600)
    put_in_each(world, "before")
    wait_until(lambda: first.runner.hanging > 0, "a batch runs")
    second = world.start(two)
    wait_until(lambda: len(first.consumer.sharing.leaving) == 1, "a shard is left")
    assert owned(first, second) == [2, 0]
    first.runner.open_gate()
    wait_until(lambda: owned(first, second) == [1, 1], "it is handed over")
    put_in_each(world, "after")
    for query in (first, second):
        query.query.processAllAvailable()
    assert sorted(Counter(one.payloads + two.payloads).values()) == [1, 1, 1, 1]


def test_a_batch_that_does_not_end_in_time_counts_for_nothing_at_the_old_owner(world: EngineWorld) -> None:
    one, two = Diary(), Diary()
    first = world.start(one, hanging=True, hand_over_timeout_seconds=0.05)
    put_in_each(world, "before")
    wait_until(lambda: first.runner.hanging > 0, "a batch runs")
    second = world.start(two)
    wait_until(lambda: owned(first, second) == [1, 1], "it is handed over")
    second.query.processAllAvailable()
    (again,) = two.payloads
    (moved,) = second.consumer.manager.owned
    assert again == f"before in {moved}"
    stored = world.stored(moved)
    first.runner.open_gate()
    first.query.processAllAvailable()
    assert world.stored(moved) == stored, "what the old owner had in flight is not acked there"
    assert sorted(one.payloads) == [f"before in {shard.shard_id}" for shard in world.stream.list_shards()]
