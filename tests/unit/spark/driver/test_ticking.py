"""When the engine runs a micro-batch without records, for the ticks of its runner."""

import logging
from time import monotonic

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, Diary, EngineWorld, RunningQuery

SHARDS = 2


class DueTicks:
    """Ticks that are due whenever a test says so. Mutable."""

    def __init__(self, *, due: bool = True) -> None:
        self.due_at: float | None = 0.0 if due else None
        self.advanced = 0
        self.read_to: list[float | None] = []

    def advance(self, now: float, read_to: float | None = None) -> None:
        assert now == pytest.approx(monotonic(), abs=60)
        self.read_to.append(read_to)
        self.advanced += 1
        self.due_at = None

    def are_due(self) -> None:
        self.due_at = 0.0


def alone(running: RunningQuery) -> int:
    """Say how many batches had no slices."""
    return [len(batch) for batch in list(running.runner.batches)].count(0)


def until_idle(running: RunningQuery) -> None:
    """Wait until all shards are owned, what is in them was read, and nothing runs."""
    running.query.processAllAvailable()
    wait_until(lambda: not running.query.status["isTriggerActive"], "no batch runs")


def until_looked_again(running: RunningQuery) -> None:
    """Wait until the engine has looked for work several times since now."""
    looked: list[int] = []
    for _ in range(20):
        until = len(looked)
        running.engine._calls.put(lambda: looked.append(1))
        wait_until(lambda until=until: len(looked) > until, "the engine has looked")  # type: ignore[misc]


def test_an_idle_stream_has_one_batch_without_slices_for_each_time_that_ticks_are_due(
    world: EngineWorld,
) -> None:
    ticks = DueTicks(due=False)
    running = world.start(Diary(), ticks=ticks)
    until_idle(running)
    assert alone(running) == 0
    ticks.are_due()
    wait_until(lambda: alone(running) == 1, "a batch has run for the ticks alone")
    until_looked_again(running)
    assert alone(running) == 1
    ticks.are_due()
    wait_until(lambda: alone(running) == 2, "another one has run")
    until_idle(running)
    progress = running.query.lastProgress
    assert progress is not None
    assert progress["numInputRows"] == 0
    assert running.query.exception() is None


def test_a_batch_of_records_takes_the_ticks_along_and_those_that_fall_due_meanwhile_wait_for_its_end(
    world: EngineWorld,
) -> None:
    ticks, diary = DueTicks(), Diary()
    world.put("a")
    running = world.start(diary, ticks=ticks, hanging=True)
    wait_until(lambda: running.runner.hanging == 1, "a batch of records runs")
    assert (ticks.advanced, ticks.due_at, alone(running)) == (1, None, 0)
    ticks.are_due()
    until_looked_again(running)
    assert alone(running) == 0
    running.runner.open_gate()
    wait_until(lambda: ticks.due_at is None, "they come after it")
    diary.until(["a"])


def test_ticks_are_told_up_to_when_the_stream_was_read(world: EngineWorld) -> None:
    ticks = DueTicks(due=False)
    running = world.start(Diary(), ticks=ticks)
    until_idle(running)
    since = monotonic()
    wait_until(lambda: running.engine.is_caught_up(since), "all shards were read since")
    ticks.are_due()
    wait_until(lambda: ticks.due_at is None, "the ticks have their batch")
    read_to = ticks.read_to[-1]
    assert read_to is not None
    assert since <= read_to <= monotonic()


def test_ticks_are_told_that_it_is_not_known_while_records_of_a_shard_wait(world: EngineWorld) -> None:
    ticks = DueTicks(due=False)
    world.put(*(f"{number}" for number in range(50)))
    running = world.start(Diary(), ticks=ticks, max_deliveries_per_second=1.0)
    wait_until(lambda: ticks.advanced >= 1, "the first ones are delivered")
    assert ticks.read_to[0] in {None, float("-inf")}
    running.stop()


def test_a_batch_without_records_moves_no_checkpoint(world: EngineWorld) -> None:
    ticks = DueTicks(due=False)
    running = world.start(Diary(), ticks=ticks)
    [record] = world.put("a")
    world.until_stored(record)
    until_idle(running)
    before = world.stored(record.shard_id)
    ticks.are_due()
    wait_until(lambda: alone(running) == 1, "the ticks have their batch")
    running.stop()
    assert world.stored(record.shard_id) == before


