from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shard_state import (
    SHARD_END,
    Checkpoint,
    Emission,
    Exhausted,
    FailedRecord,
    Order,
    Position,
    RecordEvent,
    Retry,
    RetryPolicy,
    SequenceNumber,
    Shard,
    ShardPhase,
    SliceKind,
    SliceOutcome,
    StateManager,
)
from shard_state.errors import OutOfOrder

FRESH = Checkpoint(start=Position.trim_horizon())


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def shard(name: str, *parents: str, closed: bool = False) -> Shard:
    return Shard(shard_id=name, parents=parents, closed=closed)


class Store:
    """What is stored, as a plain dict. Mutable."""

    def __init__(self) -> None:
        self.checkpoints: dict[str, Checkpoint] = {}

    def acquire(self, manager: StateManager, name: str) -> None:
        before = self.checkpoints.get(name, manager.fresh_checkpoint())
        self.checkpoints[name] = replace(before, epoch=before.epoch + 1)
        manager.acquired(name, self.checkpoints[name])

    def commit(self, manager: StateManager) -> list[str]:
        pending = manager.to_commit()
        self.checkpoints.update({commit.shard_id: commit.checkpoint for commit in pending})
        return manager.committed(pending)


def consumer(
    *,
    limit: int | None = 3,
    order: Order = Order.UNORDERED,
    timeout: float | None = None,
    random: Callable[[], float] = lambda: 0.0,
) -> StateManager:
    retry = RetryPolicy(limit=limit, backoff_seconds=10.0, cap_seconds=40.0, jitter=0.5)
    return StateManager(
        app_instance="application", random=random, retry=retry, order=order, message_timeout_seconds=timeout
    )


def owner_of(*names: str, store: Store | None = None, **how: Any) -> StateManager:
    manager = consumer(**how)
    store = store or Store()
    manager.listed([shard(name) for name in names], store.checkpoints)
    for name in names:
        store.acquire(manager, name)
    return manager


def acquirable(manager: StateManager) -> list[str]:
    return [found.shard_id for found in manager.to_acquire()]


def phases(manager: StateManager) -> dict[str, ShardPhase]:
    return {status.shard_id: status.phase for status in manager.status()}


def finish(manager: StateManager, store: Store, name: str) -> None:
    """Read an owned shard to its end, and store that."""
    manager.end_read(name)
    assert store.commit(manager) == [name]


