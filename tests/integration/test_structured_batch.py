"""``spark.read.format("kinesis")`` on real Spark and real endpoints."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.support.kinesis.endpoints import FILLS_CHILDREN, KEEPS_CLOSED, SERVERS, SHARD_END, KinesisEndpoint
from tests.support.kinesis.streams_under_test import FIRST_SHARD, EndpointStream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.endpoint,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # PySpark 4.0 leaves the socket of a collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(params=SERVERS)
def endpoint(request: pytest.FixtureRequest) -> KinesisEndpoint:
    given: KinesisEndpoint = request.getfixturevalue(request.param)
    return given


class FilledStream(EndpointStream):
    def fill(self, payloads: Iterable[str]) -> list[str]:
        """Put records, each under its own payload as key, and give the payloads."""
        given = list(payloads)
        for start in range(0, len(given), 500):
            entries: list[Any] = [
                {"Data": payload.encode(), "PartitionKey": payload} for payload in given[start : start + 500]
            ]
            reply = self._client.put_records(StreamName=self.name, Records=entries)
            assert reply.get("FailedRecordCount", 0) == 0, reply
        return given


def load(spark: SparkSession, stream: EndpointStream, source: str = "kinesis", **options: str) -> DataFrame:
    settings = stream.endpoint.settings
    assert settings.endpoint_url is not None, "expected a server: Spark's processes have no mock"
    return (
        spark.read.format(source)
        .options(
            streamName=stream.name,
            region="us-east-1",
            endpointUrl=settings.endpoint_url,
            awsAccessKey="test",
            awsSecretKey="test",
        )
        .options(**options)
        .load()
    )


def payloads(frame: DataFrame) -> list[str]:
    return [bytes(row.data).decode() for row in frame.select("data").collect()]


def at_time(seconds: float) -> str:
    return json.dumps({"at_timestamp": seconds})


def arrivals(frame: DataFrame) -> list[float]:
    """The distinct arrival times of a frame, in order; Spark's own, so no time zone gets in between."""
    rows = frame.selectExpr("cast(approximateArrivalTimestamp as double) as arrival").distinct().collect()
    return sorted(row.arrival for row in rows)


def test_a_stream_is_read_up_to_now_with_its_declared_columns(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    stream = FilledStream(endpoint, 3)
    put = stream.fill(f"r{number}" for number in range(1200))

    frame = load(spark, stream, extraColumns="millisBehindLatest", maxRecordsPerFetch="100").cache()
    try:
        assert frame.schema == StructType(
            [
                StructField("partitionKey", StringType()),
                StructField("data", BinaryType()),
                StructField("stream", StringType()),
                StructField("shardId", StringType()),
                StructField("sequenceNumber", StringType()),
                StructField("approximateArrivalTimestamp", TimestampType()),
                StructField("millisBehindLatest", LongType()),
            ]
        )
        assert Counter(payloads(frame)) == Counter(put)
        row = frame.where("partitionKey = 'r7'").first()
        assert row is not None
        assert (bytes(row.data), row.stream) == (b"r7", stream.name)
    finally:
        frame.unpersist()


def test_the_name_for_platforms_with_a_source_kinesis_reads_and_writes_the_same(
    spark: SparkSession, moto_server: KinesisEndpoint
) -> None:
    stream, copied = FilledStream(moto_server, 1), FilledStream(moto_server, 1)
    put = stream.fill(["a", "b", "c"])

    frame = load(spark, stream, "kinesis_spout")
    assert frame.schema == load(spark, stream).schema
    assert sorted(payloads(frame)) == put
    frame.select("data", "partitionKey").write.format("kinesis_spout").options(
        streamName=copied.name,
        region="us-east-1",
        endpointUrl=str(moto_server.settings.endpoint_url),
        awsAccessKey="test",
        awsSecretKey="test",
    ).mode("append").save()

    assert sorted(payloads(load(spark, copied))) == put


def test_two_actions_on_a_frame_read_the_same_although_records_are_put_in_between(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    stream = FilledStream(endpoint, 2)
    before = stream.fill(f"before{number}" for number in range(100))
    frame = load(spark, stream, shardsPerTask="1")
    assert frame.rdd.getNumPartitions() == 2

    first = payloads(frame)
    stream.fill(f"between{number}" for number in range(100))
    again = payloads(frame)

    assert Counter(first) == Counter(before)
    assert Counter(again) == Counter(before)
    assert frame.count() == len(before)


def test_adjacent_reads_by_time_have_each_record_once(spark: SparkSession, endpoint: KinesisEndpoint) -> None:
    stream = FilledStream(endpoint, 2)
    put = [payload for part in range(8) for payload in stream.fill(f"{part}-{i}" for i in range(50))]
    whole = load(spark, stream)
    times = arrivals(whole)
    middle = times[len(times) // 2]

    earlier = payloads(load(spark, stream, endingPosition=at_time(middle)))
    later = payloads(load(spark, stream, startingPosition=at_time(middle)))

    assert earlier
    assert later
    assert Counter(earlier + later) == Counter(put)


def test_a_split_and_merged_stream_is_read_once(spark: SparkSession, endpoint: KinesisEndpoint) -> None:
    endpoint.needs(SHARD_END, KEEPS_CLOSED, FILLS_CHILDREN)
    stream = FilledStream(endpoint, 1)
    put = stream.fill(f"before{number}" for number in range(100))
    stream.split(FIRST_SHARD)
    put += stream.fill(f"split{number}" for number in range(100))
    children = [shard.shard_id for shard in stream.lister().list_shards() if shard.parents]
    stream.merge(children[0], children[1])
    put += stream.fill(f"merged{number}" for number in range(100))

    frame = load(spark, stream, shardsPerTask="1")

    assert frame.rdd.getNumPartitions() == 4
    assert Counter(payloads(frame)) == Counter(put)


def test_two_streams_are_read_in_one_frame(spark: SparkSession, endpoint: KinesisEndpoint) -> None:
    one, other = FilledStream(endpoint, 1), FilledStream(endpoint, 2)
    one.fill(f"one{number}" for number in range(50))
    other.fill(f"other{number}" for number in range(70))

    counts = load(spark, one, streamName=f"{one.name},{other.name}").groupBy("stream").count().collect()

    assert {row.stream: row["count"] for row in counts} == {one.name: 50, other.name: 70}


def test_a_stream_that_is_not_there_is_one_clear_error(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    stream = FilledStream(endpoint, 1)
    frame = load(spark, stream, streamName="nowhere")

    with pytest.raises(PySparkException, match="expected a stream 'nowhere' in region 'us-east-1'"):
        frame.count()


def test_a_table_of_a_stream_is_queried_with_sql(spark: SparkSession, endpoint: KinesisEndpoint) -> None:
    stream = FilledStream(endpoint, 2)
    given = stream.fill(f"{number}" for number in range(20))
    options = (
        f"streamName '{stream.name}', region 'us-east-1', endpointUrl '{endpoint.settings.endpoint_url}'"
    )
    secrets = "'awsAccessKey' = 'test', 'awsSecretKey' = 'test'"
    spark.sql(f"CREATE TABLE orders_of_stream USING kinesis OPTIONS ({options})")
    try:
        rows = spark.sql(f"SELECT CAST(data AS string) AS text FROM orders_of_stream WITH ({secrets})")
        assert sorted(row.text for row in rows.collect()) == sorted(given)
    finally:
        spark.sql("DROP TABLE orders_of_stream")
