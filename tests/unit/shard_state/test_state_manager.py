from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shard_state import (
    SHARD_END,
    Checkpoint,
    Emission,
    Exhausted,
    Fate,
    OpenRecord,
    OperatorPause,
    Order,
    Position,
    Redelivery,
    Retry,
    RetryPolicy,
    SequenceNumber,
    Shard,
    ShardPhase,
    SliceKind,
    SliceOutcome,
    StateManager,
    UnackedRecord,
)
from shard_state.checkpoint.checkpoint import next_ownership
from shard_state.errors import InvalidLineage, OutOfOrder
from tests.support.core.reading import may_read

pytestmark = pytest.mark.no_second_run

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
        self.checkpoints[name] = next_ownership(self.checkpoints.get(name), manager.fresh_checkpoint(name))
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
        manager = consumer()
        manager.listed([shard("p"), shard("c", "p")], {})
        assert manager.fresh_checkpoint("c") == Checkpoint(start=Position.trim_horizon(), parents=("p",))

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

    def test_a_stored_child_that_a_stale_list_misses_waits_for_its_parents(self) -> None:
        store = Store()
        store.checkpoints = {"p": FRESH, "c": replace(FRESH, parents=("p",))}
        manager = consumer()
        manager.listed([shard("p")], store.checkpoints)
        assert acquirable(manager) == ["p"]
        store.acquire(manager, "p")
        finish(manager, store, "p")
        assert acquirable(manager) == ["c"]

    def test_a_list_may_say_the_parents_of_a_shard_that_was_free_to_be_acquired(self) -> None:
        store = Store()
        store.checkpoints = {"c": FRESH}
        manager = consumer()
        manager.listed([], store.checkpoints)
        assert acquirable(manager) == ["c"]
        manager.listed([shard("p"), shard("c", "p")], store.checkpoints)
        assert acquirable(manager) == ["p"]

    def test_the_trimmed_parent_of_a_listed_shard_does_not_wait_for_open_shards(self) -> None:
        """They never end. The list is younger than the parent, so no ancestor of it is left to be listed."""
        store = Store()
        store.checkpoints = {"p": FRESH, "open": FRESH}
        manager = consumer()
        manager.listed([shard("open"), shard("c", "p")], store.checkpoints)
        assert acquirable(manager) == ["open", "p"]

    def test_shards_that_are_their_own_ancestors_are_an_error_and_no_silent_wait(self) -> None:
        with pytest.raises(InvalidLineage, match="b as a child of a, which itself comes from b"):
            consumer().listed([shard("a", "b"), shard("b", "a")], {})
        with pytest.raises(InvalidLineage, match="a as a child of a"):
            consumer().listed([shard("a", "a")], {})
        with pytest.raises(InvalidLineage):
            consumer().listed([shard("a", "b")], {"b": replace(FRESH, parents=("a",))})

    def test_an_end_that_is_stored_of_a_shard_we_own_frees_its_children_only_once_we_lost_it(self) -> None:
        """Somebody took the shard and finished it; until we hear of that, ours is the state that counts."""
        store = Store()
        manager = owner_of("p", store=store)
        manager.emit("p", n(1), None, 0.0)
        shards, ended = [shard("p"), shard("c", "p")], {"p": replace(FRESH, base=SHARD_END, epoch=3)}
        manager.listed(shards, ended)
        assert phases(manager)["p"] is ShardPhase.READING
        assert acquirable(manager) == []
        assert manager.ack("p", n(1), 0.0)
        manager.lost(["p"])
        manager.listed(shards, ended)
        assert acquirable(manager) == ["c"]

    def test_the_parents_are_stored_with_every_commit_and_with_the_end(self) -> None:
        store, manager = Store(), consumer()
        manager.listed([shard("c", "a", "b")], {})
        store.acquire(manager, "c")
        manager.emit("c", n(1), None, 0.0)
        manager.ack("c", n(1), 0.0)
        store.commit(manager)
        assert store.checkpoints["c"].parents == ("a", "b")
        finish(manager, store, "c")
        assert store.checkpoints["c"].parents == ("a", "b")

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
        assert list(manager.turns.round()) == ["b"]
        assert manager.owned == {"b"}


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
        assert manager.fail("a", n(1), 0.0, attempt=1) is None
        assert not manager.dead_lettered("a", n(1), 0.0)
        assert manager.take_retry("a", 1e9) is None
        assert not may_read(manager, "a")
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
        manager.suspect(plan, 3)
        (again,) = manager.plan(0.0, {})
        assert (again.epoch, again.limit) == (2, plan.limit)
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

    def test_the_deadlines_of_a_lost_shard_are_forgotten(self) -> None:
        manager = owner_of("a", "b", timeout=30.0)
        manager.emit("a", n(1), None, 0.0)
        manager.emit("b", n(1), None, 0.0)
        manager.lost(["a"])
        assert manager.expired(1e9) == [("b", n(1))]

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
        assert isinstance(manager.fail("a", n(2), 0.0, attempt=1), Retry)
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
        decisions, now = [manager.fail("a", n(1), 0.0, attempt=1)], 0.0
        while isinstance(decisions[-1], Retry):
            assert manager.take_retry("a", now + decisions[-1].delay_seconds - 0.1) is None
            assert may_read(manager, "a")
            now += decisions[-1].delay_seconds
            assert manager.take_retry("a", now) is not None
            decisions.append(manager.fail("a", n(1), now, attempt=len(decisions) + 1))
        assert decisions[-1] == Exhausted(shard_id="a", sequence=n(1), attempts=3, rejected=False)
        assert len(decisions) == 3

    def test_an_idle_shard_costs_a_busy_one_no_turn(self) -> None:
        """kinesis-storm-spout slept 5 ms at each idle shard."""
        manager = owner_of("idle", "busy")
        served = []
        for number in range(1, 6):
            turn = next(name for name in manager.turns.round() if name == "busy")
            manager.emit(turn, n(number), None, 0.0)
            manager.turns.served(turn)
            served.append(turn)
        assert served == ["busy"] * 5
        assert list(manager.turns.round()) == ["idle", "busy"]

    def test_a_message_that_times_out_is_named_once_and_told_from_a_fail(self) -> None:
        manager = owner_of("a", timeout=30.0)
        manager.emit("a", n(1), None, 0.0)
        manager.emit("a", n(2), None, 0.0)
        manager.ack("a", n(2), 1.0)
        assert manager.expired(29.9) == []
        assert manager.expired(30.0) == [("a", n(1))]
        assert isinstance(manager.fail("a", n(1), 30.0, attempt=1), Retry)
        assert manager.expired(1e9) == []

    def test_a_redelivery_has_a_deadline_of_its_own(self) -> None:
        manager = owner_of("a", timeout=30.0)
        manager.emit("a", n(1), None, 0.0)
        manager.fail("a", n(1), 5.0, attempt=1)
        manager.take_retry("a", 15.0)
        assert manager.expired(44.9) == []
        assert manager.expired(45.0) == [("a", n(1))]

    def test_a_late_or_repeated_fail_of_an_old_delivery_leaves_the_present_one_alone(self) -> None:
        manager = owner_of("a", timeout=30.0, limit=1)
        manager.emit("a", n(1), None, 0.0)
        manager.fail("a", n(1), 0.0, attempt=1)
        assert manager.take_retry("a", 10.0) == Redelivery(sequence=n(1), attempt=2)
        assert manager.fail("a", n(1), 11.0, attempt=1) is None
        assert manager.fail("a", n(1), 11.0, attempt=1) is None
        assert manager.expired(40.0) == [("a", n(1))], "the fail of an old delivery ended a deadline"
        assert manager.ack("a", n(1), 41.0)

    def test_a_late_ack_of_an_old_delivery_finishes_the_record(self) -> None:
        manager = owner_of("a", timeout=30.0)
        manager.emit("a", n(1), None, 0.0)
        manager.fail("a", n(1), 0.0, attempt=1)
        manager.take_retry("a", 10.0)
        assert manager.ack("a", n(1), 11.0)
        assert manager.fail("a", n(1), 11.0, attempt=2) is None
        assert manager.expired(1e9) == []

    def test_deadlines_of_many_shards_pass_each_in_its_time(self) -> None:
        manager = owner_of("a", "b", timeout=30.0)
        manager.emit("a", n(1), None, 0.0)
        assert manager.expired(10.0) == []
        manager.emit("b", n(1), None, 10.0)
        manager.emit("a", n(2), None, 20.0)
        named = [(now, *late) for now in range(60) for late in manager.expired(now)]
        assert named == [(30, "a", n(1)), (40, "b", n(1)), (50, "a", n(2))]

    def test_a_held_record_has_no_deadline_until_it_is_delivered(self) -> None:
        manager = owner_of("a", timeout=30.0, order=Order.KEY)
        manager.emit("a", n(1), "k", 0.0)
        manager.fail("a", n(1), 0.0, attempt=1, partition_key="k")
        assert manager.emit("a", n(2), "k", 0.0) == Emission(deliver=False, held=True, attempt=0)
        assert manager.expired(1e9) == []

    def test_the_random_number_shortens_the_delay(self) -> None:
        manager = owner_of("a", random=lambda: 0.5)
        manager.emit("a", n(1), None, 0.0)
        assert manager.fail("a", n(1), 0.0, attempt=1) == Retry(delay_seconds=7.5)
        assert manager.next_due() == 7.5

    def test_each_record_that_fails_in_a_slice_has_a_delay_of_its_own(self) -> None:
        numbers = iter(range(10))
        manager = owner_of("a", random=lambda: next(numbers) / 10)
        (plan,) = manager.plan(0.0, {})
        failures = tuple(
            UnackedRecord(index=at, sequence=n(at + 1), previous=n(at) if at else None, attempt=1)
            for at in range(4)
        )
        manager.settle(plan, SliceOutcome(first=n(1), last=n(9), count=9, failures=failures), 0.0)
        due_at = []
        while (due := manager.next_due()) is not None:
            due_at.append(due)
            assert manager.take_retry("a", due)
        assert due_at == [8.5, 9.0, 9.5, 10.0]