class TestLineage:
    def test_children_wait_until_the_end_of_their_parent_is_stored(self) -> None:
        store, manager = Store(), consumer()
        manager.listed([shard("p"), shard("c1", "p"), shard("c2", "p")], {})
        assert acquirable(manager) == ["p"]
        store.acquire(manager, "p")
        manager.emit("p", n(1), None, 0.0)
        manager.end_read("p")
        store.commit(manager)
        assert acquirable(manager) == []
        manager.ack("p", n(1), 0.0)
        assert acquirable(manager) == []
        assert store.commit(manager) == ["p"]
        assert acquirable(manager) == ["c1", "c2"]

    def test_the_child_of_a_merge_waits_for_its_second_parent_too(self) -> None:
        store, manager = Store(), consumer()
        manager.listed([shard("a"), shard("b"), shard("c", "a", "b")], {})
        store.acquire(manager, "a")
        store.acquire(manager, "b")
        finish(manager, store, "a")
        assert acquirable(manager) == []
        finish(manager, store, "b")
        assert acquirable(manager) == ["c"]

    def test_a_child_found_later_starts_at_trim_horizon(self) -> None:
        """Not at LATEST: what was written before it was noticed would be lost."""
        assert StateManager.fresh_checkpoint().start == Position.trim_horizon()

    def test_a_parent_finished_by_another_consumer_frees_the_children(self) -> None:
        manager = consumer()
        shards = [shard("p", closed=True), shard("c", "p")]
        manager.listed(shards, {"p": FRESH})
        assert acquirable(manager) == ["p"]
        manager.listed(shards, {"p": replace(FRESH, base=SHARD_END)})
        assert acquirable(manager) == ["c"]

    def test_a_parent_acquired_at_its_end_frees_the_children_and_is_not_owned(self) -> None:
        manager = consumer()
        manager.listed([shard("p"), shard("c", "p")], {})
        manager.acquired("p", replace(FRESH, base=SHARD_END, epoch=2))
        assert manager.owned == frozenset()
        assert acquirable(manager) == ["c"]

    def test_a_parent_that_retention_trimmed_blocks_nobody(self) -> None:
        manager = consumer()
        manager.listed([shard("c", "trimmed")], {})
        assert acquirable(manager) == ["c"]

    def test_a_trimmed_parent_that_is_stored_is_finished_first(self) -> None:
        """Its owner finds out that it is gone, and ends it, loudly."""
        store = Store()
        store.checkpoints["p"] = FRESH
        manager = consumer()
        manager.listed([shard("c", "p")], store.checkpoints)
        assert acquirable(manager) == ["p"]
        store.acquire(manager, "p")
        finish(manager, store, "p")
        assert acquirable(manager) == ["c"]

    def test_a_list_that_misses_the_newest_shards_releases_none_of_them(self) -> None:
        manager = consumer()
        whole = [shard("a"), shard("b"), shard("c", "b")]
        manager.listed(whole, {})
        manager.listed(whole[:1], {})
        manager.listed(whole, {})
        assert acquirable(manager) == ["a", "b"]

    def test_a_child_listed_before_its_parent_is_listed_as_closed_waits(self) -> None:
        manager = consumer()
        manager.listed([shard("p", closed=False), shard("c", "p")], {})
        assert acquirable(manager) == ["p"]

    def test_closed_shards_leave_the_rotation_by_themselves(self) -> None:
        """kinesis-storm-spout kept them until somebody rebalanced the topology."""
        store, manager = Store(), consumer()
        manager.listed([shard("a"), shard("b")], {})
        store.acquire(manager, "a")
        store.acquire(manager, "b")
        finish(manager, store, "a")
        assert list(manager.round()) == ["b"]
        assert manager.owned == {"b"}

    def test_all_is_over_only_when_every_listed_shard_is(self) -> None:
        store, manager = Store(), consumer()
        assert not manager.all_over
        manager.listed([shard("p"), shard("c", "p")], {})
        store.acquire(manager, "p")
        finish(manager, store, "p")
        unfinished = manager.all_over
        store.acquire(manager, "c")
        finish(manager, store, "c")
        assert (unfinished, manager.all_over) == (False, True)


