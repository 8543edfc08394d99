from dataclasses import replace
from typing import Any

import pytest

from shard_state import (
    Capacity,
    Checkpoint,
    Fate,
    LocalShardState,
    OpenRecord,
    Order,
    Position,
    RecordState,
    RetryPolicy,
    SequenceNumber,
    Shard,
    ShardPhase,
    SliceKind,
    SliceLimits,
    SliceOutcome,
    SlicePlan,
    UnackedRecord,
)
from shard_state.errors import OutOfOrder
from shard_state.local_shard.shard_slices import ShardSlices

pytestmark = pytest.mark.no_second_run

FRESH = Checkpoint(start=Position.trim_horizon(), epoch=1)


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def owned(
    checkpoint: Checkpoint = FRESH,
    *,
    limit: int = 3,
    order: Order = Order.UNORDERED,
    capacity: Capacity | None = None,
    limits: SliceLimits | None = None,
) -> ShardSlices:
    state = LocalShardState(
        Shard(shard_id="shard-0"),
        checkpoint,
        random=lambda: 0.0,
        retry=RetryPolicy(limit=limit, backoff_seconds=10.0, cap_seconds=40.0, jitter=0.0),
        order=order,
        capacity=capacity or Capacity(),
    )
    return ShardSlices(state, limits or SliceLimits(records=100, retries=5))


# Asked by functions, because a type checker takes an attribute for unchanged between two asserts.


def phase(slices: ShardSlices) -> ShardPhase:
    return slices.state.phase


def idle(slices: ShardSlices) -> bool:
    return slices.is_idle


def wants_page(slices: ShardSlices) -> bool:
    return slices.wants_page


def next_due(slices: ShardSlices) -> float | None:
    return slices.next_due


def fresh(slices: ShardSlices, carried: int = 0) -> SlicePlan:
    plan = slices.plan_fresh(carried)
    assert plan is not None
    return plan


def due(slices: ShardSlices, now: float) -> SlicePlan:
    plan = slices.plan_retries(now)
    assert plan is not None
    return plan


def failed(index: int, number: int, **how: Any) -> UnackedRecord:
    how = {"attempt": 1, "previous": n(number - 1) if index else None} | how
    return UnackedRecord(index=index, sequence=n(number), **how)


def read(first: int, last: int, *failures: UnackedRecord, **how: Any) -> SliceOutcome:
    return SliceOutcome(
        first=n(first), last=n(last), count=last - first + 1, failures=failures, **{"at_tip": False} | how
    )


def settle(
    slices: ShardSlices, plan: SlicePlan, outcome: SliceOutcome, now: float = 0.0
) -> list[SequenceNumber]:
    return [gone.sequence for gone in slices.settle(plan, outcome, now)]


def die(
    slices: ShardSlices, plan: SlicePlan, held: SliceOutcome | None = None, now: float = 0.0
) -> list[SequenceNumber]:
    return [gone.sequence for gone in slices.died(plan, held, now)]


def all_held(first: int, last: int) -> SliceOutcome:
    numbers = range(first, last + 1)
    return read(
        first, last, *(failed(at, number, attempt=0, fate=Fate.HELD) for at, number in enumerate(numbers))
    )


