from dataclasses import replace
from typing import Any

import pytest

from shard_state import (
    SHARD_START,
    Capacity,
    Checkpoint,
    Emission,
    Exhausted,
    Fate,
    LocalShardState,
    Order,
    Position,
    RecordState,
    Retry,
    RetryPolicy,
    SequenceNumber,
    Shard,
    ShardPhase,
    SliceOutcome,
    UnackedRecord,
)
from shard_state.errors import OutOfOrder
from shard_state.local_shard.slice_settling import settle_fresh, settle_retries

pytestmark = pytest.mark.no_second_run

FRESH = Checkpoint(start=Position.trim_horizon(), epoch=1)


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def owned(
    checkpoint: Checkpoint = FRESH,
    *,
    limit: int | None = 3,
    order: Order = Order.UNORDERED,
    capacity: Capacity | None = None,
) -> LocalShardState:
    return LocalShardState(
        Shard(shard_id="shard-0"),
        checkpoint,
        random=lambda: 0.0,
        retry=RetryPolicy(limit=limit, backoff_seconds=10.0, cap_seconds=40.0, jitter=0.0),
        order=order,
        capacity=capacity or Capacity(),
    )


# Asked by functions, because a type checker takes an attribute for unchanged between two asserts.


def phase(state: LocalShardState) -> ShardPhase:
    return state.phase


def may_read(state: LocalShardState) -> bool:
    return state.may_read


def is_dirty(state: LocalShardState) -> bool:
    return state.is_dirty


def emit(state: LocalShardState, *numbers: int, key: str | None = None) -> list[Emission]:
    return [state.emit(n(number), key, now=0.0) for number in numbers]


def fail(state: LocalShardState, number: int, now: float = 0.0, **how: Any) -> Retry | Exhausted | None:
    """Fail the present delivery, unless ``how`` names another attempt."""
    how = {"attempt": state.tracker.attempts(n(number))} | how
    return state.fail(n(number), now, **how)


def take(
    state: LocalShardState, now: float, limit: int = 10, *, whole_lines: bool = False
) -> list[tuple[int, int]]:
    taken = state.take_retries(now, limit, whole_lines=whole_lines)
    return [(retry.sequence.number, retry.attempt) for retry in taken]


def failed(index: int, number: int, **how: Any) -> UnackedRecord:
    how = {"attempt": 1, "previous": n(number - 1) if index else None} | how
    return UnackedRecord(index=index, sequence=n(number), **how)


def settle(
    state: LocalShardState, first: int, last: int, *failures: UnackedRecord, at_end: bool = False
) -> list[Exhausted]:
    outcome = SliceOutcome(
        first=n(first), last=n(last), count=last - first + 1, failures=failures, at_end=at_end
    )
    return settle_fresh(state, outcome, 0.0)


def commit(state: LocalShardState) -> Checkpoint:
    """Store what there is to store, and give what a restart would find."""
    checkpoint = state.checkpoint("application")
    state.mark_committed(checkpoint, state.revision)
    return replace(Checkpoint.decode(checkpoint.encode()), epoch=checkpoint.epoch + 1)


