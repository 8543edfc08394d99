"""``format("kinesis")`` beside its records: what a micro-batch, a wait, an idle query and many shards cost.

*Micro-batch* puts one small record into each of 8 shards, again and again, and reads Spark's own ``durationMs``.
Its overhead is all of a trigger but ``latestOffset``, which waits for the records. The reference is the same
query without ``LOCAL_CHECKPOINTS``.

*Put to processed* is the time from before the put until a ``foreachBatch`` has the record in the driver, with
polls every 0.2 s.

*Idle* leaves a query on 8 shards alone: the driver's Python, the JVM, and the process of the reader.

*Planning* calls the reader as Spark does, in this process: the CPU of the calling thread for ``latestOffset`` and
``partitions``, with a fetched record in each shard.
"""

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canned_kinesis import CannedKinesis
from figures import Figure
from local_spark import Batches, local_session, spark_processes
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.spark.sessions import LOCAL_CHECKPOINTS
from kinesis_spout.structured.pages.page_buffer import ROW_OVERHEAD_BYTES
from kinesis_spout.structured.stream.stream_reader import KinesisStreamReader

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

SHARDS: Final = 8
GOAL_BATCH_MILLIS: Final = 100.0
GOAL_LATENCY_MILLIS: Final = 500.0
GOAL_IDLE_PERCENT: Final = 3.0
GOAL_PLANNING_MILLIS: Final = 100.0
_PARTS: Final = ("queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Of a trigger, as Spark names them."""
_WARM_UP_ROUNDS: Final = 30
_SETTLE_SECONDS: Final = 8.0
_DEADLINE_SECONDS: Final = 60.0
_PUT_AT_ONCE: Final = 500


def figures(*, quick: bool) -> Iterator[Figure]:
    with (
        CannedKinesis() as kinesis,
        tempfile.TemporaryDirectory() as directory,
    ):
        with local_session() as spark:
            place = Path(directory)
            yield from _micro_batches(spark, kinesis, place, rounds=20 if quick else 60)
            yield from _latency(spark, kinesis, place, rounds=15 if quick else 60)
            yield from _idle(spark, kinesis, place, seconds=8.0 if quick else 20.0)
        for shards in (1, 10, 100) if quick else (1, 10, 100, 1_000):
            yield from _planning(kinesis, shards, rounds=3 if quick else 5)


def _micro_batches(spark: SparkSession, kinesis: CannedKinesis, place: Path, rounds: int) -> Iterator[Figure]:
    usual = _durations(spark, kinesis, place, name="usual", rounds=rounds)
    for name, value in LOCAL_CHECKPOINTS.items():
        spark.conf.set(name, value)
    remedied = _durations(spark, kinesis, place, name="remedied", rounds=rounds)
    what = f"micro-batch of {SHARDS} shards"
    yield Figure(
        what=f"{what}, overhead, p50",
        value=_overhead(remedied),
        unit="ms",
        reference="without LOCAL_CHECKPOINTS",
        ratio=_overhead(usual) / _overhead(remedied),
        at_most=GOAL_BATCH_MILLIS,
    )
    for part in _PARTS:
        yield Figure(
            what=f"{what}: {part}, p50", value=statistics.median(each[part] for each in remedied), unit="ms"
        )


def _overhead(durations: list[dict[str, int]]) -> float:
    return statistics.median(each["triggerExecution"] - each["latestOffset"] for each in durations)


def _durations(
    spark: SparkSession, kinesis: CannedKinesis, place: Path, *, name: str, rounds: int
) -> list[dict[str, int]]:
    stream = f"shards-{SHARDS}-{name}"
    client = kinesis.settings.connect()
    frame = _read(spark, kinesis, stream)
    with _started(frame.writeStream.format("noop"), place / name) as query:
        batches = Batches(query, place / name)
        for number in range(1, _WARM_UP_ROUNDS + rounds + 1):
            _put_one_each(client, stream, SHARDS, b"a small record")
            batches.wait_for(number * SHARDS, seconds=_DEADLINE_SECONDS)
        return batches.durations()[-rounds:]


def _latency(spark: SparkSession, kinesis: CannedKinesis, place: Path, rounds: int) -> Iterator[Figure]:
    stream = f"shards-{SHARDS}-latency"
    client = kinesis.settings.connect()
    latencies: list[float] = []

    def note(frame: DataFrame, _batch: int) -> None:
        rows = frame.select("data").collect()
        now = time.perf_counter()
        latencies.extend(now - float(row.data) for row in rows)

    source = random.Random(1)
    frame = _read(spark, kinesis, stream, minFetchPeriod="200ms", idleFetchPeriod="200ms")
    with _started(frame.writeStream.foreachBatch(note), place / "latency") as query:
        for number in range(1, rounds + 11):
            _put_one_each(client, stream, SHARDS, str(time.perf_counter()).encode())
            wanted = number * SHARDS
            _wait_until(lambda: len(latencies) >= wanted, query)  # noqa: B023 - it is called at once
            time.sleep(source.uniform(0.1, 0.5))  # so that records do not always arrive right after a poll
    counted = sorted(latencies[10 * SHARDS :])
    what = f"put to processed, {SHARDS} shards, polls every 0.2 s"
    yield Figure(
        what=f"{what}, p50", value=statistics.median(counted) * 1e3, unit="ms", at_most=GOAL_LATENCY_MILLIS
    )
    yield Figure(what=f"{what}, p99", value=counted[len(counted) * 99 // 100] * 1e3, unit="ms")


def _idle(spark: SparkSession, kinesis: CannedKinesis, place: Path, seconds: float) -> Iterator[Figure]:
    jvm = spark_processes(spark)

    def used() -> float:
        before = time.process_time() + jvm.cpu_seconds()
        time.sleep(seconds)
        return (time.process_time() + jvm.cpu_seconds() - before) / seconds * 100

    frame = _read(spark, kinesis, f"shards-{SHARDS}-idle")
    with _started(frame.writeStream.format("noop"), place / "idle") as query:
        time.sleep(_SETTLE_SECONDS)
        busy = used()
        assert query.isActive, str(query.exception())
    without = used()
    yield Figure(
        what=f"{SHARDS} idle shards, all processes",
        value=busy,
        unit="% of a core",
        at_most=GOAL_IDLE_PERCENT,
        note=f"{without:.1f} % without a query",
    )


def _planning(kinesis: CannedKinesis, shards: int, rounds: int) -> Iterator[Figure]:
    stream = f"shards-{shards}-planning"
    client = kinesis.settings.connect()
    reader = KinesisStreamReader(
        StreamReadOptions.of(_options(kinesis, stream) | {"minFetchPeriod": "1s", "idleFetchPeriod": "1s"})
    )
    weight = sum(len(b"a small record") + len(str(n)) + ROW_OVERHEAD_BYTES for n in range(shards))
    taken, parts, size = [], [], 0
    start = reader.initialOffset()
    for _ in range(rounds + 1):
        start = reader.latestOffset(start, None)  # frees what is done; nothing new is there
        _put_one_each(client, stream, shards, b"a small record")
        _wait_until(lambda: _buffered_bytes(reader) >= weight)
        began = time.thread_time()
        end = reader.latestOffset(start, None)
        planned = time.thread_time()
        partitions = reader.partitions(start, end)
        done = time.thread_time()
        assert sum(shard.rows for task in partitions for shard in task.ranges) == shards  # type: ignore[attr-defined]
        taken.append(planned - began)
        parts.append(done - planned)
        start, size = end, len(json.dumps(end))
    reader.stop()
    latest, divided = statistics.median(taken[1:]) * 1e3, statistics.median(parts[1:]) * 1e3
    yield Figure(
        what=f"planning of {shards:,} shard{'s' * (shards > 1)}",
        value=latest + divided,
        unit="ms CPU",
        at_most=GOAL_PLANNING_MILLIS if shards == 1_000 else None,
        note=f"latestOffset {latest:.2f}, partitions {divided:.2f}, {size:,} bytes of offset",
    )


def _buffered_bytes(reader: KinesisStreamReader) -> int:
    progress = reader.reportLatestOffset()
    assert progress is not None
    buffered: int = progress["kinesis"]["bufferedBytes"]
    return buffered


def _options(kinesis: CannedKinesis, stream: str) -> dict[str, str]:
    settings = kinesis.settings
    return {
        "streamName": stream,
        "region": settings.region or "",
        "endpointUrl": kinesis.url,
        "awsAccessKey": settings.aws_access_key_id or "",
        "awsSecretKey": settings.aws_secret_access_key or "",
        "initialPosition": "trim_horizon",
        "pageServerHost": "127.0.0.1",
    }


def _read(spark: SparkSession, kinesis: CannedKinesis, stream: str, **options: str) -> DataFrame:
    return spark.readStream.format("kinesis").options(**_options(kinesis, stream), **options).load()


@contextmanager
def _started(writer: DataStreamWriter, checkpoint: Path) -> Iterator[StreamingQuery]:
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def _put_one_each(client: "KinesisClient", stream: str, shards: int, data: bytes) -> None:
    for first in range(0, shards, _PUT_AT_ONCE):
        numbers = range(first, min(shards, first + _PUT_AT_ONCE))
        records: list[Any] = [{"Data": data, "PartitionKey": str(number)} for number in numbers]
        client.put_records(StreamName=stream, Records=records)


def _wait_until(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert query is None or query.isActive, str(query.exception()) if query else None
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.005)
