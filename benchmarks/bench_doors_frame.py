"""What ``foreach_batch`` costs beside ``format("kinesis")`` with ``foreachBatch``: counting a backlog by batches.

Both read the same kind of stream of one endpoint on loopback, in the same session, and do the same with a batch:
one ``count``. The spout's door keeps every batch, so that a second action sees the same rows; the source does not.
What is counted, and how, is as in ``bench_sources``: CPU of all processes but the endpoint's, after a warm-up,
without Kinesis' read limits.
"""

import dataclasses
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from bench_sources import Cost, Load, Reading, Session
from canned_kinesis import CannedKinesis
from figures import Figure
from local_spark import Batches, local_session, spark_processes, spout_config
from pyspark.sql import DataFrame
from unpaced import UnpacedKinesis, lift_read_limits

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.spark import Collector
from kinesis_spout.spark.dataframe import DataFrameRunner
from kinesis_spout.spark.session import LOCAL_CHECKPOINTS
from kinesis_spout.spark.start import start_query, task_settings
from kinesis_spout.spout.open_ports import open_ports

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

SIZES: Final = (100, 1024)
"""Bytes of a record."""
SHARDS: Final = 8
TIMES_THE_SOURCE: Final = 1.2
"""The goal: the spout's door costs at most so many times what the source does."""
_DOOR, _SOURCE = "foreach_batch", 'format("kinesis") with foreachBatch'
_RECORDS: Final = 1_600_000
_QUICK_RECORDS: Final = 800_000
_DEADLINE_SECONDS: Final = 600.0
_PATIENCE: Final = {"spark.python.authenticate.socketTimeout": "120s"}
"""A Python worker may take long to begin on a busy machine, where this is to run as well."""


def figures(*, quick: bool) -> Iterator[Figure]:
    records = _QUICK_RECORDS if quick else _RECORDS
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        place = Path(directory)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path]))
        kinesis = stack.enter_context(CannedKinesis())
        spark = stack.enter_context(local_session(**LOCAL_CHECKPOINTS, **_PATIENCE))
        spark.dataSource.register(UnpacedKinesis)
        session = Session(spark=spark, kinesis=kinesis, checkpoints=place / "checkpoints")
        for size in SIZES:
            load = Load(shards=SHARDS, size_bytes=size, records=records, warm_up_records=records)
            with _SourceQuery(session, load) as source:
                of_source = _cost(source, kinesis, _SOURCE, load)
            with _DoorQuery(session, load, place) as door:
                of_door = _cost(door, kinesis, _DOOR, load)
            yield from _shown(size, of_door, of_source)


def _cost(reading: Reading, kinesis: CannedKinesis, client: str, load: Load) -> Cost:
    warm_up, measured = load.records_in(load.warm_up_pages), load.records_in(load.pages)
    reading.wait_for(warm_up)
    cpu, started = reading.cpu_seconds(), time.perf_counter()
    kinesis.extend(_stream(load, client), load.pages)
    reading.wait_for(warm_up + measured)
    seconds = time.perf_counter() - started
    return Cost(
        cpu_micros=(reading.cpu_seconds() - cpu) / measured * 1e6, records_per_second=measured / seconds
    )


def _shown(size: int, door: Cost, source: Cost) -> Iterator[Figure]:
    load = f"{size:,} B, {SHARDS} shards, count"
    yield Figure(
        what=f"{load}: {_DOOR}",
        value=door.cpu_micros,
        unit="CPU s/million",
        reference=_SOURCE,
        ratio=source.cpu_micros / door.cpu_micros,
        cheaper_at_least=1 / TIMES_THE_SOURCE,
        note=f"{door.records_per_second:,.0f} records/s",
    )
    yield Figure(
        what=f"{load}: {_SOURCE}",
        value=source.cpu_micros,
        unit="CPU s/million",
        note=f"{source.records_per_second:,.0f} records/s",
    )


def _stream(load: Load, client: str) -> str:
    return load.stream(client.partition("(")[0])


class _UnpacedClient(KinesisClientSettings):
    """Lifts the read limits in the process that connects: a Python worker."""

    def connect(self) -> "KinesisClient":
        lift_read_limits()
        return super().connect()


class _DoorQuery:
    """A query of the spout that counts the rows of every batch; batches run side by side."""

    def __init__(self, session: Session, load: Load, place: Path) -> None:
        stream = _stream(load, _DOOR)
        config = spout_config(session.kinesis.settings, stream, place / stream)
        settings = task_settings(config)
        client = _UnpacedClient(**dataclasses.asdict(settings.client))
        context = session.spark.sparkContext
        # On a busy machine the time of a slice would be over before its two pages are read.
        settings = dataclasses.replace(settings, client=client, max_seconds=_DEADLINE_SECONDS)
        self._counted = 0
        self._lock = threading.Lock()
        runner = DataFrameRunner(session.spark, context, settings, self._count)
        self._query = start_query(config, open_ports(config), context, runner, None)
        self._jvm = spark_processes(session.spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._query.stop()

    def cpu_seconds(self) -> float:
        return time.process_time() + self._jvm.cpu_seconds()

    def wait_for(self, records: int) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while self._query.counters.acked < records:
            assert self._query.isActive, self._query.exception()
            assert time.monotonic() < deadline, f"expected {records} records, got {self._query.counters}"
            time.sleep(0.02)
        assert self._counted == records, f"expected {records} rows, got {self._counted}"

    def _count(self, df: DataFrame, _collector: Collector) -> None:
        count = df.count()
        with self._lock:
            self._counted += count


class _SourceQuery:
    """A streaming query that counts the rows of every micro-batch."""

    def __init__(self, session: Session, load: Load) -> None:
        stream = _stream(load, _SOURCE)
        checkpoint = session.checkpoints / stream
        self._query = (
            session.spark.readStream.format(UnpacedKinesis.name())
            .option("streamName", stream)
            .option("region", "us-east-1")
            .option("endpointUrl", session.kinesis.url)
            .option("awsAccessKey", "test")
            .option("awsSecretKey", "test")
            .option("initialPosition", "trim_horizon")
            .load()
            .writeStream.foreachBatch(lambda df, _number: df.count() and None)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        self._batches = Batches(self._query, checkpoint)
        self._jvm = spark_processes(session.spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._query.stop()

    def cpu_seconds(self) -> float:
        return time.process_time() + self._jvm.cpu_seconds()

    def wait_for(self, records: int) -> None:
        self._batches.wait_for(records, seconds=_DEADLINE_SECONDS)
