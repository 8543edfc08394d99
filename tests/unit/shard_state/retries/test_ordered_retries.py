import pytest

from shard_state import Order, SequenceNumber
from shard_state.retries.ordered_retries import OrderedRetries

pytestmark = pytest.mark.no_second_run

ONE, TWO, THREE, FOUR = map(SequenceNumber, (1, 2, 3, 4))


def test_without_order_nobody_waits_behind_anybody() -> None:
    retries = OrderedRetries(Order.UNORDERED)
    retries.wait(ONE, "k", 5.0)
    assert not retries.blocks("k")
    assert not retries.blocks_shard
    retries.wait(TWO, "k", 1.0)
    assert retries.first_due(1.0) == TWO
    assert retries.behind(ONE, 9.0) == []


def test_by_key_only_records_of_the_same_key_wait() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(ONE, "k", 5.0)
    assert retries.blocks("k")
    assert not retries.blocks("other")
    assert retries.blocked_keys == {"k"}
    assert not retries.blocks_shard


def test_a_record_without_a_key_blocks_nobody_and_is_blocked_by_nobody() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(ONE, None, 5.0)
    assert not retries.blocks(None)
    assert retries.blocked_keys == frozenset()


def test_by_shard_everybody_waits() -> None:
    retries = OrderedRetries(Order.SHARD)
    assert not retries.blocks_shard
    retries.wait(ONE, "k", 5.0)
    assert retries.blocks("other")
    assert retries.blocks(None)
    retries.finished(ONE, 6.0)
    assert not retries.blocks_shard


@pytest.mark.parametrize("order", [Order.KEY, Order.SHARD])
def test_held_records_come_one_by_one_in_shard_order(order: Order) -> None:
    retries = OrderedRetries(order)
    retries.wait(ONE, "k", 5.0)
    retries.wait(THREE, "k", 1.0)
    retries.wait(TWO, "k", 1.0)
    came = []
    for now in (5.0, 6.0, 7.0):
        first = retries.first_due(now)
        assert first is not None
        retries.take(first)
        assert retries.first_due(now) is None
        retries.finished(first, now)
        came.append(first)
    assert came == [ONE, TWO, THREE]
    assert len(retries) == 0


def test_a_record_keeps_its_place_in_the_line_while_it_is_delivered_again() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(ONE, "k", 0.0)
    retries.take(ONE)
    assert retries.blocks("k")


def test_an_earlier_record_that_fails_later_goes_to_the_front() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(TWO, "k", 1.0)
    retries.wait(ONE, "k", 9.0)
    assert retries.first_due(8.0) is None
    assert retries.first_due(9.0) == ONE


def test_an_earlier_record_that_is_held_goes_to_the_front_too() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(TWO, "k", 1.0)
    retries.wait(ONE, "k", 3.0)
    assert retries.first_due(2.0) is None
    assert retries.first_due(3.0) == ONE


def test_the_second_of_a_line_keeps_its_own_delay_when_the_first_is_finished() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.block(ONE, "k")
    retries.wait(TWO, "k", 60.0)
    retries.finished(ONE, 2.0)
    assert retries.first_due(59.0) is None
    assert retries.first_due(60.0) == TWO


def test_a_record_that_is_out_or_given_up_is_not_offered_when_the_one_before_it_is_finished() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(ONE, "k", 0.0)
    retries.block(TWO, "k")
    retries.wait(THREE, "k", 0.0)
    retries.finished(ONE, 1.0)
    assert retries.next_due() is None
    retries.finished(TWO, 2.0)
    assert retries.first_due(2.0) == THREE


def test_a_given_up_record_lets_nobody_overtake() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(ONE, "k", 0.0)
    retries.wait(TWO, "k", 0.0)
    retries.block(THREE, "k")
    retries.wait(FOUR, "k", 0.0)
    assert retries.behind(ONE, 0.0) == [TWO]


def test_a_record_behind_that_is_not_due_yet_does_not_come_along() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(ONE, "k", 0.0)
    retries.wait(TWO, "k", 60.0)
    assert retries.behind(ONE, 0.0) == []
    assert retries.behind(ONE, 60.0) == [TWO]


def test_a_record_that_fails_twice_keeps_its_first_due_time() -> None:
    retries = OrderedRetries(Order.UNORDERED)
    retries.wait(ONE, "k", 5.0)
    retries.wait(ONE, "k", 1.0)
    assert retries.next_due() == 5.0
    assert len(retries) == 1


def test_finishing_a_record_that_never_failed_changes_nothing() -> None:
    retries = OrderedRetries(Order.KEY)
    retries.wait(TWO, "k", 5.0)
    retries.finished(ONE, 1.0)
    assert retries.next_due() == 5.0


def test_a_long_line_costs_no_search_per_record() -> None:
    """Counted in comparisons: one more record must not cost a walk along the line."""
    compared = 0

    class Counted(SequenceNumber):
        __slots__ = ()
        __hash__ = SequenceNumber.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple(self) == other

        def __lt__(self, other: tuple[object, ...]) -> bool:
            nonlocal compared
            compared += 1
            return tuple(self) < other

    retries = OrderedRetries(Order.SHARD)
    records = [Counted(number) for number in range(2_000)]
    for record in records:
        retries.wait(record, None, 0.0)
    for record in records:
        retries.finished(record, 0.0)
    assert compared < 40 * len(records)


def test_nothing_is_offered_before_it_is_due() -> None:
    retries = OrderedRetries(Order.UNORDERED)
    retries.wait(ONE, None, 5.0)
    assert retries.first_due(4.9) is None
    assert retries.first_due(5.0) == ONE


def test_records_come_by_due_time_then_in_shard_order() -> None:
    retries = OrderedRetries(Order.UNORDERED)
    for sequence, due_at in ((THREE, 1.0), (TWO, 2.0), (ONE, 2.0)):
        retries.wait(sequence, None, due_at)
    order = []
    while (first := retries.first_due(9.0)) is not None:
        order.append(first)
        retries.take(first)
    assert order == [THREE, ONE, TWO]


def test_a_record_that_waits_keeps_its_time() -> None:
    retries = OrderedRetries(Order.UNORDERED)
    retries.wait(ONE, None, 5.0)
    retries.wait(ONE, None, 1.0)
    assert retries.first_due(4.9) is None
    retries.take(ONE)
    assert retries.next_due() is None


def test_a_record_that_is_taken_is_not_in_front_of_the_others() -> None:
    retries = OrderedRetries(Order.UNORDERED)
    retries.wait(ONE, None, 1.0)
    retries.wait(TWO, None, 2.0)
    retries.take(ONE)
    assert retries.next_due() == 2.0
    assert retries.first_due(9.0) == TWO


def test_a_record_that_waits_again_is_due_at_its_new_time() -> None:
    retries = OrderedRetries(Order.UNORDERED)
    retries.wait(ONE, None, 1.0)
    retries.take(ONE)
    retries.wait(ONE, None, 7.0)
    assert retries.next_due() == 7.0


def test_dead_entries_do_not_pile_up() -> None:
    retries = OrderedRetries(Order.UNORDERED)
    retries.wait(ONE, None, 0.0)
    for at in range(10_000):
        retries.wait(TWO, None, 10.0 + at)
        retries.take(TWO)
    assert len(retries._offered) <= 70
