"""Records that are too old to be delivered, in micro-batches, with everything around them but Spark.

Arrivals are dated by the stream's clock, which is set to the machine's, the engine's, and stands still.
"""

import time
from typing import Any

import pytest

from kinesis_spout.testing import ManualClock
from tests.unit.spark.driver.world import Diary, EngineWorld, KillsWorker

MAXIMUM: dict[str, Any] = {"maximum_record_age_seconds": 3600.0}


def put_old_and_new(world: EngineWorld, old: int, *new: str) -> None:
    clock = world.stream.clock
    assert isinstance(clock, ManualClock)
    clock.jump(time.time() - 7200.0 - clock.time())
    for number in range(old):
        world.put(f"old{number}", key=f"key-{number % 3}")
    clock.jump(7200.0)
    for at, payload in enumerate(new):
        world.put(payload, key=f"key-{at % 3}")


@pytest.mark.parametrize("order", ["unordered", "key", "shard"])
@pytest.mark.parametrize("carried", [False, True])
def test_old_records_are_dead_lettered_and_hold_up_nobody(
    world: EngineWorld, order: str, *, carried: bool
) -> None:
    old = 10 if carried else 50  # a record a slice, of which a shard gives five a second
    put_old_and_new(world, old, "a", "b", "c")
    diary = Diary(b=[ValueError("once")])
    limits: dict[str, Any] = {"max_records_per_slice": 1} if carried else {}
    running = world.start(diary, until="latest", order=order, **limits, **MAXIMUM)
    assert running.query.awaitTermination(60.0)
    assert sorted(diary.payloads) == ["a", "b", "b", "c"]
    assert {letter.reason for letter in world.dead_letters.letters} == {"expired"}
    assert {letter.attempts for letter in world.dead_letters.letters} == {0}
    counters = running.query.counters
    assert len(world.dead_letters.letters) == counters.expired == counters.dead_lettered == old
    assert (counters.delivered, counters.acked, counters.retried, counters.skipped) == (4, 3, 1, 0)
    outcomes = [each["outcomes"]["expired"] for each in running.query.recentProgress]
    assert sum(outcomes) == old


def test_what_a_worker_had_passed_over_before_it_died_is_given_up_once(world: EngineWorld) -> None:
    put_old_and_new(world, 5, "a", "kills", "b")
    diary = Diary(kills=[KillsWorker()])
    running = world.start(diary, until="latest", **MAXIMUM)
    assert running.query.awaitTermination(60.0)
    assert diary.attempts("a") == [1]
    assert diary.attempts("kills") == [1, 2]
    assert sorted(letter.data for letter in world.dead_letters.letters) == [
        f"old{number}".encode() for number in range(5)
    ]
