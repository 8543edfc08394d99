"""``spark.readStream.format("kinesis")`` on real Spark and real endpoints."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kinesis_spout.spark import LOCAL_CHECKPOINTS
from tests.support.kinesis.endpoints import (
    FILLS_CHILDREN,
    KEEPS_CLOSED,
    REPOSITORY,
    SHARD_END,
    KinesisEndpoint,
)
from tests.support.kinesis.streams_under_test import FIRST_SHARD
from tests.support.spark.structured_driver import HeldQuery
from tests.support.spark.structured_queries import (
    CollectedBatches,
    Producer,
    QueriedStream,
    Seen,
    assert_each_once_in_order,
    assert_parents_first,
    failure_of,
    logged,
    run_available,
    running,
    seen,
    source_options,
    wait_for_rows,
    wait_while_running,
)
from tests.support.spark.versions import since_4_2
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.endpoint,
    pytest.mark.timeout(1_200),  # the Spark of the killed driver is started within a test, too
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

SECOND_SHARD = "shardId-000000000001"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def stream(moto_server: KinesisEndpoint) -> QueriedStream:
    return QueriedStream(moto_server, 2)


@pytest.fixture
def resharded(kinesis_local: KinesisEndpoint) -> QueriedStream:
    kinesis_local.needs(SHARD_END, KEEPS_CLOSED, FILLS_CHILDREN)
    return QueriedStream(kinesis_local, 2)


def options_of(stream: QueriedStream, **options: str) -> dict[str, str]:
    return source_options(stream.endpoint, **{"streamName": stream.name, **options})


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def test_queries_run_with_the_settings_for_local_checkpoints(
    spark: SparkSession, stream: QueriedStream, checkpoint: Path
) -> None:
    put = stream.put_all(numbered("a", 20))
    sink = CollectedBatches()
    for name, value in LOCAL_CHECKPOINTS.items():
        spark.conf.set(name, value)
    try:
        with running(spark, options_of(stream), checkpoint, sink) as query:
            wait_for_rows(query, sink, len(put))
    finally:
        for name in LOCAL_CHECKPOINTS:
            spark.conf.unset(name)

    assert_each_once_in_order(sink.batches, put)


# The same rows, whatever happens


def test_a_second_action_in_foreach_batch_takes_the_pages_of_the_first_though_more_came_meanwhile(
    spark: SparkSession, stream: QueriedStream, checkpoint: Path
) -> None:
    put = stream.put_all(numbered("a", 200))
    second: list[Seen] = []

    def act_again(frame: DataFrame) -> None:
        stream.put_all(numbered("b", 50))
        stream.delete()  # so that it cannot be read again: what the second action gives are the pages
        second.extend(seen(frame))

    sink = CollectedBatches(act_again)
    with running(spark, options_of(stream), checkpoint, sink) as query:
        message = failure_of(query)

    assert second == sink.rows
    assert_each_once_in_order(sink.batches, put)
    assert stream.name in message


def test_an_action_after_the_pages_are_gone_gives_the_same_rows_from_kinesis(
    spark: SparkSession, stream: QueriedStream, checkpoint: Path
) -> None:
    frames: list[DataFrame] = []
    sink = CollectedBatches(frames.append)
    # Batches of 70 of pages of about 100: their ranges begin and end amid pages.
    put = stream.put_all(numbered("a", 200))
    with running(spark, options_of(stream, maxRecordsPerTrigger="70"), checkpoint, sink) as query:
        wait_for_rows(query, sink, 200)
        put += stream.put_all(numbered("b", 50))
        wait_for_rows(query, sink, 250)
        freed = [seen(frame) for frame in frames[:3]]
    after_the_end = [seen(frame) for frame in frames]

    with_rows = [batch.rows for batch in sink.batches if batch.rows]
    assert freed == with_rows[:3]
    assert after_the_end == with_rows
    assert_each_once_in_order(sink.batches, put)

    stream.delete()
    with pytest.raises(PySparkException, match=stream.name):  # it was Kinesis that they came from
        seen(frames[0])


# Drivers that are killed


@contextmanager
def driver(queries: list[HeldQuery], folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A driver in a process group of its own, so that its JVM is killed with it."""
    with (folder / "driver.log").open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.spark.structured_driver",
                msgspec.json.encode(queries).decode(),
            ],
            cwd=REPOSITORY,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)


