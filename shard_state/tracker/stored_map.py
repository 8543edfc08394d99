"""The stored form of the ack map of one shard: holes, and the attempts of unfinished records."""

from collections.abc import Collection, Sequence

from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.checkpoint.hole_map import Attempts, Hole, within
from shard_state.sequence_number import SequenceNumber
from shard_state.tracker.record_life import RecordState
from shard_state.tracker.span import Span

StoredMap = tuple[tuple[Hole, ...], tuple[Attempts, ...]]


class Restored:
    """The stored holes and attempts of records that were not read again yet (invariant 11). Mutable."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._holes = list(checkpoint.holes)
        self._passed = 0
        """The number of holes that were read."""
        self._anchor = checkpoint.anchor
        self.attempts = dict(sorted(checkpoint.attempts))
        """The deliveries of each record, in shard order. Do not change it."""

    def __bool__(self) -> bool:
        """True if it may still say something of the next record."""
        return bool(self.holes_left or self.attempts or self._anchor)

    @property
    def holes(self) -> tuple[Hole, ...]:
        return tuple(self._holes[self._passed :])

    @property
    def holes_left(self) -> int:
        return len(self._holes) - self._passed

    @property
    def anchor(self) -> SequenceNumber | None:
        """The nearest record that is named here; None if none is."""
        if self._anchor is not None:
            return self._anchor
        nearest = next(iter(self.attempts), None)
        if self.holes_left:
            last = self._holes[self._passed][1]
            nearest = last if nearest is None else min(nearest, last)
        return nearest

    def was_finished(self, sequence: SequenceNumber) -> bool:
        return within(self._holes, sequence, self._passed)

    def read_up_to(self, last: SequenceNumber) -> None:
        """Forget what it says of the records up to ``last``: they have been read again."""
        self._anchor = None
        holes = self._holes
        while self._passed < len(holes) and holes[self._passed][1] <= last:
            self._passed += 1
        if self._passed < len(holes) and holes[self._passed][0] < last:
            holes[self._passed] = (last, holes[self._passed][1])
        while self.attempts:
            sequence = next(iter(self.attempts))
            if sequence > last:
                break
            del self.attempts[sequence]


def stored_map(
    base: SequenceNumber,
    head: Span | None,
    restored: Restored | None,
    done: Collection[RecordState],
    noted: Collection[SequenceNumber],
) -> StoredMap:
    """Give the holes beyond a base and the attempts, of what was read and of what was restored behind it.

    It is called for every shard of a commit, under a lock, so its loop does no more than it must.

    Args:
        base: of the shard.
        head: the first span beyond it.
        restored: what was stored of records that reading has not passed; None: nothing.
        done: the states of spans that count as finished.
        noted: records whose first delivery, under way, counts as an attempt.
    """
    holes: list[Hole] = []
    attempts: list[Attempts] = []
    after, span, was_done = base, head, False
    while span is not None:
        last = span.last
        if span.state in done:
            if was_done:
                after = holes.pop()[0]
            holes.append((after, last))
            was_done = True
        else:
            was_done = False
            counted = span.attempts if span.history is None else span.attempts - span.history.uncounted
            if counted > 0 and span.count == 1 and (not _is_first_delivery(span) or span.first in noted):
                attempts.append((span.first, counted))
        after, span = last, span.next
    if restored is not None:
        holes = _merged([*holes, *restored.holes])
        attempts.extend(restored.attempts.items())
    return tuple(holes), tuple(attempts)


def _is_first_delivery(span: Span) -> bool:
    return span.state is RecordState.IN_FLIGHT and span.attempts == 1


def _merged(holes: Sequence[Hole]) -> list[Hole]:
    merged: list[Hole] = []
    for after, last in holes:
        if merged and after <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((after, last))
    return merged
