"""How the engine gathers what comes at nearly the same time into one job, and what it leaves alone."""

import threading
from collections.abc import Sequence
from time import monotonic
from typing import Any

import pytest

from kinesis_spout.spark.tasks.work import WorkSlice
from kinesis_spout.testing import InMemoryShardGetter
from shard_state import SliceKind, SlicePlan
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, NEVER, SECOND, Diary, EngineWorld, RunningQuery

SHARDS = 8


class HangingPolls:
    """Polls of one shard hang while the gate is closed."""

    def __init__(self, shard_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.hanging = threading.Event()
        whole = InMemoryShardGetter.read

        def read(getter: InMemoryShardGetter, limit: int) -> Any:
            if getter._shard_id == shard_id and not self.gate.is_set():
                self.hanging.set()
                assert self.gate.wait(30)
            return whole(getter, limit)

        monkeypatch.setattr(InMemoryShardGetter, "read", read)

    def close(self) -> None:
        self.gate.clear()
        assert self.hanging.wait(30), "no poll began"


def carried(running: RunningQuery) -> list[list[WorkSlice]]:
    return [
        batch
        for batch in list(running.runner.batches)
        if any(work.plan.kind is SliceKind.CARRIED for work in batch)
    ]


def put_before_all_are_polled(world: EngineWorld, running: RunningQuery, shard_ids: Sequence[str]) -> None:
    """Put a record into each shard while no poll is under way, and have all of them polled next."""

    def put() -> bool:
        with running.consumer.lock:
            if running.engine._tip.is_polling:
                return False
            for shard_id in shard_ids:
                world.put_in(shard_id, shard_id)
                running.engine._shards.by_id[shard_id].schedule(poll_at=0.0)
                running.engine._tip.look_again(shard_id)
            return True

    wait_until(put, "no poll is under way")


def test_records_that_arrive_together_in_many_shards_go_out_in_one_batch(world: EngineWorld) -> None:
    diary = Diary()
    running = world.start(diary, engine={"gather_seconds": 20.0})
    running.query.processAllAvailable()
    shard_ids = [shard.shard_id for shard in world.stream.list_shards()]

    put_before_all_are_polled(world, running, shard_ids)
    diary.until(shard_ids)

    assert [len(batch) for batch in carried(running)] == [SHARDS]


def test_records_wait_for_the_polls_that_are_under_way(
    two_shards: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, polls = two_shards, HangingPolls(SECOND, monkeypatch)
    running = world.start(diary := Diary(), engine={"gather_seconds": NEVER})
    running.query.processAllAvailable()
    polls.close()
    world.put_in(FIRST, "a")
    wait_until(lambda: running.engine._shards.by_id[FIRST].records, "the first record is there")
    world.put_in(SECOND, "b")
    assert carried(running) == []
    polls.gate.set()
    diary.until(["a", "b"])

    assert [len(batch) for batch in carried(running)] == [2]


def test_a_record_waits_for_a_slow_poll_no_longer_than_the_gather_time(
    two_shards: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 15."""
    world, polls = two_shards, HangingPolls(SECOND, monkeypatch)
    running = world.start(diary := Diary())
    running.query.processAllAvailable()
    polls.close()

    world.put_in(FIRST, "a")
    diary.until(["a"])
    assert not polls.gate.is_set()
    polls.gate.set()


def test_a_lone_record_is_planned_when_the_last_poll_is_back(two_shards: EngineWorld) -> None:
    world = two_shards
    running = world.start(diary := Diary(), engine={"gather_seconds": NEVER})
    running.query.processAllAvailable()

    world.put_in(FIRST, "a")
    diary.until(["a"])


def test_retries_that_are_due_soon_after_each_other_go_out_in_one_batch(two_shards: EngineWorld) -> None:
    world = two_shards
    world.put_in(FIRST, "a")
    diary = Diary(a=[ValueError("no")], b=[ValueError("no")])
    running = world.start(diary, engine={"gather_seconds": 4.0}, retry_backoff_seconds=1.0)
    wait_until(lambda: running.query.counters.retried == 1, "the first has failed")
    world.put_in(SECOND, "b")
    wait_until(lambda: diary.attempts("a") == [1, 2] and diary.attempts("b") == [1, 2], "both come again")

    retried = [len(batch) for batch in running.runner.batches if any(work.plan.retries for work in batch)]
    assert retried == [2]


@pytest.mark.parametrize("pause", [0.0, 0.02], ids=["free to read", "with read limits"])
def test_polls_that_bring_nothing_plan_nothing(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    ready_at = property(lambda _: monotonic() + pause)
    monkeypatch.setattr(InMemoryShardGetter, "ready_at", ready_at)
    running = world.start(Diary(), engine={"idle_poll_seconds": 0.01})
    running.query.processAllAvailable()
    manager = running.consumer.manager
    planned: list[float] = []
    whole = manager.plan

    def plan(now: float, *arguments: Any, **more: Any) -> list[SlicePlan]:
        planned.append(now)
        return whole(now, *arguments, **more)

    monkeypatch.setattr(manager, "plan", plan)
    polls, began = world.stream.clock.monotonic(), running.consumer.now
    wait_until(lambda: world.stream.clock.monotonic() > polls + 20, "a hundred polls are made")

    assert len(planned) <= 1 + (running.consumer.now - began)


# What must rest


def test_a_shard_with_a_backlog_is_not_read_before_its_read_limits_allow(two_shards: EngineWorld) -> None:
    running = two_shards.start(Diary())
    running.query.processAllAvailable()
    with running.consumer.lock:
        now = running.consumer.now
        for shard_id, shard in running.engine._shards.by_id.items():
            running.consumer.manager.page_fetched(shard_id, full=True)
            shard.schedule(read_at=now if shard_id == SECOND else now + NEVER)
        running.engine._planner.plan(now)
        planned: Sequence[SlicePlan] = [plan for plans in running.engine._planner.planned for plan in plans]

    assert [(plan.shard_id, plan.kind) for plan in planned] == [(SECOND, SliceKind.READ)]


def test_nothing_of_a_barred_shard_is_planned(two_shards: EngineWorld) -> None:
    running = two_shards.start(Diary())
    running.query.processAllAvailable()
    with running.consumer.lock:
        now = running.consumer.now
        for shard_id, shard in running.engine._shards.by_id.items():
            running.consumer.manager.page_fetched(shard_id, full=True)
            shard.schedule(read_at=now)
        running.engine._shards.by_id[FIRST].schedule(out_at=now + NEVER)
        running.engine._planner.plan(now)
        planned = [plan.shard_id for plans in running.engine._planner.planned for plan in plans]

    assert planned == [SECOND]


# Ownership


def test_a_plan_of_an_ownership_that_ended_is_not_launched_for_the_next_one(two_shards: EngineWorld) -> None:
    """Its successor reads from its own checkpoint; what was planned before may be finished by somebody else."""
    world = two_shards
    running = world.start(diary := Diary(), engine={"max_concurrent_batches": 1})
    running.query.processAllAvailable()
    running.runner.gate.clear()
    world.put_in(FIRST, "a")
    wait_until(lambda: running.runner.hanging, "the only slot is taken")
    with running.consumer.lock:
        running.consumer.manager.page_fetched(SECOND, full=True)
        running.engine._shards.by_id[SECOND].schedule(read_at=0.0)
        running.engine._planner.plan(running.consumer.now)
        assert [len(plans) for plans in running.engine._planner.planned] == [1], "a plan waits for its turn"
    epoch = world.stored(SECOND).epoch
    running.runner.cancels_missed = 1_000  # The slot stays taken.
    world.zookeeper.expire("member-1")
    wait_until(
        lambda: world.stored(SECOND).epoch > epoch and world.stored(FIRST).epoch > epoch,
        "both are acquired anew",
    )
    wait_until(lambda: {FIRST, SECOND} <= running.consumer.manager.owned, "both are owned anew")
    before = len(running.runner.batches)
    running.runner.open_gate()
    world.put_in(SECOND, "b")
    diary.until(["b"])
    running.query.processAllAvailable()

    later = [work.plan for batch in running.runner.batches[before:] for work in batch]
    assert {plan.shard_id for plan in later} == {FIRST, SECOND}
    assert all(plan.epoch > epoch for plan in later)
