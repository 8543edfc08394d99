"""The micro-batch engine, with everything around it but Spark."""

import re
import threading
from time import monotonic
from typing import TYPE_CHECKING, cast

import pytest

from kinesis_spout.kinesis import PollingShardGetter
from kinesis_spout.kinesis.pace import ApplicationBudget, ReadPace, ShardPaces
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import (
    AccessDenied,
    DataLoss,
    HandlerKilledWorker,
    InvalidConfig,
    KinesisSpoutError,
    StateUnreadable,
)
from kinesis_spout.model.handler import Reject
from kinesis_spout.model.record import Record
from kinesis_spout.spark.driver.retry_data import Reread
from kinesis_spout.spark.driver.running_batches import Batch, RunningBatches
from kinesis_spout.spark.tasks.jobs import HandlerBroken
from kinesis_spout.testing import InMemoryShardLister
from shard_state import PositionType, ShardPhase, SliceKind
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, Diary, EngineWorld, KillsWorker, texts

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


# Where records are read


def test_a_backlog_is_read_by_the_executors_and_the_tip_by_the_driver(world: EngineWorld) -> None:
    world.put(*texts(50))
    diary = Diary()
    running = world.start(diary)
    running.query.processAllAvailable()
    carried_before = running.runner.slices(SliceKind.CARRIED)

    world.put("at the tip")
    diary.until(["at the tip"])

    assert carried_before == []
    assert [[r.data for r in work.records] for work in running.runner.slices(SliceKind.CARRIED)] == [
        [b"at the tip"]
    ]
    assert diary.payloads == [*texts(50), "at the tip"]


def test_of_much_that_comes_at_once_the_driver_sends_nothing_and_executors_read_it(
    world: EngineWorld,
) -> None:
    diary = Diary()
    running = world.start(diary)
    running.query.processAllAvailable()

    world.put(*texts(500))
    diary.until(texts(500))

    assert running.runner.slices(SliceKind.CARRIED) == []
    assert diary.payloads == texts(500)


def test_a_suspect_shard_the_driver_carries_however_much_comes_at_once(world: EngineWorld) -> None:
    def handle(record: Record) -> None:
        if record.data == b"r300":
            raise KillsWorker

    running = world.start(handle, blind=HandlerKilledWorker, retry_limit=0)
    running.query.processAllAvailable()
    world.put(*texts(500))
    running.query.processAllAvailable()

    assert [letter.data for letter in world.dead_letters.letters] == [b"r300"]
    assert max(len(work.records) for work in running.runner.slices(SliceKind.CARRIED)) > 100


def test_no_batch_runs_while_nothing_comes(world: EngineWorld) -> None:
    running = world.start(Diary())
    running.query.processAllAvailable()
    batches, polls = len(running.runner.batches), world.stream.clock.monotonic()

    wait_until(lambda: world.stream.clock.monotonic() > polls + 2, "some more polls are made")

    assert len(running.runner.batches) == batches


def test_executors_take_over_again_where_the_driver_has_got_to(world: EngineWorld) -> None:
    """An iterator of theirs from before the driver polled would lead them back."""
    diary = Diary()
    running = world.start(diary, engine={"records_per_fetch": 5}, task={"records_per_fetch": 5})
    world.put("first")
    running.query.processAllAvailable()

    world.put(*texts(23))
    running.query.processAllAvailable()

    assert diary.payloads == ["first", *texts(23)]
    assert len(running.runner.slices(SliceKind.READ)) > 1
    assert running.query.exception() is None


def test_driver_and_executors_read_on_with_each_others_iterators(world: EngineWorld) -> None:
    """Kinesis gives five iterators a second for a shard, to all that read it."""
    diary = Diary()
    world.fresh_getter = lambda shard_id, position: PollingShardGetter(
        cast("KinesisClient", world.client),
        stream="orders",
        shard_id=shard_id,
        position=position,
        lister=InMemoryShardLister(world.stream),
    )
    running = world.start(diary)
    expected = []
    for turn in range(3):
        backlog = [text.ljust(2_000) for text in texts(120, f"{turn}-")]
        expected += backlog
        world.put(*backlog)
        running.query.processAllAvailable()

    assert diary.payloads == expected
    assert len(running.runner.slices(SliceKind.READ)) >= 3
    assert len(world.client.iterator_requests) == 1