class TestOwnership:
    def test_a_lost_shard_is_read_again_from_what_is_stored_under_a_new_epoch(self) -> None:
        store = Store()
        manager = owner_of("a", store=store)
        for number in (1, 2, 3):
            manager.emit("a", n(number), None, 0.0)
        manager.ack("a", n(1), 0.0)
        store.commit(manager)
        manager.ack("a", n(2), 0.0)
        manager.lost(["a"])
        assert phases(manager) == {"a": ShardPhase.LOST}
        assert acquirable(manager) == ["a"]
        store.acquire(manager, "a")
        state = manager.shard("a")
        assert state is not None
        assert (state.epoch, state.position) == (2, Position.after(n(1)))

    def test_reports_on_a_lost_shard_are_harmless(self) -> None:
        manager = owner_of("a")
        manager.emit("a", n(1), None, 0.0)
        manager.lost(["a", "unknown"])
        assert not manager.ack("a", n(1), 0.0)
        assert manager.fail("a", n(1), 0.0) is None
        assert not manager.dead_lettered("a", n(1), 0.0)
        assert manager.take_retry("a", 1e9) is None
        assert not manager.may_read("a")
        manager.end_read("a")
        manager.page_fetched("a", full=True)
        assert manager.to_commit() == []
        assert manager.next_due() is None

    def test_a_commit_of_an_earlier_epoch_does_not_count(self) -> None:
        store = Store()
        manager = owner_of("a", store=store)
        manager.emit("a", n(1), None, 0.0)
        manager.ack("a", n(1), 0.0)
        late = manager.to_commit()
        manager.lost(["a"])
        store.acquire(manager, "a")
        manager.emit("a", n(1), None, 0.0)
        manager.ack("a", n(1), 0.0)
        assert manager.committed(late) == []
        assert [commit.checkpoint.epoch for commit in manager.to_commit()] == [2]

    def test_an_outcome_of_an_earlier_epoch_does_not_count(self) -> None:
        store = Store()
        manager = owner_of("a", store=store)
        (plan,) = manager.plan(0.0, {})
        manager.lost(["a"])
        store.acquire(manager, "a")
        (again,) = manager.plan(0.0, {})
        outcome = SliceOutcome(first=n(1), last=n(9), count=9)
        assert manager.settle(plan, outcome, 0.0) == []
        assert manager.died(plan, None, 0.0) == []
        assert not manager.idle
        manager.settle(again, outcome, 0.0)
        assert manager.idle

    def test_an_old_deadline_does_not_time_out_a_delivery_of_a_new_epoch(self) -> None:
        store = Store()
        manager = owner_of("a", store=store, timeout=30.0)
        manager.emit("a", n(1), None, 0.0)
        manager.lost(["a"])
        store.acquire(manager, "a")
        manager.emit("a", n(1), None, 20.0)
        assert manager.expired(49.9) == []
        assert manager.expired(50.0) == [("a", n(1))]

    def test_a_late_ack_from_before_the_loss_finishes_the_record_that_was_read_again(self) -> None:
        store = Store()
        manager = owner_of("a", store=store)
        manager.emit("a", n(1), None, 0.0)
        manager.lost(["a"])
        store.acquire(manager, "a")
        assert not manager.ack("a", n(1), 0.0)
        manager.emit("a", n(1), None, 0.0)
        assert manager.ack("a", n(1), 0.0)

    def test_what_is_over_in_the_store_is_not_acquired_after_a_restart(self) -> None:
        manager = consumer()
        manager.listed([shard("a"), shard("b")], {"a": replace(FRESH, base=SHARD_END)})
        assert acquirable(manager) == ["b"]


