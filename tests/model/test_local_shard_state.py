"""LocalShardState, record by record and slice by slice, against a plain book of every record of one shard.

The book knows what was truly finished, over all restarts. Whatever is stored may never claim more, and at the
end of every run the shard is brought to its end: nothing may be left behind, and nothing may hang.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shard_state import (
    Capacity,
    Checkpoint,
    Counts,
    Exhausted,
    History,
    LocalShardState,
    OpenRecord,
    Order,
    Position,
    RecordState,
    Redelivery,
    Retry,
    RetryPolicy,
    SequenceNumber,
    Shard,
    ShardPhase,
    SliceOutcome,
    UnackedRecord,
)
from shard_state.checkpoint.checkpoint import fits
from shard_state.checkpoint.hole_map import within
from shard_state.local_shard.slice_settling import settle_fresh, settle_retries
from tests.model.stream_in_memory import fate_of

pytestmark = pytest.mark.no_second_run

KEYS = st.sampled_from((None, "a", "b"))
CAPACITY = Capacity(records=8, holes=5)


@dataclass
class Entry:
    """What the book says of a record that was read since the last restart."""

    state: RecordState
    attempts: int
    due_at: float = 0.0
    failed: bool = False


@dataclass
class Running:
    """A slice of retries that is being delivered."""

    retries: tuple[Redelivery, ...] = ()
    failures: list[UnackedRecord] = field(default_factory=list)


def block(blocked: set[str], key: str | None) -> None:
    if key is not None:
        blocked.add(key)


class LocalShardMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.stream: list[SequenceNumber] = []
        self.keys: dict[SequenceNumber, str | None] = {}
        self.finished: set[SequenceNumber] = set()
        self.exhausted: set[SequenceNumber] = set()
        """Given up, and the shell was told so; the dead letter is not written yet."""
        self.pending: list[tuple[Checkpoint, int]] = []

    @initialize(order=st.sampled_from(Order), limit=st.sampled_from((0, 1, 2, None)))
    def begin(self, order: Order, limit: int | None) -> None:
        self.order = order
        self.policy = RetryPolicy(limit=limit, backoff_seconds=4.0, cap_seconds=8.0)
        self.stored = Checkpoint(start=Position.trim_horizon()).encode()
        self.start(epoch=1)

    def start(self, epoch: int) -> None:
        checkpoint = replace(Checkpoint.decode(self.stored), epoch=epoch)
        self.shard = LocalShardState(
            Shard(shard_id="shard-0"),
            checkpoint,
            random=lambda: 0.5,
            retry=self.policy,
            order=self.order,
            capacity=CAPACITY,
        )
        self.read: dict[SequenceNumber, Entry] = {}
        self.failed_before = {sequence for sequence, _ in checkpoint.attempts}
        self.exhausted.clear()
        self.pending.clear()

    # What the book says

    def ahead(self) -> list[SequenceNumber]:
        reached = max(self.read, default=Checkpoint.decode(self.stored).base)
        return [sequence for sequence in self.stream if sequence > reached]

    def delivered(
        self, sequence: SequenceNumber, attempt: int, along: Collection[SequenceNumber] = ()
    ) -> None:
        """Check that a record may be delivered now, or behind those it goes ``along`` with."""
        assert self.policy.limit is None or attempt <= 1 + self.policy.limit
        for earlier, entry in self.read.items():
            if earlier >= sequence:
                break
            if earlier in along:
                continue
            same_key = self.keys[earlier] is not None and self.keys[earlier] == self.keys[sequence]
            in_the_way = self.order is Order.SHARD or (self.order is Order.KEY and same_key)
            assert not (in_the_way and entry.failed and entry.state is not RecordState.FINISHED)

    def finish(self, sequence: SequenceNumber) -> None:
        self.read[sequence].state = RecordState.FINISHED
        self.finished.add(sequence)
        self.exhausted.discard(sequence)

    def decided(self, sequence: SequenceNumber, decision: Retry | Exhausted, *, rejected: bool) -> None:
        """Check the decision upon a failure, and enter it."""
        entry = self.read[sequence]
        entry.failed = True
        over = rejected or (self.policy.limit is not None and entry.attempts > self.policy.limit)
        assert isinstance(decision, Exhausted) == over
        if isinstance(decision, Exhausted):
            assert decision.attempts == entry.attempts
            entry.state = RecordState.EXHAUSTED
            self.exhausted.add(sequence)
        else:
            entry.state = RecordState.WAITING
            entry.due_at = self.now + decision.delay_seconds

    # The stream and the clock

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), aggregated=st.booleans())
    def write(self, keys: list[str | None], *, aggregated: bool) -> None:
        """Write some records, or an aggregated one with as many inside."""
        number = 10 * len(self.stream) + 10
        for at, key in enumerate(keys):
            sequence = SequenceNumber(number, at) if aggregated else SequenceNumber(number + 10 * at)
            self.stream.append(sequence)
            self.keys[sequence] = key

    @rule(seconds=st.integers(1, 10))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    # Record by record

    @precondition(lambda self: self.shard.may_read and self.ahead())
    @rule()
    def emit(self) -> None:
        sequence = self.ahead()[0]
        failed = sequence in self.failed_before and bool(self.shard.tracker.restored_attempts)
        emission = self.shard.emit(sequence, self.keys[sequence], self.now)
        if emission.deliver:
            self.delivered(sequence, emission.attempt)
            self.read[sequence] = Entry(RecordState.IN_FLIGHT, emission.attempt, failed=failed)
        elif emission.held:
            self.read[sequence] = Entry(RecordState.WAITING, emission.attempt, self.now)
        else:
            assert sequence in self.finished
            self.read[sequence] = Entry(RecordState.FINISHED, 0)

    @precondition(lambda self: self.read)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """Ack anything, whatever its state: late, twice."""
        sequence = data.draw(st.sampled_from(list(self.read)))
        unfinished = self.read[sequence].state is not RecordState.FINISHED
        assert (self.shard.ack(sequence, self.now) is not None) == unfinished
        self.finish(sequence)

    @precondition(lambda self: self.read)
    @rule(
        data=st.data(),
        rejected=st.booleans(),
    )
    def fail(self, data: st.DataObject, *, rejected: bool) -> None:
        """Fail any delivery of anything, whatever its state: late, twice."""
        sequence = data.draw(st.sampled_from(list(self.read)))
        attempts = self.read[sequence].attempts
        attempt = data.draw(st.sampled_from((attempts, attempts - 1, attempts + 1)))
        self.fail_one(sequence, attempt, rejected=rejected)

    def fail_one(self, sequence: SequenceNumber, attempt: int, *, rejected: bool) -> None:
        decision = self.shard.fail(
            sequence,
            self.now,
            attempt=attempt,
            fate=fate_of(rejected=rejected),
            partition_key=self.keys[sequence],
        )
        entry = self.read[sequence]
        assert (decision is None) == (entry.state is not RecordState.IN_FLIGHT or entry.attempts != attempt)
        if decision is not None:
            self.decided(sequence, decision, rejected=rejected)

    @precondition(lambda self: self.read)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(list(self.read)))
        self.shard.withdraw(sequence, self.keys[sequence])
        entry = self.read[sequence]
        if entry.state is RecordState.IN_FLIGHT:
            entry.state, entry.due_at = RecordState.WAITING, self.now
            entry.attempts -= 1

    @precondition(lambda self: self.read)
    @rule(data=st.data())
    def dead_letter(self, data: st.DataObject) -> None:
        """Report a dead letter of anything; only a given-up record is finished by it (invariant 6)."""
        sequence = data.draw(st.sampled_from(list(self.read)))
        assert self.shard.dead_lettered(sequence, self.now) == (sequence in self.exhausted)
        if sequence in self.exhausted:
            self.finish(sequence)

    @rule(limit=st.integers(1, 4), whole_lines=st.booleans())
    def retry(self, limit: int, *, whole_lines: bool) -> None:
        self.take(limit, whole_lines=whole_lines)

    def take(self, limit: int, *, whole_lines: bool) -> tuple[Redelivery, ...]:
        taken = self.shard.take_retries(self.now, limit, whole_lines=whole_lines)
        assert len(taken) <= limit
        along: set[SequenceNumber] = set()
        for retry in taken:
            entry = self.read[retry.sequence]
            assert entry.state is RecordState.WAITING
            assert entry.due_at <= self.now
            assert retry.attempt == entry.attempts + 1
            # The reader of a slice delivers a line in its order, and holds what comes behind a failure.
            self.delivered(retry.sequence, retry.attempt, along=along)
            along.add(retry.sequence)
            entry.state, entry.attempts = RecordState.IN_FLIGHT, retry.attempt
        assert [retry.sequence for retry in taken] == sorted(along) or self.order is not Order.SHARD
        return taken

    # Slice by slice

    @precondition(lambda self: self.shard.may_read and self.ahead())
    @rule(limit=st.integers(1, 5), data=st.data())
    def run_fresh_slice(self, limit: int, data: st.DataObject) -> None:
        """Read on as an executor does: skip what the plan says, hold what must wait, deliver the rest."""
        tracker = self.shard.tracker
        holes, attempts = tracker.restored_holes, dict(self.shard.restored_attempts)
        blocked = set(self.shard.retries.blocked_keys)
        room = self.shard.max_failures
        records = self.ahead()[:limit]
        if not self.read and not fits(tracker.anchor, records[0]):
            holes, attempts = (), {}
        failures: list[UnackedRecord] = []
        still_open: list[OpenRecord] = []
        rejections: dict[SequenceNumber, bool] = {}
        read: list[SequenceNumber] = []
        for sequence in records:
            if len(failures) + len(still_open) >= room:
                break
            previous = read[-1] if read else None
            index, key = len(read), self.keys[sequence]
            read.append(sequence)
            if within(holes, sequence):
                assert sequence in self.finished
                self.read[sequence] = Entry(RecordState.FINISHED, 0)
                continue
            attempt = attempts.get(sequence, 0)
            held = self.holds(failures, still_open) or (self.order is Order.KEY and key in blocked)
            self.read[sequence] = Entry(RecordState.WAITING, attempt, self.now)
            if not held:
                attempt += 1
                self.delivered(sequence, attempt)
                self.read[sequence].attempts = attempt
                said = data.draw(st.sampled_from(("ack", "open", "fail")))
                if said == "ack":
                    self.finish(sequence)
                    continue
                if said == "open":
                    self.read[sequence].state = RecordState.IN_FLIGHT
                    self.read[sequence].failed = attempt > 1
                    still_open.append(
                        OpenRecord(
                            index=index,
                            sequence=sequence,
                            previous=previous,
                            attempt=attempt,
                            partition_key=key,
                        )
                    )
                    if attempt > 1:
                        block(blocked, key)
                    continue
                rejections[sequence] = data.draw(st.booleans())
            failures.append(
                UnackedRecord(
                    index=index,
                    sequence=sequence,
                    previous=previous,
                    attempt=attempt,
                    fate=fate_of(held=held, rejected=rejections.get(sequence, False)),
                    partition_key=key,
                )
            )
            block(blocked, key)
        outcome = SliceOutcome(
            first=read[0],
            last=read[-1],
            count=len(read),
            failures=tuple(failures),
            open_records=tuple(still_open),
        )
        exhausted = {gone.sequence: gone for gone in settle_fresh(self.shard, outcome, self.now)}
        assert tracker.holes_read <= CAPACITY.holes
        for sequence, rejected in rejections.items():
            decision = exhausted.get(sequence) or self.expected_retry(sequence)
            self.decided(sequence, decision, rejected=rejected)

    def holds(self, failures: list[UnackedRecord], still_open: list[OpenRecord]) -> bool:
        """Tell whether the whole shard waits behind what a slice has met."""
        failed_before = any(delivery.attempt > 1 for delivery in still_open)
        return self.order is Order.SHARD and (bool(failures) or failed_before)

    def expected_retry(self, sequence: SequenceNumber) -> Retry:
        failed = History(0.0, 0.0, Counts(), failures=self.read[sequence].attempts)
        return self.policy.after(failed, random=0.5)

    @rule(limit=st.integers(1, 5), data=st.data())
    def run_slice_of_retries(self, limit: int, data: st.DataObject) -> None:
        still_open: list[OpenRecord] = []
        running = Running(retries=self.take(limit, whole_lines=True))
        stopped: set[str | None] = set()
        rejections: dict[SequenceNumber, bool] = {}
        for index, retry in enumerate(running.retries):
            sequence, key = retry.sequence, self.keys[retry.sequence]
            held = (self.order is Order.SHARD and bool(stopped)) or (
                self.order is Order.KEY and key in stopped
            )
            said = data.draw(st.sampled_from(("ack", "open", "fail")))
            if not held and said == "ack":
                continue
            if not held and said == "open":
                still_open.append(
                    OpenRecord(index=index, sequence=sequence, previous=None, attempt=retry.attempt)
                )
                continue
            if held or key is not None or self.order is Order.SHARD:
                stopped.add(key)
            if not held:
                rejections[sequence] = data.draw(st.booleans())
            running.failures.append(
                UnackedRecord(
                    index=index,
                    sequence=sequence,
                    previous=None,
                    attempt=retry.attempt,
                    fate=fate_of(held=held, rejected=rejections.get(sequence, False)),
                    partition_key=key,
                )
            )
        failures = tuple(data.draw(st.permutations(running.failures)))
        outcome = SliceOutcome(failures=failures, open_records=tuple(still_open))
        exhausted = {
            gone.sequence: gone for gone in settle_retries(self.shard, running.retries, outcome, self.now)
        }
        for failure in failures:
            entry = self.read[failure.sequence]
            if failure.held:
                entry.state, entry.due_at = RecordState.WAITING, self.now
                entry.attempts -= 1
            else:
                decision = exhausted.get(failure.sequence) or self.expected_retry(failure.sequence)
                self.decided(failure.sequence, decision, rejected=rejections[failure.sequence])
        for sequence in {retry.sequence for retry in running.retries} - outcome.unfinished:
            self.finish(sequence)

    # Committing, crashing

    @rule()
    def begin_commit(self) -> None:
        checkpoint = self.shard.checkpoint("application")
        self.pending.append((checkpoint, self.shard.revision))

    @precondition(lambda self: self.pending)
    @rule()
    def end_commit(self) -> None:
        checkpoint, revision = self.pending.pop(0)
        before = Checkpoint.decode(self.stored)
        assert checkpoint.base >= before.base
        self.stored = checkpoint.encode()
        self.check_claims(checkpoint)
        self.shard.mark_committed(checkpoint, revision)

    def check_claims(self, checkpoint: Checkpoint) -> None:
        """Nothing is claimed that is not finished, so that a crash now loses nothing (invariants 6, 14)."""
        for sequence in self.stream:
            if sequence <= checkpoint.base or within(checkpoint.holes, sequence):
                assert sequence in self.finished

    @rule()
    def crash(self) -> None:
        self.start(self.shard.epoch + 1)

    # Always

    @invariant()
    def everything_read_is_in_its_state(self) -> None:
        tracker = self.shard.tracker
        for sequence, entry in self.read.items():
            finished = entry.state is RecordState.FINISHED
            assert tracker.state(sequence) is (None if finished else entry.state)
            if not finished:
                assert tracker.attempts(sequence) == entry.attempts
        unresolved = [e for e in self.read.values() if e.state is not RecordState.FINISHED]
        assert tracker.unresolved == len(unresolved) <= CAPACITY.records

    @invariant()
    def what_could_be_stored_claims_only_what_is_finished(self) -> None:
        self.check_claims(self.shard.checkpoint("application"))

    @invariant()
    def clean_means_stored(self) -> None:
        now, stored = self.shard.checkpoint("application"), Checkpoint.decode(self.stored)
        if not self.shard.is_dirty:
            assert (now.base, now.holes, now.attempts) == (stored.base, stored.holes, stored.attempts)

    @invariant()
    def a_shard_never_stops_for_good(self) -> None:
        states = {entry.state for entry in self.read.values()}
        if not states - {RecordState.FINISHED} and self.shard.phase is ShardPhase.READING:
            assert self.shard.may_read
            assert self.shard.room
        if states <= {RecordState.FINISHED, RecordState.WAITING} and RecordState.WAITING in states:
            next_due = self.shard.retries.next_due()
            assert next_due is not None
            assert self.shard.retries.first_due(next_due) is not None

    def teardown(self) -> None:
        """Bring the shard to its end: every record finished, and that stored."""
        if not hasattr(self, "shard"):
            return
        for _ in range(20 + 10 * len(self.stream)):
            self.now += 100.0
            for sequence in [s for s, e in self.read.items() if e.state is RecordState.IN_FLIGHT]:
                self.shard.ack(sequence, self.now)
                self.finish(sequence)
            for sequence in sorted(self.exhausted):
                assert self.shard.dead_lettered(sequence, self.now)
                self.finish(sequence)
            self.take(4, whole_lines=False)
            if self.shard.may_read and self.ahead():
                self.emit()
        assert self.finished == set(self.stream)
        if self.shard.phase is ShardPhase.READING:
            self.shard.end_read()
        assert self.shard.checkpoint("application").is_shard_end
        self.pending.clear()
        self.begin_commit()
        self.end_commit()
        assert self.shard.phase is ShardPhase.OVER
        assert not self.shard.is_dirty


TestLocalShardState = LocalShardMachine.TestCase
TestLocalShardState.settings = settings(max_examples=200, stateful_step_count=40)
