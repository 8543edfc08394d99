import pytest

from shard_state import (
    SHARD_START,
    Checkpoint,
    InflightRecordTracker,
    Position,
    RecordEvent,
    RecordState,
    SequenceNumber,
)
from shard_state.errors import OutOfOrder
from shard_state.tracker.record_life import TRANSITIONS
from shard_state.tracker.span import Carved

pytestmark = pytest.mark.no_second_run

S, E = RecordState, RecordEvent

INTO = {S.IN_FLIGHT: (), S.WAITING: (E.FAIL,), S.EXHAUSTED: (E.EXHAUST,), S.FINISHED: (E.ACK,)}
"""What brings a record that was emitted into each state."""


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def restored(
    *,
    base: int = 0,
    holes: tuple[tuple[int, int], ...] = (),
    anchor: int | None = None,
    attempts: dict[int, int] | None = None,
) -> InflightRecordTracker:
    return InflightRecordTracker(
        Checkpoint(
            start=Position.trim_horizon(),
            base=n(base) if base else SHARD_START,
            holes=tuple((n(after), n(last)) for after, last in holes),
            anchor=None if anchor is None else n(anchor),
            attempts=tuple((n(number), count) for number, count in (attempts or {}).items()),
        )
    )


def with_emitted(last: int) -> InflightRecordTracker:
    tracker = restored()
    for number in range(1, last + 1):
        tracker.emitted(n(number))
    return tracker


def ack(tracker: InflightRecordTracker, *numbers: int) -> None:
    for number in numbers:
        assert tracker.apply(n(number), E.ACK)


def spans(tracker: InflightRecordTracker) -> int:
    """What the memory grows with."""
    return len(tracker._unresolved) + tracker.holes_read


def failed(index: int, number: int, state: RecordState = S.WAITING, previous: int | None = None) -> Carved:
    return Carved(
        index=index,
        sequence=n(number),
        previous=n(number - 1 if previous is None else previous) if index else None,
        state=state,
        attempts=1,
    )


class TestTheTable:
    def test_every_state_answers_every_event(self) -> None:
        assert set(TRANSITIONS) == {(state, event) for state in S for event in E}

    def test_these_are_all_the_moves_there_are(self) -> None:
        moves = {(*pair, state) for pair, state in TRANSITIONS.items() if state is not pair[0]}
        assert moves == {
            (S.IN_FLIGHT, E.ACK, S.FINISHED),
            (S.IN_FLIGHT, E.FAIL, S.WAITING),
            (S.IN_FLIGHT, E.WITHDRAW, S.WAITING),
            (S.IN_FLIGHT, E.EXHAUST, S.EXHAUSTED),
            (S.WAITING, E.ACK, S.FINISHED),
            (S.WAITING, E.EXHAUST, S.EXHAUSTED),
            (S.WAITING, E.REDELIVER, S.IN_FLIGHT),
            (S.EXHAUSTED, E.ACK, S.FINISHED),
            (S.EXHAUSTED, E.DEAD_LETTER, S.FINISHED),
        }

    def test_a_record_is_finished_only_by_an_ack_or_a_durable_dead_letter(self) -> None:
        into = {
            event
            for (state, event), after in TRANSITIONS.items()
            if after is S.FINISHED and state is not S.FINISHED
        }
        assert into == {E.ACK, E.DEAD_LETTER}
        assert TRANSITIONS[S.WAITING, E.DEAD_LETTER] is S.WAITING

    @pytest.mark.parametrize("event", RecordEvent)
    def test_nothing_happens_to_a_finished_record(self, event: RecordEvent) -> None:
        tracker = with_emitted(2)
        ack(tracker, 2)
        assert not tracker.apply(n(2), event)
        assert tracker.base == SHARD_START

    @pytest.mark.parametrize("event", RecordEvent)
    def test_a_report_on_an_unknown_record_is_harmless(self, event: RecordEvent) -> None:
        assert not with_emitted(2).apply(n(99), event)


