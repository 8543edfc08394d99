"""What must not hang the engine, cost it its bounds, or blame a record that did nothing."""

import threading

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker, KinesisSpoutError, StateUnavailable
from kinesis_spout.model.record import Record
from shard_state import SliceKind
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, Diary, EngineWorld, RunningQuery, texts

# Ends that nobody expects


def test_a_batch_that_ends_by_no_ordinary_exception_ends_the_query_and_is_not_waited_for(
    world: EngineWorld,
) -> None:
    """A handler on the driver may call ``sys.exit``. Unnoticed, its batch would be under way for ever."""
    world.put("a")
    running = world.start(Diary(), hanging=True)
    running.runner.failures = [SystemExit("enough")]
    running.runner.open_gate()

    with pytest.raises(KinesisSpoutError, match="SystemExit: enough"):
        running.query.awaitTermination(60)
    assert world.zookeeper.owners == {}


def test_records_of_batches_that_could_not_run_wait_and_no_attempt_of_theirs_counts(
    world: EngineWorld, caplog: pytest.LogCaptureFixture
) -> None:
    records = world.put("fails", *texts(200))
    diary = Diary(fails=[ValueError("once"), None])
    running = world.start(diary, hanging=True, retry_limit=1, engine={"death_backoff_cap_seconds": 0.01})
    outage = [StateUnavailable("the disk is full") for _ in range(40)]
    running.runner.failures += [outage.pop() for _ in range(20)]
    running.runner.open_gate()
    wait_until(lambda: isinstance(running.query.last_error, StateUnavailable), "it is shown")
    wait_until(lambda: diary.attempts("fails"), "it goes on")
    running.runner.failures += outage
    running.query.processAllAvailable()

    assert "could not run, and is tried again in 0.0 s: the disk is full" in caplog.text
    assert diary.attempts("fails") == [1, 2]
    assert all(diary.attempts(text) == [1] for text in texts(200))
    assert not world.dead_letters.letters
    world.until_stored(records[-1])
    assert running.query.trouble is None
    assert running.query.last_error is None


# Stopping


def test_a_handler_on_the_driver_may_stop_its_query(world: EngineWorld) -> None:
    records = world.put("a")
    diary = Diary()

    def handle(record: Record) -> None:
        diary(record)
        running.stop()

    running = world.start(handle, hanging=True)
    running.runner.open_gate()

    assert running.query.awaitTermination(60) is True
    running.stop()
    assert diary.deliveries == [("a", 1)]
    assert world.stored().base == records[0].sequence
    assert world.zookeeper.owners == {}


def test_a_batch_that_no_cancel_ends_is_left_behind(world: EngineWorld) -> None:
    """A handler on the driver that hangs in Python is met by no cancel."""
    world.put("a")
    running = world.start(Diary(), hanging=True, stop_timeout_seconds=0, engine={"abandon_seconds": 0.1})
    running.runner.cancels_missed = 1_000_000
    wait_until(lambda: running.runner.hanging, "a batch is under way")
    stopping = threading.Thread(target=running.stop, daemon=True)
    stopping.start()

    wait_until(lambda: not stopping.is_alive(), "the query has stopped")
    assert world.zookeeper.owners == {}
    running.runner.open_gate()
    diary = Diary()
    world.start(diary).query.processAllAvailable()
    assert diary.payloads == ["a"]


# Blame


def test_a_retry_that_has_no_data_to_deliver_is_not_blamed_for_the_death_of_a_job(world: EngineWorld) -> None:
    """It makes no job: one that dies would isolate a record that no handler saw."""
    records = world.put("a", "b")
    diary = Diary(a=[ValueError("no")])
    running = world.start(diary, engine={"max_buffered_bytes": 0}, retry_backoff_seconds=0.5, retry_limit=1)
    wait_until(lambda: running.query.counters.retried == 1, "the record has failed")
    world.stream.trim(FIRST, records[0].sequence)
    running.runner.failures = [HandlerKilledWorker("an executor was lost")] * 2

    wait_until(lambda: world.dead_letters.letters or not running.query.isActive, "it is given up")
    assert running.query.exception() is None
    assert "trimmed" in world.dead_letters.letters[0].error
    assert running.runner.slices(SliceKind.RETRY) == []


# Bounds


@pytest.mark.parametrize("retry_limit", [0, 1])
def test_what_waits_for_a_sink_that_is_down_is_bounded_in_bytes(world: EngineWorld, retry_limit: int) -> None:
    """Invariant 12: new reads pause, and retries too, whose data would come on top."""
    world.dead_letters.fail_writes(1_000_000)
    names = [f"{number:03}".ljust(1_000, "x") for number in range(60)]
    world.put(*names)
    diary = Diary(**{name: [ValueError("no")] * 2 for name in names})
    running = world.start(
        diary,
        engine={"max_buffered_bytes": 20_000},
        task={"records_per_fetch": 3},
        retry_limit=retry_limit,
        max_records_per_slice=3,
        max_spared_seconds=0,  # Every record fails, one after the other.
    )
    letters = running.consumer.letters
    wait_until(lambda: letters.size_bytes > 20_000 // 4, "the letters take their share")
    wait_until(lambda: _rests(running), "nothing is delivered any more")
    assert letters.size_bytes <= 20_000
    assert len(set(diary.payloads)) < 60

    world.dead_letters.fail_writes(0)
    wait_until(lambda: len(world.dead_letters.letters) == 60, "all are dead-lettered")
    assert set(diary.payloads) == set(names)


def test_pages_that_wait_for_congested_shards_do_not_keep_the_others_from_being_polled(
    two_shards: EngineWorld,
) -> None:
    """Invariant 15: what cannot go out gives way, and is read again."""
    world = two_shards
    failing = [f"fails {number}" for number in range(6)]
    diary = Diary(**{name: [ValueError("no")] * 9 for name in failing})
    running = world.start(
        diary, engine={"max_buffered_bytes": 100_000}, max_pending=8, retry_backoff_seconds=60.0
    )
    running.query.processAllAvailable()
    running.runner.gate.clear()
    world.put_in(FIRST, failing[0])
    wait_until(lambda: running.runner.hanging, "the first failure is on its way")
    for name in failing[1:]:
        world.put_in(FIRST, name)
    running.runner.open_gate()
    diary.until(failing)
    wait_until(lambda: running.query.shards()[0].congested, "its shard is congested")
    big = "x" * 90_000
    (record,) = world.put_in(FIRST, big)
    with running.consumer.lock:
        shard = running.engine._shards.by_id[FIRST]
        getter = running.consumer.ports.open_getter(FIRST, running.consumer.manager.shard(FIRST).position)  # type: ignore[union-attr]
        shard.begin_poll(lambda: getter)
        shard.take_in(getter.read(10), running.consumer.now)
        assert shard.size_bytes >= len(big)
    world.put_in(SECOND, "healthy")

    diary.until(["healthy"])
    assert running.query.shards()[0].congested, "or this proves nothing"
    with running.consumer.lock:
        for waiting in world.stream.records(FIRST)[:6]:
            running.consumer.manager.ack(FIRST, waiting.sequence, running.consumer.now)
        running.engine.resumed()  # Acks that no batch brought: the next plan would wait for the retries' time.
    diary.until([big])
    world.until_stored(record)


def _rests(running: RunningQuery) -> bool:
    """Tell whether the engine, asked to, starts nothing, and no retry will be due later."""
    with running.consumer.lock:
        running.engine._start_work()
        due = running.consumer.manager.next_due()
        return not running.engine._running.batches and (due is None or due <= running.consumer.now)