class Killed:
    """A query that was killed amid a batch, and its stream."""

    def __init__(
        self, stream: QueriedStream, folder: Path, *, hold_at: int, hold_with_rows: bool, **options: str
    ) -> None:
        folder.mkdir()
        self.stream = stream
        self.checkpoint = folder / "checkpoint"
        self.query = HeldQuery(
            options=options_of(stream, **options),
            checkpoint=str(self.checkpoint),
            log=str(folder / "batches"),
            hold_at=hold_at,
            hold_with_rows=hold_with_rows,
        )
        self.put: list[str] = []

    def go_on(self, spark: SparkSession, until: str) -> CollectedBatches:
        """Run the query on until a payload comes."""
        sink = CollectedBatches()
        with running(spark, dict(self.query.options), self.checkpoint, sink) as query:
            wait_while_running(query, lambda: until in sink.payloads, f"{until} to come")
        return sink


@pytest.fixture(scope="module")
def killed(moto_server: KinesisEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Killed]:
    """Three queries of one driver, killed when each had the offsets of its batch logged and not its commit."""
    folder = tmp_path_factory.mktemp("killed")
    oldest = Killed(
        QueriedStream(moto_server, 2),
        folder / "oldest",
        hold_at=1,
        hold_with_rows=True,
        maxRecordsPerTrigger="70",
    )
    oldest.put += oldest.stream.put_all(numbered("oldest", 300))
    latest = Killed(
        QueriedStream(moto_server, 1),
        folder / "latest",
        hold_at=0,
        hold_with_rows=True,
        initialPosition="latest",
    )
    empty = Killed(
        QueriedStream(moto_server, 1),
        folder / "empty",
        hold_at=0,
        hold_with_rows=False,
        initialPosition="latest",
    )
    empty.stream.put_all(["before the query"])
    queries = [each.query for each in (oldest, empty, latest)]  # the order in which they are started
    with driver(queries, folder) as process:

        def wait_held(*held: HeldQuery) -> None:
            wait_until(
                lambda: process.poll() is not None or all(query.is_held for query in held),
                "queries to hold",
                seconds=500.0,
            )
            assert process.poll() is None, (folder / "driver.log").read_text()[-3_000:]

        wait_held(oldest.query, empty.query)
        # LATEST is somewhere in the middle of these; the first batch has what came in the second after it.
        with Producer(latest.stream, "latest", at_once=1) as producer:
            wait_held(latest.query)
    latest.put += producer.payloads
    for each in (oldest, latest, empty):
        held_in = each.query.batches[-1].number
        assert logged(each.checkpoint, "offsets") - logged(each.checkpoint, "commits") == {held_in}
        each.put += each.stream.put_all([*numbered("while down", 20), "last"])
    return {"oldest": oldest, "latest": latest, "empty": empty}


def test_a_batch_whose_driver_was_killed_has_the_same_rows_after_the_restart(
    spark: SparkSession, killed: Mapping[str, Killed]
) -> None:
    query = killed["oldest"]
    *before, interrupted = query.query.batches

    sink = query.go_on(spark, "last")

    assert sink.batches[0] == interrupted
    assert len(interrupted.rows) == 70
    assert_each_once_in_order([*before, *sink.batches], query.put)


def test_a_first_batch_at_latest_whose_driver_was_killed_has_the_same_rows_after_the_restart(
    spark: SparkSession, killed: Mapping[str, Killed]
) -> None:
    query = killed["latest"]
    *_, interrupted = query.query.batches

    sink = query.go_on(spark, "last")

    assert sink.batches[0] == interrupted
    # What was put before LATEST is not there, everything after it is.
    latest = query.put.index(interrupted.rows[0].payload)
    assert_each_once_in_order(sink.batches, query.put[latest:])


def test_what_came_after_an_empty_first_batch_at_latest_is_not_skipped_when_its_driver_was_killed(
    spark: SparkSession, killed: Mapping[str, Killed]
) -> None:
    query = killed["empty"]
    (interrupted,) = query.query.batches

    sink = query.go_on(spark, "last")

    assert interrupted.rows == sink.batches[0].rows == []
    assert_each_once_in_order(sink.batches, query.put)


# Shards that come and go