def test_executors_are_told_the_pace_and_what_they_have_read_is_paid_for(world: EngineWorld) -> None:
    begun_at, paces = monotonic(), ShardPaces(SystemClock(), budget=ApplicationBudget(10))
    diary = Diary()
    world.put(*texts(50))
    running = world.start(diary, paces=paces)

    diary.until(texts(50))

    assert running.runner.slices(SliceKind.READ)[0].cursor.pace == ReadPace(bytes_per_second=10)
    wait_until(lambda: paces.of(FIRST).ready_at > begun_at + 14, "150 bytes and their keys are paid for")
    assert running.consumer.ports.paces.wait_seconds(FIRST) > 0.0


def test_progress_and_counters_tell_what_was_done(world: EngineWorld) -> None:
    world.put("a", "b", "c", "d")
    running = world.start(Diary(b=[ValueError("once")], c=[Reject("never")]))
    running.query.processAllAvailable()

    counters = running.query.counters
    assert (counters.delivered, counters.acked, counters.retried) == (5, 3, 1)
    assert counters.dead_lettered == 1
    progress = running.query.lastProgress
    assert progress is not None
    assert progress["name"] == "test"
    assert sum(each["numInputRows"] for each in running.query.recentProgress) == 5


def test_how_far_a_shard_is_behind_is_not_known_before_its_first_page(world: EngineWorld) -> None:
    world.put("a")
    running = world.start(Diary(), hanging=True)
    wait_until(lambda: running.runner.hanging == 1, "the first slice is out")
    before = running.engine.readings[FIRST].lag_millis

    running.runner.open_gate()
    running.query.processAllAvailable()

    assert before is None
    assert running.engine.readings[FIRST].lag_millis == 0


# Failures


def test_a_failed_record_comes_again_with_its_attempt_and_the_others_are_not_touched(
    world: EngineWorld,
) -> None:
    records = world.put("a", "b", "c")
    diary = Diary(b=[ValueError("one"), ValueError("two")])
    running = world.start(diary)
    running.query.processAllAvailable()

    assert diary.attempts("b") == [1, 2, 3]
    assert diary.attempts("a") == diary.attempts("c") == [1]
    assert running.engine._shards.retry_data.size_bytes == 0
    world.until_stored(records[-1])


def test_past_the_retry_limit_a_record_is_dead_lettered_before_the_checkpoint_passes_it(
    world: EngineWorld,
) -> None:
    records = world.put("a", "b", "c")
    world.dead_letters.fail_writes(1)
    diary = Diary(b=[ValueError("one"), ValueError("two")])
    running = world.start(diary, retry_limit=1)

    wait_until(lambda: running.query.last_error is not None, "the sink has failed once")
    assert world.stored().base < records[1].sequence
    running.query.processAllAvailable()

    assert [(letter.data, letter.attempts, letter.error) for letter in world.dead_letters.letters] == [
        (b"b", 2, "ValueError: two")
    ]
    world.until_stored(records[-1])


def test_a_record_that_kills_its_worker_is_isolated_and_its_neighbours_are_handled(
    world: EngineWorld,
) -> None:
    world.put(*texts(20))
    diary = Diary(r13=[KillsWorker()] * 100)
    running = world.start(diary, retry_limit=1)
    running.query.processAllAvailable()

    assert [(letter.data, letter.attempts) for letter in world.dead_letters.letters] == [(b"r13", 2)]
    assert set(diary.payloads) == set(texts(20))
    assert "died" in world.dead_letters.letters[0].error
    assert running.query.last_error is None


