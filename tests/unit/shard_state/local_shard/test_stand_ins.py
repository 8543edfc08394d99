"""Records that are held with a later one of their key, which was handled in their place and failed."""

import pytest

from shard_state import (
    Capacity,
    Checkpoint,
    FailedRecord,
    Fate,
    LocalShardState,
    Order,
    Position,
    Redelivery,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SliceOutcome,
)
from shard_state.local_shard.slice_settling import settle_fresh, settle_retries

pytestmark = pytest.mark.no_second_run

BACKOFF_SECONDS = 10.0


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


@pytest.fixture
def state() -> LocalShardState:
    return LocalShardState(
        Shard(shard_id="shard-0"),
        Checkpoint(start=Position.trim_horizon()),
        random=lambda: 0.5,
        retry=RetryPolicy(limit=1, backoff_seconds=BACKOFF_SECONDS, jitter=0.0),
        order=Order.KEY,
        capacity=Capacity(),
    )


def failed(index: int, number: int, *, attempt: int = 1, stand_in: int | None = None) -> FailedRecord:
    held = stand_in is not None
    return FailedRecord(
        index=index,
        sequence=n(number),
        previous=n(number - 1) if index else None,
        attempt=attempt - held,
        fate=Fate.HELD if held else Fate.FAILED,
        stand_in=stand_in,
        partition_key="k",
    )


def settle(state: LocalShardState, *failures: FailedRecord) -> list[int]:
    """Settle records 1 to 3; gives what is given up."""
    outcome = SliceOutcome(first=n(1), last=n(3), count=3, failures=failures)
    return [each.sequence.number for each in settle_fresh(state, outcome, 0.0)]


def take(state: LocalShardState, now: float) -> tuple[Redelivery, ...]:
    return state.take_retries(now, 100, whole_lines=True)


def test_both_come_again_together_and_only_the_one_that_failed_has_used_an_attempt(
    state: LocalShardState,
) -> None:
    assert settle(state, failed(0, 1, stand_in=2), failed(2, 3)) == []

    assert take(state, BACKOFF_SECONDS - 1) == ()
    assert [(each.sequence.number, each.attempt) for each in take(state, BACKOFF_SECONDS)] == [(1, 1), (3, 2)]


def test_a_held_record_comes_at_once_when_the_one_that_stood_for_it_is_given_up(
    state: LocalShardState,
) -> None:
    settle(state, failed(0, 1, stand_in=2), failed(2, 3))
    retries = take(state, BACKOFF_SECONDS)
    outcome = SliceOutcome(failures=(failed(0, 1, stand_in=1), failed(1, 3, attempt=2)))
    (given_up,) = settle_retries(state, retries, outcome, BACKOFF_SECONDS)

    assert given_up.sequence == n(3)
    assert [(each.sequence.number, each.attempt) for each in take(state, BACKOFF_SECONDS)] == [(1, 1)]


def test_they_are_finished_together(state: LocalShardState) -> None:
    settle(state, failed(0, 1, stand_in=2), failed(2, 3))
    retries = take(state, BACKOFF_SECONDS)
    settle_retries(state, retries, SliceOutcome(), BACKOFF_SECONDS)

    assert state.tracker.base == n(3)


def test_after_its_second_failure_too_the_one_that_stood_for_others_brings_them_when_it_is_due() -> None:
    state = LocalShardState(
        Shard(shard_id="shard-0"),
        Checkpoint(start=Position.trim_horizon()),
        random=lambda: 0.5,
        retry=RetryPolicy(limit=2, backoff_seconds=BACKOFF_SECONDS, jitter=0.0),
        order=Order.KEY,
        capacity=Capacity(),
    )
    settle(state, failed(0, 1, stand_in=2), failed(2, 3))
    retries = take(state, BACKOFF_SECONDS)
    outcome = SliceOutcome(failures=(failed(0, 1, stand_in=1), failed(1, 3, attempt=2)))
    assert settle_retries(state, retries, outcome, BACKOFF_SECONDS) == []

    assert take(state, 3 * BACKOFF_SECONDS - 1) == ()
    again = take(state, 3 * BACKOFF_SECONDS)
    assert [(each.sequence.number, each.attempt) for each in again] == [(1, 1), (3, 3)]
