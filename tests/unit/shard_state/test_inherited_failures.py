"""StateManager when an owner inherits records that failed already: no outage, or one that goes on."""

from collections.abc import Sequence

import pytest

from shard_state import (
    BreakerRule,
    Checkpoint,
    Exhausted,
    FailedRecord,
    Fate,
    Guarantee,
    Order,
    Position,
    Retry,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SliceKind,
    SliceOutcome,
    SlicePlan,
    StateManager,
)
from shard_state.checkpoint.checkpoint import next_ownership

LEAST = 5
RULE = BreakerRule(failure_ratio=0.9, window=20, least=LEAST, probes=RetryPolicy(jitter=0.0))
LATER = 1_000.0


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def heir_of(
    failed: Sequence[int],
    *,
    finished: tuple[tuple[int, int], ...] = (),
    limit: int | None = 3,
    order: Order = Order.UNORDERED,
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
) -> StateManager:
    """The new owner of a shard of which these records failed once, and those after .. last are finished."""
    manager = StateManager(
        app_instance="application",
        random=lambda: 0.0,
        retry=RetryPolicy(limit=limit, backoff_seconds=60.0, jitter=0.0),
        order=order,
        breaker=RULE,
        guarantee=guarantee,
    )
    manager.listed([Shard(shard_id="a")], {})
    stored = Checkpoint(
        start=Position.trim_horizon(),
        holes=tuple((n(after), n(last)) for after, last in finished),
        anchor=n(1),
        attempts=tuple((n(number), 1) for number in failed),
    )
    manager.acquired("a", next_ownership(stored, stored))
    return manager


def fails(manager: StateManager, number: int, now: float = 0.0) -> object:
    emission = manager.emit("a", n(number), None, now)
    assert emission.deliver
    return manager.fail("a", n(number), now, attempt=emission.attempt)


class TestRecordByRecord:
    @pytest.mark.parametrize("order", [Order.UNORDERED, Order.KEY])
    def test_records_that_failed_before_and_fail_again_do_not_open_the_breaker(self, order: Order) -> None:
        manager = heir_of(range(1, 101), order=order)
        for number in range(1, 101):
            fails(manager, number)
        assert manager.breaker.pause is None

    def test_they_are_given_up_at_their_limit_as_always(self) -> None:
        manager = heir_of(range(1, 101), limit=1)
        assert all(isinstance(fails(manager, number), Exhausted) for number in range(1, 101))
        assert manager.breaker.pause is None

    def test_in_an_outage_first_deliveries_open_it_as_after_any_start(self) -> None:
        manager = heir_of(range(1, 51))
        for number in range(1, 51):
            fails(manager, number)
        for number in range(51, 50 + LEAST):
            fails(manager, number)
            assert manager.breaker.pause is None
        assert isinstance(fails(manager, 50 + LEAST), Retry)
        assert manager.breaker.pause is not None

    def test_one_that_succeeds_says_that_the_handler_works(self) -> None:
        manager = heir_of(range(1, 3))
        for number in range(1, 3):
            assert manager.emit("a", n(number), None, 0.0).deliver
            assert manager.ack("a", n(number), 0.0)
        for number in range(3, 13):
            fails(manager, number)
        assert manager.breaker.pause is None, "10 of 12 are fewer than nine of ten"

    @pytest.mark.parametrize("order", Order)
    def test_while_it_is_open_one_of_them_is_a_probe_like_any_other_and_nothing_is_counted(
        self, order: Order
    ) -> None:
        manager = heir_of([1, 2], order=order)
        manager.breaker.note(outcomes=20, failed=20, now=0.0)
        emission = manager.emit("a", n(1), None, LATER)
        assert (emission.deliver, emission.attempt) == (True, 2)
        assert not manager.may_read("a", LATER)
        assert isinstance(manager.fail("a", n(1), LATER, attempt=2), Retry)
        (commit,) = manager.to_commit()
        assert commit.checkpoint.attempts == ((n(1), 1), (n(2), 1))

    def test_what_was_finished_before_is_passed_over_and_is_no_probe(self) -> None:
        manager = self.owner_that_tries_a_fresh_record(finished=((5, 8),))
        for number in range(6, 9):
            assert not manager.emit("a", n(number), None, LATER).deliver
        assert manager.may_read("a", LATER)
        assert manager.emit("a", n(9), None, LATER).deliver
        assert not manager.may_read("a", LATER)

    @pytest.mark.parametrize("guarantee", [Guarantee.NONE, Guarantee.AT_MOST_ONCE])
    def test_where_nothing_is_retried_nothing_has_to_wait(self, guarantee: Guarantee) -> None:
        manager = heir_of([3, 4], guarantee=guarantee)
        manager.breaker.note(outcomes=20, failed=20, now=0.0)
        assert manager.emit("a", n(3), None, 5.0).deliver

    def owner_that_tries_a_fresh_record(self, *, finished: tuple[tuple[int, int], ...]) -> StateManager:
        """An open breaker, whose first probe was a retry and failed. Records 6 and those behind it are unread."""
        manager = heir_of([], finished=finished)
        for number in range(1, 6):
            fails(manager, number)
        assert manager.breaker.pause is not None
        retry = manager.take_retry("a", 60.0)
        assert retry is not None
        manager.fail("a", retry.sequence, 60.0, attempt=retry.attempt)
        assert manager.breaker.probes_fresh == (True, False)
        return manager