def test_nothing_of_an_isolated_record_without_retries_stays_in_the_buffer(world: EngineWorld) -> None:
    world.put("a", "b")
    running = world.start(Diary(a=[KillsWorker()] * 100), retry_limit=0)
    running.query.processAllAvailable()

    assert [letter.data for letter in world.dead_letters.letters] == [b"a"]
    assert running.engine._shards.retry_data.size_bytes == 0


def test_a_killer_in_one_shard_dead_letters_nothing_of_another_that_shared_its_batch(
    two_shards: EngineWorld,
) -> None:
    world = two_shards
    world.put_in(FIRST, "bad")
    world.put_in(SECOND, *texts(10))
    diary = Diary(bad=[KillsWorker()] * 100)
    running = world.start(diary, retry_limit=1)
    running.query.processAllAvailable()

    assert [letter.data for letter in world.dead_letters.letters] == [b"bad"]
    assert set(diary.payloads) == {"bad", *texts(10)}


def test_a_batch_that_hangs_is_cancelled_and_its_slices_are_planned_again(world: EngineWorld) -> None:
    records = world.put(*texts(5))
    diary = Diary()
    running = world.start(diary, hanging=True, engine={"batch_timeout_seconds": 0.1})
    wait_until(lambda: running.query.counters.batches_timed_out, "the batch has ended")
    running.runner.open_gate()
    running.query.processAllAvailable()

    assert diary.payloads == texts(5)
    assert world.dead_letters.letters == []
    world.until_stored(records[-1])


def test_a_time_out_counts_each_record_that_was_under_way_and_the_batch_once(two_shards: EngineWorld) -> None:
    two_shards.put_in(FIRST, "a")
    two_shards.put_in(SECOND, "b")

    def hang(_: Record) -> None:
        wait_until(lambda: bool(running.runner.cancelled), "the batch is cancelled")
        raise KillsWorker

    times = {"batch_timeout_seconds": 0.1, "shards_per_task": 1}
    running = two_shards.start(hang, retry_limit=0, engine=times)
    running.query.processAllAvailable()

    assert {letter.error for letter in two_shards.dead_letters.letters} == {"timed out after 0.1 s"}
    counters = running.query.counters
    assert (counters.timed_out, counters.batches_timed_out) == (2, 1)


def test_a_record_that_is_found_by_halving_is_counted_as_timed_out_once(world: EngineWorld) -> None:
    world.put("a")
    running = world.start(Diary(), hanging=True, retry_limit=0, engine={"batch_timeout_seconds": 0.1})
    wait_until(lambda: world.dead_letters.letters, "the record is given up")

    counters = running.query.counters
    assert counters.timed_out == 1
    assert counters.batches_timed_out >= 2


def test_a_batch_that_waits_for_its_turn_on_the_cluster_is_not_overdue(world: EngineWorld) -> None:
    world.put("a")
    running = world.start(Diary(), hanging=True, queueing=True, engine={"batch_timeout_seconds": 0.05})
    wait_until(lambda: running.runner.hanging, "the batch is submitted")
    started = running.consumer.now
    wait_until(lambda: running.consumer.now > started + 0.5, "the time-out is long over")

    assert running.runner.cancelled == []
    running.runner.queueing = False
    wait_until(lambda: running.query.counters.batches_timed_out, "it begins, and outlives its time-out")


def test_while_a_batch_waits_for_its_turn_spark_is_asked_about_it_now_and_then(world: EngineWorld) -> None:
    """Each question costs a call to the JVM, and polls wake the engine all the time."""
    world.put("a")
    running = world.start(Diary(), hanging=True, queueing=True, engine={"batch_timeout_seconds": 100.0})
    asked: list[str] = []
    running.runner.has_begun = asked.append  # type: ignore[assignment, method-assign]
    wait_until(lambda: running.runner.hanging, "the batch is submitted")
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    def woken_a_hundred_times() -> bool:
        running.engine._calls.put(call)
        return calls >= 100

    began = running.consumer.now
    wait_until(woken_a_hundred_times, "the engine has looked a hundred times")
    assert len(asked) <= 2 + (running.consumer.now - began)