class TestRecordByRecord:
    def test_an_exception_in_user_code_skips_no_record_and_stops_no_shard(self) -> None:
        store = Store()
        manager = owner_of("a", store=store)
        for number in (1, 2, 3):
            manager.emit("a", n(number), None, 0.0)
        assert isinstance(manager.fail("a", n(2), 0.0), Retry)
        manager.ack("a", n(1), 0.0)
        manager.ack("a", n(3), 0.0)
        store.commit(manager)
        assert store.checkpoints["a"].base == n(1)
        retry = manager.take_retry("a", 10.0)
        assert retry is not None
        manager.ack("a", retry.sequence, 10.0)
        store.commit(manager)
        assert store.checkpoints["a"].base == n(3)

    def test_a_poison_record_does_not_stop_its_shard_for_ever(self) -> None:
        """KafkaSpout retried a poison message without delay and without limit, alone."""
        manager = owner_of("a", limit=2)
        manager.emit("a", n(1), None, 0.0)
        decisions, now = [manager.fail("a", n(1), 0.0)], 0.0
        while isinstance(decisions[-1], Retry):
            assert manager.take_retry("a", now + decisions[-1].delay_seconds - 0.1) is None
            assert manager.may_read("a")
            now += decisions[-1].delay_seconds
            assert manager.take_retry("a", now) is not None
            decisions.append(manager.fail("a", n(1), now))
        assert decisions[-1] == Exhausted(shard_id="a", sequence=n(1), attempts=3, rejected=False)
        assert len(decisions) == 3

    def test_an_idle_shard_costs_a_busy_one_no_turn(self) -> None:
        """kinesis-storm-spout slept 5 ms at each idle shard."""
        manager = owner_of("idle", "busy")
        served = []
        for number in range(1, 6):
            turn = next(name for name in manager.round() if name == "busy")
            manager.emit(turn, n(number), None, 0.0)
            manager.served(turn)
            served.append(turn)
        assert served == ["busy"] * 5
        assert list(manager.round()) == ["idle", "busy"]

    def test_a_message_that_times_out_is_named_once_and_told_from_a_fail(self) -> None:
        manager = owner_of("a", timeout=30.0)
        manager.emit("a", n(1), None, 0.0)
        manager.emit("a", n(2), None, 0.0)
        manager.ack("a", n(2), 1.0)
        assert manager.expired(29.9) == []
        assert manager.expired(30.0) == [("a", n(1))]
        assert isinstance(manager.fail("a", n(1), 30.0, event=RecordEvent.TIME_OUT), Retry)
        assert manager.expired(1e9) == []

    def test_a_redelivery_has_a_deadline_of_its_own(self) -> None:
        manager = owner_of("a", timeout=30.0)
        manager.emit("a", n(1), None, 0.0)
        manager.fail("a", n(1), 5.0)
        manager.take_retry("a", 15.0)
        assert manager.expired(44.9) == []
        assert manager.expired(45.0) == [("a", n(1))]

    def test_a_held_record_has_no_deadline_until_it_is_delivered(self) -> None:
        manager = owner_of("a", timeout=30.0, order=Order.KEY)
        manager.emit("a", n(1), "k", 0.0)
        manager.fail("a", n(1), 0.0, partition_key="k")
        assert manager.emit("a", n(2), "k", 0.0) == Emission(deliver=False, held=True, attempt=0)
        assert manager.expired(1e9) == []

    def test_the_random_number_shortens_the_delay(self) -> None:
        manager = owner_of("a", random=lambda: 0.5)
        manager.emit("a", n(1), None, 0.0)
        assert manager.fail("a", n(1), 0.0) == Retry(delay_seconds=7.5)
        assert manager.next_due() == 7.5


class TestSliceBySlice:
    def test_every_shard_gets_its_slice_whatever_the_others_do(self) -> None:
        manager = owner_of("a", "b", "c")
        assert [plan.shard_id for plan in manager.plan(0.0, {})] == ["a", "b", "c"]
        assert manager.plan(0.0, {}) == []

    def test_due_retries_go_out_beside_a_fresh_slice(self) -> None:
        manager = owner_of("a")
        (plan,) = manager.plan(0.0, {})
        failure = FailedRecord(index=0, sequence=n(1), previous=None, attempt=1)
        manager.settle(plan, SliceOutcome(first=n(1), last=n(2), count=2, failures=(failure,)), 0.0)
        assert manager.next_due() == 10.0
        plans = manager.plan(10.0, {})
        assert [plan.kind for plan in plans] == [SliceKind.RETRY, SliceKind.READ]

    def test_a_resting_shard_is_not_read_and_a_barred_one_not_touched(self) -> None:
        manager = owner_of("a", "b", "c")
        plans = manager.plan(0.0, {"b": 5}, resting={"a", "b"}, barred={"c"})
        assert [(plan.shard_id, plan.kind) for plan in plans] == [("b", SliceKind.CARRIED)]

    def test_the_driver_polls_a_shard_at_its_tip_until_a_page_is_full(self) -> None:
        manager = owner_of("a")
        assert manager.to_fetch() == []
        (plan,) = manager.plan(0.0, {})
        manager.settle(plan, SliceOutcome(at_tip=True), 0.0)
        assert manager.to_fetch() == ["a"]
        assert manager.plan(0.0, {}) == []
        manager.page_fetched("a", full=True)
        assert manager.to_fetch() == []
        assert [plan.kind for plan in manager.plan(0.0, {})] == [SliceKind.READ]

    def test_the_end_is_not_taken_while_a_slice_is_out(self) -> None:
        manager = owner_of("a")
        manager.plan(0.0, {})
        with pytest.raises(OutOfOrder):
            manager.end_read("a")
        assert phases(manager) == {"a": ShardPhase.READING}

    def test_the_end_comes_with_the_last_slice(self) -> None:
        store = Store()
        manager = owner_of("a", store=store)
        (plan,) = manager.plan(0.0, {})
        manager.settle(plan, SliceOutcome(first=n(1), last=n(9), count=9, at_end=True), 0.0)
        assert phases(manager) == {"a": ShardPhase.FINISHED}
        assert store.commit(manager) == ["a"]
        assert store.checkpoints["a"].base == SHARD_END

    def test_a_convicted_record_is_reported_when_it_is_given_up(self) -> None:
        manager = owner_of("a", limit=0)
        held = FailedRecord(index=0, sequence=n(1), previous=None, attempt=0, held=True)
        carried = SliceOutcome(first=n(1), last=n(1), count=1, failures=(held,))
        manager.died(manager.plan(0.0, {})[0], None, 0.0)
        (plan,) = manager.plan(0.0, {"a": 1})
        assert [gone.sequence for gone in manager.died(plan, carried, 0.0)] == [n(1)]


