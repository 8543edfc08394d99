"""Records that are too old to be delivered, at the plain-Python door, on a clock that the test holds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.testing import InMemoryDeadLetterSink
from tests.support.consumer.world import opened
from tests.unit.plain.test_bounded_runs import FIRST, Place

MAXIMUM = {"maximum_record_age_seconds": 60.0}


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    for spout in place.spouts:
        spout.close()


def letters(place: Place) -> list[DeadLetter]:
    sink = opened(place.spouts[-1])[0].ports.dead_letters
    assert isinstance(sink, InMemoryDeadLetterSink)
    return sink.letters


def old_and_new(place: Place) -> None:
    place.put("old", "older brother")
    place.clock.advance(61.0)
    place.put("new")


def failing(place: Place, payload: str) -> Callable[[Emitted], object]:
    def do(emitted: Emitted) -> object:
        spout = place.spouts[-1]
        if emitted.values == payload:
            return spout.fail(emitted.message_id, "always")
        return spout.ack(emitted.message_id)

    return do


def test_a_record_older_than_the_maximum_is_a_dead_letter_that_was_never_delivered(place: Place) -> None:
    old_and_new(place)
    spout = place.spout(until="latest", **MAXIMUM)
    assert place.run(spout) == ["new"]
    assert [(letter.data, letter.reason, letter.attempts) for letter in letters(place)] == [
        (b"old", "expired", 0),
        (b"older brother", "expired", 0),
    ]
    assert letters(place)[0].error.startswith("expired: it arrived at 2023-11-14T22:13:20.000Z")
    counters = spout.counters
    assert (counters.expired, counters.skipped, counters.dead_lettered, counters.delivered) == (2, 0, 2, 1)


def test_or_it_is_skipped_and_counted(place: Place) -> None:
    old_and_new(place)
    spout = place.spout(until="latest", expired_records="skip", **MAXIMUM)
    assert place.run(spout) == ["new"]
    assert not letters(place)
    assert (spout.counters.expired, spout.counters.skipped, spout.uncommitted) == (2, 2, 0)


def test_the_checkpoint_waits_for_the_dead_letter_of_an_expired_record(place: Place) -> None:
    old_and_new(place)
    spout = place.spout(**MAXIMUM)
    sink = opened(spout)[0].ports.dead_letters
    assert isinstance(sink, InMemoryDeadLetterSink)
    sink.fail_writes(3)
    emitted = spout.next_tuple()
    assert emitted is not None
    spout.ack(emitted.message_id)
    place.clock.advance(0.5)
    spout.do_what_is_due()
    assert str(place.stored(FIRST).base) == "SHARD_START"
    assert place.run(spout, seconds=60.0) == []
    assert len(letters(place)) == 2
    assert str(place.stored(FIRST).base) == emitted.message_id.partition("#")[0].rpartition(":")[2]


@pytest.mark.parametrize("order", ["unordered", "key", "shard"])
def test_a_record_that_becomes_too_old_while_it_waits_unblocks_what_waits_behind_it(
    place: Place, order: str
) -> None:
    place.put("fails")
    place.clock.advance(50.0)
    place.put("behind")
    settings: dict[str, Any] = {"retry_limit": None, "retry_backoff_seconds": 5.0, "order": order}
    spout = place.spout(until="latest", **MAXIMUM, **settings)
    delivered = place.run(spout, failing(place, "fails"), seconds=300.0)
    assert spout.is_done
    assert delivered.count("behind") == 1
    (letter,) = letters(place)
    assert (letter.data, letter.reason) == (b"fails", "expired")
    assert letter.attempts == delivered.count("fails") == 2


def test_nothing_expires_while_practically_every_record_fails(place: Place) -> None:
    for number in range(200):
        place.put(f"r{number}", key=f"key-{number}")
    spout = place.spout(retry_limit=None, **MAXIMUM)
    place.run(spout, lambda each: spout.fail(each.message_id), seconds=600.0)
    assert spout.trouble is not None
    assert spout.counters.expired == 0