def assert_same_job(tags: list[str]) -> None:
    first, again = tags
    assert first == again
    assert re.fullmatch("test-[0-9a-f]{6}-0", first)


def test_an_overdue_batch_is_cancelled_again_until_the_cancel_meets_its_job(world: EngineWorld) -> None:
    """A job that Spark does not know yet is not met by a cancel."""
    world.put("a")
    running = world.start(Diary(), hanging=True, engine={"batch_timeout_seconds": 0.1})
    running.runner.cancels_missed = 1

    wait_until(lambda: running.query.counters.batches_timed_out, "the batch has ended")
    assert_same_job(running.runner.cancelled[:2])


def test_a_stop_at_its_deadline_cancels_again_too(world: EngineWorld) -> None:
    world.put("a")
    running = world.start(Diary(), hanging=True, stop_timeout_seconds=0)
    running.runner.cancels_missed = 1
    wait_until(lambda: running.runner.hanging, "the batch runs")
    running.stop()

    assert_same_job(running.runner.cancelled)


def test_a_broken_handler_ends_the_query_and_blames_no_record(world: EngineWorld) -> None:
    world.put("a", "b")
    running = world.start(Diary(), hanging=True)
    running.runner.failures = [HandlerBroken("no module named orders")]
    running.runner.open_gate()

    with pytest.raises(HandlerBroken, match="no module named orders"):
        running.query.awaitTermination(60)

    assert not running.query.isActive
    assert isinstance(running.query.exception(), HandlerBroken)
    assert world.dead_letters.letters == []
    assert world.stored().base < world.stream.records(FIRST)[0].sequence


def test_a_query_that_ended_by_an_error_has_given_its_shards_up(world: EngineWorld) -> None:
    records = world.put("a", "b")
    running = world.start(Diary())
    running.query.processAllAvailable()
    running.runner.failures = [HandlerBroken("broken now")]
    world.put("c")
    with pytest.raises(HandlerBroken):
        running.query.awaitTermination(60)

    assert world.zookeeper.owners == {}
    assert world.stored().base == records[-1].sequence


# Trouble with reading


def test_errors_that_may_pass_do_not_end_the_query(world: EngineWorld) -> None:
    running = world.start(Diary())
    running.query.processAllAvailable()

    world.stream.throttle(times=2)
    world.stream.make_unavailable(times=2)
    world.put("a")
    running.query.processAllAvailable()

    assert running.query.counters.throttled >= 1
    assert running.query.exception() is None


def test_the_last_error_is_gone_once_the_shard_is_read_again(world: EngineWorld) -> None:
    running = world.start(Diary())
    running.query.processAllAvailable()
    world.stream.throttle()

    wait_until(lambda: running.query.counters.throttled, "a poll is throttled")
    wait_until(lambda: running.query.last_error is None, "the shard is read again")


def test_permissions_that_are_taken_away_later_are_asked_for_again_slowly(world: EngineWorld) -> None:
    running = world.start(Diary())
    running.query.processAllAvailable()
    world.stream.fail_next(AccessDenied("not any more"), times=2)
    wait_until(lambda: isinstance(running.query.last_error, AccessDenied), "a poll is refused")

    assert running.query.isActive

    def rests() -> bool:
        with running.consumer.lock:
            return running.engine._shards.by_id[FIRST].times.poll_at - running.consumer.now > 20

    wait_until(rests, "the second refusal in a row rests the shard")


def test_lost_data_ends_the_query(world: EngineWorld) -> None:
    world.put(*texts(3))
    running = world.start(Diary())
    running.query.processAllAvailable()
    world.stream.fail_next(DataLoss("trimmed"))

    with pytest.raises(DataLoss):
        running.query.awaitTermination(60)


def test_an_error_amid_a_slice_keeps_what_was_read_before(world: EngineWorld) -> None:
    world.put(*texts(10))
    diary = Diary()
    running = world.start(diary, task={"records_per_fetch": 4}, hanging=True)
    running.runner.open_gate()
    diary.until(["r0"])
    world.stream.make_unavailable()
    running.query.processAllAvailable()

    assert diary.payloads == texts(10)