def test_shards_that_an_operator_has_paused_do_not_tick_until_they_are_resumed(world: EngineWorld) -> None:
    world.zookeeper.process("operator").group.pause(None)
    ticks = DueTicks()
    running = world.start(Diary(), ticks=ticks)
    wait_until(lambda: running.query.paused_shards == {FIRST, SECOND}, "both are paused")
    until_looked_again(running)
    assert ticks.advanced == 0
    running.query.resume_shards()
    wait_until(lambda: ticks.advanced, "they tick")


def test_while_deliveries_are_slow_nothing_ticks(world: EngineWorld) -> None:
    """Nobody would retry what fails of a tick."""
    ticks = DueTicks(due=False)
    is_broken = [True]

    def fails(_: object) -> None:
        if is_broken[0]:
            raise ValueError("no database")

    for number in range(3_000):
        world.put(str(number), key=str(number))
    running = world.start(fails, ticks=ticks, retry_limit=0, max_spared_seconds=600)
    wait_until(lambda: running.query.trouble is not None, "deliveries are slow")
    before = ticks.advanced
    ticks.are_due()
    batches = len(running.runner.batches)
    wait_until(lambda: len(running.runner.batches) > batches, "a record was tried")
    until_looked_again(running)
    assert (ticks.advanced, alone(running)) == (before, 0)
    is_broken[0] = False
    wait_until(lambda: ticks.advanced > before, "they tick after the mend")


def test_a_consumer_that_stands_by_does_not_tick_until_it_takes_over(world: EngineWorld) -> None:
    owner = world.start(Diary(), ticks=DueTicks(due=False))
    until_idle(owner)
    ticks = DueTicks()
    standby = world.start(Diary(), ticks=ticks, mode="standby")
    until_looked_again(standby)
    assert ticks.advanced == 0
    owner.stop()
    wait_until(lambda: ticks.advanced, "it has taken over, and ticks")


def test_a_query_that_ends_by_itself_does_not_wait_for_ticks_that_are_not_due(world: EngineWorld) -> None:
    world.put("a")
    running = world.start(Diary(), ticks=DueTicks(due=False), until="latest")
    assert running.query.awaitTermination(60.0)
    assert running.query.is_done


def test_no_batch_for_ticks_begins_once_the_query_stops(world: EngineWorld) -> None:
    ticks = DueTicks(due=False)
    running = world.start(Diary(), ticks=ticks)
    until_idle(running)
    running.engine._stopping.set()
    ticks.are_due()
    running.stop()
    assert alone(running) == 0


def test_a_batch_for_ticks_that_dies_is_told_and_blames_no_record(
    world: EngineWorld, caplog: pytest.LogCaptureFixture
) -> None:
    ticks, diary = DueTicks(due=False), Diary()
    running = world.start(diary, ticks=ticks)
    until_idle(running)
    running.runner.failures.append(HandlerKilledWorker("the Spark job died: a bolt killed its worker"))
    with caplog.at_level(logging.WARNING):
        ticks.are_due()
        wait_until(lambda: "a bolt killed its worker" in caplog.text, "it is told")
    world.put("a")
    diary.until(["a"])
    ticks.are_due()
    wait_until(lambda: alone(running) == 2, "ticks go on")
    assert diary.attempts("a") == [1]
    assert running.query.isActive


def test_ticks_wait_for_the_batches_of_other_streams_and_keep_no_slot_from_them(world: EngineWorld) -> None:
    ticks = DueTicks(due=False)
    running = world.start(Diary(), ticks=ticks, engine={"max_concurrent_batches": 1})
    until_idle(running)
    slots = running.engine._slots
    assert slots.take("another stream", _nothing)
    ticks.are_due()
    until_looked_again(running)
    assert alone(running) == 0
    with running.consumer.lock:
        slots.give_back("another stream")
        assert slots.take("another stream", _nothing), "nobody waits for it"
        slots.give_back("another stream")
    wait_until(lambda: alone(running) == 1, "they have their batch")


def _nothing() -> None:
    """Wakes nobody."""
