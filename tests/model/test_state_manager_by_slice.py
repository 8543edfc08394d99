"""StateManager under a shell that works slice by slice, like the micro-batch engine.

Jobs end in any order, die, and report late. ``shell_model`` has what else happens.
"""

from collections.abc import Callable, Collection
from itertools import count
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from shard_state import (
    Exhausted,
    Fate,
    SequenceNumber,
    SliceKind,
    SliceLimits,
    SlicePlan,
)
from shard_state.sequence_number import WHOLE
from tests.model.shell_model import ShellModel
from tests.model.stream_in_memory import (
    Delivered,
    StoredRecord,
    TreeVerdict,
    all_held,
    before,
    deliver_slice,
)

pytestmark = pytest.mark.no_second_run

KEYS = st.sampled_from((None, "a", "b"))
PAGE = 3

VerdictOf = Callable[[StoredRecord, int], TreeVerdict]


class SliceShell(ShellModel):
    LIMITS = SliceLimits(records=4, retries=3)

    def __init__(self) -> None:
        super().__init__()
        self.carried: dict[str, list[StoredRecord]] = {}
        """The pages that the driver holds."""
        self.out: list[SlicePlan] = []
        self.ended: list[Delivered] = []
        """Slices whose outcome was reported or given up: it may arrive again."""
        self.exhausted: list[Exhausted] = []
        self.isolated: set[tuple[str, SequenceNumber]] = set()

    def crash(self) -> None:
        for held in (self.carried, self.out, self.ended, self.exhausted, self.isolated):
            held.clear()

    # The stream

    @rule(
        data=st.data(),
        keys=st.lists(KEYS, min_size=1, max_size=4),
        poison=st.integers(0, 9),
        aggregated=st.booleans(),
    )
    def write(self, data: st.DataObject, keys: list[str | None], poison: int, *, aggregated: bool) -> None:
        """Write some records, or an aggregated one with as many inside."""
        shard_id = data.draw(st.sampled_from(self.stream.open_shards()))
        for at, key in enumerate(keys):
            self.stream.put(shard_id, key, poison=poison == at, sub=at if aggregated else WHOLE)

    # Owning

    def drop(self, shard_ids: set[str]) -> None:
        for shard_id in shard_ids:
            self.carried.pop(shard_id, None)
        self.exhausted = [gone for gone in self.exhausted if gone.shard_id not in shard_ids]
        self.isolated = {record for record in self.isolated if record[0] not in shard_ids}

    # Slice by slice

    @rule()
    def fetch(self) -> None:
        """The driver polls the shards at their tip."""
        for shard_id in self.manager.turns.round():
            if not self.manager.wants_page(shard_id) or shard_id in self.carried:
                continue
            state = self.manager.shard(shard_id)
            assert state is not None
            shard = self.stream.shards[shard_id]
            reached = state.position.sequence_number
            ahead = [record for record in shard.records if reached is None or record.sequence > reached]
            self.manager.page_fetched(shard_id, full=len(ahead) >= PAGE)
            wanted = before(state.bound, ahead[:PAGE])
            if wanted:
                self.carried[shard_id] = wanted
            elif ahead:
                self.manager.reach_bound(shard_id)
            elif shard.shard.closed:
                self.manager.end_read(shard_id)
            else:
                self.see_the_tip(shard_id)

    @rule()
    def plan(self) -> None:
        allowed = self.allowed
        self.send(self.manager.plan(self.now, self.held), allowed)
        assert not self.manager.plan(self.now, self.held)
        if allowed == inf:
            self.check_that_everybody_was_served()

    @rule(most=st.integers(0, 6))
    def plan_a_few(self, most: int) -> None:
        """Plan within a rate."""
        allowed = min(self.allowed, most)
        self.send(self.manager.plan(self.now, self.held, most=most), allowed)

    @property
    def allowed(self) -> float:
        """How many records may be handed out now."""
        return self.manager.blame.allowance(self.now) if self.manager.blame.is_slowed else inf

    @property
    def held(self) -> dict[str, int]:
        return {shard_id: len(page) for shard_id, page in self.carried.items()}

    def send(self, plans: list[SlicePlan], allowed: float) -> None:
        assert allowed == inf or sum(plan.most_deliveries for plan in plans) <= allowed
        for plan in plans:
            self.check_operator_pause(plan.shard_id)
            for other in self.out:
                same = (other.shard_id, other.epoch, other.is_fresh) == (
                    plan.shard_id,
                    plan.epoch,
                    plan.is_fresh,
                )
                assert not same
            for retry in plan.retries:
                if (plan.shard_id, retry.sequence) in self.isolated:
                    assert plan.alone
                    assert len(plan.retries) == 1
            self.out.append(plan)

    def check_that_everybody_was_served(self) -> None:
        """Every shard that may be read is being read now, whatever the others do (invariant 15)."""
        being_read = {(plan.shard_id, plan.epoch) for plan in self.out if plan.is_fresh}
        for shard_id in self.manager.owned:
            state = self.manager.shard(shard_id)
            assert state is not None
            wants_page = self.manager.wants_page(shard_id) and shard_id not in self.carried
            may_read = state.may_read and not self.operator_pause.covers(shard_id)
            assert (shard_id, state.epoch) in being_read or not may_read or wants_page

    @precondition(lambda self: self.out)
    @rule(data=st.data(), jobs=st.integers(1, 3), lag=st.booleans())
    def run_a_job(self, data: st.DataObject, jobs: int, *, lag: bool) -> None:
        """Run some of the planned slices as one job. One dead worker takes all of them down."""
        plans = [data.draw(st.sampled_from(self.out))]
        if not plans[0].alone:
            others = [plan for plan in self.out if not plan.alone and plan is not plans[0]]
            plans += others[: jobs - 1]
        verdicts = st.sampled_from((TreeVerdict.ACK, TreeVerdict.ACK, TreeVerdict.FAIL, TreeVerdict.REJECT))
        self.run_job(plans, lambda _record, _attempt: data.draw(verdicts), late=lag)

    def run_job(self, plans: list[SlicePlan], verdict: VerdictOf, *, late: bool = False) -> None:
        delivered = [self.deliver(plan, verdict) for plan in plans]
        self.out = [plan for plan in self.out if not any(plan is ran for ran in plans)]
        killers = [slice_.killed_by for slice_ in delivered if slice_.killed_by is not None]
        self.ended += [slice_ for slice_ in delivered if not killers]
        if killers or late:
            for slice_ in delivered:
                self.die(slice_.plan, alone=len(delivered) == 1, killer=slice_.killed_by)
        else:
            for slice_ in delivered:
                self.settle(slice_)

    def deliver(self, plan: SlicePlan, verdict: VerdictOf) -> Delivered:
        shard = self.stream.shards[plan.shard_id]
        # A job that outlived its ownership delivers in vain; another consumer's order is its own affair.
        current = self.is_current(plan)

        def on_delivery(record: StoredRecord, acked: Collection[SequenceNumber]) -> None:
            self.stream.check_parents_finished(record.shard_id)
            if current:
                self.lines.deliver(record, acked)

        def checked(record: StoredRecord, attempt: int) -> TreeVerdict:
            if current:
                self.check_bound(record.sequence)
                self.check_limit(record.shard_id, record.sequence, attempt)
            return verdict(record, attempt)

        records = self.records_of(plan)
        return deliver_slice(
            plan,
            records=records,
            closed=shard.shard.closed and records[-1:] == shard.after(plan)[-1:],
            order=self.order,
            verdict=checked,
            on_delivery=on_delivery,
        )

    def records_of(self, plan: SlicePlan) -> list[StoredRecord]:
        shard = self.stream.shards[plan.shard_id]
        if plan.kind is SliceKind.RETRY:
            return [self.stream.record(plan.shard_id, retry.sequence) for retry in plan.retries]
        ahead = shard.after(plan)
        if plan.kind is SliceKind.CARRIED and self.is_current(plan):
            page = self.carried[plan.shard_id]
            assert page == ahead[: len(page)]
            return page
        return ahead

    def is_current(self, plan: SlicePlan) -> bool:
        state = self.manager.shard(plan.shard_id)
        return state is not None and state.epoch == plan.epoch

    def settle(self, slice_: Delivered) -> None:
        if self.is_current(slice_.plan):
            for record in slice_.acked:
                record.finished = True
            for record in slice_.failed:
                self.lines.fail(record)
        exhausted = self.manager.settle(slice_.plan, slice_.outcome, self.now, delivered=slice_.delivered)
        self.exhausted += exhausted
        if self.is_current(slice_.plan):
            gone = {each.sequence for each in exhausted}
            attempts = {retry.sequence: retry.attempt for retry in slice_.plan.retries}
            for failure in slice_.outcome.failures:
                if not (failure.held or failure.fate is Fate.REJECTED):
                    sequence = failure.sequence
                    attempt = attempts.get(sequence, failure.attempt)
                    self.failed(slice_.plan.shard_id, sequence, attempt, gone=sequence in gone)
        if self.is_current(slice_.plan) and slice_.plan.kind is SliceKind.CARRIED:
            self.take_from_page(slice_.plan.shard_id, slice_.outcome.count)
        finished = {record.sequence for record in slice_.acked} | {gone.sequence for gone in exhausted}
        self.isolated -= {(slice_.plan.shard_id, sequence) for sequence in finished}

    def take_from_page(self, shard_id: str, count: int) -> None:
        self.carried[shard_id] = self.carried[shard_id][count:]
        if not self.carried[shard_id]:
            del self.carried[shard_id]

    def die(self, plan: SlicePlan, *, alone: bool, killer: StoredRecord | None) -> None:
        current = self.is_current(plan)
        records = self.records_of(plan)
        held = all_held(plan, records)
        waiting = self.unresolved(plan.shard_id)
        exhausted = self.manager.died(plan, held, self.now)
        self.exhausted += exhausted
        if not current:
            assert not exhausted
            return
        if plan.kind is SliceKind.CARRIED and held is not None:
            moved = len(held.failures) if plan.alone else 0
            assert self.unresolved(plan.shard_id) == waiting + moved
            if plan.alone:
                self.take_from_page(plan.shard_id, held.count)
        isolated = held is not None and plan.alone and alone and len(held.failures) == 1
        assert isolated or not exhausted
        if not isolated:
            return
        assert held is not None
        attempt = held.failures[0].attempt + 1 if plan.is_fresh else plan.retries[0].attempt
        self.failed(plan.shard_id, held.failures[0].sequence, attempt, gone=bool(exhausted))
        first = self.stream.record(plan.shard_id, held.failures[0].sequence)
        assert killer in (None, first)
        self.lines.fail(first)
        if not exhausted:
            self.isolated.add((plan.shard_id, first.sequence))

    def unresolved(self, shard_id: str) -> int:
        state = self.manager.shard(shard_id)
        return 0 if state is None else state.tracker.unresolved

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def an_outcome_arrives_again(self, data: st.DataObject) -> None:
        """Reported twice, or after the job was given up: harmless (invariant 5)."""
        slice_ = data.draw(st.sampled_from(self.ended))
        if any(plan == slice_.plan for plan in self.out):
            return
        before = self.manager.status()
        assert not self.manager.settle(slice_.plan, slice_.outcome, self.now)
        assert not self.manager.died(slice_.plan, None, self.now)
        assert self.manager.status() == before

    # Finishing

    @precondition(lambda self: self.exhausted)
    @rule(data=st.data())
    def write_a_dead_letter(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.exhausted))
        self.exhausted.remove(gone)
        record = self.stream.record(gone.shard_id, gone.sequence)
        record.finished = True
        assert self.manager.dead_lettered(gone.shard_id, gone.sequence, self.now)
        assert not self.manager.dead_lettered(gone.shard_id, gone.sequence, self.now)

    # Always

    @invariant()
    def the_manager_knows_what_is_out(self) -> None:
        current = [plan for plan in self.out if self.is_current(plan)]
        assert self.manager.idle == (not current)

    def deliver_all(self, fails: Callable[[int], bool]) -> None:
        handled = count()

        def verdict(_record: StoredRecord, _attempt: int) -> TreeVerdict:
            return TreeVerdict.FAIL if fails(next(handled)) else TreeVerdict.ACK

        self.fetch()
        self.plan()
        while self.out:
            plans = [self.out[0]] if self.out[0].alone else [plan for plan in self.out if not plan.alone]
            self.run_job(plans, verdict)

    def work_off(self) -> None:
        self.deliver_all(lambda _: False)
        while self.exhausted:
            gone = self.exhausted.pop()
            self.stream.record(gone.shard_id, gone.sequence).finished = True
            assert self.manager.dead_lettered(gone.shard_id, gone.sequence, self.now)


TestStateManagerBySlice = SliceShell.TestCase
TestStateManagerBySlice.settings = settings(max_examples=150, stateful_step_count=40)
