from shard_state.deadlines import Deadlines
from shard_state.sequence_number import SequenceNumber

ONE, TWO, THREE = (SequenceNumber(number) for number in (1, 2, 3))


def test_a_delivery_times_out_when_its_deadline_has_passed_and_only_once() -> None:
    deadlines = Deadlines(30)
    deadlines.start("a", ONE, now=0)
    assert list(deadlines.expired(29.9)) == []
    assert list(deadlines.expired(30)) == [("a", ONE)]
    assert list(deadlines.expired(31)) == []


def test_a_delivery_that_ended_is_not_kept() -> None:
    deadlines = Deadlines(30)
    for number in range(10_000):
        deadlines.start("a", SequenceNumber(number), now=0)
        deadlines.end("a", SequenceNumber(number))
    assert len(deadlines) == 0


def test_a_second_delivery_has_a_deadline_of_its_own_behind_those_that_began_before_it() -> None:
    deadlines = Deadlines(30)
    deadlines.start("a", ONE, now=0)
    deadlines.start("b", TWO, now=5)
    deadlines.start("a", ONE, now=10)
    assert list(deadlines.expired(35)) == [("b", TWO)]
    assert list(deadlines.expired(40)) == [("a", ONE)]


def test_the_deliveries_of_a_lost_shard_are_forgotten() -> None:
    deadlines = Deadlines(30)
    deadlines.start("a", ONE, now=0)
    deadlines.start("b", TWO, now=0)
    deadlines.forget("a")
    assert list(deadlines.expired(100)) == [("b", TWO)]


def test_without_a_timeout_nothing_is_kept() -> None:
    deadlines = Deadlines(None)
    deadlines.start("a", THREE, now=0)
    assert len(deadlines) == 0