class TestCommitting:
    def test_only_what_changed_is_committed_and_all_of_it_together(self) -> None:
        manager = owner_of("a", "b", "c")
        for name in ("a", "b", "c"):
            manager.emit(name, n(1), None, 0.0)
        manager.ack("a", n(1), 0.0)
        manager.ack("c", n(1), 0.0)
        pending = manager.to_commit()
        assert [commit.shard_id for commit in pending] == ["a", "c"]
        manager.committed(pending)
        assert manager.to_commit() == []

    def test_it_goes_on_while_reading_is_paused(self) -> None:
        """kinesis-storm-spout committed inside nextTuple, and not at all under back-pressure."""
        manager = owner_of("a", order=Order.SHARD)
        manager.emit("a", n(1), None, 0.0)
        manager.emit("a", n(2), None, 0.0)
        manager.ack("a", n(1), 0.0)
        manager.fail("a", n(2), 0.0)
        assert not manager.may_read("a")
        (commit,) = manager.to_commit()
        assert commit.checkpoint.base == n(1)
        assert commit.checkpoint.app_instance == "application"

    def test_what_was_not_stored_is_committed_again(self) -> None:
        manager = owner_of("a")
        manager.emit("a", n(1), None, 0.0)
        manager.ack("a", n(1), 0.0)
        first = manager.to_commit()
        assert manager.to_commit() == first

    def test_the_end_waits_for_the_dead_letter(self) -> None:
        store = Store()
        manager = owner_of("a", store=store, limit=0)
        manager.emit("a", n(1), None, 0.0)
        manager.fail("a", n(1), 0.0)
        manager.end_read("a")
        assert store.commit(manager) == []
        assert manager.dead_lettered("a", n(1), 0.0)
        assert not manager.dead_lettered("a", n(1), 0.0)
        assert store.commit(manager) == ["a"]


class TestStatus:
    def test_it_describes_every_known_shard_parents_first(self) -> None:
        store, manager = Store(), consumer(limit=0)
        manager.listed([shard("z"), shard("c", "z"), shard("a")], {})
        store.acquire(manager, "z")
        for number in (1, 2, 3, 4):
            manager.emit("z", n(number), None, 0.0)
        manager.ack("z", n(1), 0.0)
        manager.ack("z", n(3), 0.0)
        manager.fail("z", n(2), 0.0)
        described = manager.status()
        assert [status.shard_id for status in described] == ["a", "z", "c"]
        z = described[1]
        assert (z.phase, z.epoch, z.checkpoint) == (ShardPhase.READING, 1, n(1))
        assert (z.in_flight, z.waiting, z.exhausted, z.holes, z.congested) == (1, 0, 1, 1, False)
        assert described[2].phase is ShardPhase.WAITING_FOR_PARENTS
        assert manager.unresolved == 2