class TestAnOutageThatGoesOn:
    def test_the_owner_after_a_restart_sees_it_as_soon_as_the_first_owner_did_and_gives_nothing_up(
        self,
    ) -> None:
        """However often it starts again: the failures that opened the breaker were not the records'."""
        stored = None
        for _ in range(5):
            manager = heir_of([]) if stored is None else self.next_owner(stored)
            decisions = [fails(manager, number) for number in range(1, LEAST + 1)]
            assert manager.breaker.pause is not None
            assert not any(isinstance(decision, Exhausted) for decision in decisions)
            for now in (100.0, 200.0, 300.0, 400.0, 500.0):
                retry = manager.take_retry("a", now)
                assert retry is not None
                assert not isinstance(
                    manager.fail("a", retry.sequence, now, attempt=retry.attempt), Exhausted
                )
            pending = manager.to_commit()
            manager.committed(pending)
            stored = pending[0].checkpoint

    def next_owner(self, stored: Checkpoint) -> StateManager:
        manager = heir_of([])
        manager.acquired("a", next_ownership(stored, stored))
        return manager


def failure(number: int, index: int, attempt: int, fate: Fate = Fate.FAILED) -> FailedRecord:
    previous = n(number - 1) if index else None
    return FailedRecord(index=index, sequence=n(number), previous=previous, attempt=attempt, fate=fate)


def outcome(failures: Sequence[FailedRecord], count: int, first: int = 1) -> SliceOutcome:
    return SliceOutcome(first=n(first), last=n(first + count - 1), count=count, failures=tuple(failures))


