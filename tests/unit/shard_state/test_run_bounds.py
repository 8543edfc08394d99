import pytest

from shard_state import (
    Checkpoint,
    Position,
    RunBounds,
    SequenceNumber,
    Shard,
    ShardPhase,
    SliceOutcome,
    StateManager,
)
from shard_state.checkpoint.checkpoint import next_ownership
from shard_state.errors import OutOfOrder
from tests.support.core.reading import may_read

BEGAN_AT, MARGIN = 1000.0, 5.0
FRESH = Checkpoint(start=Position.trim_horizon())


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def bounds(default: Position, **shards: Position) -> RunBounds:
    return RunBounds.of(default, shards, began_at=BEGAN_AT, margin_seconds=MARGIN)


def owner(default: Position, *names: str) -> StateManager:
    manager = StateManager(app_instance="me", random=lambda: 0.5, bounds=bounds(default))
    shards = [Shard(shard_id=name) for name in names or ("one",)]
    manager.listed(shards, {shard.shard_id: FRESH for shard in shards})
    for shard in shards:
        manager.acquired(shard.shard_id, next_ownership(FRESH, FRESH))
    return manager


def done(manager: StateManager) -> tuple[bool, ShardPhase]:
    (status,) = manager.status()
    return manager.is_done, status.phase


class TestABound:
    def test_a_time_ends_a_shard_at_the_first_record_that_arrived_then_or_later(self) -> None:
        bound = bounds(Position.at_timestamp(900.0)).of_shard("one")
        assert not bound.ends_before(n(1), 899.999)
        assert bound.ends_before(n(2), 900.0)
        assert not bound.ends_before(n(3), None), "without an arrival nobody knows"
        assert not bound.ends_after(n(10**9))
        assert bound.tip_counts_from == 905.0

    def test_latest_leaves_the_clocks_a_margin_and_takes_the_tip_as_it_is_at_the_beginning(self) -> None:
        bound = bounds(Position.latest()).of_shard("one")
        assert not bound.ends_before(n(1), BEGAN_AT + 4.9)
        assert bound.ends_before(n(1), BEGAN_AT + 5.0)
        assert bound.tip_counts_from == BEGAN_AT

    @pytest.mark.parametrize(
        ("position", "last"), [(Position.at(n(7)), 6), (Position.after(n(7)), 7)], ids=["at", "after"]
    )
    def test_a_sequence_number_ends_a_shard_by_that_alone(self, position: Position, last: int) -> None:
        bound = bounds(Position.latest(), one=position).of_shard("one")
        assert not bound.ends_before(n(last), BEGAN_AT + 99)
        assert bound.ends_before(n(last + 1), 0.0)
        assert bound.ends_after(n(7))
        assert not bound.ends_after(n(6))

    def test_inside_an_aggregate_the_user_records_before_it_are_of_the_run(self) -> None:
        bound = bounds(Position.at(SequenceNumber(7, 2))).of_shard("one")
        assert not bound.ends_before(SequenceNumber(7, 1), None)
        assert bound.ends_before(SequenceNumber(7, 2), None)

    def test_shards_that_are_not_named_have_the_default(self) -> None:
        both = bounds(Position.at_timestamp(900.0), one=Position.after(n(7)))
        assert both.of_shard("one").position == Position.after(n(7))
        assert both.of_shard("other").position == Position.at_timestamp(900.0)


class TestAManagerUpToABound:
    def test_a_shard_is_done_once_what_was_handed_out_is_finished_and_stored(self) -> None:
        manager = owner(Position.at_timestamp(900.0))
        assert not manager.ends_before("one", n(1), 899.0)
        assert manager.emit("one", n(1), None, 0.0).deliver
        assert manager.ends_before("one", n(2), 900.0)
        assert not may_read(manager, "one")
        assert not manager.is_done
        assert manager.ack("one", n(1), 0.0)
        assert done(manager) == (False, ShardPhase.AT_BOUND), "nothing is stored yet"
        manager.committed(manager.to_commit())
        assert done(manager) == (True, ShardPhase.AT_BOUND)

    def test_a_shard_is_at_its_bound_once_the_last_record_before_it_is_handed_out(self) -> None:
        manager = owner(Position.after(n(2)))
        assert manager.emit("one", n(1), None, 0.0).deliver
        assert may_read(manager, "one")
        assert manager.emit("one", n(2), None, 0.0).deliver
        assert not may_read(manager, "one")
        assert done(manager) == (False, ShardPhase.AT_BOUND)

    def test_nothing_is_handed_out_behind_a_bound(self) -> None:
        manager = owner(Position.at_timestamp(900.0))
        assert manager.ends_before("one", n(1), 900.0)
        with pytest.raises(OutOfOrder, match="or its bound reached"):
            manager.emit("one", n(1), None, 0.0)

    def test_one_shard_that_is_not_done_keeps_the_run(self) -> None:
        manager = owner(Position.latest(), "one", "other")
        assert manager.ends_at_tip("one", BEGAN_AT)
        assert not manager.is_done
        assert not manager.ends_at_tip("other", BEGAN_AT - 0.1), "that read may have missed something"
        assert manager.ends_at_tip("other", BEGAN_AT + 0.1)
        assert manager.is_done

    def test_a_slice_says_that_the_bound_follows(self) -> None:
        manager = owner(Position.at_timestamp(900.0))
        (plan,) = manager.plan(0.0, {})
        assert plan.bound == bounds(Position.at_timestamp(900.0)).default
        with pytest.raises(OutOfOrder, match="its bound is reported"):
            manager.reach_bound("one")
        manager.settle(plan, SliceOutcome(first=n(1), last=n(3), count=3, at_bound=True), 0.0)
        assert not manager.plan(0.0, {})
        manager.committed(manager.to_commit())
        assert manager.is_done

    def test_without_bounds_no_tip_and_no_record_ends_a_shard(self) -> None:
        manager = StateManager(app_instance="me", random=lambda: 0.5)
        manager.listed([Shard(shard_id="one")], {"one": FRESH})
        manager.acquired("one", next_ownership(FRESH, FRESH))
        assert not manager.ends_at_tip("one", 1e12)
        assert not manager.ends_before("one", n(1), 1e12)

    def test_whoever_takes_a_shard_over_looks_for_the_bound_anew(self) -> None:
        manager = owner(Position.latest())
        assert manager.ends_at_tip("one", BEGAN_AT)
        manager.acquired("one", next_ownership(next_ownership(FRESH, FRESH), FRESH))
        assert may_read(manager, "one")
        assert not manager.is_done