class TestTheBase:
    def test_it_is_the_longest_finished_prefix(self) -> None:
        tracker = with_emitted(5)
        ack(tracker, 2, 3)
        assert tracker.base == SHARD_START
        ack(tracker, 1)
        assert tracker.base == n(3)
        ack(tracker, 5)
        assert tracker.base == n(3)
        ack(tracker, 4)
        assert tracker.base == n(5)

    def test_an_exhausted_record_holds_it_until_the_dead_letter_is_durable(self) -> None:
        tracker = with_emitted(2)
        tracker.apply(n(1), E.EXHAUST)
        ack(tracker, 2)
        assert tracker.base == SHARD_START
        assert tracker.apply(n(1), E.DEAD_LETTER)
        assert tracker.base == n(2)

    def test_an_ack_after_a_fail_finishes_the_record(self) -> None:
        tracker = with_emitted(1)
        tracker.apply(n(1), E.FAIL)
        ack(tracker, 1)
        assert tracker.base == n(1)
        assert tracker.unresolved == 0

    def test_user_records_of_an_aggregate_move_it_one_by_one(self) -> None:
        tracker = restored()
        parts = [SequenceNumber(7, part) for part in range(3)]
        for part in parts:
            tracker.emitted(part)
        tracker.apply(parts[0], E.ACK)
        tracker.apply(parts[1], E.ACK)
        assert tracker.base == parts[1]


class TestTheOrder:
    @pytest.mark.parametrize("number", [4, 5])
    def test_a_record_is_handed_out_once_and_in_shard_order(self, number: int) -> None:
        tracker = with_emitted(5)
        with pytest.raises(OutOfOrder, match="expected a record after 5"):
            tracker.emitted(n(number))

    def test_a_record_at_the_base_is_out_of_order_too(self) -> None:
        tracker = restored(base=5)
        with pytest.raises(OutOfOrder):
            tracker.emitted_span(n(5), n(9), 5)

    @pytest.mark.parametrize(("first", "last", "count"), [(1, 2, 0), (2, 1, 2), (1, 2, 1), (1, 1, 2)])
    def test_a_span_must_hold_together(self, first: int, last: int, count: int) -> None:
        with pytest.raises(OutOfOrder, match="expected first <= last"):
            restored().emitted_span(n(first), n(last), count)


class TestSlices:
    def test_acking_a_slice_of_ten_thousand_records_touches_one_span(self) -> None:
        tracker = restored()
        for first in range(1, 100_001, 10_000):
            tracker.emitted_span(n(first), n(first + 9_999), 10_000)
        assert spans(tracker) == 10
        assert tracker.in_flight == 100_000
        tracker.settle(n(30_001))
        assert spans(tracker) == 10
        assert tracker.holes == 1
        tracker.settle(n(20_001))
        assert spans(tracker) == 9
        tracker.settle(n(1))
        assert (tracker.base, spans(tracker)) == (n(10_000), 8)

    def test_the_memory_of_a_slice_grows_with_its_failures_only(self) -> None:
        tracker = restored()
        tracker.emitted_span(n(1), n(10_000), 10_000)
        tracker.settle(n(1), [failed(at, at + 1) for at in (10, 20, 21, 9_999)])
        assert tracker.base == n(10)
        assert tracker.waiting == 4
        assert spans(tracker) == 4 + 2
        assert len(tracker._unresolved) == 4

    def test_a_slice_is_settled_once(self) -> None:
        tracker = restored()
        tracker.emitted_span(n(1), n(10), 10)
        assert tracker.settle(n(1), [failed(4, 5)])
        assert not tracker.settle(n(1))
        assert tracker.state(n(5)) is S.WAITING
        assert tracker.base == n(4)

    def test_failures_come_in_any_order(self) -> None:
        tracker = restored()
        tracker.emitted_span(n(1), n(10), 10)
        tracker.settle(n(1), [failed(9, 10), failed(0, 1, S.EXHAUSTED), failed(4, 5)])
        assert [tracker.state(n(number)) for number in (1, 5, 10)] == [S.EXHAUSTED, S.WAITING, S.WAITING]
        assert tracker.hole_map()[0] == ((n(1), n(4)), (n(5), n(9)))

    def test_a_record_of_an_unsettled_slice_is_not_reported_on_its_own(self) -> None:
        tracker = restored()
        tracker.emitted_span(n(1), n(10), 10)
        assert not tracker.apply(n(1), E.ACK)
        assert tracker.state(n(1)) is None

    @pytest.mark.parametrize(
        "wrong",
        [
            [failed(10, 11)],  # behind the slice
            [failed(3, 5), failed(3, 6)],  # twice the same place
            [failed(5, 5), failed(3, 7)],  # places and numbers in different orders
            [failed(0, 2)],  # the first record has another number
            [failed(9, 9)],  # the last one too
            [failed(4, 10)],
            [failed(4, 1)],
            [failed(4, 5, previous=5)],  # a record before itself
            [Carved(index=4, sequence=n(5), previous=None, state=S.WAITING, attempts=1)],
        ],
    )
    def test_failures_that_do_not_fit_are_refused_and_change_nothing(self, wrong: list[Carved]) -> None:
        tracker = restored()
        tracker.emitted_span(n(1), n(10), 10)
        with pytest.raises(OutOfOrder, match=r"expected failures inside 1\.\.10"):
            tracker.settle(n(1), wrong)
        assert (tracker.in_flight, spans(tracker), tracker.base) == (10, 1, SHARD_START)


