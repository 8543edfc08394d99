"""What was stored before a restart of records that have not been read again yet (invariant 11)."""

from bisect import bisect_left
from collections.abc import Sequence

from shard_state.checkpoint.checkpoint import Checkpoint, Hole
from shard_state.sequence_number import SequenceNumber


class Restored:
    """The stored holes and attempts beyond what was read. Mutable: reading passes them one by one."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._holes = list(checkpoint.holes)
        self._passed = 0
        """So many of the holes were read."""
        self._anchor = checkpoint.anchor
        self.attempts = dict(sorted(checkpoint.attempts))
        """How often records were delivered, in their order. Do not change it."""

    def __bool__(self) -> bool:
        """Whether it may still say something of the next record."""
        return bool(self.holes_left or self.attempts or self._anchor)

    @property
    def holes(self) -> tuple[Hole, ...]:
        """The holes that reading has not passed."""
        return tuple(self._holes[self._passed :])

    @property
    def holes_left(self) -> int:
        """How many these are."""
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
        """Tell whether a record that is read again was finished before the restart."""
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


def within(holes: Sequence[Hole], sequence: SequenceNumber, lowest: int = 0) -> bool:
    """Tell whether a record lies in one of the holes, from ``lowest`` on."""
    at = bisect_left(holes, sequence, lowest, key=lambda hole: hole[1])
    return at < len(holes) and holes[at][0] < sequence
