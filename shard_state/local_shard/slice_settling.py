"""Applies the outcome of a slice to its shard: to the records that were acked, failed or held, or are open."""

from collections.abc import Mapping, Sequence
from math import inf

from shard_state.local_shard.local_shard_state import LocalShardState
from shard_state.retries.retry_policy import Retry
from shard_state.slices.slices import Exhausted, Fate, OpenRecord, Redelivery, SliceOutcome, UnackedRecord
from shard_state.tracker.record_life import RecordState
from shard_state.tracker.span import Carved


def settle_fresh(state: LocalShardState, outcome: SliceOutcome, now: float) -> list[Exhausted]:
    """Track the outcome of a fresh slice, and decide upon its failures. Open records stay in flight.

    Raises:
        OutOfOrder: it does not come after every record read before, or comes after the shard's end, or its
            failures or open records do not fit into it.
    """
    exhausted: list[Exhausted] = []
    if outcome.count:
        assert outcome.first is not None
        assert outcome.last is not None
        state.before_tracking(outcome.first)
        decisions = {
            failure.index: state.decide(
                failure.sequence, failure.attempt, failure.fate, now, delay_seconds=failure.delay_seconds
            )
            for failure in outcome.failures
            if not failure.held
        }
        carved = _carved(outcome, decisions) if outcome.failures or outcome.open_records else ()
        state.tracker.emitted_span(outcome.first, outcome.last, outcome.count)
        state.tracker.settle(outcome.first, carved)
        if outcome.failures:
            exhausted = _queue_failures(state, outcome.failures, decisions, now)
        for delivery in outcome.open_records:
            state.start_deadline(delivery.sequence, now)
            if delivery.attempt > 1:
                # As in ``emit``: it failed before the restart, and others had to wait behind it.
                state.retries.block(delivery.sequence, delivery.partition_key)
        state.revision += 1
    if outcome.at_end:
        state.end_read()
    elif outcome.at_bound:
        state.reach_bound()
    state.look_for_bound()
    return exhausted


def settle_retries(
    state: LocalShardState, retries: tuple[Redelivery, ...], outcome: SliceOutcome, now: float
) -> list[Exhausted]:
    """Ack the retried records that neither failed nor are open, and decide upon those that failed."""
    unfinished = outcome.unfinished
    attempts = {retry.sequence: retry.attempt for retry in retries}
    decisions = {
        failure.index: state.fail(
            failure.sequence,
            now,
            attempt=attempts.get(failure.sequence, 0),
            fate=failure.fate,
            partition_key=failure.partition_key,
            delay_seconds=failure.delay_seconds,
        )
        for failure in outcome.failures
        if not failure.held
    }
    for failure in outcome.failures:
        if failure.held:
            state.withdraw(failure.sequence, failure.partition_key)
    for retry in retries:
        if retry.sequence not in unfinished:
            state.ack(retry.sequence, now)
    for delivery in outcome.open_records:
        if state.is_out(delivery.sequence, delivery.attempt):
            state.start_deadline(delivery.sequence, now)
    return [decision for decision in decisions.values() if isinstance(decision, Exhausted)]


def _carved(outcome: SliceOutcome, decisions: Mapping[int, Retry | None]) -> list[Carved]:
    """Give the records that a fresh slice leaves unfinished, each with its new state."""
    carved: list[Carved] = []
    unfinished: list[UnackedRecord | OpenRecord] = [*outcome.failures, *outcome.open_records]
    for record in unfinished:
        decision = decisions.get(record.index)
        state = RecordState.IN_FLIGHT
        if isinstance(record, UnackedRecord):
            is_given_up = decision is None and not record.held
            state = RecordState.EXHAUSTED if is_given_up else RecordState.WAITING
        carved.append(
            Carved(
                index=record.index,
                sequence=record.sequence,
                previous=record.previous,
                state=state,
                attempts=record.attempt,
                history=None if decision is None else decision.history,
            )
        )
    return carved


def _queue_failures(
    state: LocalShardState,
    failures: Sequence[UnackedRecord],
    decisions: Mapping[int, Retry | None],
    now: float,
) -> list[Exhausted]:
    """Let the failed and the held records of a fresh slice wait; returns those that are given up."""
    exhausted: list[Exhausted] = []
    for failure in failures:
        sequence, key = failure.sequence, failure.partition_key
        decision = decisions.get(failure.index)
        if failure.held:
            state.retries.wait(sequence, key, -inf)
        elif decision is not None:
            state.retries.wait(sequence, key, now + decision.delay_seconds)
        else:
            if failure.fate is not Fate.EXPIRED:
                state.retries.block(sequence, key)
            exhausted.append(state.exhausted(sequence, failure.attempt, failure.fate))
    return exhausted