def test_a_shard_that_retention_took_is_over_and_counted(two_shards: EngineWorld) -> None:
    world = two_shards
    world.put_in(FIRST, "read")
    world.put_in(SECOND, "a")
    diary = Diary()
    running = world.start(diary, fail_on_data_loss=False)
    running.query.processAllAvailable()
    with world.stream._lock:
        del world.stream._logs[FIRST]

    wait_until(lambda: running.query.counters.shards_trimmed == 1, "the driver notices")
    wait_until(lambda: world.stored(FIRST).is_shard_end, "its end is stored")
    world.put_in(SECOND, "b")
    diary.until(["b"])


# Ownership and commits


def test_results_of_an_ownership_that_ended_are_ignored(world: EngineWorld) -> None:
    world.put("a", "b")
    diary = Diary()
    running = world.start(diary, hanging=True)
    wait_until(lambda: running.runner.hanging, "a batch is under way")
    first_epoch = world.stored().epoch

    running.runner.cancels_missed = 1_000
    world.zookeeper.expire("member-1")
    wait_until(lambda: world.stored().epoch > first_epoch, "the shard is acquired anew")
    running.runner.open_gate()
    running.query.processAllAvailable()

    assert sorted(diary.payloads) == ["a", "a", "b", "b"]
    assert running.query.exception() is None
    assert world.stored().epoch > first_epoch


def test_a_batch_that_waits_for_the_cluster_when_its_shards_are_lost_is_never_delivered(
    world: EngineWorld,
) -> None:
    world.put("a", "b")
    diary = Diary()
    running = world.start(diary, hanging=True, queueing=True)
    wait_until(lambda: running.runner.hanging, "a batch waits for the cluster")
    first_epoch = world.stored().epoch

    world.zookeeper.expire("member-1")
    wait_until(lambda: running.runner.cancelled, "its job is cancelled")
    wait_until(lambda: world.stored().epoch > first_epoch, "the same consumer has the shard again")
    wait_until(lambda: len(running.runner.batches) == 2, "what it plans now is submitted")
    running.runner.open_gate()
    running.query.processAllAvailable()

    assert sorted(diary.payloads) == ["a", "b"]
    assert running.engine._settling.deaths == 0


