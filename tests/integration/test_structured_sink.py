"""``format("kinesis")`` as a sink, on real Spark and real endpoints."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.kinesis.aggregated_record import take_apart
from kinesis_spout.kinesis.lister import KinesisShardLister
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges, hash_key
from tests.support.kinesis.endpoints import SERVERS, KinesisEndpoint
from tests.support.waiting import STARTING_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.endpoint]


@pytest.fixture(params=SERVERS)
def endpoint(request: pytest.FixtureRequest) -> KinesisEndpoint:
    found: KinesisEndpoint = request.getfixturevalue(request.param)
    return found


def tasks(endpoint: KinesisEndpoint) -> int:
    """How many tasks may write at once: moto gives two records one sequence number, and loses the first."""
    return 1 if endpoint.name == "moto's server" else 2


def options(endpoint: KinesisEndpoint, **more: str) -> dict[str, str]:
    settings = endpoint.settings
    assert settings.endpoint_url is not None, "a server"
    return {
        "region": "us-east-1",
        "endpointUrl": settings.endpoint_url,
        "awsAccessKey": "test",
        "awsSecretKey": "test",
        "deliveryTimeout": "240s",
        **more,
    }


def write(df: DataFrame, endpoint: KinesisEndpoint, **more: str) -> None:
    df.write.format("kinesis").options(**options(endpoint, **more)).mode("append").save()


def records(endpoint: KinesisEndpoint, stream: str) -> Iterator[tuple[str, str, bytes]]:
    """Give shard, key and data of all that is on a stream, each shard in order."""
    client = endpoint.client()
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        shard_id = shard["ShardId"]
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while True:
            reply: Any = client.get_records(ShardIterator=iterator, Limit=10_000)
            page = json.loads(reply["RawBody"])
            for record in page["Records"]:
                yield shard_id, record["PartitionKey"], base64.b64decode(record["Data"])
            if not page["Records"]:
                break
            iterator = page["NextShardIterator"]


def numbers(endpoint: KinesisEndpoint, stream: str) -> list[int]:
    return sorted(int(data) for _, _, data in records(endpoint, stream))


def numbered(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr(
        "concat('key-', id % 97) AS partitionKey", "cast(id AS string) AS data"
    )


def test_a_dataframe_is_on_the_stream_whole_and_each_key_in_order(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    stream = endpoint.create_stream(shards=3)
    write(numbered(spark, 3_333, tasks(endpoint)), endpoint, streamName=stream)
    found = list(records(endpoint, stream))
    assert sorted(int(data) for _, _, data in found) == list(range(3_333))
    assert all(key == f"key-{int(data) % 97}" for _, key, data in found)
    for task in range(tasks(endpoint)):  # a task has a half of the range, and its order
        first, last = (3_333 * part // tasks(endpoint) for part in (task, task + 1))
        for key in range(97):
            of_key = [int(data) for _, name, data in found if name == f"key-{key}"]
            of_task = [number for number in of_key if first <= number < last]
            assert of_task == sorted(of_task)


def test_binary_data_explicit_hash_keys_and_another_key_column_arrive(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    stream = endpoint.create_stream(shards=2)
    last = (1 << 128) - 2  # moto has no shard for the very last hash key
    df = spark.sql(
        "SELECT 'same' AS customer, unhex('FF00') AS data, '0' AS explicitHashKey "
        f"UNION ALL SELECT 'same', unhex('00FF'), '{last}'"
    ).coalesce(1)
    write(df, endpoint, streamName=stream, partitionKeyColumn="customer")
    low, high = sorted(records(endpoint, stream))
    assert (low[1:], high[1:]) == (("same", b"\xff\x00"), ("same", b"\x00\xff"))
    assert low[0] != high[0]


def test_rows_of_a_shard_are_few_aggregated_records_of_that_shard(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    stream = endpoint.create_stream(shards=4)
    write(numbered(spark, 10_000, tasks(endpoint)), endpoint, streamName=stream, aggregation="true")
    ranges = HashKeyRanges(KinesisShardLister(endpoint.client(), stream).list_shards())
    found = [(shard, part) for shard, _, data in records(endpoint, stream) for part in take_apart(data) or ()]
    assert sorted(int(part.data) for _, part in found) == list(range(10_000))
    assert len(list(records(endpoint, stream))) < 20
    assert all(part.partition_key == f"key-{int(part.data) % 97}" for _, part in found)
    assert all(ranges.shard_of(hash_key(part.partition_key)) == shard for shard, part in found)


def test_the_column_says_the_stream_unless_the_options_do(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    names = [endpoint.create_stream() for _ in range(2)]
    df = numbered(spark, 100, 1).selectExpr("*", f"if(data % 2 = 0, '{names[0]}', '{names[1]}') AS stream")
    write(df, endpoint)
    assert numbers(endpoint, names[0]) == list(range(0, 100, 2))
    assert numbers(endpoint, names[1]) == list(range(1, 100, 2))
    third = endpoint.create_stream()
    write(df, endpoint, streamName=third)
    assert numbers(endpoint, third) == list(range(100))


def test_a_row_that_can_never_be_a_record_fails_the_write_with_its_position(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    stream = endpoint.create_stream()
    df = numbered(spark, 10, 1).selectExpr("if(data = '7', '', partitionKey) AS partitionKey", "data")
    with pytest.raises(
        PythonException,
        match=r"UnwritableRow: partition 0, row 7 \(counted from 0\): partitionKey: expected a key, got an empty",
    ):
        write(df, endpoint, streamName=stream)


def test_rows_that_can_never_be_records_are_dead_letters_and_the_others_are_written(
    spark: SparkSession, endpoint: KinesisEndpoint, tmp_path: Path
) -> None:
    stream = endpoint.create_stream()
    df = numbered(spark, 100, tasks(endpoint)).selectExpr(
        "if(data % 10 = 3, null, if(data % 10 = 4, repeat('k', 257), partitionKey)) AS partitionKey", "data"
    )
    write(df, endpoint, streamName=stream, deadLetters=tmp_path.as_uri())
    bad = [number for number in range(100) if number % 10 in (3, 4)]
    assert numbers(endpoint, stream) == [number for number in range(100) if number not in bad]
    letters = list(JsonLinesSink(tmp_path).read())
    assert sorted(int(letter.data) for letter in letters) == bad
    assert {letter.stream for letter in letters} == {stream}
    assert Counter(letter.error for letter in letters) == {
        "partitionKey: expected a key, got null": 10,
        "partitionKey: expected 1 to 256 characters, got 257": 10,
    }


def test_a_stream_that_does_not_exist_is_one_clear_error(
    spark: SparkSession, endpoint: KinesisEndpoint
) -> None:
    with pytest.raises(PythonException, match="StreamNotFound: PutRecords on nowhere failed"):
        write(numbered(spark, 10, 1), endpoint, streamName="nowhere")


def test_a_stream_cannot_be_overwritten(spark: SparkSession, moto_server: KinesisEndpoint) -> None:
    writer = numbered(spark, 10, 1).write.format("kinesis").options(**options(moto_server, streamName="s"))
    with pytest.raises(AnalysisException, match="InvalidConfig: mode: expected append, got overwrite"):
        writer.mode("overwrite").save()


class Feed:
    """A streaming query from a directory of text files to a stream."""

    def __init__(self, spark: SparkSession, endpoint: KinesisEndpoint, home: Path) -> None:
        self.stream = endpoint.create_stream(shards=2)
        self.checkpoint = home / "checkpoint"
        self._source = home / "source"
        self._source.mkdir()
        self._spark = spark
        self._endpoint = endpoint
        self._files = 0

    def put(self, *lines: int) -> None:
        (self._source / f"{self._files}.txt").write_text("".join(f"{line}\n" for line in lines))
        self._files += 1

    def rows(self) -> DataFrame:
        lines = self._spark.readStream.text(str(self._source))
        return lines.selectExpr("value AS partitionKey", "value AS data").coalesce(1)

    def writer(self, rows: DataFrame) -> DataStreamWriter:
        return (
            rows.writeStream.format("kinesis")
            .options(**options(self._endpoint, streamName=self.stream))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
        )

    def run(self) -> StreamingQuery:
        query = self.writer(self.rows()).start()
        assert query.awaitTermination(STARTING_SECONDS), "the query should end by itself"
        return query


def test_a_query_writes_each_micro_batch_once_and_goes_on_after_a_stop(
    spark: SparkSession, endpoint: KinesisEndpoint, tmp_path: Path
) -> None:
    feed = Feed(spark, endpoint, tmp_path)
    feed.put(*range(100))
    feed.run()
    assert numbers(endpoint, feed.stream) == list(range(100))
    feed.put(*range(100, 250))
    feed.run()
    assert numbers(endpoint, feed.stream) == list(range(250))


def test_a_micro_batch_that_is_not_known_to_be_committed_is_written_again(
    spark: SparkSession, endpoint: KinesisEndpoint, tmp_path: Path
) -> None:
    feed = Feed(spark, endpoint, tmp_path)
    feed.put(*range(20))
    feed.run()
    for file in (feed.checkpoint / "commits").glob(
        "*0*"
    ):  # as if the driver had died before this was written
        file.unlink()
    feed.run()
    assert numbers(endpoint, feed.stream) == sorted([*range(20), *range(20)])
