"""A record whose handling ends the whole process, in the plain-Python door: it is given up at its limit."""

from collections import Counter
from typing import Any

import pytest

from kinesis_spout.testing import StoreFault
from tests.support.consumer.world import SteppedWorld


class World(SteppedWorld):
    """A stream with a killer in it, and a process that is started again and again. Mutable."""

    def __init__(self, records: int, killer: int, shards: int = 1, **settings: Any) -> None:
        super().__init__(shards, **{"retry_limit": 3, **settings})
        for number in range(records):
            self.put(str(number), key=f"key-{number}")
        self.killer = str(killer)
        self.handled: Counter[str] = Counter()

    def run(self, in_hand: int = 1) -> bool:
        """Run one process, on a machine so fast that nothing is committed by time; True if it has died."""
        spout, hand = self.spout(), []
        idle = 0
        while idle < 50:
            emitted = spout.next_tuple()
            if emitted is not None:
                hand.append(emitted)
                idle = 0
            else:
                idle += 1
                self.clock.advance(0.5 if idle > 5 else 0.0)
            if len(hand) == in_hand or (emitted is None and hand):
                for each in hand:
                    payload = each.values.data.decode()
                    if payload == self.killer:
                        spout.crash()
                        return True
                    self.handled[payload] += 1
                    spout.ack(each.message_id)
                hand = []
        spout.close()
        return False


@pytest.mark.parametrize(("killer", "most_deaths"), [(0, 5), (1, 6), (250, 14)])
@pytest.mark.parametrize("shards", [1, 3])
def test_it_is_given_up_after_a_few_deaths_and_all_others_are_handled(
    killer: int, most_deaths: int, shards: int
) -> None:
    world = World(records=400, killer=killer, shards=shards)
    deaths = 0
    while world.run():
        deaths += 1
        assert deaths <= most_deaths
    assert world.given_up == [str(killer)]
    assert world.dead_letters.letters[0].attempts == 4
    assert "the process ended while it handled this record" in world.dead_letters.letters[0].error
    assert set(world.handled) == {str(number) for number in range(400)} - {str(killer)}


def test_without_retries_one_noted_death_is_enough() -> None:
    world = World(records=10, killer=0, retry_limit=0)
    assert world.run()
    assert world.run()
    assert not world.run()
    assert world.given_up == ["0"]


def test_a_caller_that_takes_several_at_a_time_loses_no_innocent_one() -> None:
    world = World(records=100, killer=40)
    deaths = 0
    while world.run(in_hand=20):
        deaths += 1
        assert deaths <= 14
    assert world.given_up == ["40"]


def test_a_clean_end_counts_nothing() -> None:
    world = World(records=10, killer=99)
    world.spout().crash()
    for _ in range(6):
        spout = world.spout()
        emitted = spout.next_tuple()
        assert emitted is not None
        assert emitted.values.attempt == 1
        spout.close()
    assert not world.run()
    assert world.given_up == []


def test_an_ordinary_restart_makes_a_dozen_commits_and_holds_nothing_up_for_long() -> None:
    world = World(records=5_000, killer=10_000)
    world.spout().close()
    spout = world.spout()
    began, taken = world.clock.monotonic(), 0
    for _ in range(10_000):
        emitted = spout.next_tuple()
        if emitted is None:
            world.clock.advance(0.01)
            continue
        spout.ack(emitted.message_id)
        taken += 1
    assert taken == 5_000
    assert world.clock.monotonic() - began < 60
    spout.close()


def test_who_asks_for_more_without_ending_the_one_it_has_gets_more_after_two_seconds() -> None:
    world = World(records=10, killer=99)
    world.spout().close()
    spout = world.spout()
    first = spout.next_tuple()
    assert first is not None
    assert spout.next_tuple() is None
    world.clock.advance(2.5)
    assert spout.next_tuple() is not None
    spout.crash()
    spout = world.spout()
    again = spout.next_tuple()
    assert again is not None
    assert again.values.attempt == 1, "the note on it was taken back"
    spout.close()


def test_a_record_whose_note_takes_longer_than_the_message_time_out_to_store_loses_no_attempt() -> None:
    world = World(records=3, killer=99, message_timeout_seconds=5.0)
    world.spout().close()
    spout = world.spout()
    spout.do_what_is_due()
    world.zookeeper.fail_next(*[StoreFault.UNAVAILABLE] * 20)
    began = world.clock.monotonic()
    while (first := spout.next_tuple()) is None:
        world.clock.advance(0.5)
    stored_after = world.clock.monotonic() - began
    assert stored_after > 5.0
    assert first.values.attempt == 1
    assert world.takes(spout, seconds=4.5)
    assert spout.fail(first.message_id), "its time-out began when it was handed out"
    spout.close()
