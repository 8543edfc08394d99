"""The state of each record of one shard that was handed out: the linked ack map.

The records of a shard, in order, form a doubly linked list of *spans*: runs of consecutive records that share
one state. Neighbouring finished spans merge, so the list holds unresolved records and the holes between them,
never the finished records themselves. The finished span at the head is the checkpoint's growth: it is cut off
and its last record becomes the base.

    base ]  IN_FLIGHT 7  | FINISHED 8..90 | WAITING 91 | FINISHED 92..400 | IN_FLIGHT 401..500
            ^ anchor       hole                          hole

A span reaches from just after its predecessor's last record (the base, for the head) to its own last record.
So a hole is a half-open range ``(after, last]``, and cutting a record out of a span needs to know only the
record before it. That is what makes a slice of 10,000 records that was acked on an executor O(1) here, and
one with k failures O(k log k): the driver never learns of the records in between.

Records are handed out in two ways, and each has its operations:

* one by one (``emitted``): then ``apply`` moves that record through the table of ``record_life``;
* as a span of many (``emitted_span``): then ``settle`` says, once, which of them failed and which are still
  open; those become records of their own, for ``apply``, and all others are finished.

Emitting a record and acking it happen far more often than all else together. ``acked`` therefore is ``apply``
with ACK written out, without the table: any unfinished record that stands alone becomes finished. A test
holds it to the table.

After a restart the stored holes and attempts are *restored*: they speak of records that have not been read
again yet. They are kept apart from the list (``restored``) until reading has passed them; the stored form is made
of both.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from shard_state.blame import History
from shard_state.checkpoint.checkpoint import Checkpoint, Hole, fits
from shard_state.errors import OutOfOrder
from shard_state.sequence_number import SequenceNumber
from shard_state.tracker.record_life import TRANSITIONS, RecordEvent, RecordState
from shard_state.tracker.span import Carved, Deadlines, Span
from shard_state.tracker.stored_map import Restored, StoredMap, stored_map

# Looked up in the module, not in the enum: there each costs more than to compare two sequence numbers.
_IN_FLIGHT, _WAITING, _EXHAUSTED, _FINISHED = RecordState

_HANDED_OUT: Final = (_IN_FLIGHT, _EXHAUSTED, _FINISHED)
_NO_ATTEMPTS: Final[Mapping[SequenceNumber, int]] = {}


class InflightRecordTracker:
    """The ack map of one shard. Mutable; not thread-safe; see the module's text for the theory."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.base = checkpoint.base
        """The last record of the finished prefix: it never decreases (invariant 1)."""
        self._head: Span | None = None
        self._tail: Span | None = None
        self._unresolved: dict[SequenceNumber, Span] = {}
        """The unfinished spans, by their first record."""
        self.unresolved = 0
        """The number of handed-out records that are not finished."""
        self.waiting = 0
        """The number of records that wait for another delivery."""
        self.exhausted = 0
        """The number of records that are given up and not yet durably dead-lettered."""
        self.noted: set[SequenceNumber] = set()
        """Records whose first delivery counts as an attempt while it is under way."""
        self._deadlines = Deadlines()
        self.holes_read = 0
        """The number of finished spans beyond the base that were read since the restart."""
        self.restored: Restored | None = Restored(checkpoint) or None
        """The stored map; None when it says nothing more of the next record."""

    # Queries

    @property
    def last_emitted(self) -> SequenceNumber:
        """The last record handed out, or the base."""
        return self.base if self._tail is None else self._tail.last

    @property
    def anchor(self) -> SequenceNumber | None:
        """The nearest record beyond the base that is known: the first unfinished one, if it was read.

        While all that was read is finished, nobody knows what comes next, but what was restored names records
        that come later. None if it names none.
        """
        if self._head is not None:
            return self._head.first
        return None if self.restored is None else self.restored.anchor

    @property
    def in_flight(self) -> int:
        return self.unresolved - self.waiting - self.exhausted

    @property
    def holes(self) -> int:
        """The number of finished spans beyond the base."""
        return self.holes_read + (0 if self.restored is None else self.restored.holes_left)

    def state(self, sequence: SequenceNumber) -> RecordState | None:
        """Tell the state of an unfinished record that stands alone; None for any other."""
        span = self._unresolved.get(sequence)
        return None if span is None or span.count > 1 else span.state

    def attempts(self, sequence: SequenceNumber) -> int:
        """Tell how often a record was delivered so far, before the restart included."""
        span = self._unresolved.get(sequence)
        return self.restored_attempts.get(sequence, 0) if span is None else span.attempts

    def history(self, sequence: SequenceNumber) -> History | None:
        """Tell what is known of a record that failed."""
        span = self._unresolved.get(sequence)
        return None if span is None else span.history

    def remember(self, sequence: SequenceNumber, history: History) -> None:
        """Note what is known of an unfinished record that stands alone."""
        self._unresolved[sequence].history = history

    # Handing out

    def emitted(
        self,
        sequence: SequenceNumber,
        *,
        attempts: int = 1,
        state: RecordState = _IN_FLIGHT,
        deadline: float | None = None,
    ) -> None:
        """Note that a record was handed out (or, with another ``state``, read and already decided upon).

        Raises:
            OutOfOrder: it does not come after every record handed out before.
        """
        span = Span(sequence, sequence, 1, state, attempts)
        self._append(span)
        if deadline is not None:
            self._deadlines.start(span, deadline, self.unresolved)

    def emitted_span(
        self,
        first: SequenceNumber,
        last: SequenceNumber,
        count: int,
        *,
        state: RecordState = _IN_FLIGHT,
    ) -> None:
        """Note that ``count`` (1 or more) consecutive records were handed out together (FINISHED: and acked).

        Raises:
            OutOfOrder: they do not come after every record handed out before.
        """
        if count < 1 or last < first or (count == 1) != (first == last):
            raise OutOfOrder(f"expected first <= last, got {first}..{last} with {count} records")
        self._append(Span(first, last, count, state, 1))

    # Time-outs

    def start_deadline(self, sequence: SequenceNumber, deadline: float) -> None:
        """Let the delivery of a record that is in flight by itself time out, no earlier than those before it."""
        self._deadlines.start(self._unresolved[sequence], deadline, self.unresolved)

    def stop_deadline(self, sequence: SequenceNumber) -> None:
        """Let the delivery of a record in flight by itself not time out, until its deadline starts anew."""
        self._unresolved[sequence].deadline = None

    @property
    def next_deadline(self) -> float | None:
        span = self._deadlines.next()
        return None if span is None else span.deadline

    def expired(self, now: float) -> list[SequenceNumber]:
        """Name the records whose delivery timed out, the earliest first; each delivery only once."""
        late: list[SequenceNumber] = []
        while (span := self._deadlines.next()) is not None:
            assert span.deadline is not None
            if span.deadline > now:
                break
            span.deadline = None
            late.append(span.first)
        return late

    # Outcomes

    def acked(self, sequence: SequenceNumber) -> int | None:
        """Do what ``apply`` does with ACK, for less; returns its attempts, or None where that changes nothing."""
        span = self._unresolved.pop(sequence, None)
        if span is None:
            return None
        if span.count > 1:
            self._unresolved[sequence] = span
            return None
        if span.state is not _IN_FLIGHT:
            self._count(span, -1)
        else:
            self.unresolved -= 1
        span.deadline = None
        self._finish(span)
        return span.attempts

    def apply(self, sequence: SequenceNumber, event: RecordEvent) -> bool:
        """Move a record through the table.

        Returns:
            True if that changed anything. A record that is finished, unknown, or still part of an unsettled
            span stays as it is.
        """
        span = self._unresolved.get(sequence)
        if span is None or span.count > 1:
            return False
        state = TRANSITIONS[span.state, event]
        if state is span.state:
            return False
        self._count(span, -1)
        span.state = state
        span.deadline = None
        self._count(span, +1)
        if event is RecordEvent.REDELIVER:
            span.attempts += 1
        elif event is RecordEvent.WITHDRAW:
            span.attempts -= 1
        if state is _FINISHED:
            del self._unresolved[sequence]
            self._finish(span)
        return True

    def redelivered(self, sequences: Iterable[SequenceNumber]) -> list[tuple[SequenceNumber, int]]:
        """Do what ``apply`` does with REDELIVER, for less; returns those that it changed, with their attempts."""
        changed: list[tuple[SequenceNumber, int]] = []
        for sequence in sequences:
            span = self._unresolved.get(sequence)
            if span is None or span.state is not _WAITING:
                continue
            span.state = _IN_FLIGHT
            span.attempts += 1
            span.deadline = None
            changed.append((sequence, span.attempts))
        self.waiting -= len(changed)
        return changed

    def settle(self, first: SequenceNumber, carved: Sequence[Carved] = ()) -> bool:
        """Finish the span that begins with ``first``, but for the records in ``carved``.

        Costs O(1) without carved records, else O(k log k).

        Returns:
            False if there is no such span in flight: it was settled before.

        Raises:
            OutOfOrder: the carved records do not fit into the span; nothing was changed.
        """
        span = self._unresolved.get(first)
        if span is None or span.state is not _IN_FLIGHT:
            return False
        pieces = span.pieces(carved) if carved else []
        self.unresolved -= span.count
        span.deadline = None
        del self._unresolved[first]
        if carved:
            self._replace(span, pieces)
        else:
            self._finish(span)
        return True

    def restored_anchor_read(self, first_read: SequenceNumber) -> bool:
        """Compare the first record read after the base with the stored anchor (invariant 11).

        If reading begins beyond it, the stored holes and attempts speak of another history and are dropped.

        Returns:
            True if they were kept.
        """
        if self.restored is None or self._head is not None or fits(self.anchor, first_read):
            return True
        self.restored = None
        return False

    @property
    def restored_holes(self) -> tuple[Hole, ...]:
        return () if self.restored is None else self.restored.holes

    @property
    def restored_attempts(self) -> Mapping[SequenceNumber, int]:
        """The stored attempt counts of records that were not read again yet."""
        return _NO_ATTEMPTS if self.restored is None else self.restored.attempts

    def was_finished(self, sequence: SequenceNumber) -> bool:
        return self.restored is not None and self.restored.was_finished(sequence)

    # The stored form

    def hole_map(self) -> StoredMap:
        return stored_map(self.base, self._head, self.restored, (_FINISHED,), self.noted)

    def hand_out_map(self) -> StoredMap:
        """Give the same as if all that was handed out were finished. The first hole may begin at the base."""
        return stored_map(self.base, self._head, self.restored, _HANDED_OUT, ())

    # The list

    def _append(self, span: Span) -> None:
        first, tail = span.first, self._tail
        if tail is None:
            if first <= self.base:
                raise self._out_of_order(first)
            self._head = span
        else:
            if first <= tail.last:
                raise self._out_of_order(first)
            tail.next = span
            span.prev = tail
        self._tail = span
        if span.state is _IN_FLIGHT:
            self._unresolved[first] = span
            self.unresolved += span.count
        elif span.state is _FINISHED:
            self._finish(span)
        else:
            self._unresolved[first] = span
            self._count(span, +1)
        if self.restored is not None:
            self.restored.read_up_to(span.last)
            self.restored = self.restored or None

    def _out_of_order(self, sequence: SequenceNumber) -> OutOfOrder:
        return OutOfOrder(
            f"expected a record after {self.last_emitted}, got {sequence}: "
            "a shard is handed out in its order, each record once"
        )

    def _finish(self, span: Span) -> None:
        """Merge a span that has just become finished into its neighbours, or into the base."""
        before, behind = span.prev, span.next
        if behind is not None and behind.state is _FINISHED:
            span.last = behind.last
            behind = behind.next
            self.holes_read -= 1
        if before is None:
            self.base = span.last
            self._head = behind
        elif before.state is _FINISHED:
            before.last = span.last
            before.next = behind
        else:
            span.state = _FINISHED
            span.next = behind
            before.next = before = span
            self.holes_read += 1
        if behind is None:
            self._tail = before
        else:
            behind.prev = before

    def _replace(self, span: Span, pieces: list[Span]) -> None:
        before, behind = span.prev, span.next
        for piece in pieces:
            piece.prev = before
            if before is None:
                self._head = piece
            else:
                before.next = piece
            before = piece
            if piece.state is not _FINISHED:
                self._unresolved[piece.first] = piece
                self._count(piece, +1)
        assert before is not None
        before.next = behind
        if behind is None:
            self._tail = before
        else:
            behind.prev = before
        for piece in pieces:
            if piece.state is _FINISHED:
                self._finish(piece)

    def _count(self, span: Span, sign: int) -> None:
        if span.state is _FINISHED:
            return
        self.unresolved += sign * span.count
        if span.state is _WAITING:
            self.waiting += sign
        elif span.state is _EXHAUSTED:
            self.exhausted += sign
