"""How far one owned shard is read: its phase, its room, its bound, the claims on it, and what of it is stored.

What becomes of each of its records is ``local_shard_state``'s.

What is *dirty* is kept as a revision number: a commit takes a copy and its revision, and acks that arrive while it
is under way raise the revision, so the shard stays dirty (and is committed again) although that commit succeeds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.errors import OutOfOrder
from shard_state.local_shard.counted_attempts import CountedAttempts
from shard_state.local_shard.guarantee import Claims, Guarantee, handed_out
from shard_state.position import Position
from shard_state.retries.ordered_retries import Order, OrderedRetries
from shard_state.retries.retry_policy import RetryPolicy
from shard_state.run_bounds import ShardBound
from shard_state.sequence_number import SHARD_END, SequenceNumber
from shard_state.shards.life_cycle import ShardEvent, ShardPhase, next_phase
from shard_state.shards.lineage import Shard
from shard_state.tracker.inflight_record_tracker import InflightRecordTracker

CONGESTED_SHARE: Final = 0.75
"""Of a cap: above it new reads pause, retries go on (invariant 12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much may be tracked per shard."""

    records: int = 20_000
    """Handed out and not finished."""
    holes: int = 2_000
    """Finished runs beyond the checkpoint, among the records read since the restart. What was restored is not
    counted: it is bounded already, and reading is what closes it."""

    def __post_init__(self) -> None:
        if self.records < 1 or self.holes < 1:
            raise ValueError(
                f"expected room for at least 1 record and 1 hole, got {self}: nothing could be read"
            )


class ShardReading:
    """How far one shard is read and stored. Mutable; not thread-safe. Its arguments are ``StateManager``'s."""

    def __init__(
        self,
        shard: Shard,
        checkpoint: Checkpoint,
        *,
        retry: RetryPolicy,
        random: Callable[[], float],
        order: Order,
        capacity: Capacity,
        message_timeout_seconds: float | None = None,
        guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
        bound: ShardBound | None = None,
    ) -> None:
        self.shard = shard
        self.epoch = checkpoint.epoch
        self.phase = next_phase(ShardPhase.READY, ShardEvent.ACQUIRED)
        self.tracker = InflightRecordTracker(checkpoint)
        self.retries = OrderedRetries(order)
        self._order = order
        self._timeout_seconds = message_timeout_seconds
        self._guarantee = guarantee
        self.bound = bound
        """Up to where this run reads; None: on and on."""
        self._is_plain = guarantee is Guarantee.AT_LEAST_ONCE and bound is None
        """Whether to hand out a record that nothing blocks changes nothing but the tracker."""
        self._attempts = CountedAttempts(retry, guarantee, random)
        self._capacity = capacity
        self._stored = checkpoint
        self._claims = Claims()
        self.revision = 0
        """Grows with every change of what would be stored. Give it back to ``mark_committed`` with a copy."""
        self._committed_revision = 0
        self._look_for_bound()

    # Reading

    @property
    def position(self) -> Position:
        """Where the next fresh record comes from."""
        return self._stored.start.advanced_to(self.tracker.last_emitted)

    @property
    def room(self) -> int:
        return max(0, self._capacity.records - self.tracker.unresolved)

    @property
    def max_failures(self) -> int:
        """How many records of the next slice may fail: each leaves one more unresolved, and one hole before it.

        At least 1, for a slice that could not have a single failure could not be read.
        """
        return max(1, min(self.room, self._capacity.holes - self.tracker.holes_read - 1))

    @property
    def restored_attempts(self) -> tuple[tuple[SequenceNumber, int], ...]:
        """The deliveries, before the restart, of records that were not read again yet."""
        return tuple(
            (sequence, self._attempts.within_limit(count))
            for sequence, count in self.tracker.restored_attempts.items()
        )

    @property
    def is_congested(self) -> bool:
        return self.tracker.unresolved >= ceil(
            CONGESTED_SHARE * self._capacity.records
        ) or self.tracker.holes_read >= ceil(CONGESTED_SHARE * self._capacity.holes)

    @property
    def may_read(self) -> bool:
        return self.phase is ShardPhase.READING and not self.retries.blocks_shard and not self.is_congested

    def end_read(self) -> None:
        """Note that the end of the closed shard was read: nothing follows what was handed out so far."""
        self._step(ShardEvent.END_READ)
        self._check_all_finished()

    def reach_bound(self) -> None:
        self._step(ShardEvent.BOUND_REACHED)

    def _look_for_bound(self) -> None:
        if self.bound is not None and self.bound.ends_after(self.tracker.last_emitted):
            self.reach_bound()

    @property
    def is_done(self) -> bool:
        return self.phase is ShardPhase.AT_BOUND and not self.tracker.unresolved and not self.is_dirty

    # Claiming, where a record is delivered at most once

    def claim(self, first: SequenceNumber, last: SequenceNumber) -> bool:
        claimed = self._guarantee is Guarantee.AT_MOST_ONCE and self._claims.claim(first, last)
        if claimed:
            self._changed()
        return claimed

    def may_hand_out(self, sequence: SequenceNumber) -> bool:
        return self._guarantee is not Guarantee.AT_MOST_ONCE or self._claims.cover(sequence)

    def end_claims(self) -> None:
        """Take back the claims on what was not handed out, until it is claimed anew; and all notes."""
        if self.tracker.noted:
            self.tracker.noted.clear()
            self._changed()
        if self._guarantee is Guarantee.AT_MOST_ONCE:
            self._claims.end()
            self._changed()

    # Committing

    @property
    def is_dirty(self) -> bool:
        return self.revision != self._committed_revision

    def checkpoint(self, app_instance: str) -> Checkpoint:
        """Take a copy of the progress, to be stored under the epoch of this ownership."""
        stored, tracker = self._stored, self.tracker
        if self.phase in (ShardPhase.FINISHED, ShardPhase.OVER):
            return replace(
                stored, base=SHARD_END, holes=(), attempts=(), anchor=None, app_instance=app_instance
            )
        base, anchor = tracker.base, tracker.anchor
        if self._guarantee is Guarantee.AT_LEAST_ONCE:
            holes, counts = tracker.hole_map()
            counts = self._attempts.without_spared(counts)
        else:
            # Without an anchor, that of the holes is their own: nothing in them may come again.
            base, holes, counts = handed_out(tracker, stored.base)
            holes, counts = self._claims.added_to(base, holes, counts)
            anchor = None
        return replace(
            stored,
            base=base,
            holes=holes,
            anchor=anchor,
            attempts=counts,
            epoch=self.epoch,
            app_instance=app_instance,
        )

    def mark_committed(self, checkpoint: Checkpoint, revision: int) -> None:
        self._stored = checkpoint
        self._committed_revision = revision
        self._claims.stored(checkpoint)
        if checkpoint.is_shard_end:
            self._step(ShardEvent.END_COMMITTED)

    # Inside

    def _before_tracking(self, sequence: SequenceNumber) -> None:
        if self.phase is not ShardPhase.READING:
            raise OutOfOrder(
                f"expected no record of {self.shard.shard_id} after its end was read, or its bound reached, got "
                f"{sequence}: report that only when all that was fetched before it is handed out"
            )
        if not self.tracker.restored_anchor_read(sequence):
            self._changed()

    def _check_all_finished(self) -> None:
        if self.phase is ShardPhase.AT_END and self.tracker.unresolved == 0:
            self._step(ShardEvent.ALL_FINISHED)
            self._changed()

    def _changed(self) -> None:
        self.revision += 1

    def _step(self, event: ShardEvent) -> None:
        self.phase = next_phase(self.phase, event)
