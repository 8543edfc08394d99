"""What a query costs while little comes: a record here and there, one in each of a thousand shards, none.

Jobs are the micro-batches that the query counts. CPU is that of the driver, the JVM and the Python workers
together; the endpoint, the embedded ZooKeeper and whoever puts the records are processes of others and are not
counted. A record's time runs from its arrival at the endpoint until the handler is called with it.
"""

import json
import multiprocessing
import os
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from backlog_reading import let_processes_import_benchmarks
from canned_kinesis import CannedKinesis
from figures import Figure, ProcessTree
from local_spark import local_session, spark_processes, spout_config
from pyspark.sql import SparkSession

from kinesis_spout import KinesisSpout, Record
from kinesis_spout.spark.driver.query import SpoutQuery

FEW_SHARDS: Final = 8
MANY_SHARDS: Final = 1000
RATE: Final = 100
"""Records a second, over few shards."""
JOBS_GOAL: Final = 2.0
CORE_GOALS: Final = {"polling": 0.1, "efo": 0.15}
HALF_GOALS_MILLIS: Final = {"polling": 300.0, "efo": 85.0}
MOST_GOALS_MILLIS: Final = {"polling": 600.0, "efo": 150.0}
JOB_EACH: Final = {"long_task_seconds": 0.0}
"""Without a task that stays."""
MANY_JOBS_GOAL: Final = 8.0
MANY_SECONDS_GOAL: Final = 1.0
MANY_CPU_SECONDS_GOAL: Final = 0.7
_WARM_UP_ROUNDS: Final = 10
_SETTLE_SECONDS: Final = 8.0
"""Until polls have become rare."""
_STEADY_WARM_UP_SECONDS: Final = 60.0
"""A job costs three times as much in the first 15 s, because the JVM compiles what it runs."""
_WARM_UP_SECONDS: Final = 2.0
"""Of the plain-Python door."""
_DEADLINE_SECONDS: Final = 120.0
_FORM: Final = struct.Struct("d")


