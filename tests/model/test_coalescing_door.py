"""The record door that coalesces, over slices, retries, rejects, deaths of workers and restarts.

The tasks' own code delivers, the shard's own state plans and settles. What is handled last of each key must be its
newest record that was not given up; nothing is finished unhandled before a later record of its key was handled.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kinesis_spout.model.handler import Reject, RetryLater, failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks import journal
from kinesis_spout.spark.tasks.coalescing import CoalescingKey, order_with
from kinesis_spout.spark.tasks.delivery import DeliverySettings, Failed, SliceDelivery
from kinesis_spout.spark.tasks.handlers import delivery_to
from kinesis_spout.spark.tasks.journal import UNDER_WAY, Journal, SliceNotes
from kinesis_spout.spark.tasks.recovery import recover
from kinesis_spout.spark.tasks.task import run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import (
    Capacity,
    Checkpoint,
    LocalShardState,
    Position,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SlicePlan,
)
from shard_state.local_shard.shard_slices import ShardSlices, SliceLimits
from tests.unit.spark.driver.world import KillsWorker, StreamClient, task_settings

pytestmark = pytest.mark.no_second_run

RETRY_LIMIT = 2
KEYS = ("a", "b", "c")
VERDICTS = st.lists(
    st.sampled_from(["ack", "ack", "ack", "fail", "fail", "later", "reject", "die", "stop"]), max_size=6
)


def key_in_data(record: Record) -> str:
    if record.data.endswith(b"!"):
        raise ValueError("no key")
    return record.data.decode().partition(":")[0]


class Script:
    """A handler that does what it is told, record by record; it acks when nothing more is told. Mutable."""

    def __init__(self, verdicts: Sequence[str]) -> None:
        self._verdicts = list(verdicts)
        self.acked: list[SequenceNumber] = []

    def __call__(
        self, records: Sequence[Record], until: float, notes: SliceNotes
    ) -> tuple[int, list[Failed]]:
        del until
        failed: list[Failed] = []
        for at, record in enumerate(records):
            notes.words[UNDER_WAY] = notes.base + at
            verdict = self._verdicts.pop(0) if self._verdicts else "ack"
            if verdict == "die":
                raise KillsWorker
            if verdict in {"ack", "stop"}:
                self.acked.append(record.sequence)
            else:
                error = {"fail": ValueError("no"), "later": RetryLater(3.0), "reject": Reject("no")}[verdict]
                failed.append((at, failure_of(error)))
                notes.failed(*failed[-1])
            if verdict == "stop":
                return at + 1, failed
        return len(records), failed


class CoalescingDoor(RuleBasedStateMachine):
    """One shard, read by one consumer after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard(shard_id="shard", parents=(), closed=False, hash_range=(0, 1))
        self.records: list[Record] = []
        self.handled: list[SequenceNumber] = []
        """Acked by the handler, in order, over all consumers."""
        self.given_up: set[SequenceNumber] = set()
        self.to_bury: list[SequenceNumber] = []
        self.now = 0.0
        self.stored = Checkpoint(epoch=1, start=Position.trim_horizon(), app_instance="one")

    @initialize(
        order=st.sampled_from(["unordered", "key", "shard"]),
        by_function=st.booleans(),
        most_failures=st.sampled_from([3, 100]),
    )
    def begins(self, order: str, *, by_function: bool, most_failures: int) -> None:
        by_function = by_function and order != "key"
        key = CoalescingKey.of(key_in_data if by_function else "partition_key", order)
        self.by_function = by_function
        self.order = order_with(order)
        self.holes = most_failures
        self.tasks = task_settings(
            StreamClient(InMemoryStream(clock=ManualClock())), order=self.order, coalescing=key
        )
        self.restart()

    def key(self, record: Record) -> str | None:
        if not self.by_function:
            return record.partition_key
        return None if record.data.endswith(b"!") else key_in_data(record)

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 4), without_key=st.sampled_from(["", "", "", "!"]))
    def put(self, key: str, count: int, without_key: str) -> None:
        for _ in range(count):
            number = len(self.records) + 1
            # By another partition key, if it is not the one that records are coalesced by.
            partition_key = f"p{number % 2}" if self.by_function else key
            data = f"{key}:{number}{without_key if self.by_function else ''}".encode()
            self.records.append(
                Record(data=data, sequence_number=str(number), partition_key=partition_key, shard_id="shard")
            )

    @rule(most=st.integers(1, 12), verdicts=VERDICTS)
    def deliver_fresh(self, most: int, verdicts: list[str]) -> None:
        last = self.slices.state.tracker.last_emitted
        fresh = [record for record in self.records if record.sequence > last][:most]
        plan = self.slices.plan_fresh(len(fresh)) if fresh else None
        if plan is not None:
            self.deliver(WorkSlice(plan=plan, records=tuple(fresh[: plan.limit])), verdicts)

    @rule(verdicts=VERDICTS)
    def deliver_retries(self, verdicts: list[str]) -> None:
        plan = self.slices.plan_retries(self.now)
        if plan is not None:
            by_sequence = {record.sequence: record for record in self.records}
            kept = tuple(by_sequence[retry.sequence] for retry in plan.retries)
            self.deliver(WorkSlice(plan=plan, records=kept), verdicts)

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def bury(self) -> None:
        for sequence in self.to_bury:
            assert self.slices.state.dead_lettered(sequence, self.now)
            self.given_up.add(sequence)
        self.to_bury = []

    @rule()
    def commit(self) -> None:
        self.stored = self.slices.state.checkpoint("one")

    @rule()
    def restart(self) -> None:
        self.to_bury = []
        state = LocalShardState(
            self.shard,
            self.stored,
            random=lambda: 0.5,
            retry=RetryPolicy(limit=RETRY_LIMIT, jitter=0.0),
            order=self.order,
            capacity=Capacity(records=1_000, holes=self.holes + 1),
        )
        self.slices = ShardSlices(state, SliceLimits())

    def deliver(self, work: WorkSlice, verdicts: Sequence[str]) -> None:
        script = Script(verdicts)

        def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
            return delivery_to(script, plan, rules)

        with TemporaryDirectory() as folder:
            file = Path(folder, "notes")
            try:
                with closing(Journal(file, 1)) as notes:
                    (result,) = run_slices([work], self.tasks, deliver, notes)
            except KillsWorker:
                remains = journal.read(file)
                assert remains is not None
                (result,) = recover([work], remains, self.tasks, "the worker died")
        self.handled += script.acked
        self.given_up -= set(script.acked)  # before a restart that had not heard of it
        self.check(work.plan, result, script)
        exhausted = self.slices.settle(work.plan, result.outcome, self.now)
        self.to_bury += [given_up.sequence for given_up in exhausted]

    def check(self, plan: SlicePlan, result: WorkResult, script: Script) -> None:
        outcome = result.outcome
        dealt_with = outcome.count if plan.is_fresh else len(plan.retries)
        held = sum(failure.held for failure in outcome.failures)
        failed = len(outcome.failures) - held
        passed_over = dealt_with - result.delivered - result.coalesced - held
        assert result.delivered == len(script.acked) + failed
        assert (
            0
            <= passed_over
            <= sum(self.slices.state.tracker.was_finished(each.sequence) for each in self.records)
        )
        assert len(outcome.failures) <= plan.max_failures

    @invariant()
    def what_is_finished_was_handled_or_has_a_later_one_of_its_key_that_was(self) -> None:
        handled = set(self.handled)
        newest_handled: dict[str | None, SequenceNumber] = {}
        for record in self.records:
            if record.sequence in handled:
                newest_handled[self.key(record)] = record.sequence
        tracker = self.slices.state.tracker
        for record in self.records:
            sequence = record.sequence
            is_finished = sequence <= tracker.base or (
                sequence <= tracker.last_emitted and tracker.state(sequence) is None
            )
            if is_finished and sequence not in handled | self.given_up:
                key = self.key(record)
                assert key is not None
                assert newest_handled[key] > sequence

    def teardown(self) -> None:
        if not hasattr(self, "slices"):
            return
        for _ in range(200):
            self.bury()
            self.deliver_retries([])
            self.deliver_fresh(100, [])
            self.time_passes(100.0)
        tracker = self.slices.state.tracker
        assert not tracker.unresolved
        assert not self.records or tracker.base == self.records[-1].sequence
        for key in KEYS:
            kept = [each.sequence for each in self.records if self.key(each) == key]
            kept = [sequence for sequence in kept if sequence not in self.given_up]
            of_key = set(kept)
            states = [sequence for sequence in self.handled if sequence in of_key]
            assert states[-1:] == kept[-1:], f"of {key}, {states} were handled, {kept} were there"


TestCoalescingDoor = CoalescingDoor.TestCase
TestCoalescingDoor.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
