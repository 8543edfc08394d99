"""Records that became too old before they reached anybody."""

import pytest

from shard_state import (
    Capacity,
    Checkpoint,
    Exhausted,
    Fate,
    LocalShardState,
    Order,
    Position,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SliceOutcome,
    UnackedRecord,
)
from shard_state.local_shard.slice_settling import settle_fresh

pytestmark = pytest.mark.no_second_run


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


@pytest.fixture
def state() -> LocalShardState:
    return LocalShardState(
        Shard(shard_id="shard-0"),
        Checkpoint(start=Position.trim_horizon()),
        random=lambda: 0.5,
        retry=RetryPolicy(limit=3, backoff_seconds=10.0, jitter=0.0),
        order=Order.KEY,
        capacity=Capacity(),
    )


def test_an_expiry_is_there_to_be_stored(state: LocalShardState) -> None:
    assert state.emit(n(1), "k", 0.0).deliver
    state.mark_committed(state.checkpoint("app"), state.revision)
    assert not state.is_dirty
    assert state.fail(n(1), 0.0, attempt=1, fate=Fate.EXPIRED) is not None
    assert state.is_dirty


def test_later_records_of_its_key_do_not_wait_for_one_that_expired_at_its_first_delivery(
    state: LocalShardState,
) -> None:
    state.emit(n(1), "k", 0.0)
    state.fail(n(1), 0.0, attempt=1, fate=Fate.EXPIRED, partition_key="k")
    assert state.emit(n(2), "k", 0.0).deliver


@pytest.mark.parametrize("expired", [True, False])
def test_of_a_slice_only_what_was_given_up_otherwise_holds_up_its_key(
    state: LocalShardState,
    expired: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    fate = Fate.EXPIRED if expired else Fate.REJECTED
    failure = UnackedRecord(index=0, sequence=n(1), previous=None, attempt=1, partition_key="k", fate=fate)
    outcome = SliceOutcome(first=n(1), last=n(2), count=2, failures=(failure,))
    (given_up,) = settle_fresh(state, outcome, 0.0)
    assert given_up.expired == expired
    assert state.retries.blocked_keys == (frozenset() if expired else {"k"})


def test_what_waited_for_a_retry_that_expired_comes_when_its_dead_letter_is_durable(
    state: LocalShardState,
) -> None:
    state.emit(n(1), "k", 0.0)
    state.fail(n(1), 0.0, attempt=1, partition_key="k")
    assert not state.emit(n(2), "k", 0.0).deliver
    retry = state.take_retry(10.0)
    assert retry is not None
    assert isinstance(state.fail(n(1), 0.0, attempt=retry.attempt, fate=Fate.EXPIRED), Exhausted)
    assert state.take_retry(10.0) is None
    assert state.dead_lettered(n(1), 10.0)
    following = state.take_retry(10.0)
    assert following is not None
    assert following.sequence == n(2)
    assert state.retries.blocked_keys == frozenset({"k"})
    state.ack(n(2), 10.0)
    assert state.retries.blocked_keys == frozenset()
