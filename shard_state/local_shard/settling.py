"""What a fresh slice leaves behind unfinished, and when each of its failed records comes again."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from shard_state.retries.retry_policy import GiveUp, Retry
from shard_state.slices.slices import FailedRecord, OpenRecord, SliceOutcome
from shard_state.tracker.inflight_record_tracker import InflightRecordTracker
from shard_state.tracker.record_life import RecordState
from shard_state.tracker.span import Carved


def track_fresh(
    tracker: InflightRecordTracker,
    outcome: SliceOutcome,
    decided: Sequence[tuple[FailedRecord, Retry | GiveUp | None]],
) -> None:
    """Track the records of a fresh slice, one at least, whose failures are decided upon.

    Raises:
        OutOfOrder: they do not come after every record read before, or its failures or open records do not fit
            into it.
    """
    assert outcome.first is not None
    assert outcome.last is not None
    carved = [_carved(failure, decision) for failure, decision in decided]
    carved.extend(map(_in_flight, outcome.open_records))
    tracker.emitted_span(outcome.first, outcome.last, outcome.count)
    tracker.settle(outcome.first, carved)


def due_times(decided: Iterable[tuple[FailedRecord, object]], now: float) -> dict[int, float]:
    """Tell when failed records come again, by their index; not those that do not."""
    return {
        failure.index: now + decision.delay_seconds
        for failure, decision in decided
        if isinstance(decision, Retry)
    }


def due_with_stand_in(held: FailedRecord, due_times: Mapping[int, float]) -> float:
    """Tell when a held record is due: with the failed record that stood for it; otherwise at once."""
    return -inf if held.stand_in is None else due_times.get(held.stand_in, -inf)


def _carved(failure: FailedRecord, decision: Retry | GiveUp | None) -> Carved:
    return Carved(
        index=failure.index,
        sequence=failure.sequence,
        previous=failure.previous,
        state=RecordState.EXHAUSTED if isinstance(decision, GiveUp) else RecordState.WAITING,
        attempts=failure.attempt,
    )


def _in_flight(delivery: OpenRecord) -> Carved:
    return Carved(
        index=delivery.index,
        sequence=delivery.sequence,
        previous=delivery.previous,
        state=RecordState.IN_FLIGHT,
        attempts=delivery.attempt,
    )
