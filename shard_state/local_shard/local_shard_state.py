"""Everything one consumer knows of one shard it owns: what is read, out, waiting, and to be stored.

The tracker says what is finished, the retries say what comes again; this class keeps the two in step. How far the
shard is read, and what of it is stored, ``shard_reading`` says; which failures are final, ``counted_attempts``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Final

from shard_state.local_shard.guarantee import Guarantee
from shard_state.local_shard.shard_reading import ShardReading
from shard_state.retries.ordered_retries import Order
from shard_state.retries.retry_policy import GiveUp, Retry
from shard_state.sequence_number import SequenceNumber
from shard_state.shards.life_cycle import ShardPhase
from shard_state.slices.slices import Exhausted, FailedRecord, OpenRecord, Redelivery, SliceOutcome
from shard_state.tracker.record_life import RecordEvent, RecordState
from shard_state.tracker.span import Carved


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """What to do with a record that was just read."""

    deliver: bool
    """Hand it to the user now. Otherwise it was finished before the restart, or is held behind its key."""
    held: bool = False
    attempt: int = 1
    was_last: bool = False
    """It was delivered as often as may be, before the restart, and no outcome of the last time is stored."""


_FIRST_DELIVERY: Final = Emission(deliver=True)
_READING: Final = ShardPhase.READING
_UNORDERED: Final = Order.UNORDERED


class LocalShardState(ShardReading):
    """One owned shard, with its records. Mutable; not thread-safe. Made as ``ShardReading`` is."""

    # One record at a time

    def emit(self, sequence: SequenceNumber, partition_key: str | None, now: float) -> Emission:
        """Decide upon a record just read, and track it.

        Raises:
            OutOfOrder: it does not come after every record read before, or comes after the shard's end.
        """
        tracker, timeout, retries = self.tracker, self._timeout_seconds, self.retries
        if (
            tracker.restored is not None
            or self.phase is not _READING
            or (retries.line_of and self._order is not _UNORDERED and retries.blocks(partition_key))
        ):
            emission = self._emit_with_a_past(sequence, partition_key, now)
            self._look_for_bound()
            return emission
        tracker.emitted(sequence, deadline=None if timeout is None else now + timeout)
        if not self._is_plain:
            if self._guarantee is not Guarantee.AT_LEAST_ONCE:
                self._changed()
            self._look_for_bound()
        return _FIRST_DELIVERY

    @property
    def puts_off_the_past(self) -> bool:
        """Whether what failed before the restart may wait, while something that never failed is tried."""
        return self._order is not Order.SHARD and self._guarantee is Guarantee.AT_LEAST_ONCE

    def emit_if_never_failed(
        self, sequence: SequenceNumber, partition_key: str | None, now: float
    ) -> Emission:
        """Do what ``emit`` does, but let a record that failed before the restart wait for its next attempt."""
        self._before_tracking(sequence)
        tracker = self.tracker
        if (
            not self.puts_off_the_past
            or sequence not in tracker.restored_attempts
            or tracker.was_finished(sequence)
            or self.retries.blocks(partition_key)
        ):
            return self.emit(sequence, partition_key, now)
        delivered = self._attempts.within_limit(tracker.attempts(sequence))
        tracker.emitted(sequence, attempts=delivered, state=RecordState.WAITING)
        self.retries.wait(sequence, partition_key, self._attempts.put_off_until(delivered, now))
        self._look_for_bound()
        return Emission(deliver=False, held=True, attempt=delivered)

    def _emit_with_a_past(self, sequence: SequenceNumber, partition_key: str | None, now: float) -> Emission:
        """Do what ``emit`` does where records may have to wait, were delivered before, or count as finished."""
        self._before_tracking(sequence)
        if self.tracker.was_finished(sequence):
            self.tracker.emitted(sequence, state=RecordState.FINISHED)
            self._changed()
            return Emission(deliver=False)
        stored = self.tracker.attempts(sequence)
        delivered = self._attempts.within_limit(stored)
        if self.retries.blocks(partition_key):
            self.tracker.emitted(sequence, attempts=delivered, state=RecordState.WAITING)
            self.retries.hold(sequence, partition_key, now)
            return Emission(deliver=False, held=True, attempt=delivered)
        failed_before = sequence in self.tracker.restored_attempts
        self.tracker.emitted(sequence, attempts=delivered + 1)
        self._start_deadline(sequence, now)
        if failed_before:
            # What had to wait behind it before the restart has to wait now.
            self.retries.block(sequence, partition_key)
        if failed_before or self._guarantee is not Guarantee.AT_LEAST_ONCE:
            self._changed()
        return Emission(deliver=True, attempt=delivered + 1, was_last=stored > delivered)

    def note(self, sequence: SequenceNumber) -> None:
        """Have the delivery of a record that is out stored as an attempt, although nothing came of it yet."""
        self.tracker.noted.add(sequence)
        self._changed()

    def forget_note(self, sequence: SequenceNumber) -> None:
        if sequence in self.tracker.noted:
            self.tracker.noted.discard(sequence)
            self._changed()

    def ack(self, sequence: SequenceNumber, now: float) -> bool:
        """Finish a record; False if that changes nothing (late, duplicate, unknown). Cancels a retry.

        The ack of an earlier delivery does it too: the record was handled.
        """
        if not self.tracker.acked(sequence):
            return False
        if self.retries.line_of or self.phase is not _READING:
            self._finished(sequence, now)
        else:
            self.revision += 1
        return True

    def is_out(self, sequence: SequenceNumber, attempt: int) -> bool:
        state, attempts = self.tracker.state(sequence), self.tracker.attempts(sequence)
        return state is RecordState.IN_FLIGHT and attempts == attempt

    def dead_lettered(self, sequence: SequenceNumber, now: float) -> bool:
        """Finish an exhausted record, whose dead letter is durable now; False if it was not exhausted."""
        if not self.tracker.apply(sequence, RecordEvent.DEAD_LETTER):
            return False
        self._finished(sequence, now)
        return True

    def fail(
        self,
        sequence: SequenceNumber,
        now: float,
        *,
        attempt: int,
        event: RecordEvent = RecordEvent.FAIL,
        partition_key: str | None = None,
        rejected: bool = False,
        delay_seconds: float | None = None,
        spare: bool = False,
        put_off: bool = False,
    ) -> Retry | Exhausted | None:
        """Decide upon a record whose delivery number ``attempt`` failed (or timed out: ``event``).

        With ``spare`` the delivery does not count against the limit: nothing is given up but what is rejected. Nor
        does it with ``put_off``, for ``MOST_PUT_OFF`` deliveries of a record.

        Returns:
            When it comes again, or that it must be dead-lettered; None if the report changes nothing: that
            delivery has ended, and if the record is out again, another one speaks for it (invariant 17).
        """
        if not self.is_out(sequence, attempt):
            return None
        decision = self._attempts.decide(
            sequence,
            attempt,
            rejected=rejected,
            delay_seconds=delay_seconds,
            spare=spare,
            put_off=put_off,
        )
        self._changed()
        if isinstance(decision, GiveUp):
            self.tracker.apply(sequence, RecordEvent.EXHAUST)
            self.retries.block(sequence, partition_key)
            return self._exhausted(sequence, attempt, rejected=rejected)
        self.tracker.apply(sequence, event)
        self.retries.wait(sequence, partition_key, now + decision.delay_seconds)
        return decision

    def expire(self, sequence: SequenceNumber, attempt: int) -> Exhausted | None:
        """Give up a record that became too old before its delivery number ``attempt`` reached anybody.

        Later records do not wait for it, unless they did already: then as for any that was given up.

        Returns:
            None if that delivery has ended.
        """
        if not self.is_out(sequence, attempt):
            return None
        self.tracker.apply(sequence, RecordEvent.EXHAUST)
        self._changed()
        return self._exhausted(sequence, attempt - 1, expired=True)

    def forgive(self, sequence: SequenceNumber) -> None:
        """Let one failure of a record, which counted, not count, unless the record is given up or finished."""
        if self.tracker.state(sequence) in (RecordState.WAITING, RecordState.IN_FLIGHT):
            self._attempts.spare(sequence)
            self._changed()

    def take_retry(self, now: float) -> Redelivery | None:
        """Hand out the record whose retry is due first, if any is."""
        for retry in self.take_retries(now, 1, whole_lines=False):
            self._start_deadline(retry.sequence, now)
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
        while len(taken) < limit:
            first = self.retries.first_due(now)
            by_itself = first is not None and single(first)
            if first is None or (by_itself and taken):
                break
            line = [first]
            if whole_lines and not by_itself:
                line.extend(takewhile(lambda held: not single(held), self.retries.behind(first, now)))
            for sequence in line[: limit - len(taken)]:
                self.retries.take(sequence)
                if self.tracker.apply(sequence, RecordEvent.REDELIVER):
                    attempt = self.tracker.attempts(sequence)
                    taken.append(Redelivery(sequence=sequence, attempt=attempt))
            if by_itself:
                break
        if taken:
            self._changed()
        return tuple(taken)

    # Slices

    def settle_fresh(
        self,
        outcome: SliceOutcome,
        now: float,
        *,
        spare: bool = False,
        probe: bool = False,
    ) -> list[Exhausted]:
        """Track what came of a fresh slice, and decide upon its failures. What is open stays in flight.

        ``spare`` is as in ``fail``; ``probe`` is the plan's.

        Raises:
            OutOfOrder: it does not come after every record read before, or comes after the shard's end, or
                its failures or open records do not fit into it.
        """
        exhausted: list[Exhausted] = []
        if outcome.count:
            assert outcome.first is not None
            assert outcome.last is not None
            self._before_tracking(outcome.first)
            decided = [
                (failure, self._attempts.decide_failed(failure, spare=spare)) for failure in outcome.failures
            ]
            past = dict(self.tracker.restored_attempts) if probe else {}
            carved = [_carved(failure, _state_after(decision)) for failure, decision in decided]
            carved.extend(_carved(delivery, RecordState.IN_FLIGHT) for delivery in outcome.open_records)
            self.tracker.emitted_span(outcome.first, outcome.last, outcome.count)
            self.tracker.settle(outcome.first, carved)
            exhausted = self._queue_failures(decided, past, now)
            self._leave_out(outcome.open_records, now)
            self._changed()
        if outcome.at_end:
            self.end_read()
        elif outcome.at_bound:
            self.reach_bound()
        self._look_for_bound()
        self._check_all_finished()
        return exhausted

    def _queue_failures(
        self,
        decided: Sequence[tuple[FailedRecord, Retry | GiveUp | None]],
        past: Mapping[SequenceNumber, int],
        now: float,
    ) -> list[Exhausted]:
        """Let the failed and the held records of a fresh slice wait; returns those that are given up.

        A held record in ``past`` failed before the restart: it waits as after a failure, if nothing of its line is
        before it.
        """
        exhausted: list[Exhausted] = []
        due = _due_times(decided, now)
        for failure, decision in decided:
            sequence, key = failure.sequence, failure.partition_key
            if failure.held:
                if sequence in past and not self.retries.blocks(key):
                    due_at = self._attempts.put_off_until(failure.attempt, now)
                else:
                    due_at = _due_with_stand_in(failure, due)
                self.retries.hold(sequence, key, due_at)
            elif isinstance(decision, Retry):
                self.retries.wait(sequence, key, now + decision.delay_seconds)
            else:
                if not failure.expired:
                    self.retries.block(sequence, key)
                exhausted.append(
                    self._exhausted(
                        sequence, failure.attempt, rejected=failure.rejected, expired=failure.expired
                    )
                )
        return exhausted

    def _leave_out(self, open_records: Iterable[OpenRecord], now: float) -> None:
        """Let the time-out of deliveries begin whose slice has settled without an outcome of theirs."""
        for delivery in open_records:
            self._start_deadline(delivery.sequence, now)
            if delivery.attempt > 1:
                # As in ``emit``: it failed before the restart, and others had to wait behind it.
                self.retries.block(delivery.sequence, delivery.partition_key)

    def settle_retries(
        self,
        retries: tuple[Redelivery, ...],
        outcome: SliceOutcome,
        now: float,
        *,
        spare: bool = False,
    ) -> list[Exhausted]:
        """Ack the retried records that neither failed nor are open, and decide upon those that failed.

        ``spare`` is as in ``fail``.
        """
        unfinished = outcome.unfinished
        attempts = {retry.sequence: retry.attempt for retry in retries}
        decided = [
            (
                failure,
                self._decide_retried(failure, attempts.get(failure.sequence, 0), now, spare=spare),
            )
            for failure in outcome.failures
            if not failure.held
        ]
        due = _due_times(decided, now)
        for failure in outcome.failures:
            if failure.held:
                due_at = _due_with_stand_in(failure, due)
                self.withdraw(failure.sequence, failure.partition_key, due_at)
        for retry in retries:
            if retry.sequence not in unfinished:
                self.ack(retry.sequence, now)
        for delivery in outcome.open_records:
            if self.is_out(delivery.sequence, delivery.attempt):
                self._start_deadline(delivery.sequence, now)
        return [decision for _, decision in decided if isinstance(decision, Exhausted)]

    def _decide_retried(
        self,
        failure: FailedRecord,
        attempt: int,
        now: float,
        *,
        spare: bool,
    ) -> Retry | Exhausted | None:
        if failure.expired:
            return self.expire(failure.sequence, attempt)
        return self.fail(
            failure.sequence,
            now,
            attempt=attempt,
            partition_key=failure.partition_key,
            rejected=failure.rejected,
            delay_seconds=failure.delay_seconds,
            spare=spare,
            put_off=failure.put_off,
        )

    def withdraw(self, sequence: SequenceNumber, partition_key: str | None, due_at: float = -inf) -> None:
        """Take back a delivery that did not reach the handler: the record waits on, uncounted.

        Unless ``due_at`` says otherwise it was the first to be due and is so again: what is halved must meet the
        same records at its front.
        """
        if self.tracker.apply(sequence, RecordEvent.WITHDRAW):
            self.retries.hold(sequence, partition_key, due_at)
            self._changed()

    # Inside

    def _exhausted(
        self, sequence: SequenceNumber, attempts: int, *, rejected: bool = False, expired: bool = False
    ) -> Exhausted:
        return Exhausted(
            shard_id=self.shard.shard_id,
            sequence=sequence,
            attempts=attempts,
            rejected=rejected and not expired,
            expired=expired,
        )

    def _start_deadline(self, sequence: SequenceNumber, now: float) -> None:
        if self._timeout_seconds is not None:
            self.tracker.start_deadline(sequence, now + self._timeout_seconds)

    def _finished(self, sequence: SequenceNumber, now: float) -> None:
        self.retries.finished(sequence, now)
        self._attempts.spared.pop(sequence, None)
        self._changed()
        self._check_all_finished()


def _carved(record: FailedRecord | OpenRecord, state: RecordState) -> Carved:
    return Carved(
        index=record.index,
        sequence=record.sequence,
        previous=record.previous,
        state=state,
        attempts=record.attempt,
    )


def _state_after(decision: Retry | GiveUp | None) -> RecordState:
    return RecordState.EXHAUSTED if isinstance(decision, GiveUp) else RecordState.WAITING


def _due_times(decided: Iterable[tuple[FailedRecord, object]], now: float) -> dict[int, float]:
    """Tell when failed records come again, by their index; not those that do not."""
    return {
        failure.index: now + decision.delay_seconds
        for failure, decision in decided
        if isinstance(decision, Retry)
    }


def _due_with_stand_in(held: FailedRecord, due_times: Mapping[int, float]) -> float:
    """Tell when a held record is due: with the failed record that stood for it; otherwise at once."""
    return -inf if held.stand_in is None else due_times.get(held.stand_in, -inf)