class TestFreshSlices:
    def test_one_is_out_at_a_time(self) -> None:
        slices = owned()
        plan = fresh(slices)
        assert slices.plan_fresh(5) is None
        assert not idle(slices)
        settle(slices, plan, read(1, 9))
        assert idle(slices)
        assert fresh(slices).position == Position.after(n(9))

    def test_executors_read_while_there_is_a_backlog_and_the_driver_at_the_tip(self) -> None:
        slices = owned()
        plan = fresh(slices)
        assert plan.kind is SliceKind.READ
        assert not wants_page(slices)
        settle(slices, plan, read(1, 9, at_tip=True))
        assert slices.plan_fresh(0) is None
        assert wants_page(slices)
        assert fresh(slices, carried=3).kind is SliceKind.CARRIED

    def test_they_carry_at_most_what_the_driver_holds_and_as_many_failures_as_there_is_room(self) -> None:
        slices = owned(capacity=Capacity(records=10))
        slices.state.emit(n(1), None, 0.0)
        plan = fresh(slices, carried=3)
        assert (plan.limit, plan.max_failures) == (3, 9)

    def test_they_know_what_was_finished_and_tried_before_the_restart(self) -> None:
        stored = replace(FRESH, base=n(1), holes=((n(3), n(9)),), anchor=n(2), attempts=((n(2), 2),))
        plan = fresh(owned(stored))
        assert plan.holes == stored.holes
        assert plan.attempts == stored.attempts
        assert plan.anchor == n(2)
        assert plan.position == Position.after(n(1))

    def test_the_anchor_counts_for_the_first_read_only(self) -> None:
        stored = replace(FRESH, base=n(1), holes=((n(3), n(9)),), anchor=n(2))
        slices = owned(stored)
        settle(slices, fresh(slices), read(2, 5, failed(0, 2)))
        plan = fresh(slices)
        assert plan.anchor is None
        assert plan.holes == ((n(5), n(9)),)

    def test_while_all_that_was_read_is_finished_the_nearest_restored_record_is_the_anchor(self) -> None:
        stored = replace(FRESH, base=n(1), holes=((n(3), n(9)), (n(12), n(15))), anchor=n(2))
        slices = owned(stored)
        settle(slices, fresh(slices), read(2, 5))
        assert fresh(slices).anchor == n(9)

    def test_as_many_failures_as_there_is_room_for_holes(self) -> None:
        slices = owned(capacity=Capacity(records=1_000, holes=20))
        plan = fresh(slices)
        assert (plan.max_failures, plan.room) == (19, 1_000)
        settle(slices, plan, read(1, 9, failed(2, 3), failed(4, 5), failed(6, 7)))
        assert slices.state.tracker.holes == 3
        assert fresh(slices).max_failures == 16

    def test_with_no_room_for_holes_left_slices_end_at_their_first_failure(self) -> None:
        plan = fresh(owned(capacity=Capacity(records=1_000, holes=1)))
        assert plan.max_failures == 1

    def test_restored_holes_take_no_room_from_the_slices_that_close_them(self) -> None:
        holes = tuple((n(10 * at), n(10 * at + 5)) for at in range(1, 20))
        stored = replace(FRESH, base=n(1), holes=holes, anchor=n(2))
        assert fresh(owned(stored, capacity=Capacity(records=1_000, holes=20))).max_failures == 19

    def test_they_know_which_keys_wait(self) -> None:
        slices = owned(order=Order.KEY)
        settle(slices, fresh(slices), read(1, 5, failed(1, 2, partition_key="k")))
        assert fresh(slices).blocked_keys == {"k"}

    def test_they_are_not_planned_while_the_shard_waits_in_its_order(self) -> None:
        slices = owned(order=Order.SHARD)
        settle(slices, fresh(slices), read(1, 1, failed(0, 1)))
        assert slices.plan_fresh(0) is None
        settle(slices, due(slices, 10.0), SliceOutcome(count=1), now=10.0)
        assert slices.plan_fresh(0) is not None

    @pytest.mark.parametrize("sizes", [{"records": 0}, {"retries": 0}])
    def test_slices_of_nothing_are_refused(self, sizes: dict[str, int]) -> None:
        with pytest.raises(ValueError, match="at least 1 record"):
            SliceLimits(**sizes)


class TestSlicesWhileRecordsFail:
    def test_they_are_as_large_as_there_is_room_for_their_failures(self) -> None:
        slices = owned(capacity=Capacity(records=40))
        settle(slices, fresh(slices), read(1, 20, *(failed(at, at + 1) for at in range(0, 20, 2))))
        assert slices.state.max_failures == 30
        plan = fresh(slices)
        assert plan.limit == 60
        settle(slices, plan, read(21, 40))
        assert fresh(slices).limit == 100

    def test_they_move_on_where_every_record_fails(self) -> None:
        slices = owned(capacity=Capacity(records=4))
        settle(slices, fresh(slices), read(1, 2, failed(0, 1), failed(1, 2)))
        assert fresh(slices).limit == 2