def test_nothing_is_lost_or_repeated_when_shards_split_and_merge_under_load(
    spark: SparkSession, resharded: QueriedStream, checkpoint: Path
) -> None:
    sink = CollectedBatches()
    with running(spark, options_of(resharded), checkpoint, sink) as query:
        with Producer(resharded, "load") as producer:
            producer.wait_for(50)
            resharded.split(FIRST_SHARD)
            producer.wait_for(50)
            resharded.merge("shardId-000000000003", SECOND_SHARD)
            producer.wait_for(50)
            resharded.split("shardId-000000000004")  # a child that is a parent
            producer.wait_for(50)
        wait_for_rows(query, sink, len(producer.payloads))

    assert_each_once_in_order(sink.batches, producer.payloads)
    assert_parents_first(sink.batches, resharded.shards())


def test_latest_holds_for_a_child_born_while_the_query_was_down(
    spark: SparkSession, resharded: QueriedStream, checkpoint: Path
) -> None:
    options = options_of(resharded, initialPosition="latest")
    resharded.put_all(numbered("before", 20))
    sink = CollectedBatches()
    with running(spark, options, checkpoint, sink) as query:
        wait_while_running(query, lambda: 0 in logged(checkpoint, "commits"), "LATEST to be logged")
    put = resharded.put_all(numbered("parent", 20))
    resharded.split(FIRST_SHARD)
    put += resharded.put_all(numbered("child", 20))

    with running(spark, options, checkpoint, sink) as query:
        wait_for_rows(query, sink, len(put))

    assert_each_once_in_order(sink.batches, put)
    assert_parents_first(sink.batches, resharded.shards())


# Trigger.AvailableNow


@since_4_2
def test_available_now_reads_what_was_there_in_limited_batches_and_ends_though_shards_split_under_load(
    spark: SparkSession, resharded: QueriedStream, checkpoint: Path
) -> None:
    options = options_of(resharded, maxRecordsPerTrigger="100")
    there = resharded.put_all(numbered("parent", 200))
    resharded.split(FIRST_SHARD)
    there += resharded.put_all(numbered("child", 100))

    def split_meanwhile(_: DataFrame) -> None:
        if len(resharded.shards()) == 4:
            resharded.split(SECOND_SHARD)

    first = CollectedBatches(split_meanwhile)
    with Producer(resharded, "later", at_once=1) as producer:
        producer.wait_for(1)
        run_available(spark, options, checkpoint, first)
        producer.wait_for(1)
    second = CollectedBatches()
    run_available(spark, options, checkpoint, second)

    assert set(there) <= set(first.payloads)
    assert max(first.sizes) <= 100
    assert len(first.batches) >= 3
    assert len(resharded.shards()) == 6, "the second shard did not split meanwhile"
    assert second.rows
    assert_each_once_in_order([*first.batches, *second.batches], [*there, *producer.payloads])
    assert_parents_first([*first.batches, *second.batches], resharded.shards())


# Several streams


@pytest.mark.parametrize("option", ["streamName", "streamARN"])
def test_one_query_reads_several_streams(
    spark: SparkSession, kinesis_local: KinesisEndpoint, checkpoint: Path, option: str
) -> None:
    # Not moto: its iterators that were asked for by ARN lead nowhere.
    streams = [QueriedStream(kinesis_local, 1) for _ in range(2)]
    names = [stream.name if option == "streamName" else stream.arn for stream in streams]
    expected = {
        (name, payload)
        for name, stream in zip(names, streams, strict=True)
        for payload in stream.put_all(numbered(stream.name, 30))
    }
    found: list[tuple[str, str]] = []

    def note_streams(frame: DataFrame, _: int) -> None:
        rows = frame.select("stream", "data").collect()
        found.extend((row.stream, bytes(row.data).decode()) for row in rows)

    options = source_options(kinesis_local, **{option: ",".join(names)})
    with running(spark, options, checkpoint, note_streams) as query:
        wait_while_running(query, lambda: len(found) >= len(expected), "both streams' records")

    assert len(found) == len(expected)
    assert set(found) == expected


# Limits


def test_large_pages_come_whole(spark: SparkSession, stream: QueriedStream, checkpoint: Path) -> None:
    """In several messages; a limit takes them in parts."""
    put = stream.put_all(f"{number}-".ljust(20_000 + number, "x") for number in range(200))
    options = options_of(stream, maxRecordsPerTrigger="70")
    sink = CollectedBatches()
    with running(spark, options, checkpoint, sink) as query:
        wait_for_rows(query, sink, len(put))

    assert_each_once_in_order(sink.batches, put)


