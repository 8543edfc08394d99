"""A shard that is about to be another's: what is out may end, and nothing more of it goes out."""

import pytest

from shard_state import (
    Checkpoint,
    Fate,
    Position,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SliceOutcome,
    StateManager,
    UnackedRecord,
)
from shard_state.checkpoint.checkpoint import next_ownership
from tests.support.core.reading import may_read

pytestmark = pytest.mark.no_second_run


@pytest.fixture
def manager() -> StateManager:
    """Own two shards."""
    manager = StateManager(
        app_instance="application",
        random=lambda: 0.0,
        retry=RetryPolicy(limit=3, backoff_seconds=1.0, jitter=0.0),
    )
    manager.listed([Shard(shard_id="a"), Shard(shard_id="b")], {})
    for name in ("a", "b"):
        manager.acquired(name, next_ownership(None, Checkpoint(start=Position.trim_horizon())))
    return manager


def test_record_by_record_it_hands_out_neither_fresh_ones_nor_retries(manager: StateManager) -> None:
    one = SequenceNumber(1)
    manager.emit("a", one, None, 0.0)
    manager.fail("a", one, 0.0, attempt=1)
    manager.leave({"a"})
    assert not may_read(manager, "a")
    assert manager.take_retry("a", 10.0) is None
    assert manager.next_due() is None
    assert may_read(manager, "b")
    manager.leave(set())
    assert may_read(manager, "a")
    assert manager.take_retry("a", 10.0) is not None


def test_slice_by_slice_nothing_of_it_is_planned_or_fetched(manager: StateManager) -> None:
    (plan,) = [plan for plan in manager.plan(0.0, {}) if plan.shard_id == "a"]
    one = SequenceNumber(1)
    failure = UnackedRecord(index=0, sequence=one, previous=None, attempt=1)
    outcome = SliceOutcome(first=one, last=one, count=1, failures=(failure,), at_tip=True)
    manager.leave({"a"})
    manager.settle(plan, outcome, 0.0)
    assert manager.plan(10.0, {"a": 5}) == []
    assert not manager.wants_page("a")
    manager.leave(set())
    assert manager.wants_page("a")
    assert {plan.shard_id for plan in manager.plan(10.0, {"a": 5})} == {"a"}


def test_it_is_left_only_once_the_dead_letter_of_what_was_given_up_is_durable(manager: StateManager) -> None:
    one = SequenceNumber(1)
    manager.emit("a", one, None, 0.0)
    manager.fail("a", one, 0.0, attempt=1, fate=Fate.REJECTED)
    manager.leave({"a"})
    assert not manager.has_left("a")
    manager.dead_lettered("a", one, 0.0)
    assert manager.has_left("a")