class TestAttempts:
    def test_a_redelivery_counts_and_a_withdrawal_takes_it_back(self) -> None:
        tracker = with_emitted(1)
        tracker.apply(n(1), E.FAIL)
        tracker.apply(n(1), E.REDELIVER)
        assert tracker.attempts(n(1)) == 2
        tracker.apply(n(1), E.WITHDRAW)
        assert tracker.attempts(n(1)) == 1

    def test_what_failed_once_is_stored_and_what_is_out_for_the_first_time_is_not(self) -> None:
        tracker = with_emitted(3)
        tracker.apply(n(2), E.FAIL)
        tracker.apply(n(3), E.FAIL)
        tracker.apply(n(3), E.REDELIVER)
        assert tracker.hole_map()[1] == ((n(2), 1), (n(3), 2))

    def test_they_survive_a_restart_until_the_record_is_read_again(self) -> None:
        tracker = restored(base=1, attempts={5: 2, 9: 1})
        assert tracker.attempts(n(5)) == 2
        tracker.emitted(n(5), attempts=3)
        assert tracker.restored_attempts == {n(9): 1}
        assert tracker.hole_map()[1] == ((n(5), 3), (n(9), 1))


class TestTheHoleMap:
    def test_it_claims_exactly_the_finished_records_beyond_the_base(self) -> None:
        tracker = with_emitted(9)
        ack(tracker, 1, 3, 4, 7)
        assert tracker.base == n(1)
        assert tracker.hole_map()[0] == ((n(2), n(4)), (n(6), n(7)))
        assert tracker.anchor == n(2)

    def test_restored_holes_are_joined_with_what_was_read_of_them(self) -> None:
        tracker = restored(base=1, holes=((2, 9),), anchor=2)
        tracker.emitted(n(2))
        assert tracker.was_finished(n(3))
        tracker.emitted(n(3), state=S.FINISHED)
        assert tracker.restored_holes == ((n(3), n(9)),)
        assert tracker.hole_map()[0] == ((n(2), n(9)),)
        ack(tracker, 2)
        assert tracker.base == n(3)
        assert tracker.hole_map()[0] == ((n(3), n(9)),)

    def test_a_slice_that_passes_restored_holes_takes_their_place(self) -> None:
        tracker = restored(base=1, holes=((2, 4), (6, 9), (20, 30)), anchor=2)
        tracker.emitted_span(n(2), n(7), 6)
        assert tracker.restored_holes == ((n(7), n(9)), (n(20), n(30)))
        tracker.settle(n(2), [failed(0, 2), failed(3, 5)])
        assert tracker.hole_map()[0] == ((n(2), n(4)), (n(5), n(9)), (n(20), n(30)))

    def test_membership_is_told_by_integer_order(self) -> None:
        tracker = restored(base=1, holes=((9, 11), (99, 101)), anchor=2)
        told = [number for number in range(1, 120) if tracker.was_finished(n(number))]
        assert told == [10, 11, 100, 101]

    def test_it_is_dropped_when_reading_begins_beyond_the_anchor(self) -> None:
        tracker = restored(base=1, holes=((4, 9),), anchor=2, attempts={2: 3})
        assert not tracker.restored_anchor_read(n(3))
        assert not tracker.was_finished(n(5))
        assert tracker.attempts(n(2)) == 0
        assert tracker.hole_map() == ((), ())
        assert tracker.anchor is None

    def test_it_is_kept_when_the_anchor_comes_first(self) -> None:
        tracker = restored(base=1, holes=((4, 9),), anchor=2)
        assert tracker.restored_anchor_read(n(2))
        assert tracker.was_finished(n(5))

    def test_a_base_that_is_followed_by_a_restored_hole_has_an_anchor_in_it(self) -> None:
        tracker = restored(base=1, holes=((2, 4), (6, 9)), anchor=2)
        tracker.emitted(n(2))
        ack(tracker, 2)
        assert (tracker.base, tracker.hole_map()[0]) == (n(2), ((n(2), n(4)), (n(6), n(9))))
        assert tracker.anchor == n(4)
        tracker.emitted(n(3), state=S.FINISHED)
        tracker.emitted(n(4), state=S.FINISHED)
        assert tracker.anchor == n(9)

    def test_a_base_before_restored_attempts_has_the_first_of_them_as_anchor(self) -> None:
        tracker = restored(base=1, holes=((8, 9),), anchor=2, attempts={2: 1, 7: 1})
        tracker.emitted(n(2))
        ack(tracker, 2)
        assert tracker.anchor == n(7)

    def test_a_gap_after_which_a_restored_record_is_missing_drops_it_later_too(self) -> None:
        tracker = restored(base=1, holes=((2, 4), (6, 9)), anchor=2)
        tracker.emitted(n(2))
        ack(tracker, 2)
        assert not tracker.restored_anchor_read(n(5))
        assert not tracker.was_finished(n(7))

    def test_the_anchor_is_compared_while_nothing_is_unfinished_only(self) -> None:
        tracker = restored(base=1, holes=((4, 9),), anchor=2)
        tracker.emitted(n(2))
        assert tracker.restored_anchor_read(n(3))
        assert tracker.was_finished(n(5))