def test_a_batch_has_no_more_records_than_it_may(
    spark: SparkSession, stream: QueriedStream, checkpoint: Path
) -> None:
    put = stream.put_all(numbered("a", 250))
    sink = CollectedBatches()
    with running(spark, options_of(stream, maxRecordsPerTrigger="100"), checkpoint, sink) as query:
        wait_for_rows(query, sink, len(put))

    assert max(sink.sizes) <= 100
    assert len(sink.batches) >= 3
    assert_each_once_in_order(sink.batches, put)


# Nothing to do


class IdleEvents(StreamingQueryListener):
    """Counts how often Spark says that a query finds nothing to do."""

    def __init__(self) -> None:
        self.count = 0

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002, N802 - Spark's name
        self.count += 1

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


@contextmanager
def idle_events(spark: SparkSession) -> Iterator[IdleEvents]:
    """Have Spark say soon, and often, that a query that starts now is idle."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(name, "500ms")
    events = IdleEvents()
    spark.streams.addListener(events)
    try:
        yield events
    finally:
        spark.streams.removeListener(events)
        spark.conf.unset(name)


def test_a_query_of_an_empty_stream_logs_latest_and_then_makes_no_batches(
    spark: SparkSession, stream: QueriedStream, checkpoint: Path
) -> None:
    sink = CollectedBatches()
    options = options_of(stream, initialPosition="latest")
    with idle_events(spark) as idle, running(spark, options, checkpoint, sink) as query:
        wait_while_running(query, lambda: idle.count >= 2, "the query to find nothing")

        assert logged(checkpoint, "offsets") == logged(checkpoint, "commits") == {0}
        assert sink.sizes == [0]

        stream.put_all(["first"])
        wait_for_rows(query, sink, 1)

    assert sink.sizes == [0, 1]


@since_4_2
def test_the_progress_has_the_metrics_of_the_source(
    spark: SparkSession, stream: QueriedStream, checkpoint: Path
) -> None:
    put = stream.put_all(numbered("a", 30))
    sink = CollectedBatches()

    def reported() -> dict[str, Any]:
        progress = query.lastProgress
        reader: dict[str, Any] = {} if progress is None else json.loads(progress.sources[0].latestOffset)
        found: dict[str, Any] = reader.get("kinesis", {})
        return found

    with running(spark, options_of(stream), checkpoint, sink) as query:
        wait_for_rows(query, sink, len(put))
        put += stream.put_all(["one more"])
        wait_for_rows(query, sink, len(put))

        def counts_the_first() -> bool:
            return bool(reported().get("numProcessedRecords", 0) >= 30)

        wait_while_running(query, counts_the_first, "the first batch to be counted")
        found = reported()

    assert found["streams"] == [stream.name]
    assert (found["numTotalShards"], found["numClosedShards"], found["numAwsRateLimitErrors"]) == (2, 0, 0)
    assert found["numProcessedBytes"] > sum(map(len, put[:30]))


# What ends a query


def test_an_unknown_stream_ends_the_query_with_a_message_that_names_it(
    spark: SparkSession, moto_server: KinesisEndpoint, checkpoint: Path
) -> None:
    options = source_options(moto_server, streamName="nowhere")
    with running(spark, options, checkpoint, CollectedBatches()) as query:
        message = failure_of(query)

    assert message.count("StreamNotFound: expected a stream 'nowhere'") == 1
    assert "The above exception" not in message


def test_an_unknown_option_is_refused_before_there_is_a_query(
    spark: SparkSession, moto_server: KinesisEndpoint
) -> None:
    options = source_options(moto_server, streamNme="orders")
    with pytest.raises(AnalysisException, match="did you mean streamName"):
        spark.readStream.format("kinesis").options(**options).load()


def test_options_that_contradict_end_the_query_with_a_message_that_names_one(
    spark: SparkSession, stream: QueriedStream, checkpoint: Path
) -> None:
    wrong = {"streamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/orders"}
    with running(spark, options_of(stream, **wrong), checkpoint, CollectedBatches()) as query:
        message = failure_of(query)

    assert "InvalidConfig: option streamARN: expected" in message
    assert "UnboundLocalError" not in message
