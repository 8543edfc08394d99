"""Windows with a watermark, over shards of very different size: what was only unread is not dropped as late."""

import base64
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.kinesis.models import Record, kinesis_backends
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.spark.structured_queries import QueriedStream, source_options, wait_while_running

pytestmark = [pytest.mark.spark, pytest.mark.endpoint, pytest.mark.timeout(1_200)]

HOT = 20_000
COLD = (667, 667, 666)
BACKLOG = HOT + sum(COLD)
BACKLOG_SECONDS = 10 * 3600.0
ROWS_A_BATCH = 4_000


def put_as_if_arrived(stream: QueriedStream, shard: int, data: bytes, arrivals: Sequence[float]) -> None:
    """Put records that arrived at chosen times: into moto's memory, since no endpoint lets a client choose."""
    records = (
        kinesis_backends[DEFAULT_ACCOUNT_ID]["us-east-1"]
        .streams[stream.name]
        .shards[f"shardId-{shard:012}"]
        .records
    )
    encoded = base64.b64encode(data).decode()
    for number, arrival in enumerate(arrivals, 1):
        record = Record("key", encoded, number, "")
        record.created_at = arrival
        record.created_at_datetime = datetime.fromtimestamp(arrival, UTC).replace(tzinfo=None)
        records[number] = record


def evenly(count: int, now: float) -> list[float]:
    """Spread arrivals over the hours of the backlog; the last one is now."""
    return [now - BACKLOG_SECONDS * (1 - number / count) for number in range(1, count + 1)]


class CountedHours:
    """For ``foreachBatch`` in update mode: the records of each window, as the query last counted them."""

    def __init__(self) -> None:
        self._counts: dict[datetime, int] = {}

    def __call__(self, frame: DataFrame, _number: int) -> None:
        for row in frame.select("window.start", "count").collect():
            self._counts[row[0]] = row[1]

    @property
    def total(self) -> int:
        return sum(self._counts.values())


def read_so_far(query: StreamingQuery) -> int:
    return sum(progress.numInputRows for progress in query.recentProgress)


def dropped_as_late(query: StreamingQuery) -> int:
    """What Spark says it dropped: groups of a partition, which may be several records each."""
    documents = (json.loads(progress.json) for progress in query.recentProgress)
    return sum(
        operator["numRowsDroppedByWatermark"]
        for document in documents
        for operator in document["stateOperators"]
    )


@pytest.mark.parametrize(
    ("data_bytes", "buffered"),
    [(10, "256m"), (1_100, "20m")],
    ids=["in the buffer", "larger than the buffer"],
)
def test_a_watermark_drops_no_record_of_a_hot_shard_beside_cold_ones(
    spark: SparkSession, moto_server: KinesisEndpoint, tmp_path: Path, data_bytes: int, buffered: str
) -> None:
    stream = QueriedStream(moto_server, 1 + len(COLD))
    now = time.time()
    for shard, count in enumerate((*COLD, HOT)):
        put_as_if_arrived(stream, shard, bytes(data_bytes), evenly(count, now))
    options = source_options(
        moto_server,
        streamName=stream.name,
        maxRecordsPerTrigger=str(ROWS_A_BATCH),
        maxRecordsPerFetch="1000",
        maxBufferedBytes=buffered,
    )
    hours = CountedHours()
    query = (
        spark.readStream.format("kinesis")
        .options(**options)
        .load()
        .withWatermark("approximateArrivalTimestamp", "10 minutes")
        .groupBy(F.window("approximateArrivalTimestamp", "1 hour"))
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(hours)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_while_running(query, lambda: read_so_far(query) >= BACKLOG, "the backlog to be read")
    finally:
        query.stop()

    assert hours.total == BACKLOG
    assert dropped_as_late(query) == 0
