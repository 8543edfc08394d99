"""Streaming reads of ``format("kinesis")`` for tests: streams to read, queries to start, rows to collect."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shard_state import Shard
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.kinesis.streams_under_test import EndpointStream
from tests.support.waiting import STARTING_SECONDS, wait_until


class Seen(NamedTuple):
    """What a test wants to know of a row."""

    shard_id: str
    number: int
    payload: str

    @classmethod
    def of(cls, row: Row) -> "Seen":
        return cls(row.shardId, int(row.sequenceNumber), bytes(row.data).decode())


def seen(frame: DataFrame) -> list[Seen]:
    """Run an action on a frame: its rows in their order."""
    return [Seen.of(row) for row in frame.select("shardId", "sequenceNumber", "data").collect()]


@dataclass(frozen=True, kw_only=True)
class Batch:
    number: int
    rows: Sequence[Seen]


class CollectedBatches:
    """For ``foreachBatch``. Spark's thread fills it, the test's reads it.

    The first batch may have no rows: Spark makes it also where nothing came within the second that it waits.

    Args:
        then: called with the frame of each batch that has rows, after they were collected.
    """

    def __init__(self, then: Callable[[DataFrame], None] | None = None) -> None:
        self._then = then
        self.batches: list[Batch] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        batch = Batch(number=number, rows=seen(frame))
        if self._then is not None and batch.rows:
            self._then(frame)
        self.batches.append(batch)

    @property
    def rows(self) -> list[Seen]:
        return [row for batch in self.batches for row in batch.rows]

    @property
    def payloads(self) -> list[str]:
        return [row.payload for row in self.rows]

    @property
    def sizes(self) -> list[int]:
        return [len(batch.rows) for batch in self.batches]


class QueriedStream(EndpointStream):
    """A stream that queries read."""

    def put_all(self, payloads: Iterable[str]) -> list[str]:
        """Put records, each under its own payload as key, and give the payloads."""
        given = list(payloads)
        for start in range(0, len(given), 500):
            entries: list[Any] = [
                {"Data": payload.encode(), "PartitionKey": payload[:200]}
                for payload in given[start : start + 500]
            ]
            reply = self._client.put_records(StreamName=self.name, Records=entries)
            assert reply.get("FailedRecordCount", 0) == 0, reply
        return given

    def put_record(self, data: bytes, key: str, explicit_hash_key: str) -> None:
        """Put one record."""
        self._client.put_record(
            StreamName=self.name, Data=data, PartitionKey=key, ExplicitHashKey=explicit_hash_key
        )

    @property
    def arn(self) -> str:
        summary = self._client.describe_stream_summary(StreamName=self.name)
        return summary["StreamDescriptionSummary"]["StreamARN"]

    def shards(self) -> list[Shard]:
        return list(self.lister().list_shards())


class Producer:
    """Puts records until it is left: load for what happens meanwhile. ``payloads`` are those that were put."""

    def __init__(self, stream: QueriedStream, prefix: str, *, at_once: int = 10) -> None:
        self._stream = stream
        self._prefix = prefix
        self._at_once = at_once
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer")
        self._error: Exception | None = None
        self.payloads: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def wait_for(self, more: int) -> None:
        """Return when so many more records were put."""
        enough = len(self.payloads) + more
        wait_until(
            lambda: len(self.payloads) >= enough or self._error is not None, f"{more} more records to be put"
        )

    def _run(self) -> None:
        try:
            while not self._over.wait(0.02):
                first = len(self.payloads)
                numbers = range(first, first + self._at_once)
                self.payloads += self._stream.put_all(f"{self._prefix}-{number}" for number in numbers)
        except Exception as error:  # noqa: BLE001 - not hidden: raised where the producer is left
            self._error = error


def source_options(endpoint: KinesisEndpoint, **options: str) -> dict[str, str]:
    """Give the options of a read from an endpoint's servers; those given come last and win."""
    settings = endpoint.settings
    assert settings.endpoint_url is not None, "expected a server: Spark's processes have no mock"
    return {
        "region": "us-east-1",
        "endpointUrl": settings.endpoint_url,
        "awsAccessKey": "test",
        "awsSecretKey": "test",
        "pageServerHost": "127.0.0.1",
        "initialPosition": "trim_horizon",
        **options,
    }


def start(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: Path,
    sink: Callable[[DataFrame, int], None],
    **trigger: Any,
) -> StreamingQuery:
    """Start a query; ``trigger`` goes to ``DataStreamWriter.trigger``."""
    writer = spark.readStream.format("kinesis").options(**options).load().writeStream.foreachBatch(sink)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.option("checkpointLocation", str(checkpoint)).start()


@contextmanager
def running(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: Path,
    sink: Callable[[DataFrame, int], None],
    **trigger: Any,
) -> Iterator[StreamingQuery]:
    """Run a query while the body runs; see ``start``."""
    query = start(spark, options, checkpoint, sink, **trigger)
    try:
        yield query
    finally:
        query.stop()


def run_available(
    spark: SparkSession, options: dict[str, str], checkpoint: Path, sink: Callable[[DataFrame, int], None]
) -> None:
    """Run a query that ends with what there is, and wait for its end."""
    with running(spark, options, checkpoint, sink, availableNow=True) as query:
        assert query.awaitTermination(STARTING_SECONDS), f"still running: {query.status}"


def wait_while_running(query: StreamingQuery, condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds; fail when the query ends before, or it takes too long."""
    wait_until(lambda: condition() or not query.isActive, what, seconds=STARTING_SECONDS)
    failure = query.exception()
    if failure is not None:
        raise failure
    assert condition(), f"the query ended before {what}"


def wait_for_rows(query: StreamingQuery, sink: CollectedBatches, count: int) -> None:
    """Return when so many rows were collected."""
    wait_while_running(query, lambda: len(sink.rows) >= count, f"{count} rows to come")


def failure_of(query: StreamingQuery) -> str:
    """Wait for a query to fail, and give the message that its user gets."""
    try:
        ended = query.awaitTermination(STARTING_SECONDS)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError(f"expected a failure, got {'an end' if ended else query.status}")


def logged(checkpoint: Path, log: str) -> set[int]:
    """Name the batches in the offset log (``offsets``) or the commit log (``commits``) of a query."""
    return {int(file.name) for file in (checkpoint / log).glob("[0-9]*")}


def assert_each_once_in_order(batches: Iterable[Batch], payloads: Iterable[str]) -> None:
    """Check that batches have every payload once, and every shard's records in the shard's order."""
    batches = list(batches)
    assert Counter(row.payload for batch in batches for row in batch.rows) == Counter(payloads)
    last: dict[str, int] = {}
    for batch in batches:
        for row in batch.rows:
            assert row.number > last.get(row.shard_id, -1), (batch.number, row)
            last[row.shard_id] = row.number


def assert_parents_first(batches: Iterable[Batch], shards: Iterable[Shard]) -> None:
    """Check that no batch has a record of a shard before or beside one of its parents'."""
    numbers: dict[str, list[int]] = {}
    for batch in batches:
        for row in batch.rows:
            numbers.setdefault(row.shard_id, []).append(batch.number)
    pairs = [(parent, shard.shard_id) for shard in shards for parent in shard.parents]
    pairs = [(parent, child) for parent, child in pairs if parent in numbers and child in numbers]
    assert pairs, f"no parent and child both have rows: {numbers.keys()}"
    for parent, child in pairs:
        assert max(numbers[parent]) < min(numbers[child]), (parent, child)
