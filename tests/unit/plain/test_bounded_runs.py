"""What only Storm's verbs can ask of a run that ends by itself; the rest is in ``tests/contract/doors``."""

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
