import pytest

from shard_state import SequenceNumber
from shard_state.tracker.record_life import RecordState
from shard_state.tracker.span import Deadlines, Span

pytestmark = pytest.mark.no_second_run


def delivery(number: int) -> Span:
    return Span(SequenceNumber(number), SequenceNumber(number), 1, RecordState.IN_FLIGHT, 1)


def test_the_delivery_that_began_first_times_out_first() -> None:
    deadlines, one, two = Deadlines(), delivery(1), delivery(2)
    deadlines.start(one, 30.0, unresolved=1)
    deadlines.start(two, 31.0, unresolved=2)
    assert deadlines.next() is one
    one.deadline = None
    assert deadlines.next() is two
    two.deadline = None
    assert deadlines.next() is None


def test_a_second_delivery_stands_behind_those_that_began_before_it() -> None:
    deadlines, one, two = Deadlines(), delivery(1), delivery(2)
    deadlines.start(one, 30.0, unresolved=1)
    deadlines.start(two, 35.0, unresolved=2)
    one.deadline = None
    deadlines.start(one, 40.0, unresolved=2)
    assert deadlines.next() is two
    two.deadline = None
    assert deadlines.next() is one


def test_deliveries_that_ended_are_not_kept() -> None:
    deadlines, stuck = Deadlines(), delivery(0)
    deadlines.start(stuck, 0.0, unresolved=1)
    for number in range(1, 10_000):
        ended = delivery(number)
        deadlines.start(ended, float(number), unresolved=2)
        ended.deadline = None
    assert len(deadlines) < 100
    assert deadlines.next() is stuck


def test_a_record_that_is_delivered_again_and_again_is_not_kept_each_time() -> None:
    deadlines, stuck, retried = Deadlines(), delivery(0), delivery(1)
    deadlines.start(stuck, 0.0, unresolved=1)
    for number in range(10_000):
        retried.deadline = None
        deadlines.start(retried, float(number), unresolved=2)
    assert len(deadlines) < 100
    stuck.deadline = None
    assert deadlines.next() is retried
    assert retried.deadline == 9_999.0
