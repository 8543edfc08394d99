"""The guarantees of the plain-Python door: what comes again, and what does not, when a process ends."""

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig, StoreUnavailable
from kinesis_spout.plain.buffered_shards import MAX_CLAIMED
from kinesis_spout.plain.stream_tuples import Emitted, MessageId
from kinesis_spout.testing.zookeeper.nodes import StoreFault
from shard_state import Checkpoint, SequenceNumber
from shard_state.checkpoint.hole_map import within
from tests.support.consumer.world import SteppedWorld, opened

pytestmark = pytest.mark.no_second_run

FIRST = "shardId-000000000000"
NEVER = 1e9


class World(SteppedWorld):
    def __init__(self, shards: int = 1) -> None:
        super().__init__(shards, scheme="text", retry_jitter=0.0)

    def stored(self) -> Checkpoint:
        return self.zookeeper.decode(FIRST)

    def is_stored_as_finished(self, message_id: str) -> bool:
        sequence, stored = MessageId.parse(message_id).sequence, self.stored()
        return sequence <= stored.base or within(stored.holes, sequence)


def values(taken: list[Emitted]) -> list[str]:
    return [emitted.values for emitted in taken]


@pytest.fixture
def world() -> World:
    return World()


class TestAtMostOnce:
    def test_each_record_is_stored_as_finished_before_it_is_handed_out(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once")
        for payload in "abcdef":
            world.put(payload)
            (emitted,) = world.takes(spout, 1)
            assert world.is_stored_as_finished(emitted.message_id)

    def test_nothing_is_handed_out_while_the_store_is_unavailable(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once")
        world.zookeeper.set_available(False)
        world.put("one", "two")
        assert world.takes(spout, seconds=60.0) == []
        assert spout.last_error is not None
        world.zookeeper.set_available(True)
        assert values(world.takes(spout, seconds=20.0)) == ["one", "two"]

    def test_nothing_is_handed_out_once_another_owns_the_shard(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once")
        heir = world.zookeeper.process("heir").coordinator
        world.zookeeper.end_session(opened(spout)[0].ports.coordinator.member)
        assert heir.acquire(FIRST, world.stored()) is not None
        world.put("one")
        assert world.takes(spout, seconds=3.0) == []

    def test_what_was_handed_out_never_comes_again_after_a_crash(self, world: World) -> None:
        world.put("one", "two", "three")
        first = world.spout(guarantee="at_most_once")
        assert values(world.takes(first, 2)) == ["one", "two"]
        first.crash()
        assert world.takes(world.spout(guarantee="at_most_once")) == [], (
            "three was claimed with the others, and is lost"
        )

    def test_a_crash_loses_at_most_what_one_commit_claims(self, world: World) -> None:
        world.put(*(f"{number}" for number in range(2 * MAX_CLAIMED)))
        first = world.spout(guarantee="at_most_once")
        handed_out = values(world.takes(first, 3))
        first.crash()
        after = values(world.takes(world.spout(guarantee="at_most_once")))
        assert after == [f"{number}" for number in range(MAX_CLAIMED, 2 * MAX_CLAIMED)]
        assert not set(handed_out) & set(after)

    def test_a_clean_close_loses_nothing_and_repeats_nothing(self, world: World) -> None:
        world.put("one", "two", "three", "four")
        first = world.spout(guarantee="at_most_once")
        one, _ = world.takes(first, 2)
        first.ack(one.message_id)
        first.close()
        assert values(world.takes(world.spout(guarantee="at_most_once"))) == ["three", "four"]

    def test_a_clean_close_before_anything_is_handed_out_loses_nothing(self, world: World) -> None:
        world.put("one", "two")
        first = world.spout(guarantee="at_most_once")
        assert first.next_tuple() is None
        first.do_what_is_due()
        first.close()
        assert values(world.takes(world.spout(guarantee="at_most_once"))) == ["one", "two"]

    def test_a_close_that_cannot_store_repeats_nothing(self, world: World) -> None:
        world.put("one", "two")
        first = world.spout(guarantee="at_most_once")
        world.takes(first, 1)
        world.zookeeper.set_available(False)
        with pytest.raises(StoreUnavailable):
            first.close()
        world.zookeeper.set_available(True)
        assert world.takes(world.spout(guarantee="at_most_once")) == []

    def test_a_shard_is_handed_over_without_a_loss_or_a_repeat(self) -> None:
        world = World(shards=2)
        payloads = [f"{number}" for number in range(40)]
        world.put(*payloads)
        first = world.spout(guarantee="at_most_once")
        came = world.takes(first, 6)
        for emitted in came:
            first.ack(emitted.message_id)
        second = world.spout(guarantee="at_most_once")
        by_both: list[list[Emitted]] = [[], []]
        for _ in range(100):
            for spout, taken in zip((first, second), by_both, strict=True):
                if (next_one := spout.next_tuple()) is not None:
                    taken.append(next_one)
                    spout.ack(next_one.message_id)
            world.clock.advance(0.1)
        assert all(by_both), "both have a share"
        assert sorted(values(came + by_both[0] + by_both[1])) == sorted(payloads)

    @pytest.mark.parametrize("next_guarantee", ["at_least_once", "none"])
    def test_what_was_claimed_stays_so_under_another_guarantee(
        self, world: World, next_guarantee: str
    ) -> None:
        world.put("one", "two")
        first = world.spout(guarantee="at_most_once")
        world.takes(first, 1)
        first.crash()
        world.put("three")
        second = world.spout(guarantee=next_guarantee)
        assert values(world.takes(second)) == ["three"]

    @pytest.mark.parametrize("fault", StoreFault)
    def test_a_fault_of_the_store_lets_nothing_come_twice(self, world: World, fault: StoreFault) -> None:
        spout = world.spout(guarantee="at_most_once")
        world.put("one", "two")
        world.zookeeper.fail_next(fault)
        first = world.takes(spout, 1, seconds=20.0)
        assert world.is_stored_as_finished(first[0].message_id)
        spout.crash()
        assert world.takes(world.spout(guarantee="at_most_once")) == []

    def test_a_failed_record_is_dead_lettered_at_once_and_not_retried(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once", retry_limit=3)
        world.put("one")
        (one,) = world.takes(spout, 1)
        assert spout.fail(one.message_id, "bad")
        assert world.takes(spout, seconds=30.0) == []
        assert world.given_up == ["one"]
        assert not spout.fail(one.message_id)

    def test_a_record_without_an_outcome_is_dead_lettered_after_the_time_out(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once", message_timeout_seconds=5.0)
        world.put("one")
        world.takes(spout, 1)
        assert world.takes(spout, seconds=20.0) == []
        assert world.given_up == ["one"]

    def test_acks_answer_as_usual(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once")
        world.put("one")
        (one,) = world.takes(spout, 1)
        assert spout.ack(one.message_id)
        assert not spout.ack(one.message_id)

    def test_the_checkpoint_does_not_wait_for_the_dead_letter(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once")
        world.dead_letters.fail_writes(1_000_000)
        world.put("one")
        (one,) = world.takes(spout, 1)
        spout.fail(one.message_id)
        world.takes(spout, seconds=5.0)
        assert world.stored().base == MessageId.parse(one.message_id).sequence
        spout.crash()
        world.dead_letters.fail_writes(0)
        assert world.takes(world.spout(guarantee="at_most_once")) == []
        assert world.given_up == []

    def test_records_that_fail_while_deliveries_are_slow_are_not_retried_either(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once", max_spared_seconds=60)
        records = [str(number) for number in range(40)]
        world.put(*records)
        came = []
        for _ in range(400):
            for emitted in world.takes(spout, seconds=1.0):
                came.append(emitted.values)
                spout.fail(emitted.message_id)
        assert came == records
        assert spout.trouble is not None
        assert spout.trouble.slowed
        assert sorted(world.given_up) == sorted(records)

    def test_a_record_held_behind_its_key_comes_later_or_after_a_clean_restart(self, world: World) -> None:
        world.dead_letters.fail_writes(1_000_000)
        world.put("one", key="a")
        spout = world.spout(guarantee="at_most_once", order="key")
        (one,) = world.takes(spout, 1)
        spout.fail(one.message_id)
        world.put("two", key="a")
        world.put("three", key="b")
        assert values(world.takes(spout)) == ["three"]
        with pytest.raises(DeadLetterError):
            spout.close()
        world.dead_letters.fail_writes(0)
        again = world.spout(guarantee="at_most_once", order="key")
        (two,) = world.takes(again)
        assert two.values == "two"
        world.put("four", key="a")
        again.fail(two.message_id)
        assert values(world.takes(again, seconds=20.0)) == ["four"]
        assert world.given_up == ["two"], "the letter of one could not be written before the end"

    def test_the_children_of_a_split_come_after_their_parent(self, world: World) -> None:
        spout = world.spout(guarantee="at_most_once")
        world.put("before")
        world.stream.split(FIRST)
        world.put("after 0", "after 1", "after 2")
        (before,) = world.takes(spout)
        assert before.values == "before"
        spout.ack(before.message_id)
        assert sorted(values(world.takes(spout))) == ["after 0", "after 1", "after 2"]


class TestNone:
    def test_what_was_handed_out_before_the_last_commit_does_not_come_again(self, world: World) -> None:
        world.put("one", "two")
        first = world.spout(guarantee="none", commit_interval_seconds=1.0)
        assert values(world.takes(first)) == ["one", "two"]
        first.crash()
        assert world.takes(world.spout(guarantee="none")) == []

    def test_what_was_handed_out_after_the_last_commit_comes_again(self, world: World) -> None:
        world.put("one", "two")
        first = world.spout(guarantee="none", commit_interval_seconds=NEVER)
        assert values(world.takes(first)) == ["one", "two"]
        first.crash()
        assert values(world.takes(world.spout(guarantee="none"))) == ["one", "two"]

    def test_nothing_waits_for_a_store_that_is_unavailable(self, world: World) -> None:
        spout = world.spout(guarantee="none")
        world.zookeeper.set_available(False)
        world.put("one")
        assert values(world.takes(spout)) == ["one"]

    def test_a_failed_record_is_dead_lettered_and_the_checkpoint_does_not_wait(self, world: World) -> None:
        spout = world.spout(guarantee="none", retry_limit=3)
        world.dead_letters.fail_writes(1_000_000)
        world.put("one")
        (one,) = world.takes(spout, 1)
        spout.fail(one.message_id)
        assert world.takes(spout, seconds=5.0) == []
        assert world.is_stored_as_finished(one.message_id)
        world.dead_letters.fail_writes(0)
        assert world.takes(spout, seconds=20.0) == []
        assert world.given_up == ["one"]

    def test_a_record_that_waits_behind_its_key_is_not_passed_by_the_checkpoint(self, world: World) -> None:
        world.dead_letters.fail_writes(1_000_000)
        spout = world.spout(guarantee="none", order="key")
        world.put("one", "two", key="a")
        world.put("three", key="b")
        first = world.takes(spout, 1)
        spout.fail(first[0].message_id)
        assert values(world.takes(spout)) == ["three"]
        spout.crash()
        world.dead_letters.fail_writes(0)
        assert values(world.takes(world.spout(guarantee="none", order="key"))) == ["two"]


def test_at_least_once_is_the_default(world: World) -> None:
    world.put("one")
    first = world.spout(guarantee="at_least_once")
    assert first.config.guarantee == type(first.config).of(stream="s", app="a").guarantee
    assert values(world.takes(first)) == ["one"]
    assert world.stored().base < SequenceNumber(0)
    first.crash()
    assert values(world.takes(world.spout(guarantee="at_least_once"))) == ["one"]


@pytest.mark.parametrize("door", ["foreach_record", "foreach_arrow", "foreach_batch"])
def test_the_doors_on_spark_refuse_at_most_once(door: str) -> None:
    spout = KinesisSpout(stream="orders", app="billing", guarantee="at_most_once")
    with pytest.raises(InvalidConfig, match=f'with {door}, got "at_most_once".*Use next_tuple'):
        getattr(spout, door)(None, print)