class TestOpenRecords:
    """Tuples whose tree is not decided when their slice settles."""

    @staticmethod
    def settled(manager: StateManager) -> StateManager:
        (plan,) = manager.plan(0.0, {})
        open_records = tuple(
            OpenRecord(index=number - 1, sequence=n(number), previous=n(number - 1), attempt=1)
            for number in (2, 3)
        )
        outcome = SliceOutcome(first=n(1), last=n(4), count=4, open_records=open_records)
        assert manager.settle(plan, outcome, 5.0) == []
        assert manager.settle(plan, outcome, 6.0) == []
        return manager

    def test_they_stay_in_flight_when_their_slice_settles_and_are_acked_one_by_one(self) -> None:
        manager = self.settled(owner_of("a"))
        state = manager.shard("a")
        assert state is not None
        assert (state.tracker.base, state.tracker.in_flight, state.tracker.waiting) == (n(1), 2, 0)
        assert manager.ack("a", n(3), 7.0)
        assert state.tracker.base == n(1)
        assert manager.ack("a", n(2), 7.0)
        assert state.tracker.base == n(4)

    def test_one_that_fails_is_retried_by_itself(self) -> None:
        manager = self.settled(owner_of("a"))
        assert manager.fail("a", n(2), 7.0, attempt=2) is None
        assert isinstance(manager.fail("a", n(2), 7.0, attempt=1), Retry)
        assert manager.take_retry("a", 17.0) == Redelivery(sequence=n(2), attempt=2)

    def test_their_deadlines_begin_when_the_slice_settles(self) -> None:
        manager = self.settled(owner_of("a", timeout=30.0))
        assert manager.ack("a", n(2), 7.0)
        assert manager.expired(34.9) == []
        assert manager.expired(35.0) == [("a", n(3))]

    def test_those_of_a_slice_of_retries_stay_in_flight_too(self) -> None:
        manager = self.settled(owner_of("a", timeout=30.0))
        for number in (2, 3):
            manager.fail("a", n(number), 7.0, attempt=1)
        plan = next(plan for plan in manager.plan(17.0, {}) if plan.retries)
        still_open = OpenRecord(index=1, sequence=n(3), previous=n(2), attempt=2)
        manager.settle(plan, SliceOutcome(count=2, open_records=(still_open,)), 18.0)
        state = manager.shard("a")
        assert state is not None
        assert (state.tracker.base, state.tracker.in_flight) == (n(2), 1)
        assert manager.expired(47.9) == []
        assert manager.expired(48.0) == [("a", n(3))]
        assert manager.fail("a", n(3), 48.0, attempt=2)

    def test_an_open_retry_that_a_late_ack_has_finished_does_not_time_out(self) -> None:
        manager = self.settled(owner_of("a", timeout=30.0))
        manager.fail("a", n(2), 7.0, attempt=1)
        manager.ack("a", n(3), 7.0)
        plan = next(plan for plan in manager.plan(17.0, {}) if plan.retries)
        manager.ack("a", n(2), 17.5)
        still_open = OpenRecord(index=0, sequence=n(2), previous=None, attempt=2)
        manager.settle(plan, SliceOutcome(count=1, open_records=(still_open,)), 18.0)
        assert manager.expired(1e9) == []

    def test_one_delivered_before_the_restart_holds_up_its_key_as_an_emitted_one_does(self) -> None:
        store = Store()
        store.checkpoints["a"] = Checkpoint(start=Position.trim_horizon(), attempts=((n(1), 1),))
        manager = owner_of("a", store=store, order=Order.KEY)
        (plan,) = manager.plan(0.0, {})
        first = OpenRecord(index=0, sequence=n(1), previous=None, attempt=2, partition_key="k")
        manager.settle(plan, SliceOutcome(first=n(1), last=n(1), count=1, open_records=(first,)), 0.0)
        assert manager.emit("a", n(2), "k", 0.0).held


