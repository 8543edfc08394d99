"""StateManager while practically everything fails: what is held, what is tried, and what goes on."""

from typing import Any

import pytest

from shard_state import (
    BreakerRule,
    Checkpoint,
    Exhausted,
    FailedRecord,
    Fate,
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

RULE = BreakerRule(failure_ratio=0.9, window=20, least=5, probes=RetryPolicy(jitter=0.0))


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def owner_of(*names: str, limit: int | None = 0, order: Order = Order.UNORDERED) -> StateManager:
    manager = StateManager(
        app_instance="application",
        random=lambda: 0.0,
        retry=RetryPolicy(limit=limit, backoff_seconds=0.5, jitter=0.0),
        order=order,
        breaker=RULE,
    )
    manager.listed([Shard(shard_id=name) for name in names], {})
    for name in names:
        manager.acquired(name, next_ownership(None, Checkpoint(start=Position.trim_horizon())))
    return manager


def fail(manager: StateManager, number: int, **how: Any) -> Any:
    return manager.fail("a", n(number), 0.0, attempt=1, **how)


def broken(manager: StateManager, records: int = 5) -> list[Any]:
    for number in range(1, records + 1):
        manager.emit("a", n(number), "key", 0.0)
    return [fail(manager, number) for number in range(1, records + 1)]


class TestRecordByRecord:
    def test_what_fails_when_the_breaker_opens_is_held_although_its_attempts_are_used_up(self) -> None:
        manager = owner_of("a")
        decisions = broken(manager)
        assert [isinstance(decision, Exhausted) for decision in decisions] == [True] * 4 + [False]
        assert isinstance(decisions[-1], Retry)

    def test_while_it_is_open_only_one_record_is_tried_at_a_time(self) -> None:
        manager = owner_of("a", limit=3)
        broken(manager)
        assert manager.take_retry("a", 0.9) is None
        assert not manager.may_read("a", 0.9)
        assert manager.take_retry("a", 1.0) is not None
        assert manager.take_retry("a", 100.0) is None
        assert not manager.may_read("a", 100.0)

    def test_a_probe_that_fails_is_not_given_up_and_the_next_one_is_another_record(self) -> None:
        manager = owner_of("a", limit=1)
        broken(manager)
        now, tried = 1.0, []
        for wait in (2.0, 4.0, 8.0):
            retry = manager.take_retry("a", now)
            assert retry is not None
            tried.append(retry.sequence)
            assert isinstance(manager.fail("a", retry.sequence, now, attempt=retry.attempt), Retry)
            assert manager.take_retry("a", now + wait - 0.1) is None
            now += wait
        assert len(set(tried)) == 3

    def test_a_probe_that_succeeds_lets_all_records_flow_and_the_limit_counts_again(self) -> None:
        manager = owner_of("a", limit=1)
        broken(manager)
        retry = manager.take_retry("a", 1.0)
        assert retry is not None
        assert manager.ack("a", retry.sequence, 1.0)
        assert manager.breaker.pause is None
        assert manager.may_read("a", 1.0)
        decisions = []
        for now in (1.0, 1.0, 1.0, 1.0, 10.0):
            again = manager.take_retry("a", now)
            assert again is not None
            decisions.append(type(manager.fail("a", again.sequence, now, attempt=again.attempt)))
        assert decisions == [Retry] * 4 + [Exhausted]

    def test_the_ack_of_another_record_does_not_close_it(self) -> None:
        manager = owner_of("a", limit=3)
        manager.emit("a", n(1), None, 0.0)
        for number in range(2, 8):
            manager.emit("a", n(number), None, 0.0)
            fail(manager, number)
        assert manager.ack("a", n(1), 0.0)
        assert manager.breaker.pause is not None

    def test_the_retries_of_a_few_bad_records_do_not_open_it(self) -> None:
        manager = owner_of("a", limit=None)
        for number in range(1, 21):
            manager.emit("a", n(number), None, 0.0)
            if number <= 16:
                manager.ack("a", n(number), 0.0)
            else:
                fail(manager, number)
        now = 0.0
        for _ in range(50):
            now += 100.0
            while (retry := manager.take_retry("a", now)) is not None:
                manager.fail("a", retry.sequence, now, attempt=retry.attempt)
        assert manager.breaker.pause is None

    def test_what_a_handler_rejects_is_given_up_as_always_and_is_no_failure(self) -> None:
        manager = owner_of("a", limit=3)
        for number in range(1, 31):
            manager.emit("a", n(number), None, 0.0)
            assert isinstance(fail(manager, number, fate=Fate.REJECTED), Exhausted)
        assert manager.breaker.pause is None

    def test_a_probe_that_is_rejected_was_handled(self) -> None:
        manager = owner_of("a", limit=3)
        broken(manager)
        retry = manager.take_retry("a", 1.0)
        assert retry is not None
        assert isinstance(
            manager.fail("a", retry.sequence, 1.0, attempt=retry.attempt, fate=Fate.REJECTED), Exhausted
        )
        assert manager.breaker.pause is None

    def test_every_second_probe_may_be_a_fresh_record(self) -> None:
        manager = owner_of("a", limit=3)
        broken(manager)
        assert manager.breaker.probes_fresh == (False, True)
        retry = manager.take_retry("a", 1.0)
        assert retry is not None
        manager.fail("a", retry.sequence, 1.0, attempt=retry.attempt)
        assert manager.breaker.probes_fresh == (True, False)
        assert manager.may_read("a", 3.0)
        assert manager.emit("a", n(9), None, 3.0).deliver
        assert not manager.may_read("a", 3.0)
        assert manager.ack("a", n(9), 3.0)
        assert manager.breaker.pause is None

    def test_of_an_order_by_key_the_probe_is_the_first_of_its_key(self) -> None:
        manager = owner_of("a", limit=3, order=Order.KEY)
        for number in range(1, 6):
            manager.emit("a", n(number), f"key-{number}", 0.0)
        for number in range(1, 6):
            fail(manager, number, partition_key=f"key-{number}")
        assert manager.breaker.pause is not None
        tried = []
        for now in (1.0, 10.0, 100.0, 1000.0):
            retry = manager.take_retry("a", now)
            assert retry is not None
            tried.append(retry.sequence)
            manager.fail("a", retry.sequence, now, attempt=retry.attempt)
        assert tried == [n(1), n(2), n(3), n(4)]

    def test_when_the_shard_of_the_probe_is_lost_another_record_is_tried(self) -> None:
        manager = owner_of("a", "b", limit=3)
        manager.emit("b", n(1), None, 0.0)
        manager.fail("b", n(1), 0.0, attempt=1)
        broken(manager)
        assert manager.take_retry("a", 1.0) is not None
        manager.lost(["a"])
        assert manager.take_retry("b", 1.0) is not None

    def test_when_nothing_is_left_to_retry_a_fresh_record_is_tried(self) -> None:
        manager = owner_of("a", "b", limit=3)
        broken(manager)
        manager.lost(["a"])
        assert manager.wants_page("b") is False  # nobody knows yet whether the shard is at its tip
        assert manager.may_read("b", 1.0)

    def test_an_operator_lets_them_flow(self) -> None:
        manager = owner_of("a", limit=3)
        broken(manager)
        assert manager.resume()
        assert manager.may_read("a", 0.0)
        assert manager.take_retry("a", 0.6) is not None
        assert not manager.resume()

    def test_deliveries_that_failed_while_it_was_open_or_opened_it_are_not_stored_as_attempts(self) -> None:
        manager = owner_of("a", limit=3)
        broken(manager)
        for now in (1.0, 10.0, 100.0):
            retry = manager.take_retry("a", now)
            if retry is not None:
                manager.fail("a", retry.sequence, now, attempt=retry.attempt)
        (commit,) = manager.to_commit()
        assert commit.checkpoint.attempts == ()

    def test_only_the_failures_that_opened_it_are_forgiven(self) -> None:
        manager = owner_of("a", limit=1)
        manager.emit("a", n(1), None, 0.0)
        fail(manager, 1)
        for number in range(2, 22):
            manager.emit("a", n(number), None, 0.0)
            manager.ack("a", n(number), 0.0)
        for number in range(22, 40):
            manager.emit("a", n(number), None, 0.0)
            fail(manager, number)
        assert manager.breaker.pause is not None
        (commit,) = manager.to_commit()
        assert dict(commit.checkpoint.attempts) == {n(1): 1}

    def test_what_was_given_up_before_it_opened_stays_given_up(self) -> None:
        manager = owner_of("a", limit=0)
        broken(manager)
        assert manager.breaker.pause is not None
        assert manager.dead_lettered("a", n(1), 0.0)
        assert not manager.dead_lettered("a", n(5), 0.0)


def failed(number: int, index: int, **how: Any) -> FailedRecord:
    previous = n(number - 1) if index else None
    return FailedRecord(index=index, sequence=n(number), previous=previous, attempt=1, **how)


def all_failed(plan: SlicePlan, first: int, count: int) -> SliceOutcome:
    assert plan.is_fresh
    return SliceOutcome(
        first=n(first),
        last=n(first + count - 1),
        count=count,
        failures=tuple(failed(first + at, at) for at in range(count)),
    )


class TestSliceBySlice:
    def test_a_slice_that_opens_it_gives_nothing_up_at_all(self) -> None:
        manager = owner_of("a")
        (plan,) = manager.plan(0.0, {})
        assert manager.settle(plan, all_failed(plan, 1, 3_000), 0.0) == []
        assert manager.breaker.pause is not None
        assert manager.unresolved == 3_000

    def test_while_it_is_open_a_slice_of_one_record_goes_out_at_a_time(self) -> None:
        manager = owner_of("a", "b")
        first, second = manager.plan(0.0, {})
        manager.settle(first, all_failed(first, 1, 10), 0.0)
        manager.settle(second, SliceOutcome(), 0.0)
        assert manager.plan(0.9, {}) == []
        assert manager.next_due() == 1.0
        (probe,) = manager.plan(1.0, {})
        assert (probe.kind, len(probe.retries)) == (SliceKind.RETRY, 1)
        assert manager.plan(100.0, {}) == []
        assert manager.next_due() is None

    @pytest.mark.parametrize("ends_well", [True, False])
    def test_the_probes_outcome_decides(self, ends_well: bool) -> None:  # noqa: FBT001 - a parameter of the test
        manager = owner_of("a")
        (plan,) = manager.plan(0.0, {})
        manager.settle(plan, all_failed(plan, 1, 10), 0.0)
        (probe,) = manager.plan(1.0, {})
        (retry,) = probe.retries
        failure = FailedRecord(index=0, sequence=retry.sequence, previous=None, attempt=retry.attempt)
        outcome = SliceOutcome() if ends_well else SliceOutcome(failures=(failure,))
        assert manager.settle(probe, outcome, 1.0, delivered=1) == []
        assert (manager.breaker.pause is None) == ends_well

    def test_a_probe_that_did_not_reach_the_handler_says_nothing(self) -> None:
        manager = owner_of("a")
        (plan,) = manager.plan(0.0, {})
        manager.settle(plan, all_failed(plan, 1, 10), 0.0)
        (probe,) = manager.plan(1.0, {})
        (retry,) = probe.retries
        held = FailedRecord(index=0, sequence=retry.sequence, previous=None, attempt=1, fate=Fate.HELD)
        manager.settle(probe, SliceOutcome(failures=(held,)), 1.0, delivered=0)
        assert manager.breaker.pause is not None
        assert manager.breaker.pause.probes_failed == 0
        assert manager.next_due() == 2.0

    def test_the_search_for_a_record_that_kills_its_worker_does_not_open_it(self) -> None:
        manager = owner_of("a", limit=None)
        now, killer, jobs, reached = 0.0, n(70), 0, 0
        while jobs < 60:
            now += 100.0
            plans = manager.plan(now, {"a": 100 - reached} if reached < 100 else {})
            if not plans:
                break
            for plan in plans:
                jobs += 1
                if plan.is_fresh:
                    last = min(100, reached + plan.limit)
                    numbers = list(range(reached + 1, last + 1))
                    if killer in map(n, numbers):
                        held = SliceOutcome(
                            first=n(numbers[0]),
                            last=n(last),
                            count=len(numbers),
                            failures=tuple(
                                failed(each, at, fate=Fate.HELD) for at, each in enumerate(numbers)
                            ),
                        )
                        before = manager.unresolved
                        manager.died(plan, held, now)
                        reached = last if manager.unresolved > before else reached
                    elif numbers:
                        manager.settle(
                            plan, SliceOutcome(first=n(numbers[0]), last=n(last), count=len(numbers)), now
                        )
                        reached = last
                elif killer in {retry.sequence for retry in plan.retries}:
                    manager.died(plan, SliceOutcome(), now)
                else:
                    manager.settle(plan, SliceOutcome(), now)
            assert manager.breaker.pause is None
        assert jobs == 60, "the killer is tried again and again"
        assert manager.unresolved == 1

    def test_a_probe_that_kills_its_worker_has_failed(self) -> None:
        manager = owner_of("a")
        (plan,) = manager.plan(0.0, {})
        manager.settle(plan, all_failed(plan, 1, 10), 0.0)
        (probe,) = manager.plan(1.0, {})
        assert manager.died(probe, SliceOutcome(), 1.0) == []
        assert manager.breaker.pause is not None
        assert manager.breaker.pause.probes_failed == 1