def second_in(state: RecordState, deadline: float | None) -> InflightRecordTracker:
    """A tracker of three records, the second of which is in a state."""
    tracker = restored()
    for number in (1, 2, 3):
        tracker.emitted(n(number), deadline=deadline)
    for event in INTO[state]:
        tracker.apply(n(2), event)
    return tracker


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("deadline", [None, 30.0])
def test_acked_does_what_the_table_says_of_an_ack(state: RecordState, deadline: float | None) -> None:
    by_table, written_out = second_in(state, deadline), second_in(state, deadline)
    assert TRANSITIONS[state, E.ACK] is S.FINISHED
    attempts = None if state is S.FINISHED else by_table.attempts(n(2))
    assert by_table.apply(n(2), E.ACK) == (state is not S.FINISHED)
    assert written_out.acked(n(2)) == attempts
    for tracker in (by_table, written_out):
        assert not tracker.acked(n(2))
        assert tracker.state(n(2)) is None
        assert (tracker.in_flight, tracker.waiting, tracker.exhausted, tracker.holes) == (2, 0, 0, 1)
        assert tracker.expired(30.0) == ([] if deadline is None else [n(1), n(3)])
    assert written_out.hole_map() == by_table.hole_map()


def test_a_record_inside_an_unsettled_slice_cannot_be_acked_by_itself() -> None:
    tracker = restored()
    tracker.emitted_span(n(1), n(3), 3)
    assert not tracker.acked(n(1))
    assert tracker.settle(n(1))
    assert tracker.base == n(3)


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("deadline", [None, 7.0])
def test_redelivered_does_what_the_table_says_of_a_redelivery(
    state: RecordState, deadline: float | None
) -> None:
    by_table, written_out = second_in(state, deadline), second_in(state, deadline)
    changed = by_table.apply(n(2), E.REDELIVER)

    assert written_out.redelivered([n(2), n(99)]) == [(n(2), 2)] * changed
    for tracker in (by_table, written_out):
        tracker.apply(n(1), E.ACK)
    assert written_out.state(n(2)) is by_table.state(n(2))
    assert written_out.expired(9.0) == by_table.expired(9.0)
    assert (written_out.unresolved, written_out.waiting, written_out.exhausted, written_out.hole_map()) == (
        by_table.unresolved,
        by_table.waiting,
        by_table.exhausted,
        by_table.hole_map(),
    )
