"""The plain-Python door, through its public face. The first part names each defect of kinesis-storm-spout."""

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_spout.model.errors import (
    CheckpointUnreadable,
    DataLoss,
    DeadLetterError,
    InvalidConfig,
    ShardNotFound,
    SpoutClosed,
    StreamNotFound,
)
from kinesis_spout.model.handler import Reject, RetryLater
from kinesis_spout.model.record import Record
from kinesis_spout.plain.buffered_shard import BufferedShard
from kinesis_spout.plain.listener import FailReason, SpoutListener
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import MessageId
from kinesis_spout.settings import SpoutConfig
from shard_state import SequenceNumber, ShardPhase
from tests.support.consumer.world import FIRST, NEVER, SECOND, Diary, SteppedWorld, World, values_of
from tests.support.forks import in_a_fork

pytestmark = pytest.mark.no_second_run


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


@pytest.fixture
def two_shards() -> Iterator[World]:
    world = World(shards=2)
    yield world
    world.close()


class TestTheDefectsOfKinesisStormSpout:
    def test_an_ack_after_a_fail_cancels_the_retry_and_the_shard_is_read_on(self, world: World) -> None:
        spout = world.spout()
        world.put("one", "two")
        one, two = world.take(spout, 2)
        assert spout.fail(one.message_id)
        assert spout.ack(one.message_id)
        assert spout.ack(two.message_id)
        last = world.put("three")[0]
        assert values_of(world.settle(spout, 1)) == ["three"]
        world.until_stored(last)

    def test_a_record_failed_twice_is_delivered_once_more_only(self, world: World) -> None:
        spout = world.spout()
        world.put("one")
        (one,) = world.take(spout, 1)
        assert spout.fail(one.message_id)
        assert not spout.fail(one.message_id)
        assert values_of(world.settle(spout, 1)) == ["one"]
        assert spout.counters.retried == 1

    def test_with_a_retry_limit_of_0_a_failed_record_is_still_tracked_and_checkpointed(
        self, world: World
    ) -> None:
        spout = world.spout(retry_limit=0)
        first, last = world.put("one", "two")
        one, two = world.take(spout, 2)
        assert spout.ack(two.message_id)
        assert str(world.stored().base) == "SHARD_START"
        assert spout.fail(one.message_id, "no use")
        (letter,) = world.letters(1)
        assert (letter.message_id, letter.attempts, letter.error) == (first, 1, "no use")
        world.until_stored(last)

    def test_a_retry_limit_of_3_means_4_deliveries(self, world: World) -> None:
        spout = world.spout()
        world.put("one")
        attempts = []
        for _ in range(4):
            (emitted,) = world.take(spout, 1)
            record = spout.record(emitted.message_id)
            assert record is not None
            attempts.append(record.attempt)
            spout.fail(emitted.message_id, f"failure {len(attempts)}")
        assert attempts == [1, 2, 3, 4]
        (letter,) = world.letters(1)
        assert (letter.attempts, letter.reason, letter.error) == (4, "exhausted", "failure 4")
        assert letter.data == b"one"
        assert world.settle(spout, 0) == []

    def test_a_checkpoint_that_cannot_be_read_is_an_error_and_no_fresh_start(self, world: World) -> None:
        spout = world.spout()
        world.put("one")
        world.settle(spout, 1)
        spout.close()
        world.zookeeper.put(FIRST, b"{ rubbish")
        with pytest.raises(CheckpointUnreadable, match=FIRST):
            world.spout()

    def test_an_error_that_may_pass_is_retried_and_seen(self, world: World) -> None:
        world.stream.throttle()
        spout = world.spout()
        world.put("one")
        world.until(lambda: spout.next_tuple() is None and spout.last_error is not None, "the throttle")
        assert values_of(world.settle(spout, 1)) == ["one"]
        assert spout.counters.throttled >= 1
        assert spout.last_error is None

    def test_an_error_that_does_not_pass_is_raised(self, world: World) -> None:
        spout = world.spout()
        world.stream.fail_next(DataLoss("behind retention"), times=1)
        world.put("one")
        with pytest.raises(DataLoss, match="behind retention"):
            world.take(spout, 1)

    def test_a_split_loses_nothing_and_the_children_wait_for_their_parent(self, world: World) -> None:
        spout = world.spout()
        before = [f"before {number}" for number in range(20)]
        for number, payload in enumerate(before):
            world.put(payload, key=f"key-{number}")
        world.stream.split(FIRST)
        after = [f"after {number}" for number in range(20)]
        for number, payload in enumerate(after):
            world.put(payload, key=f"key-{number}")
        of_parent = world.take(spout, 20)
        assert values_of(of_parent) == before
        for emitted in of_parent[1:]:
            spout.ack(emitted.message_id)
        spout.fail(of_parent[0].message_id)
        (retried,) = world.take(spout, 1)
        assert retried.values == of_parent[0].values, (
            "a record of a child came before its parent was finished"
        )
        assert spout.next_tuple() is None
        spout.ack(retried.message_id)
        assert sorted(values_of(world.settle(spout, 20))) == sorted(after)
        assert world.stored(FIRST).is_shard_end

    def test_a_merge_loses_nothing_and_the_child_waits_for_both_parents(self, two_shards: World) -> None:
        world = two_shards
        spout = world.spout()
        world.put_in(FIRST, "left")
        world.put_in(SECOND, "right")
        child = world.stream.merge(FIRST, SECOND)
        world.put("merged")
        parents = sorted(world.take(spout, 2), key=lambda emitted: str(emitted.values))
        assert values_of(parents) == ["left", "right"]
        spout.ack(parents[0].message_id)
        world.until(
            lambda: spout.next_tuple() is None and world.stored(FIRST).is_shard_end,
            "the end of the first parent, and no record of the child",
        )
        spout.ack(parents[1].message_id)
        (merged,) = world.settle(spout, 1)
        assert merged.values == "merged"
        assert merged.message_id.startswith(child.shard_id)

    def test_an_idle_shard_does_not_slow_a_busy_one(self) -> None:
        world = World(shards=50)
        spout = world.spout()
        world.put_in(SECOND, *(f"{number}" for number in range(500)))
        (first,) = world.take(spout, 1)
        spout.ack(first.message_id)
        # From here on time stands still: no turn may be lost on a shard that has nothing.
        for number in range(1, 500):
            emitted = spout.next_tuple()
            assert emitted is not None, f"the busy shard was kept waiting before record {number}"
            spout.ack(emitted.message_id)
        world.close()

    def test_commits_go_on_while_reading_is_paused(self, world: World) -> None:
        spout = world.spout(max_pending=8)
        ids = world.put(*"abcdefghijkl")
        taken = world.take(spout, 6)
        assert spout.next_tuple() is None, "reading goes on beyond three quarters of max_pending"
        spout.ack(taken[0].message_id)
        spout.next_tuple()
        spout.deactivate()
        world.until_stored(ids[0])

    def test_a_zombie_cannot_move_the_checkpoint_back(self) -> None:
        world = SteppedWorld(scheme="text", commit_interval_seconds=1.0)
        zombie = world.spout()  # It sleeps from its last step on, and so misses the end of its session.
        world.put("one", "two", "three")
        one, *_ = world.takes(zombie, 3)
        world.zookeeper.end_session("process-1")
        heir = world.spout()
        assert world.handles(heir, seconds=20.0) == ["one", "two", "three"]
        stored = world.zookeeper.decode(FIRST)
        assert zombie.ack(one.message_id)
        zombie.close()
        assert world.zookeeper.decode(FIRST) == stored
        assert stored.base == SequenceNumber.parse(world.stream.records(FIRST)[-1].sequence_number)

    def test_an_exhausted_record_is_dead_lettered_before_the_checkpoint_passes_it(self, world: World) -> None:
        world.dead_letters.fail_writes(1_000_000)
        spout = world.spout(retry_limit=0)
        (first,) = world.put("one")
        (one,) = world.take(spout, 1)
        spout.fail(one.message_id, "bad")
        world.until(lambda: isinstance(spout.last_error, DeadLetterError), "the sink's error")
        assert str(world.stored().base) == "SHARD_START"
        world.dead_letters.fail_writes(0)
        assert [letter.data for letter in world.letters(1)] == [b"one"]
        world.until_stored(first)
        assert spout.counters.dead_lettered == 1
        assert spout.last_error is None