class TestSlicesOfRetries:
    def test_they_hold_what_is_due_up_to_their_limit(self) -> None:
        slices = owned()
        settle(slices, fresh(slices), read(1, 9, *(failed(at, at + 1) for at in range(8))))
        assert slices.plan_retries(9.9) is None
        plan = due(slices, 10.0)
        assert [retry.sequence for retry in plan.retries] == [n(at) for at in range(1, 6)]
        assert slices.plan_retries(10.0) is None
        settle(slices, plan, SliceOutcome(count=5), now=10.0)
        assert [retry.sequence for retry in due(slices, 10.0).retries] == [n(6), n(7), n(8)]

    def test_they_go_on_while_fresh_reading_is_paused(self) -> None:
        slices = owned(capacity=Capacity(records=4))
        settle(slices, fresh(slices), read(1, 3, *(failed(at, at + 1) for at in range(3))))
        assert slices.plan_fresh(0) is None
        settle(slices, due(slices, 10.0), SliceOutcome(count=3), now=10.0)
        assert slices.plan_fresh(0) is not None

    def test_they_go_on_when_there_is_no_room_at_all(self) -> None:
        slices = owned(capacity=Capacity(records=2))
        settle(slices, fresh(slices), read(1, 2, failed(0, 1), failed(1, 2)))
        assert slices.state.room == 0
        settle(slices, due(slices, 10.0), SliceOutcome(count=2), now=10.0)
        assert slices.plan_fresh(0) is not None

    def test_while_they_are_out_nobody_is_called_again_for_the_next_ones(self) -> None:
        slices = owned()
        settle(slices, fresh(slices), read(1, 9, *(failed(at, at + 1) for at in range(8))))
        assert next_due(slices) == 10.0
        plan = due(slices, 10.0)
        assert next_due(slices) is None
        settle(slices, plan, SliceOutcome(count=5), now=10.0)
        assert next_due(slices) == 10.0


class TestOutcomes:
    def test_a_late_outcome_of_a_slice_that_was_planned_again_changes_nothing(self) -> None:
        slices = owned()
        plan = fresh(slices)
        die(slices, plan)
        again = fresh(slices, carried=5)
        settle(slices, plan, read(1, 9))
        assert not idle(slices)
        assert slices.state.position == Position.trim_horizon()
        settle(slices, again, read(1, 5))
        settle(slices, again, read(1, 5))
        assert slices.state.tracker.base == n(5)

    def test_a_late_outcome_of_retries_changes_nothing(self) -> None:
        slices = owned()
        settle(slices, fresh(slices), read(1, 1, failed(0, 1)))
        plan = due(slices, 10.0)
        die(slices, plan, now=10.0)
        settle(slices, plan, SliceOutcome(count=1), now=10.0)
        assert slices.state.tracker.state(n(1)) is RecordState.WAITING

    def test_a_late_outcome_of_retries_leaves_those_that_are_out_now_alone(self) -> None:
        slices = owned()
        settle(slices, fresh(slices), read(1, 2, failed(0, 1), failed(1, 2)))
        stale = due(slices, 10.0)
        die(slices, stale, now=10.0)
        again = due(slices, 10.0)
        settle(slices, stale, SliceOutcome(count=2), now=10.0)
        assert not idle(slices)
        assert slices.state.tracker.in_flight == 2
        settle(slices, again, SliceOutcome(count=2), now=10.0)
        assert idle(slices)
        assert slices.state.tracker.base == n(2)

    def test_the_end_is_not_reported_beside_a_slice_that_is_out(self) -> None:
        slices = owned()
        plan = fresh(slices)
        with pytest.raises(OutOfOrder, match="report the end in its outcome"):
            slices.end_read()
        assert phase(slices) is ShardPhase.READING
        settle(slices, plan, read(1, 9))
        slices.end_read()
        assert phase(slices) is ShardPhase.FINISHED

    def test_the_end_waits_for_retries_that_are_out(self) -> None:
        slices = owned()
        settle(slices, fresh(slices), read(1, 9, failed(0, 1)))
        plan = due(slices, 10.0)
        slices.end_read()
        assert phase(slices) is ShardPhase.AT_END
        settle(slices, plan, SliceOutcome(count=1), now=10.0)
        assert phase(slices) is ShardPhase.FINISHED


