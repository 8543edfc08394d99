"""Isolation and ShardSlices: whichever records kill their workers, they and only they are isolated."""

from collections.abc import Callable

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shard_state import (
    Capacity,
    Checkpoint,
    Exhausted,
    LocalShardState,
    Order,
    Position,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SliceKind,
    SliceLimits,
    SlicePlan,
)
from shard_state.local_shard.shard_slices import ShardSlices
from shard_state.slices.isolation import Isolation
from tests.model.stream_in_memory import LinesOfRecords, StoredRecord, TreeVerdict, all_held, deliver_slice

pytestmark = pytest.mark.no_second_run

SHARD = "shard-0"


class IsolationMachine(RuleBasedStateMachine):
    """Halving finds the one bad record among many, and good records are trusted again soon."""

    def __init__(self) -> None:
        super().__init__()
        self.isolation = Isolation()
        self.suspected = 0

    @rule(count=st.integers(1, 1000))
    def a_job_of_many_slices_dies(self, count: int) -> None:
        count = self.isolation.limit(count)
        trusted = not self.isolation.alone
        if trusted:
            assert not self.isolation.died(count, alone=False)
            self.suspected = count
        assert self.isolation.alone
        assert self.isolation.limit(10_000) <= self.suspected

    @precondition(lambda self: self.isolation.alone)
    @rule(bad=st.integers(0, 999))
    def hunt(self, bad: int) -> None:
        """Run the suspected records until the bad one is isolated: few jobs, and no other is blamed."""
        left, jobs = self.suspected, 0
        bad %= left
        while True:
            jobs += 1
            size = self.isolation.limit(left)
            assert size <= left
            if bad >= size:
                self.isolation.survived(size, alone=True)
                left, bad = left - size, bad - size
                assert self.isolation.alone
            elif self.isolation.died(size, alone=True):
                assert (size, bad) == (1, 0)
                break
        assert jobs <= self.suspected.bit_length() + 2
        assert not self.isolation.alone

    @precondition(lambda self: self.isolation.alone)
    @rule()
    def all_goes_well_from_now(self) -> None:
        left, jobs = self.suspected, 0
        while self.isolation.alone:
            size = self.isolation.limit(left)
            self.isolation.survived(size, alone=True)
            left, jobs = left - size, jobs + 1
        assert left == 0
        assert jobs <= self.suspected.bit_length() + 2
        assert self.isolation.limit(10_000) == 10_000

    @invariant()
    def a_suspect_slice_is_never_empty(self) -> None:
        assert self.isolation.limit(7) >= 1


class PoisonedShardMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.records: list[StoredRecord] = []
        self.page: list[StoredRecord] = []
        self.out: list[SlicePlan] = []
        self.exhausted: list[Exhausted] = []
        self.isolated: set[SequenceNumber] = set()

    @initialize(order=st.sampled_from(Order), limit=st.sampled_from((0, 1, 2)))
    def begin(self, order: Order, limit: int) -> None:
        self.order = order
        checkpoint = Checkpoint(start=Position.trim_horizon(), epoch=1)
        self.lines = LinesOfRecords(order, lambda _: [each for each in self.records if not each.finished])
        self.lines.begin(SHARD, checkpoint)
        self.state = LocalShardState(
            Shard(shard_id=SHARD),
            checkpoint,
            random=lambda: 0.5,
            retry=RetryPolicy(limit=limit, backoff_seconds=4.0, cap_seconds=8.0),
            order=order,
            capacity=Capacity(records=20, holes=20),
        )
        self.slices = ShardSlices(self.state, SliceLimits(records=8, retries=5))

    @rule(poison=st.lists(st.booleans(), min_size=1, max_size=6), key=st.sampled_from((None, "a", "b")))
    def write(self, poison: list[bool], key: str | None) -> None:
        for deadly in poison:
            sequence = SequenceNumber(len(self.records) + 1)
            self.records.append(StoredRecord(SHARD, sequence, key, deadly))

    @rule(seconds=st.integers(1, 9))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    def ahead(self) -> list[StoredRecord]:
        reached = self.state.position.sequence_number
        return [record for record in self.records if reached is None or record.sequence > reached]

    @rule()
    def fetch(self) -> None:
        if self.slices.wants_page and not self.page:
            self.page = self.ahead()[:6]

    @rule()
    def plan(self) -> None:
        planned = [self.slices.plan_retries(self.now), self.slices.plan_fresh(len(self.page))]
        for plan in planned:
            if plan is None:
                continue
            assert not any(other.is_fresh == plan.is_fresh for other in self.out)
            isolated = {retry.sequence for retry in plan.retries} & self.isolated
            assert not isolated or (plan.alone and plan.limit == 1)
            self.out.append(plan)
        assert self.slices.is_idle == (not self.out)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def run(self, data: st.DataObject) -> None:
        """Run what is planned: what must be alone, alone."""
        plan = data.draw(st.sampled_from(self.out))
        together = [plan] if plan.alone else [other for other in self.out if not other.alone]
        verdicts = st.sampled_from((TreeVerdict.ACK, TreeVerdict.FAIL))
        self.run_job(together, lambda: data.draw(verdicts))

    def run_job(self, plans: list[SlicePlan], verdict: Callable[[], TreeVerdict]) -> None:
        self.out = [plan for plan in self.out if plan not in plans]
        ran = [
            (
                plan,
                deliver_slice(
                    plan,
                    records=self.records_of(plan),
                    closed=False,
                    order=self.order,
                    verdict=lambda _record, _attempt: verdict(),
                    on_delivery=self.lines.deliver,
                ),
            )
            for plan in plans
        ]
        deadly = any(delivered.killed_by for _, delivered in ran)
        for plan, delivered in ran:
            if deadly:
                self.die(plan)
                continue
            for record in delivered.acked:
                record.finished = True
            for record in delivered.failed:
                self.lines.fail(record)
            gone = self.slices.settle(plan, delivered.outcome, self.now)
            self.exhausted += gone
            self.isolated -= {record.sequence for record in delivered.acked}
            self.isolated -= {exhausted.sequence for exhausted in gone}
            if plan.kind is SliceKind.CARRIED:
                self.page = self.page[delivered.outcome.count :]

    def records_of(self, plan: SlicePlan) -> list[StoredRecord]:
        if plan.kind is SliceKind.RETRY:
            return [self.records[retry.sequence.number - 1] for retry in plan.retries]
        return self.page if plan.kind is SliceKind.CARRIED else self.ahead()

    def die(self, plan: SlicePlan) -> None:
        records = self.records_of(plan)
        held = all_held(plan, records)
        before = self.state.position
        gone = self.slices.died(plan, held, self.now)
        self.exhausted += gone
        self.isolated -= {exhausted.sequence for exhausted in gone}
        moved = self.state.position != before
        assert moved == (plan.kind is SliceKind.CARRIED and plan.alone)
        if moved:
            assert held is not None
            self.page = self.page[held.count :]
        if not plan.alone or held is None or len(held.failures) != 1:
            assert not gone
            return
        first = next(record for record in records if record.sequence == held.failures[0].sequence)
        assert first.poison
        assert self.slices._isolation[False].is_isolated(first.sequence) != bool(gone)
        event("isolated" if not gone else "isolated and given up")
        self.lines.fail(first)
        if not gone:
            self.isolated.add(first.sequence)

    @precondition(lambda self: self.exhausted)
    @rule()
    def write_the_dead_letters(self) -> None:
        for gone in self.exhausted:
            assert self.state.dead_lettered(gone.sequence, self.now)
            self.records[gone.sequence.number - 1].finished = True
        self.exhausted.clear()

    def teardown(self) -> None:
        """Every poison record ends as a dead letter, every other one is acked."""
        if not hasattr(self, "state"):
            return
        for _ in range(100 + 40 * len(self.records)):
            self.now += 100.0
            self.fetch()
            self.plan()
            while self.out:
                first = self.out[0]
                self.run_job(
                    [first] if first.alone else [p for p in self.out if not p.alone], lambda: TreeVerdict.ACK
                )
            self.write_the_dead_letters()
            if all(record.finished for record in self.records):
                break
        assert all(record.finished for record in self.records)
        assert not self.slices._isolation[False]._isolated


TestIsolation = IsolationMachine.TestCase
TestIsolation.settings = settings(max_examples=40, stateful_step_count=20)
TestPoisonedShard = PoisonedShardMachine.TestCase
TestPoisonedShard.settings = settings(max_examples=60, stateful_step_count=30)
