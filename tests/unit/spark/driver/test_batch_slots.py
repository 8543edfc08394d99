"""The slots for micro-batches, which several engines share."""

from kinesis_spout.spark.driver.batch_slots import BatchSlots


class Asker:
    """Asks for slots, and notes how often it was woken."""

    def __init__(self, slots: BatchSlots) -> None:
        self.slots = slots
        self.woken = 0

    def take(self) -> bool:
        return self.slots.take(self, self._wake)

    def give_back(self) -> None:
        self.slots.give_back(self)

    def _wake(self) -> None:
        self.woken += 1


def test_there_are_so_many_and_no_more() -> None:
    slots = BatchSlots(2)
    one, two = Asker(slots), Asker(slots)
    assert [one.take(), two.take(), two.take()] == [True, True, False]


def test_a_slot_that_is_given_back_belongs_to_who_asked_first() -> None:
    slots = BatchSlots(1)
    busy, first, second = Asker(slots), Asker(slots), Asker(slots)
    assert busy.take()
    assert not first.take()
    assert not second.take()
    busy.give_back()
    assert (first.woken, second.woken) == (1, 0)
    assert not busy.take(), "although nobody holds it now"
    assert first.take()
    first.give_back()
    assert second.woken == 1


def test_who_asks_again_while_it_waits_keeps_its_place() -> None:
    slots = BatchSlots(1)
    busy, first, second = Asker(slots), Asker(slots), Asker(slots)
    busy.take()
    for asker in (first, second, first):
        assert not asker.take()
    busy.give_back()
    assert (first.woken, second.woken) == (1, 0)


def test_who_withdraws_lets_the_next_one_have_it() -> None:
    slots = BatchSlots(1)
    busy, first, second = Asker(slots), Asker(slots), Asker(slots)
    busy.take()
    first.take()
    second.take()
    busy.give_back()
    slots.withdraw(first)
    assert second.woken == 1
    assert second.take()


def test_who_leaves_gives_back_what_it_holds_and_what_ends_later_counts_no_more() -> None:
    slots = BatchSlots(2)
    leaving, other = Asker(slots), Asker(slots)
    leaving.take()
    leaving.take()
    assert not other.take()
    slots.leave(leaving)
    assert other.take()
    assert other.take()
    leaving.give_back()
    assert not other.take()
