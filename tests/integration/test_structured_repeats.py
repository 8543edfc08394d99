"""Tasks that run more than once, and queries that are stopped and continued, on real Spark."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from shard_state import Position
from tests.support.kinesis.aws_aggregation import aws
from tests.support.kinesis.endpoints import REPOSITORY, KinesisEndpoint
from tests.support.kinesis.streams_under_test import read_all
from tests.support.kinesis.watched import ROWS_AT_ONCE, Watch
from tests.support.spark.attempts_driver import SPECULATING, Job, WatchedQuery
from tests.support.spark.structured_queries import (
    Batch,
    CollectedBatches,
    QueriedStream,
    assert_each_once_in_order,
    run_available,
    running,
    source_options,
    wait_while_running,
)

pytestmark = [pytest.mark.no_second_run, pytest.mark.spark, pytest.mark.endpoint, pytest.mark.timeout(1_200)]


def options_of(stream: QueriedStream, format_: str = "kinesis", **options: str) -> dict[str, str]:
    return source_options(stream.endpoint, format=format_, streamName=stream.name, **options)


def watch_in(folder: Path, first_attempt: str) -> Watch:
    folder.mkdir(parents=True)
    return Watch(folder=str(folder), first_attempt=first_attempt)


def as_option(watch: Watch) -> str:
    return msgspec.json.encode(watch).decode()


def drive(folder: Path, master: str, queries: Sequence[WatchedQuery]) -> None:
    """Run the queries in a driver of their own; Spark's processes need the path, too."""
    job = Job(master=master, folder=str(folder), queries=list(queries))
    log = folder / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.run(
            [sys.executable, "-m", "tests.support.spark.attempts_driver", msgspec.json.encode(job).decode()],
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
                "PYSPARK_PYTHON": sys.executable,  # `session` sets it too late: the JVM runs before
            },
            cwd=REPOSITORY,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=500,
            check=False,
        )
    assert driver.returncode == 0, log.read_text()[-4_000:]


def test_a_task_whose_process_dies_amid_its_rows_gives_the_same_rows_when_it_is_tried_again(
    moto_server: KinesisEndpoint, tmp_path: Path
) -> None:
    stream = QueriedStream(moto_server, 2)
    put = stream.put_all(f"a-{number}" for number in range(500))
    watch = watch_in(tmp_path / "attempts", "dies")
    query = WatchedQuery(
        source=options_of(stream, "watched_kinesis", watch=as_option(watch), maxRecordsPerTrigger="300"),
        folder=str(tmp_path),
        rows=len(put),
    )
    drive(tmp_path, "local[2,3]", [query])

    attempts = watch.attempts()
    firsts, seconds = attempts[::2], attempts[1::2]
    assert len(firsts) >= 2, "at least one task for each batch"
    for first, second in zip(firsts, seconds, strict=True):
        assert (first.stage, first.partition, first.number) == (second.stage, second.partition, 0)
        assert (second.number, second.ended, first.ended) == (1, True, False)
        assert len(first.payloads) == ROWS_AT_ONCE < len(second.payloads)
        assert first.payloads == second.payloads[:ROWS_AT_ONCE]
    assert_each_once_in_order(query.batches, put)
    assert [payload for second in seconds for payload in second.payloads] == [
        row.payload for batch in query.batches for row in batch.rows
    ]


def test_of_tasks_that_speculation_runs_twice_a_query_has_each_row_once_and_a_stream_each_at_least_once(
    moto_server: KinesisEndpoint, tmp_path: Path
) -> None:
    stream, copy = QueriedStream(moto_server, 1), QueriedStream(moto_server, 1)
    put = stream.put_all(f"a-{number}" for number in range(3 * ROWS_AT_ONCE))
    reads, writes = watch_in(tmp_path / "reads", "lingers"), watch_in(tmp_path / "writes", "lingers")
    reading = WatchedQuery(
        source=options_of(stream, "watched_kinesis", watch=as_option(reads)),
        folder=str(tmp_path / "reading"),
        rows=len(put),
    )
    sink = options_of(copy, "watched_kinesis", watch=as_option(writes), maxRecordsPerCall="1")
    writing = WatchedQuery(
        source=options_of(stream),
        sink={name: sink[name] for name in sink.keys() - {"pageServerHost", "initialPosition"}},
        folder=str(tmp_path / "writing"),
        rows=len(put),
    )
    for query in (reading, writing):
        Path(query.folder).mkdir()
    drive(tmp_path, SPECULATING, [reading, writing])

    for watch in (reads, writes):
        first, second = (attempt for attempt in watch.attempts() if attempt.payloads)
        assert (first.stage, first.partition, first.number) == (second.stage, second.partition, 0)
        assert (second.number, second.ended) == (1, True)
        assert second.payloads == put
        assert first.payloads == put[: len(first.payloads)]
    assert_each_once_in_order(reading.batches, put)
    on_copy = Counter(
        record.data.decode()
        for record in read_all(copy.getter(Position.trim_horizon()), len(put) + ROWS_AT_ONCE)
    )
    assert on_copy.keys() == set(put)
    assert all(on_copy[payload] == 2 for payload in put[:ROWS_AT_ONCE]), "both attempts wrote these"


