"""A handler for each record inside foreachBatch, on real Spark; the micro-batches have the source's columns."""

import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kinesis_spout import Reject, RetryLater
from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.spark.record_outcomes import RecordOutcomes, TooManyFailures, each_record
from kinesis_spout.testing import ManualClock
from tests.support.spark.micro_batch_world import DeliveryLog, logging_handler

pytestmark = [
    pytest.mark.spark,
    # PySpark asks for pandas, which nothing here uses, and warns of its newest version.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

ARRIVED = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def page(*payloads: str) -> pa.Table:
    rows = len(payloads)
    return pa.table(
        {
            "partitionKey": [f"key-{payload}" for payload in payloads],
            "data": pa.array([payload.encode() for payload in payloads], pa.binary()),
            "stream": ["orders"] * rows,
            "shardId": ["shard"] * rows,
            "sequenceNumber": [str(at + 1) for at in range(rows)],
            "approximateArrivalTimestamp": pa.array([ARRIVED] * rows, pa.timestamp("us", tz="UTC")),
            "millisBehindLatest": [0] * rows,
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> DeliveryLog:
    return DeliveryLog(tmp_path / "deliveries")


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    return tmp_path / "dead"


def letters(dead: Path) -> list[DeadLetter]:
    return list(JsonLinesSink(dead).read())


def test_every_record_is_acked_or_dead_lettered_when_the_function_returns(
    spark: SparkSession, log: DeliveryLog, dead: Path
) -> None:
    def act(payload: str, attempt: int) -> None:
        if payload == "r7" and attempt == 1:
            raise ValueError("once")
        if payload in ("r8", "r18"):
            raise ValueError("always")
        if payload == "r9":
            raise Reject("never")
        if payload == "r10" and attempt == 1:
            raise RetryLater(0.1, "busy")
        if payload == "r11":
            raise SystemExit(3)

    told: list[RecordOutcomes] = []
    clock = ManualClock()
    function = each_record(
        logging_handler(log, act),
        dead_letters=f"file://{dead}",
        app="billing",
        max_spared_seconds=0,
        retry_limit=2,
        on_progress=told.append,
        clock=clock,
    )
    function(spark.createDataFrame(page(*(f"r{number}" for number in range(200)))), 5)

    assert set(log.counts()) == {f"r{number}" for number in range(200)}
    assert log.attempts("r0") == [1]
    assert log.attempts("r7") == log.attempts("r10") == [1, 2]
    assert log.attempts("r8") == log.attempts("r11") == [1, 2, 3]
    assert log.attempts("r9") == [1]
    assert {(letter.data, letter.reason, letter.attempts, letter.error) for letter in letters(dead)} == {
        (b"r8", "exhausted", 3, "ValueError: always"),
        (b"r18", "exhausted", 3, "ValueError: always"),
        (b"r9", "rejected", 1, "never"),
        (b"r11", "exhausted", 3, "SystemExit: 3"),
    }
    [outcomes] = told
    assert (outcomes.batch_id, outcomes.delivered, outcomes.acked) == (5, 200, 196)
    assert (outcomes.retried, outcomes.dead_lettered) == (8, 4)
    # A second and two, shortened by the jitter: nobody waited for them in the flesh.
    assert outcomes.seconds == clock.monotonic()
    assert 2.7 <= clock.monotonic() <= 3.0


def test_a_letter_says_all_that_the_source_said(spark: SparkSession, dead: Path) -> None:
    def act(record: Record) -> None:
        raise Reject(f"{record.stream} {record.partition_key} {record.arrival_timestamp}")

    clock = ManualClock()
    each_record(act, dead_letters=str(dead), app="billing", max_spared_seconds=0, clock=clock)(
        spark.createDataFrame(page("r")), 0
    )

    assert letters(dead) == [
        DeadLetter(
            application="billing",
            stream="orders",
            shard_id="shard",
            sequence_number="1",
            partition_key="key-r",
            arrival_timestamp=ARRIVED.timestamp(),
            data=b"r",
            attempts=1,
            error=f"orders key-r {ARRIVED.timestamp()}",
            reason="rejected",
            died_at=clock.time(),
        )
    ]


def test_the_source_is_read_once_however_often_records_are_retried(
    spark: SparkSession, log: DeliveryLog, dead: Path, tmp_path: Path
) -> None:
    reads = tmp_path / "reads"
    reads.mkdir()

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                (reads / uuid.uuid4().hex).touch()
            yield batch

    def act(payload: str, attempt: int) -> None:
        if payload != "a":
            raise ValueError(f"not yet: {attempt}")

    source = spark.createDataFrame(page("a", "b", "c"))
    each_record(
        logging_handler(log, act),
        dead_letters=str(dead),
        app="billing",
        max_spared_seconds=0,
        clock=ManualClock(),
    )(source.mapInArrow(read, source.schema), 0)

    assert len(list(reads.iterdir())) == 3
    assert log.counts() == {"a": 1, "b": 4, "c": 4}


def test_a_round_of_deliveries_is_one_job(spark: SparkSession, log: DeliveryLog, dead: Path) -> None:
    def act(payload: str, attempt: int) -> None:
        if payload != "a":
            raise ValueError(f"not yet: {attempt}")

    source = spark.createDataFrame(page("a", "b", "c"))
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "a micro-batch")
    try:
        each_record(
            logging_handler(log, act),
            dead_letters=str(dead),
            app="billing",
            max_spared_seconds=0,
            retry_limit=2,
            clock=ManualClock(),
        )(source, 0)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    assert log.attempts("b") == [1, 2, 3]
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == 3


def test_a_micro_batch_without_records_is_finished_at_once(spark: SparkSession, dead: Path) -> None:
    told: list[RecordOutcomes] = []
    each_record(str, dead_letters=str(dead), app="billing", on_progress=told.append, clock=ManualClock())(
        spark.createDataFrame(page("a")).filter("stream = 'nobody'"), 3
    )

    assert told == [RecordOutcomes(batch_id=3, delivered=0, acked=0, retried=0, dead_lettered=0, seconds=0.0)]


def test_in_another_time_zone_arrivals_stay_the_same_moment(spark: SparkSession, dead: Path) -> None:
    def act(record: Record) -> None:
        if record.attempt < 3:
            raise ValueError("again")
        raise Reject(str(record.arrival_timestamp))

    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        each_record(act, dead_letters=str(dead), app="billing", max_spared_seconds=0, clock=ManualClock())(
            spark.createDataFrame(page("r")), 0
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    [letter] = letters(dead)
    assert letter.error == str(letter.arrival_timestamp) == str(ARRIVED.timestamp())


def test_too_many_failures_fail_the_micro_batch_with_one_of_their_errors(
    spark: SparkSession, log: DeliveryLog, dead: Path
) -> None:
    def act(payload: str, attempt: int) -> None:
        raise ConnectionError(f"database down at {attempt}, {payload}")

    function = each_record(
        logging_handler(log, act),
        dead_letters=str(dead),
        app="billing",
        max_failed_bytes_per_task=2_000,
        clock=ManualClock(),
    )
    with pytest.raises(
        TooManyFailures, match=r"expected at most 2000 bytes .* 'ConnectionError: database down"
    ):
        function(spark.createDataFrame(page(*(f"r{number}" for number in range(50)))).coalesce(1), 0)

    assert len(log.counts()) == 50, "it stops after the batch of Arrow"
    assert letters(dead) == []


def test_missing_and_mistyped_columns_are_named(spark: SparkSession, dead: Path) -> None:
    df = spark.createDataFrame(page("r")).selectExpr("*", "string(data) as text")

    with pytest.raises(InvalidConfig, match=r"data binary \(missing\), sequenceNumber string \(got bigint\)"):
        each_record(str, dead_letters=str(dead), app="billing")(
            df.drop("data").withColumn("sequenceNumber", df.sequenceNumber.cast("bigint")), 0
        )


def test_a_handler_that_cannot_be_loaded_fails_the_micro_batch(spark: SparkSession, dead: Path) -> None:
    def broken() -> None:
        raise ImportError("no module of this name here")

    class Handler:
        def __reduce__(self) -> Any:
            return broken, ()

        def __call__(self, record: Record) -> None:
            del record

    with pytest.raises(PythonException, match="no module of this name here"):
        each_record(Handler(), dead_letters=str(dead), app="billing")(spark.createDataFrame(page("r")), 0)


def test_an_observer_that_raises_repeats_nothing(spark: SparkSession, log: DeliveryLog, dead: Path) -> None:
    told: list[RecordOutcomes] = []

    def observe(outcomes: RecordOutcomes) -> None:
        told.append(outcomes)
        raise ValueError(f"no room for {outcomes.batch_id}")

    each_record(logging_handler(log), dead_letters=str(dead), app="billing", on_progress=observe)(
        spark.createDataFrame(page("r")), 0
    )
    assert [(outcomes.delivered, outcomes.acked) for outcomes in told] == [(1, 1)]
    assert log.attempts("r") == [1]


# Inside a query


def start(
    spark: SparkSession, tmp_path: Path, function: Callable[[DataFrame, int], None], name: str = "checkpoint"
) -> Any:
    source = tmp_path / "source"
    if not source.exists():
        spark.createDataFrame(page("a", "b", "c")).coalesce(1).write.parquet(str(source))
    schema = spark.read.parquet(str(source)).schema
    return (
        spark.readStream.schema(schema)
        .parquet(str(source))
        .writeStream.foreachBatch(function)
        .option("checkpointLocation", str(tmp_path / name))
        .trigger(availableNow=True)
        .start()
    )


def test_a_streaming_query_commits_a_micro_batch_when_its_records_are_finished(
    spark: SparkSession, log: DeliveryLog, dead: Path, tmp_path: Path
) -> None:
    def act(payload: str, attempt: int) -> None:
        if payload == "b" or attempt == 1:
            raise ValueError("bad")

    told: list[RecordOutcomes] = []
    function = each_record(
        logging_handler(log, act),
        dead_letters=str(dead),
        app="billing",
        max_spared_seconds=0,
        retry_limit=1,
        on_progress=told.append,
        clock=ManualClock(),
    )
    start(spark, tmp_path, function).awaitTermination()
    start(spark, tmp_path, function).awaitTermination()

    assert [(each.delivered, each.acked, each.retried, each.dead_lettered) for each in told] == [(3, 2, 3, 1)]
    assert log.counts() == {"a": 2, "b": 2, "c": 2}
    assert [letter.data for letter in letters(dead)] == [b"b"]


def test_a_micro_batch_that_failed_is_delivered_again_from_the_first_record(
    spark: SparkSession, log: DeliveryLog, dead: Path, tmp_path: Path
) -> None:
    def act(payload: str, attempt: int) -> None:
        if payload == "b":
            if not blocked.exists():
                blocked.touch()
                dead.touch()  # no directory can be made there any more: the letter cannot be written
            raise Reject(f"bad at {attempt}")

    blocked = tmp_path / "blocked"
    function = each_record(
        logging_handler(log, act), dead_letters=str(dead), app="billing", clock=ManualClock()
    )
    with pytest.raises(StreamingQueryException, match="DeadLetterError"):
        start(spark, tmp_path, function).awaitTermination()
    dead.unlink()
    start(spark, tmp_path, function).awaitTermination()

    assert log.counts() == {"a": 2, "b": 2, "c": 2}
    assert [letter.data for letter in letters(dead)] == [b"b"]


class MendedAfter(ManualClock):
    """A clock on which somebody mends the handler, by making a file, after so many seconds."""

    def __init__(self, seconds: float, file: Path) -> None:
        super().__init__()
        self._mended_at = seconds
        self._file = file

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.monotonic() >= self._mended_at:
            self._file.touch()


def test_a_batch_whose_records_all_fail_is_held_until_the_handler_is_mended(
    spark: SparkSession,
    log: DeliveryLog,
    dead: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mended = tmp_path / "mended"
    path = str(mended)

    def act(payload: str, attempt: int) -> None:
        del attempt
        if not Path(path).exists():
            raise ValueError(f"no database for {payload}")

    told: list[RecordOutcomes] = []
    clock = MendedAfter(20.0, mended)
    function = each_record(
        logging_handler(log, act),
        dead_letters=f"file://{dead}",
        app="billing",
        retry_limit=0,
        on_progress=told.append,
        clock=clock,
    )
    payloads = [f"r{number}" for number in range(3_000)]
    with caplog.at_level(logging.INFO):
        function(spark.createDataFrame(page(*payloads)), 5)

    assert letters(dead) == []
    (outcomes,) = told
    assert (outcomes.acked, outcomes.dead_lettered) == (3_000, 0)
    assert 3_000 < outcomes.retried <= 3_010, "a few that failed again, and every record once more"
    assert "micro-batch 5 is held: deliveries slowed: the handler fails for" in caplog.text
    assert "micro-batch 5 goes on" in caplog.text
    assert caplog.text.count("a handler failed with") == 1
    assert not any("no database for r" in record.getMessage() for record in caplog.records)


def test_where_none_is_spared_a_batch_whose_records_all_fail_is_given_up(
    spark: SparkSession, dead: Path
) -> None:
    def fail(_: Record) -> None:
        raise ValueError("no database")

    function = each_record(
        fail,
        dead_letters=f"file://{dead}",
        app="billing",
        retry_limit=0,
        max_spared_seconds=0,
        clock=ManualClock(),
    )
    function(spark.createDataFrame(page(*(f"r{number}" for number in range(200)))), 5)

    found = letters(dead)
    assert len(found) == 200
    assert "in fail" in (found[0].traceback or "")
