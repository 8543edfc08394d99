"""When a record counts as finished, as far as the checkpoint is concerned.

    AT_LEAST_ONCE   when it is acked, or its dead letter is durable
    AT_MOST_ONCE    before it is handed out: its owner *claims* the records that come next, and hands out none of
                    them before the claim is stored
    NONE            when it is handed out

Without AT_LEAST_ONCE a record is delivered once at most by its owner: one that fails is given up at once, and the
checkpoint does not wait for its dead letter. The tracker does not know of all this: a record is out, or given up,
until its outcome is known, and the end of a shard waits for that. Only what is stored differs.

A claim is stored as a hole that begins at the base: ``base ] hole ........ claimed ]``. After a crash nothing in
it is delivered. An owner that leaves in good order takes back what it did not hand out: the hole goes, and the
base, which never covered it, stays. So the checkpoint never goes back (invariant 1), and no record is skipped.
"""

from enum import StrEnum

from shard_state.checkpoint.checkpoint import Checkpoint, Hole
from shard_state.checkpoint.hole_map import Attempts
from shard_state.sequence_number import SHARD_START, SequenceNumber
from shard_state.tracker.inflight_record_tracker import InflightRecordTracker


class Guarantee(StrEnum):
    """The promise of how often a record is handed out if a process dies."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
    NONE = "none"


class Claims:
    """The claims of one ownership of a shard. Mutable."""

    def __init__(self) -> None:
        self._claimed = SHARD_START
        self._stored = SHARD_START

    def claim(self, first: SequenceNumber, last: SequenceNumber) -> bool:
        """Claim the records ``first`` .. ``last``, the next to be handed out; False if the first is claimed."""
        if first <= self._claimed:
            return False
        self._claimed = last
        return True

    def cover(self, sequence: SequenceNumber) -> bool:
        """Tell whether a record may be handed out: a claim on it is stored."""
        return sequence <= self._stored

    def end(self) -> None:
        """Take back the records that were not handed out. The next ones have to be claimed anew."""
        self._claimed = self._stored = SHARD_START

    def added_to(
        self, base: SequenceNumber, holes: tuple[Hole, ...], attempts: tuple[Attempts, ...]
    ) -> tuple[tuple[Hole, ...], tuple[Attempts, ...]]:
        """Give the holes and attempts beyond a base, with what is claimed among the holes."""
        claimed = self._claimed
        if claimed <= base:
            return holes, attempts
        beyond = [(max(after, claimed), last) for after, last in holes if last > claimed]
        first = (base, beyond.pop(0)[1] if beyond and beyond[0][0] == claimed else claimed)
        return (first, *beyond), tuple(counted for counted in attempts if counted[0] > claimed)

    def stored(self, checkpoint: Checkpoint) -> None:
        holes = checkpoint.holes
        stored = holes[0][1] if holes and holes[0][0] == checkpoint.base else checkpoint.base
        self._stored = min(stored, self._claimed)  # less, where the claims have ended meanwhile


def handed_out(
    tracker: InflightRecordTracker, floor: SequenceNumber
) -> tuple[SequenceNumber, tuple[Hole, ...], tuple[Attempts, ...]]:
    """Give the base, the holes and the attempts as if all that was handed out were finished.

    Args:
        tracker: of the shard.
        floor: the base does not go back behind it.
    """
    holes, attempts = tracker.hand_out_map()
    base = max(tracker.base, floor)
    while holes and holes[0][0] <= base:
        base = max(base, holes[0][1])
        holes = holes[1:]
    return base, holes, tuple(counted for counted in attempts if counted[0] > base)
