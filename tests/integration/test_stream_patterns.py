"""``spark.readStream.format("kinesis")`` on the streams that a pattern finds, on real Spark."""

import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.spark.structured_queries import (
    CollectedBatches,
    QueriedStream,
    logged,
    running,
    source_options,
    wait_for_rows,
    wait_while_running,
)

pytestmark = [pytest.mark.spark, pytest.mark.endpoint, pytest.mark.timeout(300)]


def test_streams_come_and_go_while_a_query_runs_and_while_it_is_down(
    spark: SparkSession, moto_server: KinesisEndpoint, tmp_path: Path
) -> None:
    group, checkpoint, sink = uuid.uuid4().hex[:8], tmp_path / "checkpoint", CollectedBatches()

    def stream(name: str) -> QueriedStream:
        return QueriedStream(moto_server, 1, name=f"{group}-{name}")

    options = source_options(moto_server, streamName=f"{group}-*", streamListInterval="200ms")
    kept, deleted = stream("kept"), stream("deleted")
    put = kept.put_all(["kept"]) + deleted.put_all(["deleted"])
    with running(spark, options, checkpoint, sink) as query:
        wait_for_rows(query, sink, 2)
        put += stream("came").put_all(["came"])
        wait_for_rows(query, sink, 3)
        # A batch with records of a stream that is gone could not be repeated.
        wait_while_running(
            query, lambda: logged(checkpoint, "commits") >= logged(checkpoint, "offsets"), "the commit"
        )
    deleted.delete()
    put += kept.put_all(["kept while down"])
    put += stream("down").put_all(["came while down"])
    with running(spark, options, checkpoint, sink) as query:
        wait_for_rows(query, sink, 5)

    assert sorted(sink.payloads) == sorted(put)