class TestRetries:
    def test_an_ack_after_a_fail_cancels_the_retry(self) -> None:
        """kinesis-storm-spout kept a dead entry, and never read the shard again."""
        state = owned(order=Order.SHARD)
        emit(state, 1)
        fail(state, 1)
        assert not may_read(state)
        assert state.ack(n(1), 1.0)
        assert take(state, 1e9) == []
        assert state.retries.next_due() is None
        assert may_read(state)
        assert state.tracker.base == n(1)

    def test_a_record_that_fails_twice_is_queued_once(self) -> None:
        """kinesis-storm-spout queued it twice, and delivered it once too often."""
        state = owned()
        emit(state, 1)
        assert fail(state, 1) == Retry(delay_seconds=10.0)
        assert fail(state, 1, 5.0) is None
        assert take(state, 9.9) == []
        assert take(state, 10.0) == [(1, 2)]
        assert take(state, 1e9) == []

    def test_with_a_retry_limit_of_zero_records_are_still_tracked(self) -> None:
        """kinesis-storm-spout tracked nothing then: its checkpoint never moved."""
        state = owned(limit=0)
        emit(state, 1, 2)
        assert isinstance(fail(state, 1), Exhausted)
        assert take(state, 1e9) == []
        state.ack(n(2), 0.0)
        assert state.tracker.base == SHARD_START
        state.dead_lettered(n(1), 0.0)
        assert commit(state).base == n(2)

    def test_a_fail_of_another_delivery_changes_nothing(self) -> None:
        state = owned()
        emit(state, 1)
        fail(state, 1)
        assert take(state, 10.0) == [(1, 2)]
        revision = state.revision
        assert fail(state, 1, 11.0, attempt=1) is None
        assert fail(state, 1, 11.0, attempt=3) is None
        assert (state.tracker.state(n(1)), state.revision) == (RecordState.IN_FLIGHT, revision)
        assert fail(state, 1, 11.0, attempt=2)

    def test_after_a_withdrawn_delivery_a_fail_of_an_older_one_still_changes_nothing(self) -> None:
        state = owned()
        emit(state, 1)
        fail(state, 1)
        assert take(state, 10.0) == [(1, 2)]
        state.withdraw(n(1), None)
        assert fail(state, 1, 11.0, attempt=1) is None
        assert take(state, 11.0) == [(1, 2)]
        assert fail(state, 1, 12.0, attempt=1) is None
        assert state.tracker.in_flight == 1

    def test_a_record_delivered_before_the_restart_makes_the_shard_dirty_when_it_is_emitted(self) -> None:
        """The delivery counts: a crash before the next commit would forget it."""
        state = owned(replace(FRESH, attempts=((n(1), 1),)))
        assert not is_dirty(state)
        assert emit(state, 1) == [Emission(deliver=True, attempt=2)]
        assert is_dirty(state)
        assert commit(state).attempts == ((n(1), 2),)

    def test_a_record_is_delivered_one_time_more_than_the_limit_says(self) -> None:
        state = owned(limit=3)
        emit(state, 1)
        deliveries, now = 1, 0.0
        while isinstance(fail(state, 1, now), Retry):
            now += 100.0
            assert take(state, now) == [(1, deliveries + 1)]
            deliveries += 1
        assert deliveries == 4

    def test_the_delay_grows_with_each_failure(self) -> None:
        state = owned()
        emit(state, 1)
        fail(state, 1, 0.0)
        assert take(state, 10.0) == [(1, 2)]
        fail(state, 1, 10.0)
        assert take(state, 29.9) == []
        assert take(state, 30.0) == [(1, 3)]

    def test_an_exhausted_record_holds_the_checkpoint_until_its_dead_letter_is_durable(self) -> None:
        """kinesis-storm-spout logged it and went on."""
        state = owned(limit=0)
        emit(state, 1, 2)
        state.ack(n(2), 0.0)
        assert fail(state, 1) == Exhausted(shard_id="shard-0", sequence=n(1), attempts=1, rejected=False)
        assert state.checkpoint("").base == SHARD_START
        assert state.dead_lettered(n(1), 0.0)
        assert not state.dead_lettered(n(1), 0.0)
        assert state.checkpoint("").base == n(2)

    def test_only_an_exhausted_record_is_finished_by_a_dead_letter(self) -> None:
        state = owned()
        emit(state, 1, 2)
        fail(state, 2)
        assert not state.dead_lettered(n(1), 0.0)
        assert not state.dead_lettered(n(2), 0.0)
        assert not state.dead_lettered(n(3), 0.0)

    def test_a_rejected_record_is_not_retried(self) -> None:
        state = owned(limit=None)
        emit(state, 1)
        gone = fail(state, 1, fate=Fate.REJECTED)
        assert gone == Exhausted(shard_id="shard-0", sequence=n(1), attempts=1, rejected=True)

    def test_a_late_ack_of_a_given_up_record_finishes_it(self) -> None:
        state = owned(limit=0, order=Order.SHARD)
        emit(state, 1)
        fail(state, 1)
        assert state.ack(n(1), 0.0)
        assert not state.dead_lettered(n(1), 0.0)
        assert may_read(state)

    def test_late_and_duplicate_reports_are_harmless(self) -> None:
        state = owned()
        emit(state, 1, 2)
        assert state.ack(n(1), 0.0)
        assert not state.ack(n(1), 0.0)
        assert fail(state, 1) is None
        assert fail(state, 9) is None
        assert not state.ack(n(9), 0.0)
        assert state.tracker.base == n(1)

    def test_a_timed_out_record_comes_again(self) -> None:
        state = owned()
        emit(state, 1)
        assert isinstance(fail(state, 1), Retry)
        assert take(state, 10.0) == [(1, 2)]

    def test_a_withdrawn_delivery_is_not_counted(self) -> None:
        state = owned(limit=1)
        emit(state, 1)
        fail(state, 1)
        for now in (10.0, 11.0, 12.0):
            assert take(state, now) == [(1, 2)]
            state.withdraw(n(1), None)

    def test_an_isolated_record_is_handed_out_by_itself(self) -> None:
        state = owned()
        emit(state, 1, 2, 3)
        for number, now in ((1, 0.0), (2, 1.0), (3, 2.0)):
            fail(state, number, now)
        handed_out = [
            tuple(
                retry.sequence.number
                for retry in state.take_retries(50.0, 9, whole_lines=True, single=n(2).__eq__)
            )
            for _ in range(4)
        ]
        assert handed_out == [(1,), (2,), (3,), ()]

    def test_an_isolated_record_is_not_taken_along_in_a_line(self) -> None:
        state = owned(order=Order.KEY)
        emit(state, 1, 2, key="k")
        fail(state, 1, partition_key="k")
        fail(state, 2, partition_key="k")
        taken = state.take_retries(50.0, 9, whole_lines=True, single=n(2).__eq__)
        assert [retry.sequence for retry in taken] == [n(1)]


