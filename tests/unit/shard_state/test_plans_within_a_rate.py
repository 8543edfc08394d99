"""What is planned where only so many deliveries may be."""

import random

import pytest

from shard_state import (
    Checkpoint,
    Position,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SliceKind,
    SliceLimits,
    SliceOutcome,
    SlicePlan,
    StateManager,
    UnackedRecord,
)

NAMES = tuple(f"shard-{number}" for number in range(6))


def owner(*names: str, limit: int | None = None) -> StateManager:
    manager = StateManager(
        app_instance="me",
        random=lambda: 0.0,
        retry=RetryPolicy(limit=limit, backoff_seconds=1.0, multiplier=1.0, jitter=0.0),
        limits=SliceLimits(records=100),
        max_spared_seconds=0.0,
    )
    manager.listed([Shard(shard_id=name) for name in names], {})
    for name in names:
        manager.acquired(name, Checkpoint(start=Position.trim_horizon(), epoch=1))
    return manager


class Executors:
    """Carry out plans: each shard has records without end. Mutable."""

    def __init__(self, manager: StateManager, *, fails: bool = False) -> None:
        self._manager = manager
        self._fails = fails
        self._read = dict.fromkeys(NAMES, 0)
        self.delivered = dict.fromkeys(NAMES, 0)
        self.fresh = dict.fromkeys(NAMES, 0)

    def carry_out(self, plan: SlicePlan, now: float) -> None:
        name, count = plan.shard_id, plan.limit
        self.delivered[name] += plan.most_deliveries
        if plan.kind is SliceKind.RETRY:
            sequences, attempts = (
                [retry.sequence for retry in plan.retries],
                [retry.attempt for retry in plan.retries],
            )
        else:
            self.fresh[name] += count
            first = self._read[name] + 1
            self._read[name] += count
            sequences, attempts = [SequenceNumber(first + at) for at in range(count)], [1] * count
        failures = tuple(
            UnackedRecord(
                index=at,
                sequence=sequences[at],
                previous=sequences[at - 1] if at else None,
                attempt=attempts[at],
            )
            for at in range(len(sequences) if self._fails else 0)
        )
        outcome = SliceOutcome(first=sequences[0], last=sequences[-1], count=count, failures=failures)
        self._manager.settle(plan, outcome, now)


def test_no_more_is_planned_than_may_be_delivered_and_every_shard_is_served() -> None:
    seed = random.randrange(1 << 30)
    rng, manager = random.Random(seed), owner(*NAMES)
    executors, out, now = Executors(manager), list[SlicePlan](), 0.0
    for _ in range(300):
        most = rng.randrange(8)
        plans = manager.plan(now, {}, most=most)
        assert sum(plan.most_deliveries for plan in plans) <= most, f"seed {seed}"
        out += plans
        rng.shuffle(out)
        for _ in range(rng.randrange(len(out) + 1)):
            executors.carry_out(out.pop(), now)
        now += 0.1
    least, most = min(executors.delivered.values()), max(executors.delivered.values())
    assert least > most / 4 > 10, f"seed {seed}: {executors.delivered}"


def test_a_shard_alone_leaves_a_part_for_one_that_comes() -> None:
    manager = owner(NAMES[0])
    assert [plan.limit for plan in manager.plan(0.0, {}, most=10)] == [5]
    assert [plan.limit for plan in owner(NAMES[0]).plan(0.0, {}, most=1)] == [1]
    assert owner(NAMES[0]).plan(0.0, {}, most=0) == []


def test_parts_are_equal() -> None:
    plans = owner(*NAMES[:3]).plan(0.0, {}, most=40)
    assert [plan.limit for plan in plans] == [10, 10, 10]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_retries_that_are_always_due_starve_no_fresh_records(most: int) -> None:
    manager = owner(NAMES[0])
    executors, now = Executors(manager, fails=True), 0.0
    for _ in range(60):
        for plan in manager.plan(now, {}, most=most):
            executors.carry_out(plan, now)
        now += 1.0
    fresh = executors.fresh[NAMES[0]]
    assert fresh >= executors.delivered[NAMES[0]] // 3
    assert fresh < executors.delivered[NAMES[0]]