def test_a_query_that_is_stopped_and_continued_in_a_session_gives_each_row_once(
    spark: SparkSession, moto_server: KinesisEndpoint, tmp_path: Path
) -> None:
    stream = QueriedStream(moto_server, 2)
    put = stream.put_all(f"there-{number}" for number in range(200))
    options = source_options(moto_server, streamName=stream.name, maxRecordsPerTrigger="40")
    batches: dict[int, Batch] = {}

    def has(rows: int, sink: CollectedBatches) -> bool:
        for batch in sink.batches:
            assert batches.setdefault(batch.number, batch) == batch, "a batch that is repeated is the same"
        return sum(len(batch.rows) for batch in batches.values()) >= rows

    for rows in (30, 70, 110, 260):  # the first three are stopped with rows unread
        sink = CollectedBatches()
        with running(spark, options, tmp_path / "checkpoint", sink) as query:
            wait_while_running(query, partial(has, rows, sink), f"{rows} rows")
        assert has(rows, sink)
        if rows < 200:
            put += stream.put_all(f"after {rows}-{number}" for number in range(20))

    assert_each_once_in_order([batches[number] for number in sorted(batches)], put)


def test_aggregated_records_are_read_apart_by_a_query_that_is_continued_and_by_a_batch_read(
    spark: SparkSession, moto_server: KinesisEndpoint, tmp_path: Path
) -> None:
    """Both of another implementation and of our own sink, whose rows come back as they were written."""
    stream = QueriedStream(moto_server, 1)
    options = source_options(
        moto_server, streamName=stream.name, extraColumns="subSequenceNumber,explicitHashKey"
    )
    batches: dict[int, list[UserRow]] = {}

    def collect(frame: DataFrame, number: int) -> None:
        rows = [UserRow.of(row) for row in frame.collect()]
        assert batches.setdefault(number, rows) == rows, "a batch that is repeated is the same"

    def run(rows: int) -> None:
        """Run until there are so many rows. Before PySpark 4.2 a run with what is available is one batch."""
        for _ in range(4):
            run_available(spark, options | {"maxRecordsPerTrigger": "40"}, tmp_path / "checkpoint", collect)
            if sum(map(len, batches.values())) >= rows:
                return

    expected = put_aggregated_by_aws(stream, carriers=2, size=25)
    run(len(expected))
    written = [UserRow(f"key-{number}", f"ours-{number}", number) for number in range(60)]
    frame = spark.createDataFrame(
        [(row.key, row.data) for row in written], "partitionKey string, data string"
    )
    sink = {name: options[name] for name in ("endpointUrl", "region", "awsAccessKey", "awsSecretKey")}
    frame.coalesce(1).write.format("kinesis").options(
        **sink, streamName=stream.name, aggregation="true"
    ).mode("append").save()
    run(len(expected + written))

    rows = [row for number in sorted(batches) for row in batches[number]]
    assert rows == expected + written
    assert all(len(batch) <= 60 for batch in batches.values())
    read = {name: text for name, text in options.items() if name not in ("pageServerHost", "initialPosition")}
    again = spark.read.format("kinesis").options(**read).load().collect()
    assert [UserRow.of(row) for row in again] == rows


class UserRow(NamedTuple):
    key: str
    data: str
    sub: int
    hash_key: str | None = None

    @classmethod
    def of(cls, row: Row) -> "UserRow":
        return cls(row.partitionKey, bytes(row.data).decode(), row.subSequenceNumber, row.explicitHashKey)


def put_aggregated_by_aws(stream: QueriedStream, *, carriers: int, size: int) -> list[UserRow]:
    """Put aggregated records made by AWS' own module, and give the rows that they are to be."""
    rows = [UserRow(f"k{at % 4}", f"theirs-{at}", at % size, str(at)) for at in range(carriers * size)]
    for start in range(0, len(rows), size):
        aggregator = aws("aggregator").RecordAggregator()
        for row in rows[start : start + size]:
            assert aggregator.add_user_record(row.key, row.data.encode(), row.hash_key) is None
        key, hash_key, data = aggregator.clear_and_get().get_contents()
        stream.put_record(data, key, hash_key)
    return rows
