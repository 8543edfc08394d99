"""Kinesis under Spark Connect: a client and its server, in a process of their own.

A process holds either a classic session, as the other tests do, or one of Spark Connect.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.kinesis import KinesisShardLister, PollingShardGetter
from shard_state import Position
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.spark.structured_queries import QueriedStream
from tests.support.spark.versions import IS_4_2
from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.endpoint,
    pytest.mark.skipif(
        any(importlib.util.find_spec(module) is None for module in ("grpc", "grpc_status", "google")),
        reason="the client of Spark Connect is not installed: pip install 'pyspark[connect]'",
    ),
]

CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from kinesis_spout import Reject
from kinesis_spout.spark import each_record, register

folder, stream, copy, connection = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])

def handle(record):
    if record.data == b"b":
        raise Reject("bad")
    if record.attempt == 1:
        raise ValueError("first")

def tell(outcomes):  # on the server
    with open(folder + "/told", "a") as file:
        file.write(f"{outcomes.delivered} {outcomes.acked} {outcomes.retried} {outcomes.dead_lettered}")

spark = SparkSession.builder.remote("local[2]").getOrCreate()
try:
    register(spark)
    query = (
        spark.readStream.format("kinesis").options(**connection)
        .option("streamName", stream).option("initialPosition", "earliest")
        .option("pageServerHost", "127.0.0.1").load()
        .writeStream
        .foreachBatch(each_record(
            handle, dead_letters=folder + "/dead", app="billing", retry_backoff_seconds=0.01, on_progress=tell
        ))
        .option("checkpointLocation", folder + "/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batch = spark.read.format("kinesis").options(**connection).option("streamName", stream).load()
    batch.select("data", "partitionKey").write.format("kinesis").options(**connection).option(
        "streamName", copy
    ).mode("append").save()
    with open(folder + "/result", "w") as file:
        ours = [source for progress in query.recentProgress for source in progress["sources"]]
        rows = [source["numInputRows"] for source in ours if "kinesis" in str(source.get("latestOffset"))]
        json.dump({"session": type(spark).__module__, "rows": rows}, file)
finally:
    spark.stop()  # or its threads keep the process
"""

BESIDE = """
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from kinesis_spout.spark import register

folder, stream, connection = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])

def note(frame, number):  # on the server
    data = [bytes(row.data).decode() for row in frame.select("data").collect()]
    with open(folder / "rows", "a") as file:
        file.write("".join(line + chr(10) for line in data))

spark = SparkSession.builder.remote("local[2]").getOrCreate()
try:
    (folder / "port").write_text(str(DefaultChannelBuilder.default_port()))
    register(spark)
    query = (
        spark.readStream.format("kinesis").options(**connection)
        .option("streamName", stream).option("initialPosition", "earliest")
        .option("pageServerHost", "127.0.0.1").load()
        .writeStream.foreachBatch(note).option("checkpointLocation", str(folder / "checkpoint")).start()
    )
    while not (folder / "enough").exists():
        assert query.isActive, query.exception()
        time.sleep(0.1)
    query.stop()
finally:
    spark.stop()  # or its threads keep the process
"""


def options_of(endpoint: KinesisEndpoint) -> str:
    settings = endpoint.settings
    return json.dumps(
        {
            "endpointUrl": settings.endpoint_url,
            "region": settings.region,
            "awsAccessKey": settings.aws_access_key_id,
            "awsSecretKey": settings.aws_secret_access_key,
        }
    )


def environment() -> dict[str, str]:
    """SPARK_TESTING lets the server choose a free port; the server's own workers need the path, too."""
    return os.environ | {
        "SPARK_TESTING": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
    }


def test_a_client_reads_handles_and_writes_on_the_server(
    moto_server: KinesisEndpoint, tmp_path: Path
) -> None:
    stream, copy = moto_server.create_stream(), moto_server.create_stream()
    for data in (b"a", b"b", b"c"):
        moto_server.client().put_record(StreamName=stream, Data=data, PartitionKey="key")
    client = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path), stream, copy, options_of(moto_server)],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert client.returncode == 0, client.stderr[-4_000:]
    result: dict[str, Any] = json.loads((tmp_path / "result").read_text())
    assert result["session"].startswith("pyspark.sql.connect")
    assert (tmp_path / "told").read_text() == "3 2 2 1"
    assert [letter.data for letter in JsonLinesSink(tmp_path / "dead").read()] == [b"b"]
    assert result["rows"] == ([3] if IS_4_2 else [])
    assert data_of(moto_server, copy) == [b"a", b"b", b"c"]


class Client:
    """A client with a server of its own, whose query runs until it is left."""

    def __init__(self, folder: Path, endpoint: KinesisEndpoint) -> None:
        folder.mkdir()
        self._folder = folder
        self.stream = QueriedStream(endpoint, 1)
        self.put = self.stream.put_all(f"{folder.name}-{number}" for number in range(20))
        self._errors = (folder / "errors").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-c", BESIDE, str(folder), self.stream.name, options_of(endpoint)],
            env=environment(),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self._folder / "enough").touch()
        try:
            self._process.wait(timeout=240)
        finally:
            self._process.kill()
            self._process.wait()
            self._errors.close()
        assert self._process.returncode == 0, self.errors

    @property
    def port(self) -> int:
        return int((self._folder / "port").read_text())

    @property
    def rows(self) -> list[str]:
        path = self._folder / "rows"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def errors(self) -> str:
        return (self._folder / "errors").read_text()[-4_000:]

    def wait_for_rows(self) -> None:
        """Return when as many rows came as were put."""
        wait_until(
            lambda: len(self.rows) >= len(self.put) or self._process.poll() is not None,
            f"{len(self.put)} rows of {self._folder.name}",
            seconds=500,
        )
        assert self._process.poll() is None, self.errors


def test_two_servers_beside_each_other_have_each_the_rows_of_its_own_query(
    moto_server: KinesisEndpoint, tmp_path: Path
) -> None:
    with Client(tmp_path / "one", moto_server) as one, Client(tmp_path / "other", moto_server) as other:
        for client in (one, other):
            client.wait_for_rows()
        assert one.port != other.port
        for client in (one, other):  # while both run
            client.put += client.stream.put_all(f"{client.stream.name}-{number}" for number in range(20))
        for client in (one, other):
            client.wait_for_rows()
        assert sorted(one.rows) == sorted(one.put)
        assert sorted(other.rows) == sorted(other.put)


def data_of(endpoint: KinesisEndpoint, stream: str) -> list[bytes]:
    """What the stream's only shard has."""
    lister = KinesisShardLister(endpoint.client(), stream)
    [shard] = lister.list_shards()
    getter = PollingShardGetter(
        endpoint.client(),
        stream=stream,
        shard_id=shard.shard_id,
        position=Position.trim_horizon(),
        lister=lister,
    )
    return [record.data for record in getter.read(10).records]
