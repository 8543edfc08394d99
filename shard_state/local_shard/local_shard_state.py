"""Everything one consumer knows of one shard it owns: what is read, out, waiting, and to be stored.

The tracker says what is finished, the retries say what comes again; this class keeps the two in step.
``slice_settling`` applies the end of a slice to it.

A revision number keeps the shard *dirty*: a commit takes a copy and its revision, and acks that arrive while
it is under way raise the revision, so the shard stays dirty (and is committed again) although that commit
succeeds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import starmap, takewhile
from math import ceil, inf
from typing import Final

from shard_state.blame import Blame, Experience
from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.errors import OutOfOrder
from shard_state.lineage import Shard, ShardPhase
from shard_state.local_shard.guarantee import Claims, Guarantee, handed_out
from shard_state.position import Position
from shard_state.retries.ordered_retries import Order, OrderedRetries
from shard_state.retries.retry_policy import Retry, RetryPolicy
from shard_state.run_bounds import ShardBound
from shard_state.sequence_number import SHARD_END, SequenceNumber
from shard_state.slices.slices import Exhausted, Fate, Redelivery
from shard_state.tracker.inflight_record_tracker import InflightRecordTracker
from shard_state.tracker.record_life import RecordEvent, RecordState

CONGESTED_SHARE: Final = 0.75
"""The part of a cap above which new reads pause; retries go on (invariant 12)."""

MOST_PUT_OFF: Final = 1_000
"""The number of times that a handler may put a record off before that counts as an attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The limits of what is tracked per shard."""

    records: int = 20_000
    """Handed out and not finished."""
    holes: int = 2_000
    """Finished runs beyond the checkpoint, among the records read since the restart. Restored runs are not
    counted: they are bounded already, and reading closes them."""

    def __post_init__(self) -> None:
        if self.records < 1 or self.holes < 1:
            raise ValueError(
                f"expected room for at least 1 record and 1 hole, got {self}: nothing could be read"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """The decision about a record that was just read."""

    deliver: bool
    """Hand it to the user now. Otherwise it was finished before the restart, or is held behind its key."""
    held: bool = False
    attempt: int = 1
    was_last: bool = False
    """It was delivered as often as may be, before the restart, and no outcome of the last time is stored."""


SINCE_SECONDS: Final = 3600.0
"""``since`` is stored by itself if it is later by so much than what is stored: retention is a day at least."""

_FINAL: Final = (Fate.REJECTED, Fate.ENDED_PROCESS, Fate.EXPIRED)
_FIRST_DELIVERY: Final = Emission(deliver=True)
_READING: Final = ShardPhase.READING
_UNORDERED: Final = Order.UNORDERED


class LocalShardState:
    """One owned shard, with its records. Mutable; not thread-safe. Its arguments are ``StateManager``'s."""

    def __init__(
        self,
        shard: Shard,
        checkpoint: Checkpoint,
        *,
        retry: RetryPolicy,
        random: Callable[[], float],
        order: Order,
        capacity: Capacity,
        blame: Blame | None = None,
        message_timeout_seconds: float | None = None,
        guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
        bound: ShardBound | None = None,
    ) -> None:
        self.shard = shard
        self.epoch = checkpoint.epoch
        self._stage = ShardPhase.READING
        """READING, AT_END, AT_BOUND, or OVER."""
        self.tracker = InflightRecordTracker(checkpoint)
        self.retries = OrderedRetries(order)
        self._order = order
        self._timeout_seconds = message_timeout_seconds
        self._guarantee = guarantee
        self.bound = bound
        """Up to where this run reads; None: on and on."""
        self._retry = retry
        self._blame = blame or Blame(limit=retry.limit)
        self._random = random
        self._capacity = capacity
        self._congested_at = ceil(CONGESTED_SHARE * capacity.records), ceil(CONGESTED_SHARE * capacity.holes)
        self._stored = checkpoint
        self._claims = Claims()
        self._since = checkpoint.since
        self._page_end = checkpoint.base
        """The last record of the last page, or the base."""
        self._reached: tuple[SequenceNumber, float] | None = None
        """The end of a page, and the time before which nothing that follows it arrived."""
        self.data_losses = checkpoint.data_losses
        self.revision = 0
        """Grows with every change of what would be stored. Give it back to ``mark_committed`` with a copy."""
        self._committed_revision = 0
        self._copy = -1, checkpoint
        """The last copy, and its revision."""
        self.look_for_bound()

    # Reading

    @property
    def phase(self) -> ShardPhase:
        if self._stage is ShardPhase.AT_END and not self.tracker.unresolved:
            return ShardPhase.FINISHED
        return self._stage

    @property
    def position(self) -> Position:
        """The position of the next fresh record."""
        return self._stored.start.advanced_to(self.tracker.last_emitted).known_since(self.since)

    @property
    def since(self) -> float | None:
        """Nothing that is not finished arrived earlier, in seconds since the epoch; None: nobody knows."""
        if self._reached is not None and self.tracker.base >= self._reached[0]:
            self._since, self._reached = self._reached[1], None
        return self._since

    def reached(self, end: SequenceNumber | None, since: float | None, losses: int) -> None:
        """Note what a page says of what follows it; the arguments are those of ``StateManager.reached``."""
        if losses:
            self.data_losses += losses
            self.revision += 1
        if since is None:
            return
        if end is not None:
            self._page_end = end
        self.store_since(SINCE_SECONDS)
        if self._reached is None:
            self._reached = self._page_end, since
            self.store_since(SINCE_SECONDS)

    def store_since(self, after_seconds: float) -> None:
        """Have ``since`` stored, if it is later by so much than what is stored, or nothing is."""
        since, stored = self.since, self._stored.since
        if since is not None and (stored is None or since >= stored + after_seconds) and not self.is_dirty:
            self.revision += 1

    @property
    def room(self) -> int:
        return max(0, self._capacity.records - self.tracker.unresolved)

    @property
    def max_failures(self) -> int:
        """The most failures of the next slice: each leaves one more record unresolved, and a hole before it.

        At least 1, for a slice that could not have a single failure could not be read.
        """
        return max(1, min(self.room, self._capacity.holes - self.tracker.holes_read - 1))

    @property
    def restored_attempts(self) -> tuple[tuple[SequenceNumber, int], ...]:
        """The deliveries, before the restart, of records that were not read again yet."""
        return tuple(
            (sequence, self._within_limit(count))
            for sequence, count in self.tracker.restored_attempts.items()
        )

    @property
    def is_congested(self) -> bool:
        most_records, most_holes = self._congested_at
        return self.tracker.unresolved >= most_records or self.tracker.holes_read >= most_holes

    @property
    def may_read(self) -> bool:
        if self._stage is not _READING or (self.retries.line_of and self.retries.blocks_shard):
            return False
        most_records, most_holes = self._congested_at
        return self.tracker.unresolved < most_records and self.tracker.holes_read < most_holes

    def end_read(self) -> None:
        """Note that the end of the closed shard was read: nothing follows what was handed out so far."""
        if self._stage is _READING:
            self._stage = ShardPhase.AT_END
            if not self.tracker.unresolved:
                self.revision += 1

    def reach_bound(self) -> None:
        if self._stage is _READING:
            self._stage = ShardPhase.AT_BOUND

    def look_for_bound(self) -> None:
        """End this run's part of the shard if nothing behind what was handed out is of it."""
        if self.bound is not None and self.bound.ends_after(self.tracker.last_emitted):
            self.reach_bound()

    @property
    def is_done(self) -> bool:
        return self._stage is ShardPhase.AT_BOUND and not self.tracker.unresolved and not self.is_dirty

    # One record at a time

    def emit(self, sequence: SequenceNumber, partition_key: str | None, now: float) -> Emission:
        """Decide upon a record just read, and track it.

        Raises:
            OutOfOrder: it does not come after every record read before, or comes after the shard's end.
        """
        tracker, timeout, retries = self.tracker, self._timeout_seconds, self.retries
        if (
            tracker.restored is not None
            or self._stage is not _READING
            or (retries.line_of and self._order is not _UNORDERED and retries.blocks(partition_key))
        ):
            emission = self._emit_with_a_past(sequence, partition_key, now)
        else:
            emission = _FIRST_DELIVERY
            tracker.emitted(sequence, deadline=None if timeout is None else now + timeout)
            if self._guarantee is not Guarantee.AT_LEAST_ONCE:
                self.revision += 1
        if self.bound is not None:
            self.look_for_bound()
        return emission

    def _emit_with_a_past(self, sequence: SequenceNumber, partition_key: str | None, now: float) -> Emission:
        """Do what ``emit`` does where records may have to wait, were delivered before, or count as finished."""
        self.before_tracking(sequence)
        if self.tracker.was_finished(sequence):
            self.tracker.emitted(sequence, state=RecordState.FINISHED)
            self.revision += 1
            return Emission(deliver=False)
        stored = self.tracker.attempts(sequence)
        delivered = self._within_limit(stored)
        if self.retries.blocks(partition_key):
            self.tracker.emitted(sequence, attempts=delivered, state=RecordState.WAITING)
            self.retries.wait(sequence, partition_key, now)
            return Emission(deliver=False, held=True, attempt=delivered)
        failed_before = sequence in self.tracker.restored_attempts
        self.tracker.emitted(sequence, attempts=delivered + 1)
        self.start_deadline(sequence, now)
        if failed_before:
            # Records that had to wait behind it before the restart have to wait now.
            self.retries.block(sequence, partition_key)
        if failed_before or self._guarantee is not Guarantee.AT_LEAST_ONCE:
            self.revision += 1
        return Emission(deliver=True, attempt=delivered + 1, was_last=stored > delivered)

    def note(self, sequence: SequenceNumber) -> None:
        """Have the delivery of a record that is out stored as an attempt, although nothing came of it yet.

        Nobody receives it before that is stored; until then it does not time out: see ``start_deadline``.
        """
        self.tracker.noted.add(sequence)
        self.tracker.stop_deadline(sequence)
        self.revision += 1

    def forget_note(self, sequence: SequenceNumber) -> None:
        if sequence in self.tracker.noted:
            self.tracker.noted.discard(sequence)
            self.revision += 1

    def ack(self, sequence: SequenceNumber, now: float) -> int | None:
        """Finish a record; returns its attempts. None if nothing changes (late, duplicate, unknown).

        It cancels a retry. The ack of an earlier delivery does it too: the record was handled.
        """
        attempts = self.tracker.acked(sequence)
        if attempts is None:
            return None
        if self.retries.line_of:
            self.retries.finished(sequence, now)
        self.revision += 1
        return attempts

    def is_out(self, sequence: SequenceNumber, attempt: int) -> bool:
        state, attempts = self.tracker.state(sequence), self.tracker.attempts(sequence)
        return state is RecordState.IN_FLIGHT and attempts == attempt

    def dead_lettered(self, sequence: SequenceNumber, now: float) -> bool:
        """Finish an exhausted record, whose dead letter is durable now; False if it was not exhausted."""
        if not self.tracker.apply(sequence, RecordEvent.DEAD_LETTER):
            return False
        self.retries.finished(sequence, now)
        self.revision += 1
        return True

    def fail(
        self,
        sequence: SequenceNumber,
        now: float,
        *,
        attempt: int,
        fate: Fate = Fate.FAILED,
        partition_key: str | None = None,
        delay_seconds: float | None = None,
    ) -> Retry | Exhausted | None:
        """Decide upon a record whose delivery number ``attempt`` came to ``fate``, and was not held.

        Args:
            sequence: the record.
            now: the time.
            attempt: which delivery.
            fate: what happened. One that expired before it reached anybody has one delivery less, and later
                records do not wait for it, unless they did already: then as for any that was given up.
            partition_key: what names the line in which later records wait.
            delay_seconds: the handler's own wish for the delay.

        Returns:
            When it comes again, or that it must be dead-lettered; None if the report changes nothing: that
            delivery has ended, and if the record is out again, another one speaks for it (invariant 17).
        """
        if not self.is_out(sequence, attempt):
            return None
        decision = self.decide(sequence, attempt, fate, now, delay_seconds=delay_seconds)
        self.revision += 1
        if decision is None:
            self.tracker.apply(sequence, RecordEvent.EXHAUST)
            if fate is Fate.EXPIRED:
                return self.exhausted(sequence, attempt - 1, fate)
            self.retries.block(sequence, partition_key)
            return self.exhausted(sequence, attempt, fate)
        if decision.history is not None:
            self.tracker.remember(sequence, decision.history)
        self.tracker.apply(sequence, RecordEvent.FAIL)
        self.retries.wait(sequence, partition_key, now + decision.delay_seconds)
        return decision

    def decide(
        self,
        sequence: SequenceNumber,
        attempt: int,
        fate: Fate,
        now: float,
        *,
        delay_seconds: float | None,
    ) -> Retry | None:
        """Say when a failed record comes again, once the blame knows of it; None: it is given up.

        The arguments are those of ``fail``. A delivery that was put off does not count, ``MOST_PUT_OFF`` times.
        """
        if fate in _FINAL or self._guarantee is not Guarantee.AT_LEAST_ONCE:
            return None
        history = self.tracker.history(sequence)
        if fate is Fate.PUT_OFF and (history is None or history.put_off < MOST_PUT_OFF):
            history = self._blame.put_off(history, now)
        else:
            gives_up, history = self._blame.weigh(history, attempt, now)
            if gives_up:
                return None
        return self._retry.after(history, random=self._random(), delay_seconds=delay_seconds)

    def exhausted(self, sequence: SequenceNumber, attempts: int, fate: Fate) -> Exhausted:
        return Exhausted(
            shard_id=self.shard.shard_id,
            sequence=sequence,
            attempts=attempts,
            rejected=fate is Fate.REJECTED,
            expired=fate is Fate.EXPIRED,
        )

    def take_retry(self, now: float) -> Redelivery | None:
        """Hand out the record whose retry is due first, if any is."""
        if not self.retries.line_of:
            return None
        for retry in self.take_retries(now, 1, whole_lines=False):
            self.start_deadline(retry.sequence, now)
            return retry
        return None

    def take_retries(
        self,
        now: float,
        limit: int,
        *,
        whole_lines: bool,
        single: Callable[[SequenceNumber], bool] = lambda _: False,
    ) -> tuple[Redelivery, ...]:
        """Hand out at most ``limit`` records whose retry is due.

        With ``whole_lines`` what is held behind a record comes along; a ``single`` record is handed out by itself.
        """
        taken: list[Redelivery] = []
        while True:
            taken += self._redelivered(self.retries.take_alone(now, limit - len(taken), single))
            if len(taken) >= limit:
                break
            first = self.retries.first_due(now)
            by_itself = first is not None and single(first)
            if first is None or (by_itself and taken):
                break
            line = [first]
            if whole_lines and not by_itself:
                line.extend(takewhile(lambda held: not single(held), self.retries.behind(first, now)))
            del line[limit - len(taken) :]
            for sequence in line:
                self.retries.take(sequence)
            taken += self._redelivered(line)
            if by_itself:
                break
        if taken:
            self.revision += 1
        return tuple(taken)

    def _redelivered(self, sequences: Sequence[SequenceNumber]) -> Iterator[Redelivery]:
        return starmap(Redelivery, self.tracker.redelivered(sequences))

    def withdraw(self, sequence: SequenceNumber, partition_key: str | None, due_at: float = -inf) -> None:
        """Take back a delivery that did not reach the handler: the record waits on, uncounted.

        Unless ``due_at`` says otherwise it was the first to be due and is so again: what is halved must meet the
        same records at its front.
        """
        if self.tracker.apply(sequence, RecordEvent.WITHDRAW):
            self.retries.wait(sequence, partition_key, due_at)
            self.revision += 1

    # Claiming, where a record is delivered at most once

    def claim(self, first: SequenceNumber, last: SequenceNumber) -> bool:
        """Claim the records that are to be handed out next, by their first and last.

        Returns:
            True if that has to be stored now: not if the first was claimed before, or nothing has to be
            claimed.
        """
        claimed = self._guarantee is Guarantee.AT_MOST_ONCE and self._claims.claim(first, last)
        if claimed:
            self.revision += 1
        return claimed

    def may_hand_out(self, sequence: SequenceNumber) -> bool:
        """Tell whether a fresh record may be handed out: with AT_MOST_ONCE, once its claim is stored."""
        return self._guarantee is not Guarantee.AT_MOST_ONCE or self._claims.cover(sequence)

    def end_claims(self) -> None:
        """Take back the claims on what was not handed out, until it is claimed anew; and all notes."""
        if self.tracker.noted:
            self.tracker.noted.clear()
            self.revision += 1
        if self._guarantee is Guarantee.AT_MOST_ONCE:
            self._claims.end()
            self.revision += 1

    # Committing

    @property
    def is_dirty(self) -> bool:
        return self.revision != self._committed_revision

    def checkpoint(self, app_instance: str, experience: Experience | None = None) -> Checkpoint:
        """Take a copy of the progress, and the experience, to be stored under the epoch of this ownership.

        It is the same one, encoded once, until the revision grows: a commit that failed is made again.
        """
        revision, copy = self._copy
        if revision != self.revision or copy.app_instance != app_instance:
            copy = self._copied(app_instance, experience)
            self._copy = self.revision, copy
        return copy

    def _copied(self, app_instance: str, experience: Experience | None) -> Checkpoint:
        stored, tracker = self._stored, self.tracker
        if self.phase in (ShardPhase.FINISHED, ShardPhase.OVER):
            return replace(
                stored,
                base=SHARD_END,
                holes=(),
                attempts=(),
                anchor=None,
                since=self.since,
                data_losses=self.data_losses,
                app_instance=app_instance,
                experience=None,
            )
        base, anchor = tracker.base, tracker.anchor
        if self._guarantee is Guarantee.AT_LEAST_ONCE:
            holes, counts = tracker.hole_map()
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
            since=self.since,
            data_losses=self.data_losses,
            epoch=self.epoch,
            app_instance=app_instance,
            experience=experience,
        )

    def mark_committed(self, checkpoint: Checkpoint, revision: int) -> None:
        self._stored = checkpoint
        self._committed_revision = revision
        if self._guarantee is Guarantee.AT_MOST_ONCE:
            self._claims.stored(checkpoint)
        if checkpoint.is_shard_end:
            self._stage = ShardPhase.OVER

    # Inside

    def before_tracking(self, sequence: SequenceNumber) -> None:
        """Check what is read next: that anything may be, and whether what was restored speaks of it.

        Raises:
            OutOfOrder: the shard's end was read, or its bound reached.
        """
        if self._stage is not _READING:
            raise OutOfOrder(
                f"expected no record of {self.shard.shard_id} after its end was read, or its bound reached, got "
                f"{sequence}: report that only when all that was fetched before it is handed out"
            )
        if not self.tracker.restored_anchor_read(sequence):
            self.revision += 1

    def start_deadline(self, sequence: SequenceNumber, now: float) -> None:
        """Let the message time-out of a delivery begin."""
        if self._timeout_seconds is not None:
            self.tracker.start_deadline(sequence, now + self._timeout_seconds)

    def _within_limit(self, attempts: int) -> int:
        """Bound a stored attempt count, so that one delivery more stays within the limit (invariant 4).

        The last delivery of a record may have had no durable outcome: it was out, or its dead letter was not
        written. Then nobody knows how it ended, and it is made again under the same number.
        """
        return attempts if self._retry.limit is None else min(attempts, self._retry.limit)