def figures(*, quick: bool) -> Iterator[Figure]:
    let_processes_import_benchmarks()
    with CannedKinesis() as kinesis, tempfile.TemporaryDirectory() as directory, local_session() as spark:
        bench = _Bench(spark, kinesis, Path(directory))
        yield from _rounds(bench, rounds=10 if quick else 30)
        warm_up, seconds = (_SETTLE_SECONDS, 8.0) if quick else (_STEADY_WARM_UP_SECONDS, 25.0)
        for mode in ("polling", "efo"):
            yield from _steady(bench, mode, warm_up, seconds)
            yield from _steady(bench, mode, _SETTLE_SECONDS, seconds, **JOB_EACH)
            yield from _without_spark(bench, mode, seconds)
        yield from _many(bench, rounds=2 if quick else 4, seconds=8.0 if quick else 15.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds."""

    driver: float
    beside: float
    """Of the JVM and its Python workers."""

    @property
    def total(self) -> float:
        """Sum it up."""
        return self.driver + self.beside


class _Bench:
    """What all rows share."""

    def __init__(self, spark: SparkSession, kinesis: CannedKinesis, place: Path) -> None:
        self.spark = spark
        self.kinesis = kinesis
        self.place = place
        self._beside: ProcessTree = spark_processes(spark)

    def started(self, stream: str, handle: Callable[[Record], None], **settings: Any) -> SpoutQuery:
        spout = KinesisSpout(spout_config(self.kinesis.settings, stream, self.place, **settings))
        return spout.foreach_record(self.spark, handle)

    def cost(self) -> Cost:
        """Give what was used since the processes began."""
        return Cost(time.process_time(), self._beside.cpu_seconds())

    def since(self, before: Cost) -> Cost:
        now = self.cost()
        return Cost(now.driver - before.driver, now.beside - before.beside)

    def put(self, stream: str, shards: int) -> None:
        """Put a record into each of so many shards, at once."""
        put(self.kinesis.url, stream, range(shards))


def put(url: str, stream: str, shards: Iterable[int]) -> None:
    """Put a record into each of these shards in one call."""
    records = [{"Data": "YSBzbWFsbCByZWNvcmQ=", "PartitionKey": str(number)} for number in shards]
    body = json.dumps({"StreamName": stream, "Records": records}).encode()
    with urlopen(Request(url, body, {"X-Amz-Target": "Kinesis_20131202.PutRecords"})) as answer:
        answer.read()


def jobs(query: SpoutQuery) -> int:
    """Tell how many micro-batches a query has run."""
    progress = query.lastProgress
    return 0 if progress is None else int(progress["batchId"]) + 1


def until_acked(query: SpoutQuery, count: int) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while query.counters.acked < count:
        assert time.monotonic() < deadline, (query.counters, query.exception())
        time.sleep(0.002)


def _rounds(bench: _Bench, rounds: int) -> Iterator[Figure]:
    """Yield what a record in each of few shards at once costs."""
    stream = f"shards-{FEW_SHARDS}-rounds"
    pauses = random.Random(8)
    with bench.started(stream, _ignore) as query:
        latencies, before, jobs_before = [], bench.cost(), 0
        for number in range(_WARM_UP_ROUNDS + rounds):
            if number == _WARM_UP_ROUNDS:
                before, jobs_before = bench.cost(), jobs(query)
            started = time.perf_counter()
            bench.put(stream, FEW_SHARDS)
            until_acked(query, (number + 1) * FEW_SHARDS)
            latencies.append(time.perf_counter() - started)
            time.sleep(pauses.uniform(0.1, 0.5))  # so that records do not always arrive right after a poll
        made, used = jobs(query) - jobs_before, bench.since(before)
    name = f"a record in each of {FEW_SHARDS} shards at once"
    yield Figure(what=f"{name}: Spark jobs", value=made / rounds, unit="jobs", at_most=JOBS_GOAL)
    yield Figure(what=f"{name}: CPU, the pause after it included", value=used.total / rounds * 1e3, unit="ms")
    half = statistics.median(latencies[_WARM_UP_ROUNDS:])
    yield Figure(what=f"{name}: put to settled, p50", value=half * 1e3, unit="ms")


def _steady(
    bench: _Bench, mode: str, warm_up_seconds: float, seconds: float, **settings: float
) -> Iterator[Figure]:
    """Yield what a steady trickle costs, and how long its records take, polled or pushed."""
    way = "-".join([mode, *settings])
    stream = f"shards-{FEW_SHARDS}-steady-{way.replace('_', '-')}"
    notes = bench.place / f"latencies-{way}"
    notes.mkdir()
    spawn = multiprocessing.get_context("spawn")
    with bench.started(
        stream, _Stopwatch(str(notes)), app=f"steady-{way}", consumer_mode=mode, **settings
    ) as query:
        # The first job starts Python workers. On a loaded machine it took longer than all the putting, and
        # what was measured then was the time after that.
        put(bench.kinesis.url, stream, [0])
        until_acked(query, 1)
        putting = spawn.Process(
            target=_put_steadily, args=(bench.kinesis.url, stream, warm_up_seconds + seconds), daemon=True
        )
        putting.start()
        time.sleep(warm_up_seconds)
        for file in notes.iterdir():
            os.truncate(file, 0)
        before, jobs_before, began = bench.cost(), jobs(query), time.monotonic()
        putting.join()
        taken, used, made = time.monotonic() - began, bench.since(before), jobs(query) - jobs_before
    found = sorted(value for file in notes.iterdir() for (value,) in _FORM.iter_unpack(file.read_bytes()))
    name = f"{RATE} records/s over {FEW_SHARDS} shards, {'pushed' if mode == 'efo' else 'polled'}"
    if settings:
        name += ", a job each"
    parts = f"driver {used.driver / taken:.2f}, JVM and workers {used.beside / taken:.2f}"
    note = f"{parts}, {made / taken:.1f} micro-batches/s"
    has_goal = not settings
    yield Figure(
        what=f"{name}: CPU",
        value=used.total / taken,
        unit="cores",
        at_most=CORE_GOALS[mode] if has_goal else None,
        note=note,
    )
    yield Figure(
        what=f"{name}: put to handled, p50",
        value=statistics.median(found) * 1e3,
        unit="ms",
        at_most=HALF_GOALS_MILLIS[mode] if has_goal else None,
        note=f"{len(found)} records",
    )
    yield Figure(
        what=f"{name}: put to handled, p99",
        value=found[int(len(found) * 0.99)] * 1e3,
        unit="ms",
        at_most=MOST_GOALS_MILLIS[mode] if has_goal else None,
    )


def _without_spark(bench: _Bench, mode: str, seconds: float) -> Iterator[Figure]:
    """Yield how long the records of a steady trickle take in the plain-Python door, polled or pushed."""
    stream = f"shards-{FEW_SHARDS}-plain-{mode}"
    settings = spout_config(
        bench.kinesis.settings, stream, bench.place, app=f"plain-{mode}", consumer_mode=mode
    )
    spawn = multiprocessing.get_context("spawn")
    found: list[float] = []
    with KinesisSpout(settings).open() as spout:
        putting = spawn.Process(
            target=_put_steadily, args=(bench.kinesis.url, stream, _WARM_UP_SECONDS + seconds), daemon=True
        )
        putting.start()
        before, began = time.process_time(), time.monotonic()
        while putting.is_alive():
            emitted = spout.next_tuple()
            if emitted is None:
                time.sleep(0.002)
                continue
            found.append(time.time() - emitted.values.arrival_timestamp)
            spout.ack(emitted.message_id)
        used = (time.process_time() - before) / (time.monotonic() - began)
    kept = sorted(found[int(_WARM_UP_SECONDS * RATE) :])
    name = f"{RATE} records/s over {FEW_SHARDS} shards, no Spark, {'pushed' if mode == 'efo' else 'polled'}"
    yield Figure(
        what=f"{name}: put to handled, p50",
        value=statistics.median(kept) * 1e3,
        unit="ms",
        note=f"p99 {kept[int(len(kept) * 0.99)] * 1e3:.1f}, {used:.2f} cores, {len(kept)} records",
    )


def _many(bench: _Bench, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield what a record in each of many shards costs, and what they cost while nothing comes."""
    stream = f"shards-{MANY_SHARDS}-many"
    takes, made, used = [], [], []
    with bench.started(stream, _ignore) as query:
        for number in range(rounds + 1):
            time.sleep(_SETTLE_SECONDS)
            before, jobs_before, began = bench.cost(), jobs(query), time.monotonic()
            bench.put(stream, MANY_SHARDS)
            until_acked(query, (number + 1) * MANY_SHARDS)
            takes.append(time.monotonic() - began)
            used.append(bench.since(before))
            time.sleep(0.1)  # the last batch counts a moment after its records
            made.append(jobs(query) - jobs_before)
        time.sleep(_SETTLE_SECONDS)
        before = bench.cost()
        time.sleep(seconds)
        idle = bench.since(before)
    name = f"a record in each of {MANY_SHARDS:,} shards at once"
    cost = statistics.median(each.total for each in used[1:])
    driver = statistics.median(each.driver for each in used[1:])
    yield Figure(
        what=f"{name}: Spark jobs", value=statistics.median(made[1:]), unit="jobs", at_most=MANY_JOBS_GOAL
    )
    yield Figure(
        what=f"{name}: put to settled",
        value=statistics.median(takes[1:]),
        unit="s",
        at_most=MANY_SECONDS_GOAL,
    )
    yield Figure(
        what=f"{name}: CPU",
        value=cost,
        unit="s",
        at_most=MANY_CPU_SECONDS_GOAL,
        note=f"driver {driver:.2f}",
    )
    yield Figure(
        what=f"{MANY_SHARDS:,} idle shards",
        value=idle.total / seconds * 100,
        unit="% of a core",
        note=f"driver {idle.driver / seconds * 100:.1f}",
    )


class _Stopwatch:
    """A handler that notes how long each record took, in a file of each worker's own."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __call__(self, record: Record) -> None:
        assert record.arrival_timestamp is not None
        with Path(self._directory, str(os.getpid())).open("ab", buffering=0) as file:
            file.write(_FORM.pack(time.time() - record.arrival_timestamp))


def _ignore(_record: Record) -> None:
    pass


def _put_steadily(url: str, stream: str, seconds: float) -> None:
    """Runs in a process of its own."""
    shards = random.Random(100)
    began = time.monotonic()
    for number in range(int(seconds * RATE)):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        put(url, stream, [shards.randrange(FEW_SHARDS)])
