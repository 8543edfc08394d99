"""Micro-batches with ``guarantee="none"``: nothing is retried, and the checkpoint waits for nobody."""

from collections import Counter

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from tests.unit.spark.driver.world import NEVER, Diary, EngineWorld, KillsWorker


@pytest.mark.parametrize("order", ["unordered", "key"])
def test_a_failed_record_is_dead_lettered_and_not_retried(world: EngineWorld, order: str) -> None:
    last = world.put("one", "bad", "three", "four")[-1]
    diary = Diary(bad=[ValueError("no")] * 9)
    running = world.start(diary, guarantee="none", retry_limit=3, order=order)
    running.query.processAllAvailable()
    assert diary.payloads == ["one", "bad", "three", "four"]
    assert [letter.data for letter in world.dead_letters.letters] == [b"bad"]
    world.until_stored(last)


def test_the_checkpoint_does_not_wait_for_the_dead_letter(world: EngineWorld) -> None:
    world.dead_letters.fail_writes(1_000_000)
    last = world.put("one", "bad", "three")[-1]
    diary = Diary(bad=[ValueError("no")])
    world.start(diary, guarantee="none")
    world.until_stored(last)
    assert world.dead_letters.letters == []


def test_a_record_that_kills_its_worker_is_given_up_and_its_neighbours_go_on(world: EngineWorld) -> None:
    last = world.put(*(f"r{number}" for number in range(20)), "poison", "last")[-1]
    diary = Diary(poison=[KillsWorker()] * 9)
    running = world.start(diary, guarantee="none")
    running.query.processAllAvailable()
    counts = Counter(diary.payloads)
    assert set(counts.values()) == {1}
    assert len(counts) == 22
    assert [letter.data for letter in world.dead_letters.letters] == [b"poison"]
    world.until_stored(last)


def test_what_nobody_knows_the_outcome_of_is_planned_again(world: EngineWorld) -> None:
    last = world.put("one", "poison", "three")[-1]
    diary = Diary(poison=[KillsWorker()] * 99)
    running = world.start(diary, guarantee="none", blind=HandlerKilledWorker)
    running.query.processAllAvailable()
    assert set(diary.payloads) == {"one", "poison", "three"}
    assert [letter.data for letter in world.dead_letters.letters] == [b"poison"]
    world.until_stored(last)


def test_what_was_not_committed_comes_again_after_a_crash(world: EngineWorld) -> None:
    world.put("one", "two")
    first = world.start(Diary(), guarantee="none", commit_interval_seconds=NEVER)
    first.query.processAllAvailable()
    first.consumer.close(commit=False)
    second = Diary()
    world.start(second, guarantee="none").query.processAllAvailable()
    assert second.payloads == ["one", "two"]
