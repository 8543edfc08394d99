"""The circuit breaker of the plain-Python door, when another process inherits records that failed already."""

from collections.abc import Callable
from typing import Final

import pytest

from kinesis_spout.testing import (
    SteppedSpout,
)
from tests.support.consumer.world import SteppedWorld

RECORDS: Final = 1_200
LIMIT: Final = 3


class World(SteppedWorld):
    """Records of which every second one is bad for ever, and the spouts of one application. Mutable."""

    def __init__(self, records: int = RECORDS) -> None:
        super().__init__(shards=2, scheme="text", retry_limit=LIMIT, retry_backoff_seconds=60.0)
        self.outage = False
        for number in range(records):
            self.put(f"{'bad' if number % 2 else 'good'}-{number}", key=str(number))
        self.deliveries: dict[str, int] = {}
        self.failed = 0
        self.acked: set[str] = set()

    def good(self, numbers: range = range(RECORDS)) -> set[str]:
        return {f"good-{number}" for number in numbers if number % 2 == 0}

    def works(self, spout: SteppedSpout, until: Callable[[], bool], *, seconds: float = 3_600.0) -> None:
        """Handle what comes until so much is done, or so many seconds of the clock have passed."""
        end = self.clock.monotonic() + seconds
        while not until() and self.clock.monotonic() < end:
            emitted = spout.next_tuple()
            if emitted is None:
                self.clock.advance(0.1)
                continue
            self.deliveries[emitted.values] = self.deliveries.get(emitted.values, 0) + 1
            if self.outage or emitted.values.startswith("bad"):
                self.failed += 1
                spout.fail(emitted.message_id)
            else:
                self.acked.add(emitted.values)
                spout.ack(emitted.message_id)


def is_closed(first: SteppedSpout) -> None:
    first.close()


def crashes(first: SteppedSpout) -> None:
    first.do_what_is_due()
    first.crash()


def joins(first: SteppedSpout) -> None:
    """It goes on: the other one is given a shard of it."""


@pytest.mark.parametrize("ends", [is_closed, crashes, joins])
def test_records_that_failed_at_the_owner_before_do_not_make_the_next_one_pause(
    ends: Callable[[SteppedSpout], None],
) -> None:
    world = World()
    one = world.spout()
    world.works(one, lambda: world.failed >= 400)
    assert one.breaker_pause is None
    world.clock.advance(10.0)
    one.do_what_is_due()
    ends(one)
    two = world.spout()
    before = len(world.acked)
    pauses = []
    for _ in range(20_000):
        for spout in (one, two) if ends is joins else (two,):
            world.works(spout, lambda: False, seconds=0.1)
            pauses.append(spout.breaker_pause)
        if world.acked == world.good() and len(set(world.given_up)) == RECORDS // 2:
            break
    assert set(pauses) == {None}
    assert before < RECORDS // 2
    assert world.acked == world.good()
    assert len(set(world.given_up)) == RECORDS // 2, "what is bad is given up, as always"


def test_an_outage_that_goes_on_after_restarts_is_seen_by_each_owner_and_costs_no_record() -> None:
    """Whatever the records went through: bad ones that failed before it, good ones that failed in it."""
    world = World()
    spout = world.spout()
    world.works(spout, lambda: world.failed >= 300)
    world.outage = True
    for _ in range(LIMIT + 2):
        world.clock.advance(10.0)
        spout.do_what_is_due()
        spout.crash()
        spout = world.spout()
        before = world.failed
        world.works(spout, lambda spout=spout: spout.breaker_pause is not None)  # type: ignore[misc] # of this round
        assert spout.breaker_pause is not None
        assert world.failed - before <= 300 + 100
        world.works(spout, lambda: False, seconds=600.0)
        assert world.given_up == []
    world.outage = False
    world.works(spout, lambda: world.acked == world.good() and len(set(world.given_up)) == RECORDS // 2)
    assert spout.breaker_pause is None
    assert world.acked == world.good()
    assert len(set(world.given_up)) == RECORDS // 2


def test_what_failed_before_holds_up_no_pause_that_a_fresh_record_can_end() -> None:
    """A short outage at an owner that inherited hundreds of bad records ends with the first fresh one."""
    world = World()
    first = world.spout()
    world.works(first, lambda: world.failed >= 300)
    world.clock.advance(10.0)
    first.do_what_is_due()
    first.crash()
    second = world.spout()
    world.outage = True
    world.works(second, lambda: second.breaker_pause is not None)
    world.outage = False
    began = world.clock.monotonic()
    world.works(second, lambda: second.breaker_pause is None)
    assert second.breaker_pause is None
    assert world.clock.monotonic() - began < 60.0
