from collections import Counter
from typing import Any

import pytest

from kinesis_spout.storm.components.tuples import Source, Tuple
from kinesis_spout.storm.hosting.pending_tuples import PendingTuples, UnknownTuple

SOURCE = Source("words", "default", 1, ("word",))


class Given:
    """Tuples of the second lease, and what was counted."""

    def __init__(self, count: int) -> None:
        self.counted: Counter[str] = Counter()
        self.tuples = PendingTuples(2, lambda what, times: self.counted.update({what: times}))
        self.ids = [self.give(f"word {number}") for number in range(count)]

    def give(self, word: str) -> str:
        tuple_id = self.tuples.next_id()
        self.tuples.pending[tuple_id] = Tuple((word,), SOURCE)
        return tuple_id


def test_a_tuple_is_answered_once() -> None:
    given = Given(2)
    tup = given.tuples.answered(given.ids[0])
    assert tup is not None
    assert tup[0] == "word 0"
    assert given.tuples.answered(given.ids[0]) is None
    assert given.counted == {"answered_twice": 1}
    assert list(given.tuples.pending) == given.ids[1:]


def test_what_is_of_an_earlier_lease_or_was_given_up_is_late() -> None:
    given = Given(2)
    of_first_lease = str(int(given.ids[0]) - 10**12)
    given.tuples.forget([given.ids[0]])
    assert given.tuples.answered(of_first_lease) is None
    assert given.tuples.answered(given.ids[0]) is None
    assert given.tuples.anchors([given.ids[0]]) is None
    assert given.counted == {"overdue": 1, "late": 3}
    # What another tuple is anchored to still counts.
    assert given.tuples.anchors(given.ids) == [given.tuples.pending[given.ids[1]]]


@pytest.mark.parametrize("strange", ["9" * 30, "x", "", "9" * 5_000, 5, None, ["1"], {"id": 1}])
def test_an_id_that_nobody_gave_is_told(strange: Any) -> None:
    with pytest.raises(UnknownTuple, match="never given"):
        Given(1).tuples.answered(strange)


def test_an_anchor_that_was_answered_is_told_and_a_tick_is_none() -> None:
    given = Given(1)
    tick = given.tuples.give_tick()
    assert given.tuples.anchors([tick]) == []
    assert given.tuples.answered(tick) is None
    given.tuples.answered(given.ids[0])
    with pytest.raises(UnknownTuple, match="acked or failed before"):
        given.tuples.anchors(given.ids)
    assert given.counted == {}


def test_tuples_that_the_child_has_taken_in_do_not_crowd_its_input() -> None:
    given = Given(3)
    heartbeat = given.tuples.next_id()
    given.give("after the heart-beat")
    assert given.tuples.crowd == 4
    given.tuples.took_in(heartbeat)
    assert given.tuples.crowd == 1
    assert given.tuples.has_untaken
    given.tuples.answered(given.ids[0])
    assert given.tuples.crowd == 1
    given.tuples.forget(given.ids[1:2])
    assert given.tuples.crowd == 1
    (taken,) = given.tuples.take_out([given.tuples.pending[given.ids[2]]])
    assert taken[0] == "word 2"
    assert given.tuples.crowd == 1
