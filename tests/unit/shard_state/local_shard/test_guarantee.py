"""What is stored of a shard under each guarantee, and what may be handed out."""

from typing import Final

import pytest

from shard_state import (
    SHARD_START,
    Capacity,
    Checkpoint,
    Exhausted,
    Guarantee,
    LocalShardState,
    Order,
    Position,
    RetryPolicy,
    SequenceNumber,
    Shard,
    ShardPhase,
)
from shard_state.local_shard.guarantee import Claims

pytestmark = pytest.mark.no_second_run

FRESH: Final = Checkpoint(start=Position.trim_horizon(), epoch=1)
WITHOUT_RETRIES: Final = (Guarantee.AT_MOST_ONCE, Guarantee.NONE)


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def owned(
    guarantee: Guarantee, checkpoint: Checkpoint = FRESH, order: Order = Order.UNORDERED
) -> LocalShardState:
    return LocalShardState(
        Shard(shard_id="shard-0"),
        checkpoint,
        random=lambda: 0.5,
        retry=RetryPolicy(limit=3),
        order=order,
        capacity=Capacity(),
        guarantee=guarantee,
    )


def emit(state: LocalShardState, *numbers: int, key: str | None = None) -> list[bool]:
    return [state.emit(n(number), key, now=0.0).deliver for number in numbers]


def fail(state: LocalShardState, number: int) -> object:
    return state.fail(n(number), 0.0, attempt=1, partition_key="a")


def store(state: LocalShardState) -> Checkpoint:
    """Store the progress; gives what a reader of the stored form finds."""
    checkpoint = Checkpoint.decode(state.checkpoint("test").encode())
    state.mark_committed(checkpoint, state.revision)
    return checkpoint


class TestNone:
    def test_what_is_handed_out_counts_as_finished(self) -> None:
        state = owned(Guarantee.NONE)
        emit(state, 1, 2, 3)
        assert state.is_dirty
        stored = store(state)
        assert (stored.base, stored.holes, stored.attempts, stored.anchor) == (n(3), (), (), None)
        assert not state.is_dirty

    def test_a_record_held_behind_its_key_does_not(self) -> None:
        state = owned(Guarantee.NONE, order=Order.KEY)
        emit(state, 1, key="a")
        fail(state, 1)
        assert emit(state, 2, key="a") == [False]
        assert emit(state, 3, key="b") == [True]
        stored = store(state)
        assert (stored.base, stored.holes) == (n(1), ((n(2), n(3)),))

    def test_the_base_does_not_go_back_when_a_delivery_is_withdrawn(self) -> None:
        state = owned(Guarantee.NONE, order=Order.KEY)
        emit(state, 1, 2, key="a")
        fail(state, 1)
        emit(state, 3, key="a")
        assert store(state).base == n(2)
        state.dead_lettered(n(1), 0.0)
        state.ack(n(2), 0.0)
        retry = state.take_retry(0.0)
        assert retry is not None
        assert store(state).base == n(3)
        state.withdraw(n(3), "a")
        assert store(state).base == n(3)

    def test_the_end_of_a_shard_waits_for_what_is_out(self) -> None:
        state = owned(Guarantee.NONE)
        emit(state, 1)
        state.end_read()
        assert store(state).base == n(1)
        state.ack(n(1), 0.0)
        assert store(state).is_shard_end
        assert state.phase is ShardPhase.OVER


@pytest.mark.parametrize("guarantee", WITHOUT_RETRIES)
def test_a_failure_is_given_up_at_once(guarantee: Guarantee) -> None:
    state = owned(guarantee)
    emit(state, 1, 2)
    assert isinstance(fail(state, 1), Exhausted)


