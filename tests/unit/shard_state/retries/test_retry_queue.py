from shard_state import RetryQueue, SequenceNumber

ONE, TWO, THREE = map(SequenceNumber, (1, 2, 3))


def test_nothing_is_offered_before_it_is_due() -> None:
    queue = RetryQueue()
    queue.add(ONE, 5.0)
    assert queue.first_due(4.9) is None
    assert queue.first_due(5.0) == ONE


def test_records_come_by_due_time_then_in_shard_order() -> None:
    queue = RetryQueue()
    for sequence, due_at in ((THREE, 1.0), (TWO, 2.0), (ONE, 2.0)):
        queue.add(sequence, due_at)
    order = []
    while (first := queue.first_due(9.0)) is not None:
        order.append(first)
        queue.cancel(first)
    assert order == [THREE, ONE, TWO]


def test_a_record_that_fails_twice_is_queued_once() -> None:
    queue = RetryQueue()
    assert queue.add(ONE, 5.0)
    assert not queue.add(ONE, 1.0)
    assert len(queue) == 1
    assert queue.first_due(4.9) is None
    assert queue.cancel(ONE)
    assert queue.next_due() is None


def test_a_cancelled_record_leaves_no_dead_entry_in_front_of_the_others() -> None:
    queue = RetryQueue()
    queue.add(ONE, 1.0)
    queue.add(TWO, 2.0)
    assert queue.cancel(ONE)
    assert not queue.cancel(ONE)
    assert queue.next_due() == 2.0
    assert queue.first_due(9.0) == TWO
    assert ONE not in queue
    assert list(queue) == [TWO]


def test_a_record_queued_again_after_a_cancel_is_due_at_its_new_time() -> None:
    queue = RetryQueue()
    queue.add(ONE, 1.0)
    queue.cancel(ONE)
    queue.add(ONE, 7.0)
    assert queue.next_due() == 7.0


def test_cancelled_entries_do_not_pile_up() -> None:
    queue = RetryQueue()
    queue.add(ONE, 0.0)
    for at in range(10_000):
        queue.add(TWO, 10.0 + at)
        queue.cancel(TWO)
    assert len(queue._heap) <= 70