class TestOrder:
    def test_later_records_of_a_failed_key_are_held(self) -> None:
        state = owned(order=Order.KEY)
        emit(state, 1, key="k")
        fail(state, 1, partition_key="k")
        assert emit(state, 2, key="k") == [Emission(deliver=False, held=True, attempt=0)]
        assert emit(state, 3, key="other") == [Emission(deliver=True, attempt=1)]
        assert take(state, 10.0) == [(1, 2)]
        assert take(state, 11.0) == []
        state.ack(n(1), 12.0)
        assert take(state, 12.0) == [(2, 1)]

    @pytest.mark.parametrize("order", [Order.KEY, Order.SHARD])
    def test_a_record_given_up_at_its_first_failure_holds_up_the_others_until_it_is_dead_lettered(
        self, order: Order
    ) -> None:
        state = owned(limit=0, order=order)
        emit(state, 1, key="k")
        assert isinstance(fail(state, 1, partition_key="k"), Exhausted)
        assert emit(state, 2, key="k")[0].held
        assert take(state, 1e9) == []
        state.dead_lettered(n(1), 5.0)
        assert take(state, 5.0) == [(2, 1)]

    def test_a_record_given_up_in_a_slice_holds_up_the_others_too(self) -> None:
        state = owned(limit=0, order=Order.KEY)
        settle(
            state,
            1,
            2,
            failed(0, 1, partition_key="k"),
            failed(1, 2, partition_key="k", fate=Fate.HELD, attempt=0),
        )
        assert state.retries.blocked_keys == {"k"}
        assert take(state, 1e9, whole_lines=True) == []
        state.dead_lettered(n(1), 5.0)
        assert take(state, 5.0) == [(2, 1)]

    def test_nobody_in_a_line_overtakes_one_that_was_given_up(self) -> None:
        state = owned(order=Order.KEY)
        emit(state, 1, 2, key="k")
        fail(state, 1, partition_key="k")
        emit(state, 3, key="k")
        fail(state, 2, partition_key="k", fate=Fate.REJECTED)
        assert take(state, 10.0, whole_lines=True) == [(1, 2)]
        state.ack(n(1), 10.0)
        assert take(state, 1e9, whole_lines=True) == []

    def test_a_slice_takes_a_whole_line_along_in_shard_order(self) -> None:
        state = owned(order=Order.KEY)
        emit(state, 1, key="k")
        fail(state, 1, partition_key="k")
        emit(state, 2, 3, key="k")
        assert take(state, 10.0, whole_lines=True) == [(1, 2), (2, 1), (3, 1)]

    def test_in_a_settled_line_the_failed_second_keeps_its_delay(self) -> None:
        state = owned(order=Order.KEY)
        emit(state, 1, key="k")
        fail(state, 1, partition_key="k")
        emit(state, 2, key="k")
        retries = state.take_retries(10.0, 9, whole_lines=True)
        second = failed(1, 2, attempt=retries[1].attempt, partition_key="k")
        settle_retries(state, retries, SliceOutcome(failures=(second,)), 10.0)
        assert state.tracker.base == n(1)
        assert take(state, 19.9) == []
        assert take(state, 20.0) == [(2, 2)]

    def test_what_failed_before_a_restart_holds_up_its_key_after_it(self) -> None:
        state = owned(order=Order.KEY)
        emit(state, 1, key="k")
        fail(state, 1, partition_key="k")
        again = owned(commit(state), order=Order.KEY)
        assert emit(again, 1, key="k") == [Emission(deliver=True, attempt=2)]
        assert emit(again, 2, key="k")[0].held


