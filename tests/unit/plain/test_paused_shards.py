"""Shards that an operator has paused, at the plain-Python door, on a clock that the test holds."""

import logging
from collections import defaultdict
from collections.abc import Iterator

import pytest

from kinesis_spout.model.errors import InvalidConfig
from tests.unit.plain.test_bounded_runs import FIRST, SECOND, Place


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place(shards=2)
    yield place
    for spout in place.spouts:
        spout.close()


def put_in_both(place: Place, prefix: str = "r") -> tuple[set[str], set[str]]:
    """Put records into both shards; gives what each has."""
    by_shard: defaultdict[str, set[str]] = defaultdict(set)
    for number in range(20):
        (record,) = place.put(f"{prefix}{number}", key=f"key-{number}")
        by_shard[record.shard_id].add(f"{prefix}{number}")
    return by_shard[FIRST], by_shard[SECOND]


def test_a_paused_shard_is_not_handed_out_and_does_not_stop_the_others(place: Place) -> None:
    first, second = put_in_both(place)
    spout = place.spout()
    spout.pause_shards(FIRST)
    assert set(place.run(spout, seconds=5.0)) == second
    assert spout.paused_shards == {FIRST}
    assert [(status.shard_id, status.paused_by_operator) for status in spout.shards()] == [
        (FIRST, True),
        (SECOND, False),
    ]
    assert spout.trouble is None, "no handler is at fault"
    assert spout.resume_shards(FIRST)
    assert set(place.run(spout, seconds=5.0)) == first
    assert not spout.resume_shards()


def test_what_is_in_flight_of_a_paused_shard_may_end_and_is_stored_and_its_retries_wait() -> None:
    place = Place()
    _, works, *_ = place.put("fails", "works", "later")
    spout = place.spout()
    one, two = spout.next_tuple(), spout.next_tuple()
    assert one is not None
    assert two is not None
    spout.pause_shards()
    assert spout.fail(one.message_id)
    assert spout.ack(two.message_id)
    assert place.run(spout, seconds=10.0) == []
    assert place.stored().holes[0][1] == works.sequence
    spout.resume_shards()
    assert set(place.run(spout, seconds=10.0)) == {"fails", "later"}
    spout.close()


def test_a_pause_outlives_the_consumer_that_it_was_said_to(place: Place) -> None:
    put_in_both(place)
    spout = place.spout()
    spout.pause_shards()
    place.run(spout, seconds=1.0)
    spout.crash()
    place.clock.advance(30.0)
    following = place.spout()
    assert place.run(following, seconds=5.0) == []
    following.resume_shards()
    assert len(place.run(following, seconds=5.0)) == 20


def test_a_bounded_run_with_a_paused_shard_says_so_and_does_not_end_before_it_is_resumed(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = put_in_both(place)
    spout = place.spout(until="latest")
    spout.pause_shards(FIRST)
    with caplog.at_level(logging.WARNING):
        assert set(place.run(spout, seconds=30.0)) == second
    assert not spout.is_done
    assert f"paused by an operator: 1 shard of orders: {FIRST}" in caplog.text
    assert "the run does not end before that" in caplog.text
    spout.resume_shards()
    assert set(place.run(spout)) == first
    assert spout.is_done


def test_children_of_a_paused_shard_wait_for_it(place: Place) -> None:
    first, second = put_in_both(place)
    place.stream.split(FIRST)
    spout = place.spout()
    spout.pause_shards(FIRST)
    assert set(place.run(spout, seconds=5.0)) == second
    put_in_both(place, "later")
    assert set(place.run(spout, seconds=5.0)).isdisjoint(first)
    assert FIRST in spout.paused_shards
    spout.resume_shards()
    assert first <= set(place.run(spout, seconds=10.0))


def test_a_shard_that_is_none_is_refused(place: Place) -> None:
    spout = place.spout()
    with pytest.raises(InvalidConfig, match="expected a shard of orders to pause"):
        spout.pause_shards("shardId-000000000009")
