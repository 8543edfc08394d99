"""What only Storm's verbs can ask of paused shards; the rest is in ``tests/contract/doors``."""

from tests.support.consumer.world import SteppedWorld, values_of


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
