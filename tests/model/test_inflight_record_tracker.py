"""InflightRecordTracker against a plain list of records, each with its state, through crashes and re-reads.

The oracle recomputes everything from that list: the base as the longest finished prefix, the holes as the
records finished beyond it, the counts by counting.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shard_state import (
    SHARD_START,
    Checkpoint,
    InflightRecordTracker,
    Position,
    RecordEvent,
    RecordState,
    SequenceNumber,
)
from shard_state.checkpoint.hole_map import within
from shard_state.tracker.record_life import TRANSITIONS
from shard_state.tracker.span import Carved

pytestmark = pytest.mark.no_second_run

IN_FLIGHT, WAITING, EXHAUSTED, FINISHED = RecordState
UNFINISHED = (IN_FLIGHT, WAITING, EXHAUSTED)


@dataclass
class Read:
    """A record that was handed out since the last restart."""

    state: RecordState
    attempts: int
    slice_first: SequenceNumber | None = None
    """The unsettled slice it belongs to."""


class TrackerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stream: list[SequenceNumber] = []
        self.written = 0
        self.checkpoint = Checkpoint(start=Position.trim_horizon())
        self.ever_finished: set[SequenceNumber] = set()
        self.start()

    def start(self) -> None:
        self.tracker = InflightRecordTracker(self.checkpoint)
        self.read: dict[SequenceNumber, Read] = {}
        self.base = self.checkpoint.base
        self.anchor = self.checkpoint.anchor
        self.unread_holes = self.checkpoint.holes
        self.unread_attempts = dict(self.checkpoint.attempts)

    # What the oracle says

    @property
    def ahead(self) -> list[SequenceNumber]:
        """What the stream holds after the last record read."""
        reached = max(self.read, default=self.checkpoint.base)
        return [record for record in self.stream if record > reached]

    def finished_prefix(self) -> SequenceNumber:
        base = self.checkpoint.base
        for record, read in self.read.items():
            if read.state is not FINISHED:
                break
            base = record
        return base

    def was_finished(self, record: SequenceNumber) -> bool:
        return any(after < record <= last for after, last in self.unread_holes)

    def expected_anchor(self) -> SequenceNumber | None:
        """The first unfinished record; else the stored anchor; else the nearest that the stored map names."""
        for record, read in self.read.items():
            if read.state is not FINISHED:
                return record
        if not self.read and self.anchor is not None:
            return self.anchor
        reached = max(self.read, default=self.checkpoint.base)
        named = [*(last for _, last in self.unread_holes), *self.unread_attempts]
        return min((place for place in named if place > reached), default=None)

    def meet_anchor(self, record: SequenceNumber) -> None:
        if any(read.state is not FINISHED for read in self.read.values()):
            return
        anchor = self.expected_anchor()
        fits = anchor is None or record <= anchor
        assert self.tracker.restored_anchor_read(record) == fits
        if not fits:
            self.unread_holes, self.unread_attempts = (), {}
            self.anchor = None

    # The stream

    @rule(step=st.integers(1, 3), parts=st.integers(0, 3))
    def write(self, step: int, parts: int) -> None:
        """Write a record, or an aggregate of ``parts`` user records."""
        self.written += step
        whole = [SequenceNumber(self.written)]
        self.stream.extend([SequenceNumber(self.written, part) for part in range(parts)] or whole)

    @rule(count=st.integers(1, 4))
    def trim(self, count: int) -> None:
        """Retention takes the oldest records that were not read."""
        for record in self.ahead[:count]:
            self.stream.remove(record)

    # Handing out

    @precondition(lambda self: self.ahead)
    @rule(hold=st.booleans())
    def emit(self, *, hold: bool) -> None:
        record = self.ahead[0]
        self.meet_anchor(record)
        finished = self.was_finished(record)
        assert self.tracker.was_finished(record) == finished
        delivered = self.unread_attempts.get(record, 0)
        assert self.tracker.attempts(record) == delivered
        if finished:
            assert record in self.ever_finished
            self.read[record] = Read(FINISHED, 0)
            self.tracker.emitted(record, state=FINISHED)
        elif hold:
            self.read[record] = Read(WAITING, delivered)
            self.tracker.emitted(record, attempts=delivered, state=WAITING)
        else:
            self.read[record] = Read(IN_FLIGHT, delivered + 1)
            self.tracker.emitted(record, attempts=delivered + 1)

    @precondition(lambda self: self.ahead)
    @rule(count=st.integers(1, 8))
    def emit_slice(self, count: int) -> None:
        taken = self.ahead[:count]
        self.meet_anchor(taken[0])
        self.tracker.emitted_span(taken[0], taken[-1], len(taken))
        for record in taken:
            self.read[record] = Read(IN_FLIGHT, 1, slice_first=taken[0])

    # Outcomes

    @precondition(lambda self: any(read.slice_first for read in self.read.values()))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        firsts = sorted({read.slice_first for read in self.read.values() if read.slice_first})
        first = data.draw(st.sampled_from(firsts))
        records = [record for record, read in self.read.items() if read.slice_first == first]
        carved: list[Carved] = []
        for index, record in enumerate(records):
            read = self.read[record]
            read.slice_first = None
            read.state = FINISHED
            # What was finished before the restart is skipped by the reader: it cannot fail.
            if not self.was_finished(record) and data.draw(st.booleans()):
                read.state = data.draw(st.sampled_from(UNFINISHED))
                # What is still out was delivered: at least once.
                read.attempts = data.draw(st.integers(int(read.state is IN_FLIGHT), 3))
                carved.append(
                    Carved(
                        index=index,
                        sequence=record,
                        previous=records[index - 1] if index else None,
                        state=read.state,
                        attempts=read.attempts,
                    )
                )
        assert self.tracker.settle(first, data.draw(st.permutations(carved)))

    @precondition(lambda self: self.read)
    @rule(data=st.data(), event=st.sampled_from(RecordEvent))
    def report(self, data: st.DataObject, event: RecordEvent) -> None:
        """Report anything of any record: late, twice, or out of place."""
        record = data.draw(st.sampled_from(list(self.read)))
        read = self.read[record]
        slice_of_one = (
            read.slice_first
            and sum(other.slice_first == read.slice_first for other in self.read.values()) == 1
        )
        is_together = read.slice_first and not slice_of_one
        expected = read.state if is_together else TRANSITIONS[read.state, event]
        written_out = event is RecordEvent.ACK and data.draw(st.booleans())
        if written_out:
            attempts = self.tracker.acked(record)
            changed = attempts is not None
            assert not changed or attempts == read.attempts
        else:
            changed = self.tracker.apply(record, event)
        assert changed == (expected is not read.state)
        if expected is read.state:
            return
        read.state, read.slice_first = expected, None
        read.attempts += {RecordEvent.REDELIVER: 1, RecordEvent.WITHDRAW: -1}.get(event, 0)

    @rule(number=st.integers(1, 30), event=st.sampled_from(RecordEvent))
    def report_an_unknown_record(self, number: int, event: RecordEvent) -> None:
        record = SequenceNumber(number)
        assume(record not in self.read)
        assert not self.tracker.apply(record, event)
        assert not self.tracker.settle(record)

    # Restarting

    @rule(max_bytes=st.sampled_from((10_000, 150)))
    def crash(self, max_bytes: int) -> None:
        """Go on from the stored form. Every record is finished in it, or read again (invariant 14)."""
        self.note_finished()
        holes, attempts = self.tracker.hole_map()
        stored = Checkpoint(
            start=self.checkpoint.start,
            base=self.tracker.base,
            holes=holes,
            anchor=self.tracker.anchor,
            attempts=attempts,
        )
        decoded = Checkpoint.decode(stored.encode(max_bytes))
        kept = len(decoded.holes)
        assert decoded == replace(stored, holes=holes[:kept], attempts=attempts[: len(decoded.attempts)])
        self.checkpoint = decoded
        self.start()

    def note_finished(self) -> None:
        self.ever_finished.update(record for record, read in self.read.items() if read.state is FINISHED)

    # Always

    @invariant()
    def base_is_the_longest_finished_prefix(self) -> None:
        assert self.tracker.base == self.finished_prefix()
        assert self.tracker.base >= self.base
        self.base = self.tracker.base

    @invariant()
    def every_record_is_in_exactly_one_state(self) -> None:
        states = [read.state for read in self.read.values()]
        assert self.tracker.in_flight == states.count(IN_FLIGHT)
        assert self.tracker.waiting == states.count(WAITING)
        assert self.tracker.exhausted == states.count(EXHAUSTED)
        assert self.tracker.unresolved == len(states) - states.count(FINISHED)
        for record, read in self.read.items():
            alone = read.state is not FINISHED and not read.slice_first
            if alone:
                assert self.tracker.state(record) is read.state
                assert self.tracker.attempts(record) == read.attempts
            elif read.state is FINISHED:
                assert self.tracker.state(record) is None

    @invariant()
    def hole_map_claims_exactly_what_is_finished(self) -> None:
        self.note_finished()
        holes, attempts = self.tracker.hole_map()
        ends = [end for hole in holes for end in hole]
        assert ends == sorted(set(ends))
        assert not ends or ends[0] >= self.tracker.base
        for record in self.stream:
            if record <= self.tracker.base:
                continue
            read = self.read.get(record)
            if read is None and self.read and record < max(self.read):
                continue
            finished = self.was_finished(record) if read is None else read.state is FINISHED
            assert within(holes, record) == finished
            assert not finished or record in self.ever_finished
        reached = max(self.read, default=SHARD_START)
        expected = {
            record: read.attempts
            for record, read in self.read.items()
            if read.state in UNFINISHED
            and read.attempts
            and not (read.state is IN_FLIGHT and read.attempts == 1)
        }
        expected.update({record: n for record, n in self.unread_attempts.items() if record > reached})
        assert dict(attempts) == expected
        assert list(dict(attempts)) == sorted(expected)

    @invariant()
    def memory_grows_with_what_is_unfinished(self) -> None:
        spans, previous = 0, None
        for record, read in self.read.items():
            if record > self.tracker.base:
                mark = read.state if read.state is FINISHED else (read.slice_first or record)
                spans += mark != previous
                previous = mark
        assert len(self.tracker._unresolved) + self.tracker.holes_read == spans

    @invariant()
    def the_anchor_is_the_nearest_record_that_is_known(self) -> None:
        assert self.tracker.anchor == self.expected_anchor()

    @invariant()
    def what_is_stored_beyond_the_base_has_an_anchor(self) -> None:
        assert self.tracker.anchor is not None or self.tracker.hole_map() == ((), ())


TestInflightRecordTracker = TrackerMachine.TestCase
TestInflightRecordTracker.settings = settings(max_examples=200, stateful_step_count=40)
