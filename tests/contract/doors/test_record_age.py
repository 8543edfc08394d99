"""Records that are too old to be delivered."""

from typing import Any

import pytest

from tests.support.consumer.doors import DoorWorld

MAXIMUM = {"maximum_record_age_seconds": 60.0}


def put_old_and_new(world: DoorWorld) -> None:
    world.put("old", "older brother")
    world.clock.advance(61.0)
    world.put("new")


def test_a_record_older_than_the_maximum_is_a_dead_letter_that_was_never_delivered(world: DoorWorld) -> None:
    put_old_and_new(world)
    reader = world.start(until="latest", **MAXIMUM)
    assert world.run(reader) == ["new"]
    assert [(letter.data, letter.reason, letter.attempts) for letter in world.letters] == [
        (b"old", "expired", 0),
        (b"older brother", "expired", 0),
    ]
    assert world.letters[0].error.startswith("expired: it arrived at 2023-11-14T22:13:20.000Z")
    counters = reader.handle.counters
    assert (counters.expired, counters.skipped, counters.dead_lettered, counters.delivered) == (2, 0, 2, 1)


def test_or_it_is_skipped_and_counted(world: DoorWorld) -> None:
    put_old_and_new(world)
    reader = world.start(until="latest", expired_records="skip", **MAXIMUM)
    assert world.run(reader) == ["new"]
    assert not world.letters
    counters = reader.handle.counters
    assert (counters.expired, counters.skipped, reader.handle.uncommitted) == (2, 2, 0)


@pytest.mark.parametrize("order", ["unordered", "key", "shard"])
def test_a_record_that_becomes_too_old_while_it_waits_unblocks_what_waits_behind_it(
    world: DoorWorld, order: str
) -> None:
    world.put("fails")
    world.clock.advance(50.0)
    world.put("behind")
    world.outcomes["fails"] = [ValueError("always")] * 99
    settings: dict[str, Any] = {"retry_limit": None, "retry_backoff_seconds": 5.0, "order": order}
    reader = world.start(until="latest", **MAXIMUM, **settings)
    handled = world.run(reader, seconds=300.0)
    assert reader.is_done
    assert handled.count("behind") == 1
    (letter,) = world.letters
    assert (letter.data, letter.reason) == (b"fails", "expired")
    assert letter.attempts == handled.count("fails") == 2


def test_the_checkpoint_waits_for_the_dead_letter_of_an_expired_record(world: DoorWorld) -> None:
    put_old_and_new(world)
    world.dead_letters.fail_writes(3)
    reader = world.start(**MAXIMUM)
    assert world.run(reader, seconds=0.5) == ["new"]
    assert str(world.stored().base) == "SHARD_START"
    assert world.run(reader) == []
    assert len(world.letters) == 2
    assert world.stored().base == world.last.sequence


def test_nothing_expires_while_practically_every_record_fails(world: DoorWorld) -> None:
    for number in range(200):
        world.put(f"r{number}", key=f"key-{number}")
        world.outcomes[f"r{number}"] = [ValueError("no")] * 999
    reader = world.start(retry_limit=None, max_spared_seconds=None, **MAXIMUM)
    world.run(reader, seconds=600.0)
    assert reader.handle.trouble is not None
    assert reader.handle.counters.expired == 0
