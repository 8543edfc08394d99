"""The log lines of a streaming read, in what Spark prints: the reader runs in a process that Spark starts."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.spark.structured_queries import source_options
from tests.support.waiting import STARTING_SECONDS

REPOSITORY = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.endpoint]

DRIVER = """
import json, sys
from kinesis_spout.spark import session
folder, options = sys.argv[1], json.loads(sys.argv[2])
spark = session("log", "local[1]", spark__ui__enabled="false", spark__driver__bindAddress="127.0.0.1")
spark.sparkContext.setLogLevel("OFF")
query = (
    spark.readStream.format("kinesis").options(**options).load().writeStream.format("noop")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
"""
ELSEWHERE = "192.0.2.1"
"""An address that no machine has (RFC 5737): the reader warns that it cannot serve its pages there."""


def test_a_readers_lines_have_time_level_and_name(moto_server: KinesisEndpoint, tmp_path: Path) -> None:
    stream = moto_server.create_stream()
    moto_server.client().put_record(StreamName=stream, Data=b"to-be-hidden", PartitionKey="key")
    options = source_options(moto_server, streamName=stream, logLevel="info", pageServerHost=ELSEWHERE)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), json.dumps(options)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=STARTING_SECONDS,
        check=False,
    )
    text = done.stderr
    assert done.returncode == 0, text
    lines = [line for line in text.splitlines() if "kinesis_spout." in line]
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    for line in lines:
        assert re.match(rf"{time} (INFO|WARNING) kinesis_spout\.\w+[.\w]*: ", line), line
    (started,) = [line for line in lines if "query_log: started" in line]
    assert " INFO " in started
    assert stream in started
    (warning,) = [line for line in text.splitlines() if "pages cannot be served" in line]
    assert re.match(rf"{time} WARNING ", warning), warning
    assert "to-be-hidden" not in text