class TestReading:
    def test_it_goes_on_after_what_was_fetched_and_restarts_after_what_was_finished(self) -> None:
        state = owned()
        emit(state, 1, 2, 3)
        state.ack(n(1), 0.0)
        assert state.position == Position.after(n(3))
        assert owned(commit(state)).position == Position.after(n(1))

    def test_a_start_in_time_stays_the_start_until_something_is_finished(self) -> None:
        """LATEST resolved again after a restart, or an iterator reopened at it, would skip records."""
        state = owned(replace(FRESH, start=Position.at_timestamp(12.0)))
        assert state.position == Position.at_timestamp(12.0)
        emit(state, 1)
        assert owned(commit(state)).position == Position.at_timestamp(12.0)

    def test_it_pauses_at_three_quarters_of_the_room_and_retries_go_on(self) -> None:
        state = owned(capacity=Capacity(records=8, holes=100))
        emit(state, 1, 2, 3, 4, 5)
        assert may_read(state)
        emit(state, 6)
        assert not may_read(state)
        assert state.room == 2
        fail(state, 1)
        assert take(state, 10.0) == [(1, 2)]
        state.ack(n(1), 10.0)
        assert may_read(state)

    def test_it_pauses_when_too_many_holes_are_open(self) -> None:
        state = owned(capacity=Capacity(records=100, holes=4))
        emit(state, *range(1, 8))
        for number in (2, 4, 6):
            assert may_read(state)
            state.ack(n(number), 0.0)
        assert not may_read(state)

    def test_restored_holes_do_not_pause_the_reading_that_closes_them(self) -> None:
        holes = tuple((n(10 * at), n(10 * at + 5)) for at in range(1, 20))
        state = owned(replace(FRESH, base=n(1), holes=holes), capacity=Capacity(records=100, holes=4))
        for number in range(2, 11):
            assert may_read(state)
            emit(state, number)
        assert state.tracker.in_flight == 9

    @pytest.mark.parametrize("sizes", [{"records": 0}, {"holes": 0}])
    def test_a_capacity_that_would_stop_every_shard_is_refused(self, sizes: dict[str, int]) -> None:
        with pytest.raises(ValueError, match="nothing could be read"):
            Capacity(**sizes)

    def test_what_was_finished_before_the_restart_is_not_delivered_again(self) -> None:
        state = owned()
        emit(state, 1, 2, 3)
        state.ack(n(2), 0.0)
        again = owned(commit(state))
        assert [emission.deliver for emission in emit(again, 1, 2, 3)] == [True, False, True]

    def test_after_another_record_than_the_anchor_everything_is_delivered_again(self) -> None:
        state = owned()
        emit(state, 1, 2, 3)
        state.ack(n(2), 0.0)
        again = owned(commit(state))
        assert [emission.deliver for emission in emit(again, 2, 3)] == [True, True]
        assert again.checkpoint("").holes == ()
        assert again.is_dirty


class TestAttempts:
    def test_they_survive_a_restart(self) -> None:
        state = owned(limit=3)
        emit(state, 1)
        fail(state, 1)
        take(state, 10.0)
        fail(state, 1)
        again = owned(commit(state), limit=3)
        assert emit(again, 1) == [Emission(deliver=True, attempt=3)]

    @pytest.mark.parametrize("limit", [0, 1, 3])
    def test_a_last_delivery_without_a_durable_outcome_is_made_again_under_its_number(
        self, limit: int
    ) -> None:
        checkpoint = replace(FRESH, base=n(1), anchor=n(2), attempts=((n(2), limit + 1),))
        assert emit(owned(checkpoint, limit=limit), 2) == [
            Emission(deliver=True, attempt=limit + 1, was_last=True)
        ]
        assert owned(checkpoint, limit=limit).restored_attempts == ((n(2), limit),)

    def test_a_redelivery_makes_the_checkpoint_dirty(self) -> None:
        state = owned()
        emit(state, 1)
        fail(state, 1)
        commit(state)
        take(state, 10.0)
        assert is_dirty(state)
        assert state.checkpoint("").attempts == ((n(1), 2),)


