"""Blame: what is stored of it, what slices tell it, and how few records go out while next to none passes."""

from collections.abc import Iterable

import pytest

from shard_state import (
    Blame,
    Checkpoint,
    Counts,
    Fate,
    Position,
    SequenceNumber,
    Shard,
    SliceOutcome,
    StateManager,
    UnackedRecord,
)
from shard_state.blame import Experience
from shard_state.checkpoint.checkpoint import next_ownership
from shard_state.errors import InvalidCheckpoint


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def owner(stored: Checkpoint | None = None) -> StateManager:
    manager = StateManager(app_instance="application", random=lambda: 0.0, max_spared_seconds=600.0)
    manager.listed([Shard(shard_id="a")], {})
    checkpoint = stored or Checkpoint(start=Position.trim_horizon())
    manager.acquired("a", next_ownership(stored, checkpoint))
    return manager


def settle(
    manager: StateManager, first: int, count: int, failed: Iterable[int], fate: Fate = Fate.FAILED
) -> None:
    (plan,) = [plan for plan in manager.plan(0.0, {}) if plan.is_fresh]
    failures = tuple(
        UnackedRecord(
            index=number - first,
            sequence=n(number),
            previous=n(number - 1) if number > first else None,
            attempt=1,
            fate=fate,
        )
        for number in failed
    )
    outcome = SliceOutcome(first=n(first), last=n(first + count - 1), count=count, failures=failures)
    assert manager.settle(plan, outcome, 0.0, delivered=count) == []


def test_a_slice_that_fails_slows_deliveries_and_its_few_successors_are_fresh_in_turn() -> None:
    manager = owner()
    settle(manager, 1, 1_000, range(1, 1_001))
    kinds = []
    for now in (20.0, 40.0, 60.0, 80.0):
        (plan,) = manager.plan(now, {})
        assert manager.plan(now, {}) == []
        assert plan.most_deliveries <= 2
        kinds.append(plan.is_fresh)
        manager.withdraw(plan)
    assert kinds in ([True, False] * 2, [False, True] * 2)


@pytest.mark.parametrize("fate", [Fate.REJECTED, Fate.PUT_OFF])
def test_what_is_rejected_or_put_off_is_no_failure(fate: Fate) -> None:
    manager = owner()
    (plan,) = manager.plan(0.0, {})
    failures = tuple(
        UnackedRecord(index=at, sequence=n(at + 1), previous=n(at) if at else None, attempt=1, fate=fate)
        for at in range(100)
    )
    outcome = SliceOutcome(first=n(1), last=n(100), count=100, failures=failures)
    manager.settle(plan, outcome, 0.0, delivered=100)
    assert not manager.blame.is_slowed


def test_a_slice_with_three_successes_in_a_hundred_slows_nothing() -> None:
    manager = owner()
    settle(manager, 1, 100, [number for number in range(1, 101) if number % 25])
    assert not manager.blame.is_slowed


def test_the_next_owner_goes_on_as_slowly() -> None:
    manager = owner()
    settle(manager, 1, 1_000, range(1, 1_001))
    (commit,) = manager.to_commit()
    heir = owner(Checkpoint.decode(commit.checkpoint.encode()))
    assert heir.blame.is_slowed
    trouble = heir.blame.trouble(1.0)
    assert trouble is None or trouble.slowed


def test_an_owner_with_experience_of_its_own_keeps_it() -> None:
    blame = Blame(600.0)
    blame.note(0.0, Counts(passed=10))
    blame.inherit(Experience(Counts(failed=30), 30, 1.0, 60.0, 100.0))
    assert not blame.is_slowed


@pytest.mark.parametrize("numbers", ["x", [1, 2], [1.0] * 7 + ["2"], [1.0] * 7 + [True]])
def test_damaged_experience_is_a_damaged_checkpoint(numbers: object) -> None:
    with pytest.raises(ValueError, match="expected 8 numbers"):
        Experience.of_numbers(numbers)


def test_experience_is_stored_and_read_back() -> None:
    experience = Experience(Counts(1.5, 2.0, 3.0, 4.0), 5, 0.5, 12.0, 60.0)
    checkpoint = Checkpoint(start=Position.trim_horizon(), experience=experience)
    assert Checkpoint.decode(checkpoint.encode()).experience == experience
    with pytest.raises(InvalidCheckpoint):
        Checkpoint.decode(checkpoint.encode().replace(b"60.0", b"61.0"))


def test_with_nothing_spared_nothing_is_stored_and_nothing_slows_down() -> None:
    blame = Blame(0.0, limit=3)
    blame.note(0.0, Counts(failed=1_000))
    assert not blame.is_slowed
    assert blame.experience() is None