class TestSliceBySlice:
    def test_records_that_failed_before_and_fail_again_do_not_open_the_breaker(self) -> None:
        manager = heir_of(range(1, 101))
        (plan,) = manager.plan(0.0, {})
        again = [failure(number, number - 1, 2) for number in range(1, 101)]
        manager.settle(plan, outcome(again, 100), 0.0, delivered=100)
        assert manager.breaker.pause is None

    def test_in_an_outage_the_first_deliveries_among_them_open_it(self) -> None:
        manager = heir_of(range(1, 101))
        (plan,) = manager.plan(0.0, {})
        failures = [failure(number, number - 1, 2 if number <= 100 else 1) for number in range(1, 106)]
        assert manager.settle(plan, outcome(failures, 105), 0.0, delivered=105) == []
        assert manager.breaker.pause is not None
        assert (manager.breaker.pause.failed, manager.breaker.pause.outcomes) == (5, 5)

    def test_one_that_kills_its_worker_again_does_not_count(self) -> None:
        manager = heir_of(range(1, 11))
        now = 0.0
        for number in range(1, 11):
            (plan,) = [plan for plan in manager.plan(now, {"a": 1}) if plan.is_fresh]
            held = outcome([failure(number, 0, 1, Fate.HELD)], 1, number)
            if not plan.alone:
                manager.died(plan, held, now)
                (plan,) = [plan for plan in manager.plan(now, {"a": 1}) if plan.is_fresh]
            assert manager.isolates(plan, held)
            manager.died(plan, held, now)
        assert manager.breaker.pause is None

    @pytest.mark.parametrize("carried", [0, 40])
    def test_a_probe_passes_over_what_was_finished_before(self, carried: int) -> None:
        manager, plan = self.probing(carried, finished=((5, 30),))
        assert (plan.most_deliveries, plan.room) == (1, 1)
        assert plan.limit >= (carried or 1_000)
        assert plan.kind is (SliceKind.CARRIED if carried else SliceKind.READ)
        manager.settle(plan, outcome([], 26, 6), LATER, delivered=1)
        assert manager.breaker.pause is None

    def test_a_probe_that_met_nothing_else_is_followed_at_once_by_another_one_further_on(self) -> None:
        manager, plan = self.probing(0, finished=((5, 30),))
        manager.settle(plan, outcome([], 14, 6), LATER, delivered=0)
        assert manager.breaker.pause is not None
        (following,) = manager.plan(LATER, {})
        assert following.is_fresh
        assert following.position.sequence_number == n(19)

    def test_a_probe_may_be_a_record_that_failed_before_and_that_is_not_counted(self) -> None:
        manager, plan = self.probing(0, inherited=[6])
        assert plan.attempts == ((n(6), 1),)
        manager.settle(plan, outcome([failure(6, 0, 2)], 1, 6), LATER, delivered=1)
        (commit,) = manager.to_commit()
        assert commit.checkpoint.attempts == ((n(6), 1),)

    def test_at_the_tip_a_probe_that_met_nothing_is_followed_by_a_retry_when_it_is_time(self) -> None:
        manager, plan = self.probing(0)
        manager.settle(plan, SliceOutcome(at_tip=True), LATER, delivered=0)
        assert manager.plan(LATER, {}) == []
        due = manager.next_due()
        assert due is not None
        (following,) = manager.plan(due, {})
        assert following.kind is SliceKind.RETRY

    def test_a_shard_without_a_past_has_one_record_tried_as_before(self) -> None:
        manager, plan = self.probing(0)
        assert plan.limit == 1
        manager.settle(plan, outcome([], 1, 6), LATER, delivered=1)
        assert manager.breaker.pause is None

    def probing(
        self,
        carried: int,
        inherited: Sequence[int] = (),
        finished: tuple[tuple[int, int], ...] = (),
    ) -> tuple[StateManager, SlicePlan]:
        """An open breaker whose first probe, a retry, has failed, and the second, a fresh record."""
        manager = heir_of(inherited, finished=finished)
        (plan,) = manager.plan(0.0, {})
        first = [failure(number, number - 1, 1) for number in range(1, 6)]
        manager.settle(plan, outcome(first, 5), 0.0, delivered=5)
        assert manager.breaker.pause is not None
        (probe,) = manager.plan(60.0, {})
        assert probe.kind is SliceKind.RETRY
        (retry,) = probe.retries
        again = FailedRecord(index=0, sequence=retry.sequence, previous=None, attempt=retry.attempt)
        manager.settle(probe, SliceOutcome(failures=(again,)), 60.0, delivered=1)
        (plan,) = manager.plan(LATER, {"a": carried} if carried else {})
        return manager, plan