class TestAtMostOnce:
    def test_a_record_may_be_handed_out_once_its_claim_is_stored(self) -> None:
        state = owned(Guarantee.AT_MOST_ONCE)
        assert not state.may_hand_out(n(1))
        assert state.claim(n(1), n(5))
        assert state.is_dirty
        assert not state.may_hand_out(n(1))
        store(state)
        assert state.may_hand_out(n(1))
        assert state.may_hand_out(n(5))
        assert not state.may_hand_out(n(6))

    def test_a_claim_that_is_made_while_a_commit_is_under_way_is_not_stored_by_it(self) -> None:
        state = owned(Guarantee.AT_MOST_ONCE)
        before, revision = state.checkpoint("test"), state.revision
        state.claim(n(1), n(5))
        state.mark_committed(before, revision)
        assert not state.may_hand_out(n(1))
        assert state.is_dirty

    def test_a_claim_is_made_once(self) -> None:
        state = owned(Guarantee.AT_MOST_ONCE)
        assert state.claim(n(1), n(5))
        assert not state.claim(n(5), n(9))
        assert state.claim(n(6), n(9))

    def test_a_claim_is_stored_as_a_hole_so_that_the_base_need_not_go_back(self) -> None:
        state = owned(Guarantee.AT_MOST_ONCE)
        state.claim(n(1), n(5))
        stored = store(state)
        assert (stored.base, stored.holes) == (SHARD_START, ((SHARD_START, n(5)),))
        emit(state, 1, 2)
        stored = store(state)
        assert (stored.base, stored.holes) == (n(2), ((n(2), n(5)),))
        state.end_claims()
        stored = store(state)
        assert (stored.base, stored.holes) == (n(2), ())
        assert not state.may_hand_out(n(3))
        assert state.claim(n(3), n(5)), "as the shard may stay after all"

    def test_nothing_is_handed_out_for_a_commit_that_was_under_way_when_the_claims_ended(self) -> None:
        state = owned(Guarantee.AT_MOST_ONCE)
        state.claim(n(1), n(5))
        pending, revision = state.checkpoint("test"), state.revision
        state.end_claims()
        state.mark_committed(pending, revision)
        assert not state.may_hand_out(n(1))
        assert state.is_dirty, "the claim is to be taken back in the store"

    @pytest.mark.parametrize("guarantee", Guarantee)
    def test_what_was_claimed_before_a_crash_is_not_delivered_again(self, guarantee: Guarantee) -> None:
        before = owned(Guarantee.AT_MOST_ONCE)
        before.claim(n(1), n(5))
        store(before)
        emit(before, 1, 2)
        after = owned(guarantee, store(before))
        assert emit(after, 3, 4, 5, 6) == [False, False, False, True]

    @pytest.mark.parametrize("guarantee", Guarantee)
    def test_not_even_where_retention_has_taken_the_first_of_it(self, guarantee: Guarantee) -> None:
        before = owned(Guarantee.AT_MOST_ONCE)
        before.claim(n(1), n(5))
        after = owned(guarantee, store(before))
        assert emit(after, 4, 5, 6) == [False, False, True]

    def test_attempts_of_records_in_a_claim_are_not_stored(self) -> None:
        checkpoint = Checkpoint(
            start=Position.trim_horizon(), base=n(1), attempts=((n(2), 1), (n(8), 2)), epoch=1
        )
        state = owned(Guarantee.AT_MOST_ONCE, checkpoint)
        state.claim(n(2), n(5))
        stored = store(state)
        assert (stored.holes, stored.attempts) == (((n(1), n(5)),), ((n(8), 2),))


class TestClaimsAmongHoles:
    @pytest.mark.parametrize(
        ("holes", "expected"),
        [
            ([], [(1, 5)]),
            ([(2, 4)], [(1, 5)]),
            ([(2, 5)], [(1, 5)]),
            ([(4, 9)], [(1, 9)]),
            ([(5, 9)], [(1, 9)]),
            ([(7, 9)], [(1, 5), (7, 9)]),
            ([(2, 3), (4, 6), (7, 9)], [(1, 6), (7, 9)]),
        ],
    )
    def test_a_claim_takes_in_the_holes_that_it_meets(
        self, holes: list[tuple[int, int]], expected: list[tuple[int, int]]
    ) -> None:
        claims = Claims()
        claims.claim(n(2), n(5))
        found, _ = claims.added_to(n(1), tuple((n(after), n(last)) for after, last in holes), ())
        assert found == tuple((n(after), n(last)) for after, last in expected)

    def test_a_claim_that_the_base_has_passed_adds_nothing(self) -> None:
        claims = Claims()
        claims.claim(n(2), n(5))
        assert claims.added_to(n(5), ((n(6), n(7)),), ((n(8), 1),)) == (((n(6), n(7)),), ((n(8), 1),))
