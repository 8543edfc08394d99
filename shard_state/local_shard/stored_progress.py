"""What is stored of one shard, whether that is still all there is to store, and what to store next.

What is *dirty* is kept as a revision number: a commit takes a copy and its revision, and acks that arrive while it
is under way raise the revision, so the shard stays dirty (and is committed again) although that commit succeeds.
"""

from dataclasses import replace

from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.local_shard.counted_attempts import CountedAttempts
from shard_state.local_shard.guarantee import Claims, Guarantee, handed_out
from shard_state.sequence_number import SHARD_END
from shard_state.tracker.inflight_record_tracker import InflightRecordTracker


class StoredProgress:
    """The stored checkpoint of one owned shard, and the changes since. Mutable."""

    def __init__(self, checkpoint: Checkpoint, guarantee: Guarantee) -> None:
        self.stored = checkpoint
        self.claims = Claims()
        self.revision = 0
        """Raise it with every change of what would be stored."""
        self._committed_revision = 0
        self._guarantee = guarantee

    @property
    def is_dirty(self) -> bool:
        """Whether anything has changed since the last successful commit."""
        return self.revision != self._committed_revision

    def copy(
        self, tracker: InflightRecordTracker, attempts: CountedAttempts, *, epoch: int, app_instance: str
    ) -> Checkpoint:
        """Take a copy of the progress, to be stored under an epoch."""
        base, anchor = tracker.base, tracker.anchor
        if self._guarantee is Guarantee.AT_LEAST_ONCE:
            holes, counts = tracker.hole_map()
            counts = attempts.without_spared(counts)
        else:
            # Without an anchor, that of the holes is their own: nothing in them may come again.
            base, holes, counts = handed_out(tracker, self.stored.base)
            holes, counts = self.claims.added_to(base, holes, counts)
            anchor = None
        return Checkpoint(
            start=self.stored.start,
            base=base,
            holes=holes,
            anchor=anchor,
            attempts=counts,
            parents=self.stored.parents,
            epoch=epoch,
            app_instance=app_instance,
        )

    def at_end(self, app_instance: str) -> Checkpoint:
        """Give what is stored once the shard is over."""
        return replace(
            self.stored, base=SHARD_END, holes=(), attempts=(), anchor=None, app_instance=app_instance
        )

    def mark_committed(self, checkpoint: Checkpoint, revision: int) -> None:
        """Note that a copy taken at ``revision`` is stored."""
        self.stored = checkpoint
        self._committed_revision = revision
        self.claims.stored(checkpoint)
