"""The micro-batch doors on real Spark, with the real ZooKeeper and a Kinesis endpoint."""

import asyncio
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from kinesis_spout import Reject, RetryLater
from kinesis_spout.model.errors import InvalidConfig, StreamNotFound
from kinesis_spout.model.record import Record
from kinesis_spout.spark import ArrowCollector, Collector
from kinesis_spout.spark.long_tasks.long_task_runner import LongTaskRunner
from kinesis_spout.spark.tasks.jobs import HandlerBroken
from tests.support.spark.micro_batch_world import MakeWorld, MicroBatchWorld, logging_handler
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.endpoint,
    # PySpark asks for pandas, which nothing here uses, and warns of its newest version.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def texts(count: int, prefix: str = "r") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


# The doors


def test_the_record_door_acks_fails_rejects_and_dead_letters(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    world.put(texts(200))

    def act(payload: str, attempt: int) -> None:
        if payload == "r7" and attempt == 1:
            raise ValueError("once")
        if payload == "r8":
            raise ValueError("always")
        if payload == "r9":
            raise Reject("never")
        if payload == "r10" and attempt == 1:
            raise RetryLater(0.1, "busy")
        if payload == "r11":
            raise SystemExit(3)

    query = world.spout(retry_limit=2).foreach_record(spark, logging_handler(world.log, act))
    with query:
        query.processAllAvailable()

        assert world.log.attempts("r7") == [1, 2]
        assert world.log.attempts("r8") == world.log.attempts("r11") == [1, 2, 3]
        assert world.log.attempts("r9") == [1]
        assert world.log.attempts("r10") == [1, 2]
        counts = world.log.counts()
        assert set(counts) == set(texts(200))
        assert sum(counts.values()) == 200 + 1 + 2 + 1 + 2
        counters = query.counters
        assert (counters.delivered, counters.acked, counters.dead_lettered) == (206, 197, 3)

    letters = {letter.data: letter for letter in world.dead_letters()}
    assert {data: (letter.attempts, letter.reason) for data, letter in letters.items()} == {
        b"r8": (3, "exhausted"),
        b"r9": (1, "rejected"),
        b"r11": (3, "exhausted"),
    }
    assert letters[b"r8"].error == "ValueError: always"


@pytest.mark.no_second_run
def test_several_streams_are_read_retried_and_read_on_after_a_restart(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    other = world.endpoint.create_stream(shards=1)
    streams = [world.stream, f"{other[:-1]}?"]  # one by its name, the other by a pattern

    def put_other(*payloads: str) -> None:
        for payload in payloads:
            world.endpoint.client().put_record(StreamName=other, Data=payload.encode(), PartitionKey=payload)

    def act(payload: str, attempt: int) -> None:
        if payload == "r7" or (payload == "other1" and attempt == 1):
            raise ValueError("not now")

    handle = logging_handler(world.log, act)
    world.put(texts(50))
    put_other("other0", "other1")
    with world.spout(stream=streams, retry_limit=1).foreach_record(spark, handle) as query:
        query.processAllAvailable()
        assert (query.counters.acked, query.counters.dead_lettered) == (51, 1)
        progress = query.lastProgress
        assert progress is not None
        assert {source["description"] for source in progress["sources"]} == {
            f"Kinesis[{world.stream}]",
            f"Kinesis[{other}]",
        }
    assert world.log.attempts("other1") == [1, 2]
    assert {(letter.data, letter.stream) for letter in world.dead_letters()} == {(b"r7", world.stream)}

    world.put(["after"])
    put_other("other2")
    with world.spout(stream=streams, retry_limit=1).foreach_record(spark, handle) as query:
        query.processAllAvailable()
        assert query.counters.delivered == 2, "only what came after the restart"
    assert world.log.counts()["after"] == world.log.counts()["other2"] == 1


def test_a_record_that_comes_at_the_tip_is_handled_without_a_backlog(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    with world.spout().foreach_record(spark, logging_handler(world.log)) as query:
        query.processAllAvailable()
        world.put(["late"])
        query.processAllAvailable()

    assert world.log.payloads() == ["late"]


def test_the_arrow_door_acks_all_rows_but_those_that_fail(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    world.put(texts(100))

    def handle(batch: pa.RecordBatch, collector: ArrowCollector) -> None:
        for row, data in enumerate(batch.column("data").to_pylist()):
            if data == b"r3":
                collector.fail(row, "bad row")
            if data == b"r4":
                raise ValueError("poison")

    with world.spout(retry_limit=1).foreach_arrow(spark, handle) as query:
        query.processAllAvailable()
        assert (query.counters.acked, query.counters.dead_lettered) == (98, 2)

    assert {(letter.data, letter.error, letter.attempts) for letter in world.dead_letters()} == {
        (b"r3", "bad row", 2),
        (b"r4", "ValueError: poison", 2),
    }


def test_the_data_frame_door_shows_the_same_rows_to_every_action_and_reads_kinesis_once(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    world.put(texts(100))
    batches: list[tuple[set[Any], set[Any], int]] = []

    def handle(df: DataFrame, collector: Collector) -> None:
        first = {tuple(row) for row in df.select("shardId", "sequenceNumber").collect()}
        second = {(row["shardId"], row["sequenceNumber"]) for row in df.collect()}
        batches.append((first, second, df.count()))
        collector.fail(df.where("cast(data as string) in ('r5', 'r6')"), "bad")
        collector.fail(
            [
                {"shardId": r["shardId"], "sequenceNumber": r["sequenceNumber"]}
                for r in df.where("cast(data as string) = 'r7'").collect()
            ],
            Reject("worse"),
        )

    with world.spout(retry_limit=1).foreach_batch(spark, handle) as query:
        query.processAllAvailable()
        counters = query.counters
        assert (counters.delivered, counters.acked, counters.dead_lettered) == (102, 97, 3)
        assert counters.bytes_read == sum(2 * len(text) for text in texts(100))

    assert all(first == second and len(first) == count for first, second, count in batches)
    assert {(letter.data, letter.error, letter.attempts) for letter in world.dead_letters()} == {
        (b"r5", "bad", 2),
        (b"r6", "bad", 2),
        (b"r7", "worse", 1),
    }
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0


def test_a_bounded_run_leaves_out_what_arrived_later_and_the_next_one_goes_on_there(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    world.put(texts(100))
    until = math.ceil(time.time())
    wait_until(lambda: time.time() > until + 0.1, "another second has begun")
    world.put(texts(50, "late"))
    seen: list[str] = []

    def handle(df: DataFrame, _: Collector) -> None:
        seen.extend(bytes(row.data).decode() for row in df.collect())

    query = world.spout(until=until).foreach_batch(spark, handle)
    assert query.awaitTermination(120.0)
    assert query.is_done
    assert sorted(seen) == sorted(texts(100))

    seen.clear()
    assert world.spout(until="latest").foreach_batch(spark, handle).awaitTermination(120.0)
    assert sorted(seen) == sorted(texts(50, "late"))


def test_a_data_frame_handler_that_raises_is_halved_until_the_poison_stands_alone(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(shards=1)
    world.put(texts(4))

    def handle(df: DataFrame, _: Collector) -> None:
        if df.where("cast(data as string) = 'r2'").count():
            raise ValueError("poison")

    with world.spout(retry_limit=0).foreach_batch(spark, handle) as query:
        query.processAllAvailable()
        assert query.counters.acked == 3

    (letter,) = world.dead_letters()
    assert letter.data == b"r2"
    assert "ValueError: poison" in letter.error


def test_the_rows_of_a_batch_and_its_outcome_take_one_job(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    world.put(texts(20))
    context = spark.sparkContext
    jobs: list[int] = []

    def handle(_: DataFrame, __: Collector) -> None:
        group = context.getLocalProperty("spark.jobGroup.id")
        assert group is not None
        wait_until(lambda: bool(context.statusTracker().getJobIdsForGroup(group)), "Spark tells of the job")
        jobs.append(len(context.statusTracker().getJobIdsForGroup(group)))

    with world.spout().foreach_batch(spark, handle) as query:
        query.processAllAvailable()
        assert query.counters.acked == 20

    assert set(jobs) == {1}


@pytest.mark.no_second_run
def test_rows_that_are_lost_with_an_executor_are_never_fetched_anew_under_the_handler(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(shards=1)
    world.put(texts(20))
    counts: list[int] = []

    def handle(df: DataFrame, _: Collector) -> None:
        counts.append(df.count())
        if len(counts) == 1:
            for blocks in spark.sparkContext._jsc.getPersistentRDDs().values():
                blocks.unpersist(True)
            counts.append(df.count())

    with world.spout(retry_limit=0).foreach_batch(spark, handle) as query:
        query.processAllAvailable()
        assert (query.counters.acked, query.counters.dead_lettered) == (20, 0)

    assert counts == [20, 20]


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([{"shardId": "shardId-000000000000"}], InvalidConfig),
        ([{"shardId": "shardId-000000000000", "sequenceNumber": "987654321"}], HandlerBroken),
    ],
)
def test_rows_that_cannot_be_failed_end_the_query_and_blame_no_record(
    spark: SparkSession, world: MicroBatchWorld, rows: list[dict[str, str]], error: type[Exception]
) -> None:
    world.put(["a"])

    def handle(_: DataFrame, collector: Collector) -> None:
        collector.fail(rows, "why")

    with world.spout().foreach_batch(spark, handle) as query:
        with pytest.raises(error, match=r"sequenceNumber|not in it"):
            query.awaitTermination(120)
        assert query.counters.dead_lettered == 0


# Handlers that misbehave


def test_a_handler_that_ends_its_worker_costs_only_the_record_that_made_it_do_so(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    """Invariant 19. A record of the other task may come twice: the one it had in hand when Spark ended it."""
    world = make_world(shards=2, many_records=True)
    world.put(texts(10_000))

    def act(payload: str, _: int) -> None:
        if payload == "r5000":
            os._exit(3)

    with world.spout(retry_limit=2).foreach_record(spark, logging_handler(world.log, act)) as query:
        query.processAllAvailable()
        assert query.counters.acked == 9_999
        jobs = query._engines[0]._running.launched

    (letter,) = world.dead_letters()
    assert (letter.data, letter.attempts) == (b"r5000", 3)
    assert "died" in letter.error
    assert world.log.attempts("r5000") == [1, 2, 3]
    counts = world.log.counts()
    del counts["r5000"]
    assert set(counts) == set(texts(10_000)) - {"r5000"}
    assert max(counts.values()) <= 2
    assert sum(counts.values()) <= 9_999 + 4
    assert jobs <= 16


def test_of_eight_records_under_way_the_one_that_ends_its_worker_is_found_and_costs_the_others_one_delivery(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    """Invariant 19, with ``concurrency``."""
    world = make_world(shards=1, many_records=True)
    world.put(texts(400))

    def act(payload: str, _: int) -> None:
        threading.Event().wait(0.001)
        if payload == "r200":
            os._exit(3)

    spout = world.spout(retry_limit=0, concurrency=8, order="key")
    with spout.foreach_record(spark, logging_handler(world.log, act)) as query:
        query.processAllAvailable()
        assert query.counters.acked == 399
        jobs = query._engines[0]._running.launched

    (letter,) = world.dead_letters()
    assert (letter.data, letter.attempts) == (b"r200", 1)
    assert "died" in letter.error
    counts = world.log.counts()
    assert counts.pop("r200") == 2, "once among others, and once alone"
    assert set(counts) == set(texts(400)) - {"r200"}
    assert max(counts.values()) <= 2
    assert sum(counts.values()) <= 399 + 7
    assert jobs <= 8


def test_coroutines_of_a_shard_overlap_and_one_that_hangs_is_timed_out_alone(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(shards=1)
    world.put([*texts(40), "hangs"])
    log = logging_handler(world.log)
    together = _Together()

    async def handle(record: Record) -> None:
        assert TaskContext.get() is not None
        if record.data == b"hangs":
            await asyncio.Event().wait()
        await together.come()
        log(record)

    spout = world.spout(retry_limit=0, concurrency=41, record_timeout_seconds=5.0)
    with spout.foreach_record(spark, handle) as query:
        query.processAllAvailable()
        assert (query.counters.acked, query.counters.timed_out) == (40, 1)

    (letter,) = world.dead_letters()
    assert (letter.data, letter.error) == (b"hangs", "timed out after 5 s (record_timeout_seconds)")
    assert world.log.counts() == dict.fromkeys(texts(40), 1)


class _Together:
    """Lets coroutines wait for each other, until ten have come. Mutable; each worker has its own."""

    def __init__(self) -> None:
        self._came = 0
        self._ten: asyncio.Event | None = None

    async def come(self) -> None:
        self._ten = self._ten or asyncio.Event()
        self._came += 1
        if self._came == 10:
            self._ten.set()
        await self._ten.wait()


def test_an_arrow_handler_that_ends_its_worker_is_given_fewer_rows_until_one_is_blamed(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(shards=1)
    world.put(texts(300))
    log = logging_handler(world.log)

    def handle(batch: pa.RecordBatch, _: ArrowCollector) -> None:
        for data in batch.column("data").to_pylist():
            log(Record(data=data, sequence_number="0"))
            if data == b"r200":
                os._exit(3)

    with world.spout(retry_limit=0).foreach_arrow(spark, handle) as query:
        query.processAllAvailable()
        assert query.counters.acked == 299

    assert [letter.data for letter in world.dead_letters()] == [b"r200"]
    counts = world.log.counts()
    assert set(counts) == set(texts(300))
    assert max(counts.values()) <= 3


def test_a_handler_that_hangs_is_timed_out(spark: SparkSession, make_world: MakeWorld) -> None:
    world = make_world(shards=1)
    world.put(["a", "hangs"])

    def act(payload: str, _: int) -> None:
        if payload == "hangs":
            threading.Event().wait()

    spout = world.spout(retry_limit=0, message_timeout_seconds=10.0)
    with spout.foreach_record(spark, logging_handler(world.log, act)) as query:
        query.processAllAvailable()
        assert query.counters.timed_out >= 1

    (letter,) = world.dead_letters()
    assert (letter.data, letter.error) == (b"hangs", "timed out after 10 s")


def test_a_handler_that_cannot_be_loaded_on_the_executors_ends_the_query(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    world.put(["a"])

    class NotThere:
        def __reduce__(self) -> tuple[Any, ...]:
            return __import__, ("cancelled_orders",)

        def __call__(self, _: Record) -> None:
            raise AssertionError

    with world.spout().foreach_record(spark, NotThere()) as query:
        with pytest.raises(HandlerBroken, match="No module named 'cancelled_orders'"):
            query.awaitTermination(120)
        assert isinstance(query.exception(), HandlerBroken)
        assert not query.isActive
    assert world.dead_letters() == []


# Stopping and going on


@pytest.mark.no_second_run
def test_a_stopped_query_goes_on_where_it_was_and_handles_nothing_twice(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    def act(payload: str, attempt: int) -> None:
        if payload == "r7" and attempt == 1:
            raise RetryLater(3600, "much later")

    world.put(texts(50))
    with world.spout().foreach_record(spark, logging_handler(world.log, act)) as query:
        while query.counters.acked < 49:
            assert not query.awaitTermination(0.05)
    world.put(texts(50, "n"))
    with world.spout().foreach_record(spark, logging_handler(world.log, act)) as again:
        again.processAllAvailable()

    assert query.id == again.id
    assert query.runId != again.runId
    assert world.log.attempts("r7") == [1, 2]
    counts = world.log.counts()
    del counts["r7"]
    assert set(counts.values()) == {1}
    assert len(counts) == 99


def test_user_records_are_retried_blamed_and_taken_up_again_one_by_one(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    def act(payload: str, attempt: int) -> None:
        if payload == "r7" and attempt == 1:
            raise RetryLater(3600, "much later")
        if payload == "r50" and attempt == 1:
            os._exit(3)
        if payload == "r90":
            raise Reject("never")

    payloads = texts(120)
    for start in range(0, 120, 40):
        world.put_aggregated(payloads[start : start + 40])
    with world.spout().foreach_record(spark, logging_handler(world.log, act)) as query:
        while query.counters.acked < 118 or query.counters.dead_lettered < 1:
            assert not query.awaitTermination(0.05)
    world.put_aggregated(texts(40, "n"))
    with world.spout().foreach_record(spark, logging_handler(world.log, act)) as again:
        again.processAllAvailable()

    assert world.log.attempts("r7") == world.log.attempts("r50") == [1, 2]
    counts = world.log.counts()
    assert set(counts) == {*payloads, *texts(40, "n")}
    assert sum(counts.values()) <= 160 + 2 + 1, "of another task, the record in hand may come twice"
    (letter,) = world.dead_letters()
    assert (letter.data, letter.partition_key) == (b"r90", "r90")
    assert letter.sequence_number.endswith(":10")


def test_the_handle_has_the_shape_of_a_streaming_query(spark: SparkSession, world: MicroBatchWorld) -> None:
    world.put(texts(10))
    query = world.spout().foreach_record(spark, logging_handler(world.log), name="bills")
    assert query.name == "bills"
    assert query.isActive
    assert set(query.status) == {"message", "isDataAvailable", "isTriggerActive"}
    query.processAllAvailable()

    progress = query.lastProgress
    assert progress is not None
    assert (progress["id"], progress["runId"], progress["name"]) == (query.id, query.runId, "bills")
    assert sum(each["numInputRows"] for each in query.recentProgress) == 10
    assert progress["durationMs"]["triggerExecution"] > 0
    assert progress["sources"][0]["description"] == f"Kinesis[{world.stream}]"
    assert query.awaitTermination(0.01) is False
    query.stop()
    assert query.awaitTermination(60) is True
    assert query.exception() is None
    assert query.lastProgress == progress


# Order


@pytest.mark.parametrize("door", ["foreach_arrow", "foreach_batch"])
def test_doors_that_handle_rows_together_refuse_an_order(
    spark: SparkSession, world: MicroBatchWorld, door: str
) -> None:
    with pytest.raises(InvalidConfig, match="foreach_record"):
        getattr(world.spout(order="key"), door)(spark, lambda *_: None)


# Starting


def test_a_session_without_a_context_is_refused(world: MicroBatchWorld) -> None:
    class RemoteSession:
        """Like Spark Connect's."""

    with pytest.raises(InvalidConfig, match="RemoteSession"):
        world.spout().foreach_record(RemoteSession(), lambda _: None)  # type: ignore[arg-type]


def test_what_is_wrong_at_the_start_is_raised_at_the_start(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    with pytest.raises(StreamNotFound, match="no-such-stream"):
        world.spout(stream="no-such-stream").foreach_record(spark, lambda _: None)


@pytest.mark.parametrize("door", ["foreach_record", "foreach_arrow", "foreach_batch"])
def test_a_handler_that_is_broken_for_every_record_costs_none_of_them(
    spark: SparkSession, world: MicroBatchWorld, tmp_path: Path, door: str
) -> None:
    payloads, mended = texts(3_000), str(tmp_path / "mended")
    world.put(payloads)

    def act(payload: str, attempt: int) -> None:
        del attempt
        if not Path(mended).exists():
            raise ValueError(f"no database for {payload}")

    def arrow(batch: pa.RecordBatch, collector: ArrowCollector) -> None:
        del collector
        if not Path(mended).exists():
            raise ValueError(f"no database for {batch.num_rows} rows")

    def frame(df: DataFrame, collector: Collector) -> None:
        if not Path(mended).exists():
            collector.fail(df, ValueError("no database"))

    handlers: dict[str, Any] = {
        "foreach_record": logging_handler(world.log, act),
        "foreach_arrow": arrow,
        "foreach_batch": frame,
    }
    query = getattr(world.spout(retry_limit=0, max_spared_seconds=600), door)(spark, handlers[door])
    with query:
        wait_until(lambda: query.trouble is not None, "the handler is known to be at fault")
        assert query.status["message"].startswith("Deliveries slowed: ")
        assert world.dead_letters() == []
        Path(mended).touch()
        query.processAllAvailable()
        assert query.trouble is None
        assert query.counters.acked == 3_000
        totals = query.lastProgress["totals"]
        assert (totals["acked"], totals["deadLettered"]) == (3_000, 0)
    assert world.dead_letters() == []
    if door == "foreach_record":
        assert set(world.log.payloads()) == set(payloads)
        assert all("no database for" not in kind for kind in query.failures)


# Tasks that stay


def test_a_slow_stream_is_handled_in_a_task_that_stays_and_one_that_kills_it_is_found_there(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    def act(payload: str, _: int) -> None:
        if payload == "r20":
            os._exit(3)

    with world.spout(retry_limit=2).foreach_record(spark, logging_handler(world.log, act)) as query:
        runner = query._engines[0]._running._runner
        assert isinstance(runner, LongTaskRunner)
        handed = []
        for payload in texts(30):
            task = runner._task
            handed += [] if task is None or task in handed else [task]
            world.put([payload])
            wait_until(lambda: payload in world.log.payloads(), f"{payload} is handled")  # noqa: B023
        query.processAllAvailable()
        assert query.counters.acked == 29

    assert sum(task.handed for task in handed) > 10, "they were not handed over"
    (letter,) = world.dead_letters()
    assert (letter.data, letter.attempts) == (b"r20", 3)
    assert world.log.attempts("r20") == [1, 2, 3]
    counts = world.log.counts()
    del counts["r20"]
    assert set(counts.values()) == {1}
    assert not spark.sparkContext.statusTracker().getActiveJobsIds(), "a stop ends the task"


def test_a_task_that_stays_makes_room_for_another_job(spark: SparkSession, world: MicroBatchWorld) -> None:
    with world.spout().foreach_record(spark, logging_handler(world.log)) as query:
        runner = query._engines[0]._running._runner
        assert isinstance(runner, LongTaskRunner)
        putting = threading.Event()

        def put() -> None:
            for number in range(10_000):
                if putting.wait(0.2):
                    return
                world.put([f"r{number}"])

        thread = threading.Thread(target=put)
        thread.start()
        try:
            first = runner._task
            while first is None or first.handed < 3:
                wait_until(
                    lambda: runner._task is not None and runner._task.handed > 2, "a task is handed slices"
                )
                first = runner._task
            slots = runner._cluster.slots()
            both = spark.sparkContext.parallelize(range(slots * 4), slots * 4)
            assert both.map(lambda _: time.sleep(0.7)).count() == slots * 4
            assert first.is_over
        finally:
            putting.set()
            thread.join()
        query.processAllAvailable()


def test_a_handler_that_hangs_in_a_task_that_stays_is_timed_out_alone(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(shards=1)

    def act(payload: str, _: int) -> None:
        if payload == "hangs":
            threading.Event().wait()

    spout = world.spout(retry_limit=0, message_timeout_seconds=10.0)
    with spout.foreach_record(spark, logging_handler(world.log, act)) as query:
        runner = query._engines[0]._running._runner
        assert isinstance(runner, LongTaskRunner)
        for number in range(1_000):
            world.put([f"r{number}"])
            wait_until(lambda: f"r{number}" in world.log.payloads(), "it is handled")  # noqa: B023
            task = runner._task
            if task is not None and task.handed > 1 and not task.is_over:
                break
        before = task.handed if task is not None else 0
        world.put(["hangs"])
        query.processAllAvailable()
        assert task is not None
        assert task.handed > before, "it was not handed over"
        assert query.counters.timed_out == 1

    (letter,) = world.dead_letters()
    assert (letter.data, letter.error) == (b"hangs", "timed out after 10 s")
    assert set(world.log.counts().values()) == {1}