class TestSliceBySlice:
    def test_every_shard_gets_its_slice_whatever_the_others_do(self) -> None:
        manager = owner_of("a", "b", "c")
        assert [plan.shard_id for plan in manager.plan(0.0, {})] == ["a", "b", "c"]
        assert manager.plan(0.0, {}) == []

    def test_due_retries_go_out_beside_a_fresh_slice(self) -> None:
        manager = owner_of("a")
        (plan,) = manager.plan(0.0, {})
        failure = UnackedRecord(index=0, sequence=n(1), previous=None, attempt=1)
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
        assert not manager.wants_page("a")
        (plan,) = manager.plan(0.0, {})
        manager.settle(plan, SliceOutcome(at_tip=True), 0.0)
        assert manager.wants_page("a")
        assert manager.plan(0.0, {}) == []
        manager.page_fetched("a", full=True)
        assert not manager.wants_page("a")
        assert not manager.wants_page("somebody else's")
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

    def test_an_isolated_record_is_reported_when_it_is_given_up(self) -> None:
        manager = owner_of("a", limit=0)
        held = UnackedRecord(index=0, sequence=n(1), previous=None, attempt=0, fate=Fate.HELD)
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
        manager.fail("a", n(2), 0.0, attempt=1)
        assert not may_read(manager, "a")
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
        manager.fail("a", n(1), 0.0, attempt=1)
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
        manager.fail("z", n(2), 0.0, attempt=1)
        described = manager.status()
        assert [status.shard_id for status in described] == ["a", "z", "c"]
        z = described[1]
        assert (z.phase, z.epoch, z.checkpoint) == (ShardPhase.READING, 1, n(1))
        assert (z.in_flight, z.waiting, z.exhausted, z.holes, z.congested) == (1, 0, 1, 1, False)
        assert described[2].phase is ShardPhase.WAITING_FOR_PARENTS
        assert manager.unresolved == 2


def test_the_shell_decides_anew_when_a_shard_comes_or_goes_is_held_back_or_fails() -> None:
    manager = owner_of("a")
    manager.emit("a", n(1), None, 0.0)
    seen = [manager.decisions]

    def has_news() -> bool:
        seen.append(manager.decisions)
        return seen[-1] > seen[-2]

    manager.leave(["a"])
    assert has_news()
    manager.leave(["a"])
    assert not has_news()
    manager.leave([])
    assert has_news()
    manager.pause_by_operator(OperatorPause(everything=True))
    assert has_news()
    manager.pause_by_operator(OperatorPause(everything=True))
    assert not has_news()
    manager.emit("a", n(2), None, 0.0)
    manager.ack("a", n(2), 0.0)
    assert not has_news()
    manager.fail("a", n(1), 0.0, attempt=1)
    assert has_news()
    manager.fail("a", n(1), 0.0, attempt=1)
    assert not has_news(), "that delivery has ended"
    manager.lost(["a"])
    assert has_news()
    manager.acquired("a", Checkpoint(start=Position.trim_horizon(), epoch=3))
    assert has_news()