class TestDeaths:
    def test_a_slice_whose_job_died_is_read_by_the_driver_and_runs_alone(self) -> None:
        slices = owned()
        plan = fresh(slices)
        die(slices, plan)
        assert slices.plan_fresh(0) is None
        assert wants_page(slices)
        again = fresh(slices, carried=8)
        assert (again.alone, again.kind, again.limit) == (True, SliceKind.CARRIED, 8)

    def test_a_page_that_dies_alone_waits_to_be_halved_until_one_record_is_isolated(self) -> None:
        slices = owned(limit=1)
        die(slices, fresh(slices))
        die(slices, fresh(slices, carried=8), all_held(1, 8))
        assert slices.state.position == Position.after(n(8))
        sizes = []
        while slices.state.tracker.attempts(n(3)) != 1 or slices._retries_out:
            plan = due(slices, 0.0)
            assert plan.alone
            sequences = [retry.sequence for retry in plan.retries]
            sizes.append(len(sequences))
            if n(3) in sequences:
                die(slices, plan)
            else:
                settle(slices, plan, SliceOutcome(count=len(sequences)))
            if slices._isolation[False].is_isolated(n(3)):
                break
        assert sizes == [4, 2, 1]
        assert slices.state.tracker.state(n(3)) is RecordState.WAITING
        assert slices.state.tracker.attempts(n(3)) == 1

    def test_a_page_under_suspicion_is_no_larger_than_what_can_be_held_of_it(self) -> None:
        slices = owned(capacity=Capacity(records=1_000, holes=4))
        settle(slices, fresh(slices), read(1, 4, failed(0, 1), failed(2, 3)))
        die(slices, fresh(slices))
        plan = fresh(slices, carried=8)
        assert plan.alone
        assert plan.limit == plan.max_failures == 1

    def test_the_shard_goes_on_while_a_page_of_it_is_halved(self) -> None:
        slices = owned()
        die(slices, fresh(slices))
        die(slices, fresh(slices, carried=8), all_held(1, 8))
        assert wants_page(slices)
        plan = fresh(slices, carried=4)
        assert plan.position == Position.after(n(8))
        assert due(slices, 0.0).alone

    def test_in_its_order_the_shard_waits_while_a_page_of_it_is_halved(self) -> None:
        slices = owned(order=Order.SHARD)
        die(slices, fresh(slices))
        die(slices, fresh(slices, carried=8), all_held(1, 8))
        assert slices.plan_fresh(8) is None

    def test_suspects_that_were_not_reached_in_time_stay_suspects(self) -> None:
        slices = owned()
        die(slices, fresh(slices))
        die(slices, fresh(slices, carried=8), all_held(1, 8))
        held = tuple(failed(at, at + 1, attempt=0, fate=Fate.HELD) for at in range(1, 4))
        settle(slices, due(slices, 0.0), SliceOutcome(count=4, failures=held))
        sizes = [len(due(slices, 0.0).retries)]
        assert sizes == [4]
        assert slices._isolation[False]._among == 7

    def test_suspects_come_before_what_else_is_due(self) -> None:
        """Halving counts on it: the suspects must be the next records."""
        slices = owned()
        settle(slices, fresh(slices), read(1, 2, failed(0, 1), failed(1, 2)))
        die(slices, fresh(slices))
        die(slices, fresh(slices, carried=4), all_held(3, 6), now=20.0)
        assert [retry.sequence for retry in due(slices, 20.0).retries] == [n(3), n(4)]

    def test_a_record_whose_worker_was_seen_to_die_at_it_is_retried_alone_and_nothing_is_suspected(
        self,
    ) -> None:
        slices = owned()
        settle(slices, fresh(slices), read(1, 2, failed(0, 1), failed(1, 2, fate=Fate.KILLED_WORKER)))
        plans = [due(slices, 10.0)]
        settle(slices, plans[0], SliceOutcome(count=1), now=10.0)
        plans.append(due(slices, 10.0))
        assert [(plan.alone, plan.retries[0].sequence) for plan in plans] == [(False, n(1)), (True, n(2))]
        assert not fresh(slices).alone

    def test_records_that_were_under_way_together_at_a_death_come_again_one_at_a_time(self) -> None:
        slices = owned()
        suspects = (failed(at, at + 1, attempt=0, fate=Fate.SUSPECTED) for at in range(3))
        settle(slices, fresh(slices), read(1, 5, *suspects, failed(3, 4)))
        plan = due(slices, 0.0)
        assert [retry.sequence for retry in plan.retries] == [n(1), n(2), n(3)]
        assert (plan.alone, plan.portion) == (True, 1)
        assert not fresh(slices).alone

        guilty = failed(1, 2, fate=Fate.KILLED_WORKER)
        waits = failed(2, 3, attempt=0, fate=Fate.HELD)
        settle(slices, plan, SliceOutcome(count=3, failures=(guilty, waits)))
        plan = due(slices, 0.0)
        assert ([retry.sequence for retry in plan.retries], plan.portion) == ([n(3)], 1)
        settle(slices, plan, SliceOutcome(count=1))
        plans = [due(slices, 20.0)]
        settle(slices, plans[0], SliceOutcome(count=1), now=20.0)
        plans.append(due(slices, 20.0))
        assert {plan.retries[0].sequence: (plan.alone, plan.portion) for plan in plans} == {
            n(2): (True, None),
            n(4): (False, None),
        }

    def test_all_that_a_dead_slice_may_have_read_is_suspected_until_the_tip(self) -> None:
        slices = owned()
        die(slices, fresh(slices))
        slices.backlog = True
        settle(slices, fresh(slices, carried=8), read(1, 8))
        slices.backlog = False  # as the page says that the driver fetched
        assert fresh(slices, carried=8).alone
        settle(slices, slices._fresh_out, read(9, 16))  # type: ignore[arg-type]
        assert not fresh(slices, carried=8).alone

    def test_suspects_of_a_page_that_were_not_reached_in_time_stay_suspects(self) -> None:
        slices = owned()
        plan = fresh(slices)
        settle(slices, plan, read(1, 2, at_tip=True))
        slices.suspect(plan, 8)
        settle(slices, fresh(slices, carried=8), read(3, 5))
        rest = fresh(slices, carried=5)
        assert (rest.alone, rest.portion) == (True, 1)

    def test_what_comes_behind_the_suspects_of_a_page_is_not_suspected(self) -> None:
        slices = owned()
        die(slices, fresh(slices))
        slices.backlog = False
        last, held = 0, 8
        while (plan := fresh(slices, carried=held)).alone:
            settle(slices, plan, read(last + 1, last + max(1, plan.limit // 2)))
            last, held = last + max(1, plan.limit // 2), 20
        assert last == 8

    def test_an_isolated_record_is_retried_alone_and_given_up_like_any_other_record(self) -> None:
        slices = owned(limit=2)
        settle(slices, fresh(slices), read(1, 2, failed(0, 1), failed(1, 2)))
        assert die(slices, due(slices, 10.0), now=10.0) == []
        for size in (2, 1):
            plan = due(slices, 10.0)
            assert (plan.alone, len(plan.retries)) == (True, size)
            assert die(slices, plan, now=10.0) == []
        settle(slices, due(slices, 10.0), SliceOutcome(count=1), now=10.0)
        assert slices.state.tracker.state(n(2)) is None
        assert slices.plan_retries(29.9) is None
        plan = due(slices, 30.0)
        assert (plan.alone, plan.retries[0].attempt) == (True, 3)
        assert die(slices, plan, now=30.0) == [n(1)]

    def test_an_isolated_record_among_other_due_records_has_a_job_of_its_own(self) -> None:
        slices = owned()
        die(slices, fresh(slices))
        die(slices, fresh(slices, carried=1), all_held(1, 1))
        settle(slices, fresh(slices, carried=1), read(2, 2, failed(0, 2)))
        plans = [due(slices, 10.0)]
        settle(slices, plans[0], SliceOutcome(count=1), now=10.0)
        plans.append(due(slices, 10.0))
        assert [(plan.retries[0].sequence, len(plan.retries), plan.alone) for plan in plans] == [
            (n(1), 1, True),
            (n(2), 1, False),
        ]

    def test_records_that_are_never_delivered_again_are_isolated_no_more(self) -> None:
        slices = owned(limit=0)
        die(slices, fresh(slices))
        assert die(slices, fresh(slices, carried=1), all_held(1, 1)) == [n(1)]
        assert not slices._isolation[False]._isolated

    def test_an_isolated_record_that_was_acked_is_remembered_no_more(self) -> None:
        slices = owned()
        die(slices, fresh(slices))
        die(slices, fresh(slices, carried=1), all_held(1, 1))
        plan = due(slices, 10.0)
        assert slices._isolation[False].is_isolated(n(1))
        settle(slices, plan, SliceOutcome(count=1), now=10.0)
        assert not slices._isolation[False].is_isolated(n(1))

    def test_an_isolated_record_whose_outcome_is_open_is_still_retried_alone(self) -> None:
        slices = owned()
        die(slices, fresh(slices))
        die(slices, fresh(slices, carried=1), all_held(1, 1))
        plan = due(slices, 10.0)
        still_open = OpenRecord(index=0, sequence=n(1), previous=None, attempt=plan.retries[0].attempt)
        settle(slices, plan, SliceOutcome(count=1, open_records=(still_open,)), now=10.0)
        slices.state.fail(n(1), 10.0, attempt=still_open.attempt)
        assert due(slices, 1e9).alone

    def test_the_retries_of_a_job_that_died_are_due_again_and_uncounted(self) -> None:
        slices = owned(limit=1)
        settle(slices, fresh(slices), read(1, 2, failed(0, 1), failed(1, 2)))
        plan = due(slices, 10.0)
        die(slices, plan, now=11.0)
        again = due(slices, 11.0)
        assert again.retries == plan.retries
        assert again.alone