def wait_for_tip(world: World, after: float) -> None:
    world.until(lambda: (world.stored(FIRST).since or 0.0) > after, "the tip, stored")


class TestRestart:
    def test_latest_is_kept_for_a_shard_and_its_children_born_while_down(self, world: World) -> None:
        world.put("too old")
        world.clock.advance(1)
        spout = world.spout(initial_position="latest")
        spout.close()
        world.clock.advance(1)
        world.put("while down, to the parent")
        world.stream.split(FIRST)
        world.put("while down, to a child")
        again = world.spout(initial_position="latest")
        assert values_of(world.settle(again, 2)) == ["while down, to the parent", "while down, to a child"]

    def test_what_was_finished_beyond_the_checkpoint_does_not_come_again(self, world: World) -> None:
        spout = world.spout()
        world.put(*"abcdef")
        taken = world.take(spout, 6)
        for position in (1, 2, 4):
            spout.ack(taken[position].message_id)
        spout.close()
        assert str(world.stored().base) == "SHARD_START"
        world.put("g")
        again = world.spout()
        assert values_of(world.settle(again, 4)) == ["a", "d", "f", "g"]
        assert world.dead_letters.letters == []

    def test_attempts_survive(self, world: World) -> None:
        spout = world.spout(retry_limit=1)
        world.put("one")
        (one,) = world.take(spout, 1)
        spout.fail(one.message_id)
        spout.close()
        again = world.spout(retry_limit=1, scheme="raw")
        (retried,) = world.take(again, 1)
        assert retried.values.attempt == 2
        again.fail(retried.message_id, "still bad")
        assert [letter.attempts for letter in world.letters(1)] == [2]

    def test_a_delivery_that_the_end_of_the_process_cut_off_counts_where_the_shard_had_an_owner_before(
        self, world: World
    ) -> None:
        world.put("one")
        for attempt in (1, 1, 2):
            spout = world.spout(retry_limit=1, scheme="raw")
            (one,) = world.take(spout, 1)
            assert one.values.attempt == attempt
            world.crash(spout)
        assert world.dead_letters.letters == []
        spout = world.spout(retry_limit=1)

        def given_up() -> bool:
            assert spout.next_tuple() is None
            return bool(world.dead_letters.letters)

        world.until(given_up, "the dead letter")
        assert [letter.attempts for letter in world.letters(1)] == [2]

    def test_after_a_crash_everything_unfinished_comes_again(self, world: World) -> None:
        spout = world.spout()
        ids = world.put(*"abc")
        a, _, _ = world.take(spout, 3)
        spout.ack(a.message_id)
        world.until_stored(ids[0])
        world.crash(spout)
        again = world.spout()
        assert values_of(world.settle(again, 2)) == ["b", "c"]

    def test_after_a_lost_session_the_shard_is_taken_again_and_nothing_is_lost(self, world: World) -> None:
        spout = world.spout()
        world.put(*"ab")
        a, b = world.take(spout, 2)
        world.zookeeper.expire("member-1")
        world.until(lambda: world.stored().epoch == 2, "the next epoch")
        assert not spout.ack(a.message_id), "an ack of the old epoch finished a record that was not delivered"
        assert not spout.fail(b.message_id)
        assert spout.record(a.message_id) is None
        assert values_of(world.settle(spout, 2)) == ["a", "b"]

    def test_a_stand_by_takes_over_when_the_owner_closes(self, world: World) -> None:
        owner, stand_by = world.spout(), world.spout()
        world.put("one")
        (one,) = world.take(owner, 1)
        assert stand_by.next_tuple() is None
        assert not stand_by.ack(one.message_id)
        owner.ack(one.message_id)
        owner.close()
        world.put("two")
        assert values_of(world.settle(stand_by, 1)) == ["two"]

    @pytest.mark.parametrize("was_away", [True, False])
    def test_what_retention_took_while_nobody_read_is_an_error_or_counted_and_an_idle_day_is_none(
        self, world: World, *, was_away: bool
    ) -> None:
        spout = world.spout()
        ids = world.put("one")
        world.settle(spout, 1)
        world.until_stored(ids[0])
        if was_away:
            spout.close()
            world.put("lost")
        for _ in range(50):
            world.clock.advance(3600.0)
            if not was_away:
                wait_for_tip(world, world.clock.time() - 3 * 3600.0)
        spout.close()
        world.put("kept")
        if was_away:
            refusing = world.spout()
            with pytest.raises(DataLoss, match=FIRST):
                world.settle(refusing, 1)
            world.crash(refusing)
            world.clock.advance(60)
        world.fail_on_data_loss = not was_away
        spout = world.spout(fail_on_data_loss=not was_away)
        assert values_of(world.settle(spout, 1)) == ["kept"]
        assert spout.counters.shards_trimmed == was_away
        world.until(lambda: world.stored(FIRST).data_losses == was_away, "the loss is stored")

    def test_a_shard_that_retention_took_is_an_error_or_ended_loudly_and_its_children_are_read(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.spout().close()
        world.put("lost")
        world.stream.split(FIRST)
        world.clock.advance(2 * 24 * 3600.0)
        world.put("kept")
        refusing = world.spout()
        with pytest.raises(DataLoss, match=f"{FIRST}' of stream 'orders' is gone.*`fail_on_data_loss=False`"):
            world.settle(refusing, 1)
        world.crash(refusing)
        world.clock.advance(60)
        world.fail_on_data_loss = False
        with caplog.at_level(logging.WARNING):
            spout = world.spout(fail_on_data_loss=False)
            assert values_of(world.settle(spout, 1)) == ["kept"]
        assert spout.counters.shards_trimmed >= 1
        assert any(FIRST in line and "its children are read" in line for line in caplog.messages)
        world.until(lambda: world.stored(FIRST).is_shard_end, "the end of the parent")
        assert world.stored(FIRST).data_losses == 1

    def test_a_shard_that_retention_took_before_its_first_read_at_the_horizon_is_no_loss(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.stream.fail_next(ShardNotFound("trimmed"), times=1)
        world.put("left to retention")
        world.stream.split(FIRST)
        with caplog.at_level(logging.INFO):
            spout = world.spout()
            world.put("kept")
            assert values_of(world.settle(spout, 1)) == ["kept"]
            world.until(lambda: world.stored(FIRST).is_shard_end, "the end of the parent")
        assert spout.counters.shards_trimmed == world.stored(FIRST).data_losses == 0
        assert any(FIRST in line and "gone before its first read" in line for line in caplog.messages)


class TestDelivery:
    def test_nothing_is_given_while_deactivated_but_acks_fails_and_commits_go_on(self, world: World) -> None:
        spout = world.spout(retry_backoff_seconds=0.0)
        ids = world.put("one", "two")
        one, two = world.take(spout, 2)
        spout.deactivate()
        assert spout.ack(one.message_id)
        assert spout.fail(two.message_id)
        world.until_stored(ids[0])
        world.put("three")
        world.clock.advance(60)
        assert spout.next_tuple() is None
        spout.activate()
        assert sorted(values_of(world.settle(spout, 2))) == ["three", "two"]

    def test_a_time_out_is_told_apart_from_a_fail(self, world: World) -> None:
        diary = Diary()
        spout = world.spout(message_timeout_seconds=10.0, retry_limit=1, listener=diary)
        (one,) = world.put("one")
        world.take(spout, 1)
        world.clock.advance(11)
        assert spout.next_tuple() is None
        assert spout.counters.timed_out == 1
        world.take(spout, 1)
        world.clock.advance(11)
        assert spout.next_tuple() is None
        assert diary.lines == [
            ("emitted", f"{one}#1.1", 1),
            ("failed", f"{one}#1.1", FailReason.TIME_OUT, "timed out after 10 s", 1.0),
            ("emitted", f"{one}#1.2", 2),
            ("failed", f"{one}#1.2", FailReason.TIME_OUT, "timed out after 10 s", None),
            ("exhausted", f"{one}#1.2", 2, "timed out after 10 s"),
        ]
        assert [letter.error for letter in world.letters(1)] == ["timed out after 10 s"]

    def test_a_late_ack_after_a_time_out_finishes_the_record(self, world: World) -> None:
        spout = world.spout(message_timeout_seconds=10.0, retry_backoff_seconds=60.0)
        (first,) = world.put("one")
        (one,) = world.take(spout, 1)
        world.clock.advance(11)
        assert spout.next_tuple() is None
        assert spout.ack(one.message_id)
        world.until_stored(first)
        world.clock.advance(70)
        assert world.settle(spout, 0) == []

    def test_a_scheme_that_raises_fails_its_record_and_the_next_one_comes(self, world: World) -> None:
        spout = world.spout(scheme="json", retry_limit=1)
        _, last = world.put("{ no json", '{"good": 1}')
        (good,) = world.take(spout, 1)
        assert good.values == {"good": 1}
        spout.ack(good.message_id)
        assert world.settle(spout, 0) == []
        (letter,) = world.letters(1)
        assert letter.attempts == 2
        assert letter.error.startswith("ValueError: expected JSON, got something else")
        world.until_stored(last)

    @pytest.mark.parametrize("raised", [asyncio.CancelledError(), SystemExit(3), GeneratorExit()], ids=repr)
    def test_whatever_a_scheme_raises_fails_its_record(self, world: World, raised: BaseException) -> None:
        def broken(record: Record) -> bytes:
            if record.data == b"bad":
                raise raised
            return record.data

        spout = world.spout(scheme=broken, retry_limit=0)
        _, last = world.put("bad", "good")
        (good,) = world.take(spout, 1)
        assert (good.message_id, good.values) == (f"{last}#1.1", b"good")
        assert world.letters(1)[0].error.startswith(type(raised).__name__)

    def test_a_keyboard_interrupt_in_a_scheme_fails_its_record_and_reaches_the_caller(
        self, world: World
    ) -> None:
        """It may be Ctrl-C. If it is the record's own, it is counted, so no restart meets it for ever."""

        def broken(record: Record) -> bytes:
            if record.data == b"bad":
                raise KeyboardInterrupt
            return record.data

        spout = world.spout(scheme=broken, retry_limit=0)
        world.put("bad", "good")
        with pytest.raises(KeyboardInterrupt):
            world.take(spout, 1)
        assert world.letters(1)[0].error == "KeyboardInterrupt"
        assert values_of(world.take(spout, 1)) == [b"good"]

    def test_a_scheme_that_always_raises_does_not_hold_the_caller(self, world: World) -> None:
        calls = 0

        def broken(_: Record) -> Any:
            nonlocal calls
            calls += 1
            raise RuntimeError("broken")

        spout = world.spout(scheme=broken, retry_limit=None, retry_backoff_seconds=0.0)
        world.put(*"abc")
        world.until(lambda: spout.next_tuple() is None and calls > 0, "the scheme to be called")
        before = calls
        assert spout.next_tuple() is None
        assert 0 < calls - before < 100

    def test_a_rejected_record_goes_straight_to_the_dead_letters(self, world: World) -> None:
        spout = world.spout()
        world.put("one")
        (one,) = world.take(spout, 1)
        assert spout.fail(one.message_id, Reject("negative amount"))
        (letter,) = world.letters(1)
        assert (letter.reason, letter.error, letter.attempts) == ("rejected", "negative amount", 1)

    def test_a_failure_may_choose_its_delay(self, world: World) -> None:
        spout = world.spout()
        world.put("one")
        (one,) = world.take(spout, 1)
        spout.fail(one.message_id, RetryLater(30))
        world.clock.advance(29)
        assert spout.next_tuple() is None
        world.clock.advance(1)
        assert values_of(world.take(spout, 1)) == ["one"]

    def test_a_failure_without_a_reason_says_so(self, world: World) -> None:
        spout = world.spout(retry_limit=0)
        world.put("one")
        (one,) = world.take(spout, 1)
        spout.fail(one.message_id, " ")
        (letter,) = world.letters(1)
        assert (letter.error, letter.reason) == ("failed without a reason", "exhausted")

    def test_an_exception_given_as_a_reason_names_its_type(self, world: World) -> None:
        spout = world.spout(retry_limit=0)
        world.put("one")
        (one,) = world.take(spout, 1)
        spout.fail(one.message_id, KeyError("amount"))
        assert world.letters(1)[0].error == "KeyError: 'amount'"

    def test_data_in_flight_is_capped_in_bytes_and_retries_go_on(self, world: World) -> None:
        spout = world.spout(scheme="raw", max_buffered_bytes=10 * 1024 * 1024)
        for _ in range(12):
            world.stream.put(bytes(1024 * 1024), "key")
        taken = world.take(spout, 8)
        world.clock.advance(5)
        assert spout.next_tuple() is None, "more than three quarters of max_buffered_bytes is out"
        spout.fail(taken[0].message_id)
        (retried,) = world.take(spout, 1)
        assert retried.values.sequence == taken[0].values.sequence
        assert spout.next_tuple() is None
        spout.ack(retried.message_id)
        world.take(spout, 1)

    def test_data_that_waits_for_its_dead_letter_counts_against_the_cap(self, world: World) -> None:
        world.dead_letters.fail_writes(1_000_000)
        spout = world.spout(scheme="raw", max_buffered_bytes=10 * 1024 * 1024, retry_limit=0)
        for _ in range(12):
            world.stream.put(bytes(1024 * 1024), "key")
        for emitted in world.take(spout, 8):
            spout.fail(emitted.message_id)
        world.clock.advance(5)
        assert spout.next_tuple() is None
        world.dead_letters.fail_writes(0)
        world.take(spout, 4)

    def test_every_shard_with_records_is_served_in_turn(self, two_shards: World) -> None:
        world = two_shards
        spout = world.spout()
        world.put_in(FIRST, *(f"{number}" for number in range(200)))
        world.put_in(SECOND, *(f"{number}" for number in range(200)))
        taken = world.take(spout, 400)
        assert len({emitted.message_id for emitted in taken}) == 400
        for shard_id in (FIRST, SECOND):
            of_shard = [emitted.values for emitted in taken if emitted.message_id.startswith(shard_id)]
            assert of_shard == [f"{number}" for number in range(200)]

    def test_in_key_order_later_records_of_a_failed_key_wait(self, world: World) -> None:
        spout = world.spout(order="key", retry_backoff_seconds=20.0)
        world.put("a1", key="a")
        (first,) = world.take(spout, 1)
        spout.fail(first.message_id)
        world.put("a2", "a3", key="a")
        world.put("b1", key="b")
        assert values_of(world.settle(spout, 4)) == ["b1", "a1", "a2", "a3"]
        assert spout.counters.retried == 1

    def test_a_poisoned_shard_raises_and_the_others_are_served(self, two_shards: World) -> None:
        world = two_shards
        world.stream.fail_next(DataLoss("not this shard"), shard_id=FIRST)
        spout = world.spout()
        world.put_in(SECOND, "good")
        refused, served = False, False

        def both() -> bool:
            nonlocal refused, served
            try:
                emitted = spout.next_tuple()
            except DataLoss:
                refused = True
            else:
                served = served or emitted is not None
            return refused and served

        world.until(both, "an error of one shard and a record of the other")


class TestMessageIds:
    def test_a_late_or_duplicate_or_foreign_report_changes_nothing(self, world: World) -> None:
        spout = world.spout()
        world.put("one")
        (one,) = world.take(spout, 1)
        assert spout.ack(one.message_id)
        foreign = ["shardId-000000000077:5#1.1", f"{FIRST}:999999#1.1", f"{FIRST}:7:3#1.1"]
        for message_id in [one.message_id, *foreign]:
            assert not spout.ack(message_id)
            assert not spout.fail(message_id)
            assert spout.record(message_id) is None
        assert spout.counters.acked == 1

    @pytest.mark.parametrize(
        "garbled",
        [
            *("", "12", "shard", "shard:", "shard:x#1.1", "shard:1:2:3#1.1", ":1#1.1", "a b:1#1.1"),
            *(
                "shard:1",
                "shard:1#1",
                "shard:1#1.",
                "shard:1#.1",
                "shard:1#0.1",
                "shard:1#1.01",
                "shard:01#1.1",
            ),
        ],
    )
    def test_a_text_that_is_no_message_id_is_the_callers_mistake(self, world: World, garbled: str) -> None:
        spout = world.spout()
        with pytest.raises(ValueError, match=r"expected a message id .* got "):
            spout.ack(garbled)
        with pytest.raises(ValueError, match=r"expected a message id .* got "):
            spout.fail(garbled)
        with pytest.raises(ValueError, match=r"expected a message id .* got "):
            spout.record(garbled)

    def test_a_message_id_names_the_record_and_then_the_delivery(self, world: World) -> None:
        spout = world.spout()
        (one,) = world.put("one")
        (first,) = world.take(spout, 1)
        spout.fail(first.message_id)
        (second,) = world.take(spout, 1)
        assert (first.message_id, second.message_id) == (f"{one}#1.1", f"{one}#1.2")
        assert str(MessageId.parse(second.message_id)) == second.message_id
        inside = MessageId.parse(f"{FIRST}:7:3#2.1")
        assert inside == (FIRST, SequenceNumber(7, 3), 2, 1)

    def test_a_late_fail_of_an_old_delivery_does_not_dead_letter_a_record_whose_present_one_succeeds(
        self, world: World
    ) -> None:
        spout = world.spout(retry_limit=1)
        (one,) = world.put("one")
        (first,) = world.take(spout, 1)
        assert spout.fail(first.message_id)
        (second,) = world.take(spout, 1)
        assert not spout.fail(first.message_id, "once more")
        assert spout.ack(second.message_id)
        world.until_stored(one)
        assert world.dead_letters.letters == []

    def test_a_fail_after_the_time_out_of_its_delivery_leaves_the_next_one_alone(self, world: World) -> None:
        spout = world.spout(message_timeout_seconds=10.0, retry_limit=1)
        world.put("one")
        (slow,) = world.take(spout, 1)
        world.clock.advance(11)
        (again,) = world.take(spout, 1)
        assert not spout.fail(slow.message_id)
        assert spout.ack(again.message_id)

    def test_a_fail_of_an_earlier_ownership_leaves_the_delivery_of_the_present_one_alone(
        self, world: World
    ) -> None:
        """Both are the first attempt, as far as is stored."""
        spout = world.spout(retry_limit=0)
        world.put("one")
        (before,) = world.take(spout, 1)
        world.zookeeper.expire("member-1")
        world.until(lambda: world.stored().epoch == 2, "the next epoch")
        (now,) = world.take(spout, 1)
        assert not spout.fail(before.message_id)
        assert spout.ack(now.message_id)

    def test_an_ack_of_an_earlier_delivery_finishes_the_record(self, world: World) -> None:
        spout = world.spout()
        (one,) = world.put("one")
        (first,) = world.take(spout, 1)
        spout.fail(first.message_id)
        (second,) = world.take(spout, 1)
        assert spout.ack(first.message_id)
        assert not spout.fail(second.message_id)
        world.until_stored(one)

    def test_an_ack_of_a_record_that_waits_for_its_dead_letter_finishes_it(self, world: World) -> None:
        world.dead_letters.fail_writes(1_000_000)
        spout = world.spout(retry_limit=0)
        (first,) = world.put("one")
        (one,) = world.take(spout, 1)
        spout.fail(one.message_id)
        assert spout.ack(one.message_id)
        assert not spout.ack(one.message_id)
        world.until_stored(first)
        world.dead_letters.fail_writes(0)


class TestLife:
    def test_iterating_gives_every_record_and_ends_when_every_shard_is_over(self, world: World) -> None:
        spout = world.new_spout()
        world.put(*"abc")
        left, right = world.stream.split(FIRST)
        world.put_in(left.shard_id, "d")
        world.put_in(right.shard_id, "e")
        world.stream.merge(left.shard_id, right.shard_id)
        world.put("f")
        seen = []
        with spout.open() as tuples:
            for message_id, values in tuples:
                seen.append(values)
                tuples.ack(message_id)
                if values == "f":
                    assert [status.phase for status in spout.shards()].count(ShardPhase.OVER) == 3
                    break
        assert seen[:3] == list("abc")
        assert sorted(seen) == list("abcdef")

    def test_iterating_goes_on_with_children_that_no_list_has_shown_yet(self, world: World) -> None:
        spout = world.spout(shard_list_interval_seconds=NEVER)
        world.put("parent's")
        world.stream.split(FIRST)
        world.put("child's")
        seen = []
        for message_id, values in spout:
            seen.append(values)
            spout.ack(message_id)
            if values == "child's":
                break
        assert seen == ["parent's", "child's"]

    def test_iterating_ends_when_the_last_shard_is_over(self, world: World) -> None:
        world.put(*"abc")
        world.stream._close(FIRST, ())  # no children: a stream whose last shards are closed
        spout = world.spout()
        seen = []
        for message_id, values in spout:
            seen.append(values)
            spout.ack(message_id)
        assert seen == list("abc")
        assert world.stored().is_shard_end

    def test_iterating_ends_when_the_spout_is_deactivated_or_closed(self, world: World) -> None:
        spout = world.spout()
        world.put(*"abc")
        for message_id, values in spout:
            spout.ack(message_id)
            if values == "b":
                spout.deactivate()
        spout.activate()
        seen = []
        for message_id, values in spout:
            seen.append(values)
            spout.ack(message_id)
            spout.close()
        assert seen == ["c"]

    def test_closing_stores_what_is_finished(self, world: World) -> None:
        spout = world.spout(commit_interval_seconds=NEVER)
        first, _ = world.put("one", "two")
        one, _ = world.take(spout, 2)
        spout.ack(one.message_id)
        spout.close()
        assert str(world.stored().base) == first.rpartition(":")[2]
        assert world.zookeeper.owners == {}
        assert world.dead_letters.closed
        assert world.ports_closed == 1

    def test_closing_stores_what_is_finished_although_a_dead_letter_cannot_be_written(
        self, world: World
    ) -> None:
        spout = world.spout(commit_interval_seconds=NEVER, retry_limit=0)
        world.put("one", "two", "three")
        one, two, three = world.take(spout, 3)
        world.dead_letters.fail_writes(1_000_000)
        spout.ack(one.message_id)
        spout.fail(two.message_id)
        spout.ack(three.message_id)
        with pytest.raises(DeadLetterError):
            spout.close()
        world.dead_letters.fail_writes(0)
        assert values_of(world.settle(world.spout(), 1)) == ["two"]

    def test_a_closed_spout_refuses_every_call_but_close(self, world: World) -> None:
        spout = world.spout()
        (one,) = world.put("one")
        spout.close()
        spout.close()
        for call in (
            spout.activate,
            spout.deactivate,
            spout.next_tuple,
            spout.pause_shards,
            lambda: spout.ack(one),
            lambda: spout.fail(one),
            lambda: next(iter(spout)),
        ):
            with pytest.raises(SpoutClosed, match="was closed"):
                call()

    def test_what_was_done_can_be_read_after_the_end(self, world: World) -> None:
        world.put("one", "two", "three")
        with world.spout(retry_limit=0) as spout:
            one, two, _ = world.take(spout, 3)
            spout.ack(one.message_id)
            spout.fail(two.message_id, ValueError("no"))
        assert (spout.counters.delivered, spout.counters.acked, spout.counters.dead_lettered) == (3, 1, 1)
        assert [shard.shard_id for shard in spout.shards()] == [FIRST]
        assert spout.failures == {"no exception": 1}
        assert (spout.uncommitted, spout.last_error, spout.trouble, spout.gone) == (0, None, None, {})
        assert not spout.is_done
        with pytest.raises(SpoutClosed, match=r"call activate\(\) or open\(\)"):
            _ = world.new_spout().counters

    def test_a_spout_that_was_not_activated_says_so(self, world: World) -> None:
        with world.new_spout() as spout, pytest.raises(SpoutClosed, match=r"call activate\(\) or open\(\)"):
            spout.next_tuple()
        assert world.ports_closed == 1

    def test_a_start_that_fails_closes_everything(self, world: World) -> None:
        world.stream.delete()
        spout = world.new_spout()
        with pytest.raises(StreamNotFound):
            spout.activate()
        assert world.ports_closed == 1
        assert world.zookeeper.member_names == set()
        with pytest.raises(SpoutClosed):
            spout.activate()

    def test_a_config_and_settings_exclude_each_other(self) -> None:
        config = SpoutConfig.of(stream="orders", app="billing")
        assert RecordSpout(config=config).config is config
        with pytest.raises(InvalidConfig, match=r"got both \(settings: app, retry_limit\)"):
            RecordSpout(config=config, app="other", retry_limit=1)

    def test_an_unknown_scheme_is_refused_at_once(self) -> None:
        with pytest.raises(InvalidConfig, match="scheme"):
            RecordSpout(stream="orders", app="billing", scheme="xml")

    def test_the_counters_tell_what_happened(self, world: World) -> None:
        spout = world.spout(retry_limit=1)
        world.put("one", "two")
        one, two = world.take(spout, 2)
        spout.ack(one.message_id)
        spout.fail(two.message_id)
        (two,) = world.take(spout, 1)
        spout.fail(two.message_id)
        world.letters(1)
        world.until(lambda: spout.counters.dead_lettered == 1, "the dead letter to be counted")
        counters = spout.counters
        assert (counters.delivered, counters.acked, counters.retried) == (3, 1, 1)
        assert counters.bytes_read == 2 * len("onekey")
        assert counters.timed_out == 0
        assert counters.commits > 0

    def test_what_a_kill_would_bring_again_is_counted_until_it_is_committed(self, world: World) -> None:
        spout = world.spout(commit_interval_seconds=NEVER)
        world.put("one", "two", "three")
        one, two, _ = world.take(spout, 3)
        spout.ack(one.message_id)
        spout.ack(two.message_id)
        assert spout.uncommitted == 2
        world.crash(spout)
        again = world.spout()
        assert values_of(world.take(again, 3)) == ["one", "two", "three"]
        for emitted in (one, two):
            again.ack(emitted.message_id)
        world.until(lambda: again.uncommitted == 0, "it is committed")


class TestListener:
    def test_it_is_told_of_each_step_in_order(self, world: World) -> None:
        diary = Diary()
        spout = world.spout(retry_limit=1, listener=diary)
        (one,) = world.put("one")
        world.take(spout, 1)
        spout.fail(f"{one}#1.1", "first")
        world.take(spout, 1)
        spout.fail(f"{one}#1.2", "second")
        assert diary.lines == [
            ("emitted", f"{one}#1.1", 1),
            ("failed", f"{one}#1.1", FailReason.FAIL, "first", 1.0),
            ("emitted", f"{one}#1.2", 2),
            ("failed", f"{one}#1.2", FailReason.FAIL, "second", None),
            ("exhausted", f"{one}#1.2", 2, "second"),
        ]
        (two,) = (f"{message_id}#1.1" for message_id in world.put("two"))
        world.take(spout, 1)
        spout.ack(two)
        spout.ack(two)
        assert diary.lines[5:] == [("emitted", two, 1), ("acked", two)]

    def test_one_that_raises_breaks_nothing_and_is_seen(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken(SpoutListener):
            def emitted(self, message_id: str, attempt: int) -> None:
                raise RuntimeError(f"cannot note {message_id}, {attempt}")

        spout = world.spout(listener=Broken())
        (one,) = world.put("one")
        assert values_of(world.settle(spout, 1)) == ["one"]
        world.until_stored(one)
        assert "a SpoutListener raised" in caplog.text
        assert f"cannot note {one}#1.1, 1" in caplog.text

    def test_it_may_call_the_spout(self, world: World) -> None:
        class AckAtOnce(SpoutListener):
            spout: RecordSpout

            def emitted(self, message_id: str, attempt: int) -> None:
                assert attempt == 1
                assert self.spout.ack(message_id)

        listener = AckAtOnce()
        spout = listener.spout = world.spout(listener=listener)
        ids = world.put(*"abc")
        world.take(spout, 3)
        world.until_stored(ids[2])


def test_a_record_carries_its_place_and_its_attempt(world: World) -> None:
    spout = world.spout(scheme="raw")
    (one,) = world.put("one")
    (first,) = world.take(spout, 1)
    spout.fail(first.message_id)
    (second,) = world.take(spout, 1)
    assert (first.values.attempt, second.values.attempt) == (1, 2)
    assert second.values.message_id == one
    assert second.values.shard_id == FIRST
    assert isinstance(second.values.sequence, SequenceNumber)


def test_shards_without_records_are_not_looked_at_again_until_one_comes(
    monkeypatch: pytest.MonkeyPatch, two_shards: World
) -> None:
    spout = two_shards.spout()
    two_shards.put_in(FIRST, "one")
    two_shards.put_in(SECOND, "two")
    # Which shard is read first is open.
    one, two = sorted(two_shards.take(spout, 2), key=lambda emitted: emitted.values)
    assert spout.ack(one.message_id)
    looks = 0
    poll = BufferedShard.poll

    def counted(shard: BufferedShard) -> tuple[Record, int] | None:
        nonlocal looks
        looks += 1
        return poll(shard)

    monkeypatch.setattr(BufferedShard, "poll", counted)
    for _ in range(50):
        assert spout.next_tuple() is None
        two_shards.clock.advance(0.1)
    assert looks <= 3, "the run ends, and each shard may be found empty once more"

    assert spout.fail(two.message_id)
    two_shards.put_in(FIRST, "three")
    assert sorted(values_of(two_shards.take(spout, 2))) == ["three", "two"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
class TestAFork:
    def test_a_child_is_refused_at_once_and_its_parent_goes_on(self, world: World) -> None:
        spout = world.spout()
        last = world.put("one", "two", "three")[-1]
        one, two, three = world.take(spout, 3)
        calls = {
            "ack": lambda: spout.ack(one.message_id),
            "fail": lambda: spout.fail(two.message_id),
            "next_tuple": spout.next_tuple,
            "record": lambda: spout.record(one.message_id),
            "iteration": lambda: list(spout),
            "activate": spout.activate,
        }
        said = {name: in_a_fork(call) for name, call in calls.items()}
        assert {name for name, error in said.items() if not error.startswith("SpoutClosed: ")} == set()
        assert {error for error in said.values() if f"its parent {os.getpid()} did" not in error} == set()
        for each in (one, two, three):
            assert spout.ack(each.message_id)
        world.until_stored(last)

    def test_a_loop_that_is_in_a_child_suddenly_raises(self, world: World) -> None:
        spout = world.spout()
        world.put("one")
        tuples = iter(spout)
        next(tuples)
        assert "SpoutClosed: expected a spout that process" in in_a_fork(lambda: next(tuples))

    def test_the_end_of_a_with_statement_in_a_child_closes_nothing(self, world: World) -> None:
        with world.spout() as spout:
            last = world.put("one")[0]
            assert in_a_fork(spout.close) == "None"
            (one,) = world.take(spout, 1)
            assert spout.ack(one.message_id)
            world.until_stored(last)
