"""each_record under Spark Connect: a client and its server, in a process of their own.

A process holds either a classic session, as the other tests do, or one of Spark Connect.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.dead_letters.json_lines import JsonLinesSink

REPOSITORY = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        any(importlib.util.find_spec(module) is None for module in ("grpc", "grpc_status", "google")),
        reason="the client of Spark Connect is not installed: pip install 'pyspark[connect]'",
    ),
]

CLIENT = """
import json, sys
from datetime import UTC, datetime
import pyarrow as pa
from pyspark.sql import SparkSession
from kinesis_spout import Reject
from kinesis_spout.errors import InvalidConfig
from kinesis_spout.structured.each_record import each_record
from kinesis_spout.structured.progress_listener import KinesisProgressListener

folder = sys.argv[1]

def handle(record):
    if record.data == b"b":
        raise Reject("bad")
    if record.attempt == 1:
        raise ValueError("first")

def tell(outcomes):  # on the server
    with open(folder + "/told", "a") as file:
        file.write(f"{outcomes.delivered} {outcomes.acked} {outcomes.retried} {outcomes.dead_lettered}")

spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.createDataFrame(pa.table({
    "partitionKey": ["key"] * 3,
    "data": pa.array([b"a", b"b", b"c"]),
    "stream": ["orders"] * 3,
    "shardId": ["shard"] * 3,
    "sequenceNumber": ["1", "2", "3"],
    "approximateArrivalTimestamp": pa.array([datetime.now(UTC)] * 3, pa.timestamp("us", tz="UTC")),
})).write.parquet(folder + "/source")
source = spark.read.parquet(folder + "/source")
listener = KinesisProgressListener()
spark.streams.addListener(listener)
query = (
    spark.readStream.schema(source.schema).parquet(folder + "/source")
    .writeStream
    .foreachBatch(each_record(
        handle, dead_letters=folder + "/dead", app="billing", retry_backoff_seconds=0.01, on_progress=tell
    ))
    .option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
try:
    each_record(handle, dead_letters="hdfs://nodes/dead", app="billing")(source, 1)
except InvalidConfig as error:
    refused = str(error)
spark.streams.removeListener(listener)
with open(folder + "/result", "w") as file:
    json.dump({
        "session": type(spark).__module__, "refused": refused, "progress": len(listener.recent(query.id))
    }, file)
spark.stop()
"""


def test_a_query_of_a_client_finishes_its_records_on_the_server(tmp_path: Path) -> None:
    client = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path)],
        # SPARK_TESTING lets the server choose a free port; the server's own workers need the path, too.
        env=os.environ
        | {
            "SPARK_TESTING": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert client.returncode == 0, client.stderr[-4_000:]
    result: dict[str, Any] = json.loads((tmp_path / "result").read_text())
    assert result["session"].startswith("pyspark.sql.connect")
    assert (tmp_path / "told").read_text() == "3 2 2 1"
    assert [letter.data for letter in JsonLinesSink(tmp_path / "dead").read()] == [b"b"]
    assert "under Spark Connect, got 'hdfs://nodes/dead'" in result["refused"]
    assert result["progress"] == 0