def test_a_batch_whose_shards_are_lost_while_its_retries_are_read_again_never_begins(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("a")
    diary = Diary(a=[ValueError("no")])
    running = world.start(diary, retry_backoff_seconds=0.5)
    wait_until(lambda: running.query.counters.retried == 1, "the record has failed")
    first_epoch, read_missing = world.stored().epoch, RunningBatches._read_missing
    lost: list[Batch] = []

    def lose_meanwhile(running: RunningBatches, batch: Batch) -> dict[str, Reread]:
        if not lost:
            lost.append(batch)
            world.zookeeper.expire("member-1")
            wait_until(lambda: batch.is_lost, "the shard is lost")
        return read_missing(running, batch)

    monkeypatch.setattr(RunningBatches, "_read_missing", lose_meanwhile)
    with running.consumer.lock:
        running.engine._shards.retry_data.drop_shard(FIRST)
    wait_until(lambda: world.stored().epoch > first_epoch, "the same consumer has the shard again")
    running.query.processAllAvailable()

    assert first_epoch not in [work.plan.epoch for work in running.runner.slices(SliceKind.RETRY)]
    assert diary.payloads == ["a", "a"]


def test_a_spark_that_does_not_answer_keeps_no_consumer_from_giving_up_what_it_lost(
    world: EngineWorld,
) -> None:
    """Its JVM can stop for many seconds, and is asked about each batch."""
    world.put("a")
    running = world.start(Diary(), hanging=True, queueing=True, engine={"batch_timeout_seconds": 100.0})
    asked, answers = threading.Event(), threading.Event()

    def never(tag: str) -> bool:
        del tag
        asked.set()
        return answers.wait(300)

    running.runner.has_begun = never  # type: ignore[method-assign]
    first_epoch = world.stored().epoch
    try:
        assert asked.wait(30)
        world.zookeeper.expire("member-1")
        wait_until(lambda: world.stored().epoch > first_epoch, "the shard is given up, and acquired anew")
    finally:
        answers.set()


def test_commits_go_on_while_reading_is_paused(world: EngineWorld) -> None:
    """Invariant 13: the retries, which are far away, fill three quarters of what may be pending."""
    records = world.put(*texts(20))
    diary = Diary(**{name: [ValueError("no")] * 9 for name in texts(20)[1:]})
    running = world.start(diary, max_pending=8, retry_backoff_seconds=60.0)

    world.until_stored(records[0])
    wait_until(lambda: running.query.shards()[0].congested, "reading is paused")
    assert len(diary.payloads) <= 1 + 8
    commits = running.query.counters.commits
    with running.consumer.lock:
        assert running.consumer.manager.ack(FIRST, records[1].sequence, running.consumer.now)

    world.until_stored(records[1])
    assert running.query.counters.commits > commits


def test_the_driver_stops_fetching_at_three_quarters_of_what_it_may_hold(two_shards: EngineWorld) -> None:
    world = two_shards
    running = world.start(Diary(), engine={"max_buffered_bytes": 10 * 1024 * 1024}, max_concurrent_batches=1)
    running.query.processAllAvailable()
    running.runner.gate.clear()
    big = "x" * (8 * 1024 * 1024)
    world.put_in(FIRST, big)
    wait_until(lambda: running.runner.hanging, "the big record is on its way")
    world.put_in(SECOND, "small")
    tip = running.engine._tip
    with running.consumer.lock:
        running.engine._shards.by_id[SECOND].schedule(poll_at=0.0)
        tip.look_again(SECOND)
    wait_until(lambda: tip.room.parked, "the other shard waits for room")
    assert tip.reading_since(SECOND) is None

    running.runner.open_gate()
    running.query.processAllAvailable()
    assert running.query.counters.acked == 2


def test_shards_take_turns_while_there_is_room_for_one_page(two_shards: EngineWorld) -> None:
    world = two_shards
    diary = Diary()
    running = world.start(diary, engine={"max_buffered_bytes": 10 * 1024 * 1024})
    running.query.processAllAvailable()
    world.put_in(FIRST, "a")
    world.put_in(SECOND, "b")

    diary.until(["a", "b"])


# Stopping


def test_a_stop_lets_what_is_in_flight_end_and_commits_it(world: EngineWorld) -> None:
    records = world.put("a", "b")
    diary = Diary()
    running = world.start(diary, hanging=True)
    wait_until(lambda: running.runner.hanging, "a batch is under way")
    running.engine._stopping.set()
    running.runner.open_gate()
    running.stop()

    assert diary.payloads == ["a", "b"]
    assert world.stored().base == records[-1].sequence
    assert running.runner.cancelled == []
    assert world.zookeeper.owners == {}


def test_a_stop_cancels_at_its_deadline_and_leaves_the_records_for_the_next_start(
    world: EngineWorld,
) -> None:
    world.put("a", "b")
    diary = Diary()
    running = world.start(diary, hanging=True, stop_timeout_seconds=0.05)
    wait_until(lambda: running.runner.hanging, "a batch is under way")
    running.stop()

    assert diary.payloads == []
    assert world.dead_letters.letters == []
    again = world.start(diary)
    again.query.processAllAvailable()
    assert diary.deliveries == [("a", 1), ("b", 1)]


def test_after_a_clean_stop_nothing_is_delivered_twice(world: EngineWorld) -> None:
    world.put(*texts(10))
    diary = Diary(r3=[ValueError("no")])
    first = world.start(diary, retry_backoff_seconds=60.0)
    wait_until(lambda: first.query.counters.acked == 9, "all but one are acked")
    first.stop()
    world.put("new")

    second = world.start(diary)
    second.query.processAllAvailable()

    assert diary.attempts("r3") == [1, 2]
    assert sorted(diary.payloads) == sorted([*texts(10), "r3", "new"])


def test_a_stopped_query_reports_its_end_without_an_error(world: EngineWorld) -> None:
    running = world.start(Diary())
    assert running.query.awaitTermination(0.01) is False
    running.stop()
    running.stop()

    assert running.query.awaitTermination(1) is True
    assert running.query.awaitTermination() is None
    assert running.query.exception() is None
    assert not running.query.isActive
    with pytest.raises(InvalidConfig):
        running.query.awaitTermination(0)


# Resharding


def test_children_are_read_after_their_parent_is_finished_and_its_end_stored(world: EngineWorld) -> None:
    world.put(*texts(5, "parent"))
    children = world.stream.split(FIRST)
    for child in children:
        world.put_in(child.shard_id, f"child of {child.shard_id}")
    ends: list[bool] = []
    diary = Diary(parent2=[ValueError("no")] * 2)

    def handle(record: Record) -> None:
        if record.shard_id != FIRST:
            ends.append(world.stored(FIRST).is_shard_end)
        diary(record)

    running = world.start(handle)
    running.query.processAllAvailable()

    assert ends == [True, True]
    assert set(diary.payloads[-2:]) == {f"child of {child.shard_id}" for child in children}
    assert diary.attempts("parent2") == [1, 2, 3]
    phases = {shard.shard_id: shard.phase for shard in running.query.shards()}
    assert phases[FIRST] is ShardPhase.OVER


def test_nothing_is_caught_up_before_the_children_are_read(world: EngineWorld) -> None:
    """The end of the parent is stored later than it is read; in between nothing seems to be left."""
    world.put("parent")
    children = world.stream.split(FIRST)
    for child in children:
        world.put_in(child.shard_id, child.shard_id)
    diary = Diary()
    running = world.start(diary, commit_interval_seconds=0.5)
    running.query.processAllAvailable()

    assert set(diary.payloads) == {"parent", *(child.shard_id for child in children)}


def test_a_merged_shard_waits_for_both_its_parents(two_shards: EngineWorld) -> None:
    world = two_shards
    running = world.start(diary := Diary(b=[ValueError("no")] * 2))
    world.put_in(FIRST, "a")
    world.put_in(SECOND, "b")
    child = world.stream.merge(FIRST, SECOND)
    world.put_in(child.shard_id, "c")
    running.query.processAllAvailable()

    assert diary.payloads[-1] == "c"
    assert sorted(diary.payloads) == ["a", "b", "b", "b", "c"]


# Retries that were not kept


def test_retries_whose_data_was_not_kept_are_read_again(world: EngineWorld) -> None:
    world.put(*texts(30))
    diary = Diary(**{name: [ValueError("no")] for name in texts(30)})
    running = world.start(diary, engine={"max_buffered_bytes": 0})
    wait_until(lambda: len(diary.deliveries) == 60, "all are delivered twice")

    assert all(diary.attempts(name) == [1, 2] for name in texts(30))
    starts = {position.type for _, position in world.getters_opened}
    assert PositionType.AT_SEQUENCE_NUMBER in starts, "they were read again, each from itself on"
    assert running.engine._shards.retry_data.size_bytes == 0
    assert world.dead_letters.letters == []


def test_nobody_waits_for_retries_that_are_read_again(two_shards: EngineWorld) -> None:
    world = two_shards
    for shard_id in (FIRST, SECOND):
        world.put_in(shard_id, f"fails in {shard_id}")
    failing = {f"fails in {shard_id}": [ValueError("no")] for shard_id in (FIRST, SECOND)}
    # Room to poll in, and less than one record weighs in the retry buffer.
    room = {"max_buffered_bytes": 600}
    running = world.start(Diary(**failing), engine=room, retry_backoff_seconds=0.3)
    running.query.processAllAvailable()

    retried = [
        batch for batch in running.runner.batches if any(work.plan.kind is SliceKind.RETRY for work in batch)
    ]
    assert [len(batch) for batch in retried] == [1, 1]


def test_a_throttle_while_reading_again_blames_no_record(world: EngineWorld) -> None:
    world.put("a")
    diary = Diary(a=[ValueError("no")])
    running = world.start(diary, engine={"max_buffered_bytes": 0}, retry_backoff_seconds=0.5)
    wait_until(lambda: running.query.counters.retried == 1, "the record has failed")
    world.stream.throttle(times=20)

    wait_until(lambda: diary.attempts("a") == [1, 2], "it is delivered again")
    assert world.dead_letters.letters == []


def test_a_retry_that_retention_took_is_dead_lettered_with_what_is_known(world: EngineWorld) -> None:
    records = world.put("a", "b")
    diary = Diary(a=[ValueError("no")])
    running = world.start(diary, engine={"max_buffered_bytes": 0}, retry_backoff_seconds=0.5)
    wait_until(lambda: running.query.counters.retried == 1, "the record has failed")
    world.stream.trim(FIRST, records[0].sequence)
    wait_until(lambda: world.dead_letters.letters, "it is given up")

    letter = world.dead_letters.letters[0]
    assert (letter.sequence_number, letter.reason) == (str(records[0].sequence), "rejected")
    assert "trimmed" in letter.error
    assert running.query.counters.acked == 1


# The engine's own time


def test_due_retries_that_cannot_go_out_do_not_keep_the_engine_busy(two_shards: EngineWorld) -> None:
    world = two_shards
    world.put_in(FIRST, "a")
    diary = Diary(a=[ValueError("no")])
    running = world.start(diary, engine={"max_concurrent_batches": 1})
    wait_until(lambda: running.query.counters.retried == 1, "the record has failed")
    running.runner.gate.clear()
    world.put_in(SECOND, "b")
    wait_until(lambda: running.runner.hanging, "the only slot is taken")

    def poll_in(seconds: float) -> None:
        for shard_id in (FIRST, SECOND):
            running.engine._shards.by_id[shard_id].schedule(poll_at=running.consumer.now + seconds)
            running.engine._tip.look_again(shard_id)

    with running.consumer.lock:
        poll_in(60.0)  # The next polls come soon, and would be waited for instead.
        waits = [running.engine._start_work() for _ in range(3)]
        poll_in(0.0)
    assert min(waits) > 0.1

    running.runner.open_gate()
    running.query.processAllAvailable()


def test_due_retries_of_a_shard_that_rests_do_not_keep_the_engine_busy(world: EngineWorld) -> None:
    world.put("a")
    running = world.start(
        Diary(a=[ValueError("no")]),
        engine={"death_backoff_seconds": 60.0, "quick_deaths": 0},
        retry_backoff_seconds=0.5,
    )
    wait_until(lambda: running.query.counters.retried == 1, "the record has failed")
    running.runner.failures = [HandlerKilledWorker("an executor was lost")]
    wait_until(lambda: running.engine._settling.deaths == 1, "the job of the retry has died")

    with running.consumer.lock:
        running.engine._shards.by_id[FIRST].schedule(poll_at=running.consumer.now + 60)
        running.engine._tip.look_again(FIRST)
        waits = [running.engine._start_work() for _ in range(3)]
    assert min(waits) > 0.1


def test_a_batch_whose_worker_died_is_planned_again_and_one_that_can_never_run_ends_the_query(
    world: EngineWorld,
) -> None:
    records = world.put("a")
    running = world.start(Diary(), hanging=True)
    running.runner.failures = [HandlerKilledWorker("an executor was lost")]
    running.runner.open_gate()
    world.until_stored(records[0])

    running.runner.failures = [StateUnreadable("no business of a job")]
    world.put("b")
    with pytest.raises(KinesisSpoutError, match="no business"):
        running.query.awaitTermination(60)
