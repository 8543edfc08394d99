"""What tuples in flight mean for a run's end, a pause and the next owner: what only Storm's verbs can ask.

What both doors are asked is in ``tests/contract/doors``.
"""

import pytest

from tests.support.consumer.world import SteppedWorld, values_of


def test_after_a_sequence_number_no_further_record_has_to_come_but_each_has_to_be_acked() -> None:
    world = SteppedWorld(scheme="text")
    world.put("a")
    last = world.stream.put(b"b", "key")
    until = f'{{"{last.shard_id}": "after_sequence_number {last.sequence_number}"}}'
    with world.spout(until=until) as spout:
        first, second = world.takes(spout, 2)
        assert values_of([first, second]) == ["a", "b"]
        spout.ack(second.message_id)
        assert world.takes(spout, seconds=60.0) == []
        assert not spout.is_done, "the first record is still out"
        spout.ack(first.message_id)
        assert list(spout) == []
        assert spout.is_done


def test_what_is_in_flight_of_a_paused_shard_may_end_and_is_stored_and_its_retries_wait() -> None:
    world = SteppedWorld(scheme="text", retry_jitter=0.0)
    world.put("fails")
    works = world.stream.put(b"works", "key")
    world.put("later")
    with world.spout() as spout:
        one, two = world.takes(spout, 2)
        spout.pause_shards()
        assert spout.fail(one.message_id)
        assert spout.ack(two.message_id)
        assert world.takes(spout, seconds=10.0) == []
        assert world.zookeeper.decode(works.shard_id).holes[0][1] == works.sequence
        spout.resume_shards()
        assert {*values_of(world.takes(spout, seconds=10.0))} == {"fails", "later"}


@pytest.mark.no_second_run
def test_what_the_owner_before_says_too_late_frees_nothing_at_the_next() -> None:
    world = SteppedWorld(scheme="text", order="key", retry_backoff_seconds=2.0)
    world.put("a1", key="a")
    first = world.spout()
    (a1,) = world.takes(first, seconds=1.0)
    first.fail(a1.message_id)
    world.takes(first, seconds=1.2)
    world.put("a2", key="a")
    world.zookeeper.end_session("process-1")
    second = world.spout()
    assert values_of(world.takes(second, seconds=3.0)) == ["a1"]
    first.ack(a1.message_id)
    assert world.takes(second, seconds=10.0) == []
