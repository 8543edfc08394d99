"""What a micro-batch costs beyond its records: one small record per shard, and a handler that does nothing.

*Job* drives the Spark job alone, through ``HandlerRunner``: packed, sent, read or carried, returned. *End to
end* puts a record into each of 8 shards and waits until the engine has settled them: poll, plan, job, settle.
CPU is that of this process, the JVM and the Python workers together; the endpoint's is not counted.

The reference is the same job in a session that reaches its Python workers over TCP, which is Spark's default.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from canned_kinesis import CannedKinesis, shard_name
from figures import Figure
from local_spark import local_session, spark_processes, spout_config
from pyspark.sql import SparkSession

from kinesis_spout import KinesisSpout, Record
from kinesis_spout.kinesis import KinesisClientSettings, KinesisShardLister, PollingShardGetter
from kinesis_spout.kinesis.read.polled_getter import Cursor
from kinesis_spout.spark.driver.query import task_settings
from kinesis_spout.spark.driver.running_batches import pack
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.handler_runner import HandlerRunner
from kinesis_spout.spark.tasks.handlers import RecordHandler
from kinesis_spout.spark.tasks.work import WorkSlice
from shard_state import Position, SliceKind, SlicePlan

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

GOAL_SHARDS = 8
GOAL_MILLIS = 100.0
_WARM_UP_BATCHES = 40
_DEADLINE_SECONDS = 30.0
_TCP = {"spark__python__unix__domain__socket__enabled": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one micro-batch."""

    wall_millis: float
    cpu_millis: float


def figures(*, quick: bool) -> Iterator[Figure]:
    batches = 20 if quick else 50
    with CannedKinesis() as kinesis, tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        reference = None if quick else _in_other_process(kinesis.settings, place, batches)
        with local_session() as spark:
            for shards in (1, GOAL_SHARDS, 64):
                for kind in (SliceKind.READ, SliceKind.CARRIED):
                    cost = _job(spark, kinesis.settings, place, shards=shards, kind=kind, batches=batches)
                    compared = reference if shards == GOAL_SHARDS and kind is SliceKind.READ else None
                    yield from _shown(shards, kind, cost, compared)
            yield from _end_to_end(spark, kinesis, place, rounds=10 if quick else 30)


def _shown(shards: int, kind: SliceKind, cost: Cost, reference: Cost | None) -> Iterator[Figure]:
    how = "read by executors" if kind is SliceKind.READ else "carried by the driver"
    job = f"job of {shards} shard{'s' * (shards > 1)}, {how}"
    name = "" if reference is None else "workers over TCP"
    yield Figure(
        what=f"{job}, wall",
        value=cost.wall_millis,
        unit="ms/batch",
        reference=name,
        ratio=None if reference is None else reference.wall_millis / cost.wall_millis,
        at_most=GOAL_MILLIS if shards == GOAL_SHARDS else None,
    )
    yield Figure(
        what=f"{job}, CPU",
        value=cost.cpu_millis,
        unit="ms CPU/batch",
        reference=name,
        ratio=None if reference is None else reference.cpu_millis / cost.cpu_millis,
    )


def _in_other_process(kinesis: KinesisClientSettings, place: Path, batches: int) -> Cost:
    """Measure the reference in a process of its own: how Spark talks to Python is settled once per process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as process:
        return process.submit(_job_over_tcp, kinesis, place, batches).result()


def _job_over_tcp(kinesis: KinesisClientSettings, place: Path, batches: int) -> Cost:
    with local_session(**_TCP) as spark:
        return _job(spark, kinesis, place, shards=GOAL_SHARDS, kind=SliceKind.READ, batches=batches)


def _job(
    spark: SparkSession,
    kinesis: KinesisClientSettings,
    place: Path,
    *,
    shards: int,
    kind: SliceKind,
    batches: int,
) -> Cost:
    stream = f"shards-{shards}-{kind.name.lower()}-{os.getpid()}"
    client = kinesis.connect()
    _put_one_each(client, stream, shards)
    context = spark.sparkContext
    config = spout_config(kinesis, stream, place)
    handler = PickledHandler.of(RecordHandler(lambda _record: None, lambda record: record))
    runner = HandlerRunner(context, task_settings(config), handler)
    works = [_work(client, stream, number, kind) for number in range(shards)]
    packs = pack(works, per_task=config.shards_per_task, parallelism=context.defaultParallelism)

    def run(number: int) -> float:
        started = time.perf_counter()
        results = runner.run(f"{kind.name}-{shards}-{number}", packs)
        taken = time.perf_counter() - started
        assert sum(result.delivered for result in results) == shards
        return taken

    for number in range(_WARM_UP_BATCHES):
        run(number)
    workers = spark_processes(spark)
    before = time.process_time() + workers.cpu_seconds()
    walls = [run(_WARM_UP_BATCHES + number) for number in range(batches)]
    cpu = time.process_time() + workers.cpu_seconds() - before
    return Cost(wall_millis=statistics.median(walls) * 1e3, cpu_millis=cpu / batches * 1e3)


def _put_one_each(client: "KinesisClient", stream: str, shards: int) -> None:
    client.put_records(
        StreamName=stream,
        Records=[{"Data": b"a small record", "PartitionKey": str(number)} for number in range(shards)],
    )


def _work(client: "KinesisClient", stream: str, number: int, kind: SliceKind) -> WorkSlice:
    shard_id = shard_name(number)
    getter = PollingShardGetter(
        client,
        stream=stream,
        shard_id=shard_id,
        position=Position.trim_horizon(),
        lister=KinesisShardLister(client, stream),
    )
    iterator = client.get_shard_iterator(
        StreamName=stream, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    records: tuple[Record, ...] = tuple(getter.read(10).records)
    plan = SlicePlan(
        shard_id=shard_id,
        epoch=1,
        kind=kind,
        limit=100_000 if kind is SliceKind.READ else len(records),
        position=Position.trim_horizon(),
        max_failures=20_000,
    )
    if kind is SliceKind.CARRIED:
        return WorkSlice(plan=plan, records=records)
    return WorkSlice(plan=plan, cursor=Cursor(iterator=iterator, iterator_obtained_at=time.time()))


def _end_to_end(spark: SparkSession, kinesis: CannedKinesis, place: Path, rounds: int) -> Iterator[Figure]:
    stream = f"shards-{GOAL_SHARDS}-end"
    client = kinesis.settings.connect()
    spout = KinesisSpout(spout_config(kinesis.settings, stream, place))
    with spout.foreach_record(spark, lambda _record: None) as query:
        latencies = []
        for number in range(rounds + 5):
            started = time.perf_counter()
            _put_one_each(client, stream, GOAL_SHARDS)
            while query.counters.acked < (number + 1) * GOAL_SHARDS:
                assert time.perf_counter() - started < _DEADLINE_SECONDS, query.exception()
                time.sleep(0.002)
            latencies.append(time.perf_counter() - started)
            time.sleep(0.1)  # so that records do not always arrive right after a poll
    yield Figure(
        what=f"end to end, {GOAL_SHARDS} shards, put to settled, p50",
        value=statistics.median(latencies[5:]) * 1e3,
        unit="ms",
    )