class TestTheEnd:
    def test_a_shard_is_over_when_its_end_was_read_and_all_is_finished_and_stored(self) -> None:
        state = owned(limit=0)
        emit(state, 1, 2)
        state.end_read()
        state.ack(n(1), 0.0)
        fail(state, 2)
        assert phase(state) is ShardPhase.AT_END
        assert not commit(state).is_shard_end
        state.dead_lettered(n(2), 0.0)
        assert phase(state) is ShardPhase.FINISHED
        assert commit(state).is_shard_end
        assert phase(state) is ShardPhase.OVER

    def test_the_last_page_of_a_closed_shard_is_not_dropped(self) -> None:
        state = owned()
        settle(state, 1, 3, failed(1, 2), at_end=True)
        assert phase(state) is ShardPhase.AT_END
        assert state.checkpoint("").base == n(1)
        assert take(state, 10.0) == [(2, 2)]
        state.ack(n(2), 10.0)
        assert commit(state).is_shard_end

    def test_an_empty_closed_shard_ends_too(self) -> None:
        state = owned()
        settle_fresh(state, SliceOutcome(at_end=True), 0.0)
        assert is_dirty(state)
        assert commit(state).is_shard_end

    def test_all_finished_is_not_the_end(self) -> None:
        state = owned()
        emit(state, 1)
        state.ack(n(1), 0.0)
        assert phase(state) is ShardPhase.READING
        assert commit(state).base == n(1)

    def test_nothing_is_handed_out_after_the_end(self) -> None:
        state = owned()
        emit(state, 1)
        state.end_read()
        with pytest.raises(OutOfOrder, match="after its end was read"):
            emit(state, 2)
        with pytest.raises(OutOfOrder, match="after its end was read"):
            settle(state, 2, 3)
        assert not may_read(state)


class TestCommitting:
    def test_what_changes_while_a_commit_is_under_way_is_committed_again(self) -> None:
        state = owned()
        emit(state, 1, 2)
        state.ack(n(1), 0.0)
        checkpoint, revision = state.checkpoint(""), state.revision
        state.ack(n(2), 0.0)
        state.mark_committed(checkpoint, revision)
        assert state._stored.base == n(1)
        assert is_dirty(state)
        assert commit(state).base == n(2)
        assert not is_dirty(state)

    def test_a_shard_of_which_nothing_changed_is_clean(self) -> None:
        state = owned()
        emit(state, 1)
        assert not is_dirty(state)
        fail(state, 1)
        assert is_dirty(state)

    def test_it_is_written_under_the_epoch_of_the_ownership(self) -> None:
        checkpoint = owned(replace(FRESH, epoch=7)).checkpoint("application")
        assert (checkpoint.epoch, checkpoint.app_instance) == (7, "application")


class TestSlices:
    def test_the_failures_of_a_slice_wait_and_everything_else_is_finished(self) -> None:
        state = owned()
        assert settle(state, 1, 1000, failed(4, 5), failed(9, 10)) == []
        assert state.tracker.base == n(4)
        assert len(state.tracker._unresolved) + state.tracker.holes_read == 4
        assert take(state, 10.0) == [(5, 2), (10, 2)]

    def test_a_slice_gives_up_what_is_past_its_limit(self) -> None:
        state = owned(limit=1)
        gone = settle(state, 1, 3, failed(0, 1, attempt=2), failed(1, 2, fate=Fate.REJECTED), failed(2, 3))
        assert [(record.sequence, record.attempts, record.rejected) for record in gone] == [
            (n(1), 2, False),
            (n(2), 1, True),
        ]
        assert state.tracker.state(n(3)) is RecordState.WAITING

    def test_an_overlapping_slice_is_refused_and_the_position_stays(self) -> None:
        state = owned()
        settle(state, 1, 10)
        with pytest.raises(OutOfOrder):
            settle(state, 5, 8)
        assert state.position == Position.after(n(10))

    def test_a_slice_after_a_restart_speaks_of_another_history_unless_it_begins_at_the_anchor(self) -> None:
        stored = replace(FRESH, base=n(1), holes=((n(3), n(9)),), anchor=n(2), attempts=((n(12), 2),))
        for first, kept in ((2, True), (3, False)):
            state = owned(stored)
            settle(state, first, 5)
            assert bool(state.tracker.restored_holes) == kept
            assert bool(state.restored_attempts) == kept

    def test_settled_retries_are_acked_unless_they_failed_or_were_held(self) -> None:
        state = owned(limit=1)
        emit(state, 1, 2, 3)
        for number in (1, 2, 3):
            fail(state, number)
        retries = state.take_retries(10.0, 9, whole_lines=True)
        outcome = SliceOutcome(failures=(failed(1, 2, attempt=2), failed(2, 3, attempt=2, fate=Fate.HELD)))
        gone = settle_retries(state, retries, outcome, 10.0)
        assert [record.sequence for record in gone] == [n(2)]
        assert state.tracker.base == n(1)
        assert take(state, 10.0) == [(3, 2)]
