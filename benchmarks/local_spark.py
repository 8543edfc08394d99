"""A local Spark session for a benchmark, what a spout needs to run in it, and how far its queries are."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from figures import ProcessTree
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kinesis_spout import SpoutConfig
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.spark.sessions import session
from kinesis_spout.structured.offsets import QueryOffset

_LOOK_EVERY_SECONDS: Final = 0.02


@contextmanager
def local_session(**settings: str) -> Iterator[SparkSession]:
    """Start a session with two cores, with the spout's settings under yours; end it with the block."""
    own = {
        "spark__ui__enabled": "false",
        "spark__log__level": "ERROR",
        "spark__sql__streaming__numRecentProgressUpdates": "1000",  # what ``Batches.durations`` gives
    }
    spark = session("kinesis-spout benchmark", "local[2]", **(own | settings))
    try:
        yield spark
    finally:
        spark.stop()


def spark_processes(spark: SparkSession) -> ProcessTree:
    """Give the JVM of a local session with its Python workers."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no public way
    return ProcessTree(jvm.ProcessHandle.current().pid())


def spout_config(
    kinesis: KinesisClientSettings, stream: str, directory: Path, **settings: Any
) -> SpoutConfig:
    """Configure a spout on the canned endpoint that keeps everything in ``directory``; your settings win."""
    own = {
        "stream": stream,
        "app": "benchmark",
        "region": kinesis.region,
        "endpoint_url": kinesis.endpoint_url,
        "aws_access_key_id": kinesis.aws_access_key_id,
        "aws_secret_access_key": kinesis.aws_secret_access_key,
        "initial_position": "trim_horizon",
        "zookeeper": f"embedded:{directory / 'zookeeper'}",
        "dead_letters": str(directory / "dead-letters"),
    }
    return SpoutConfig.of(**(own | settings))


class Batches:
    """The micro-batches of one query on ``format("kinesis")``, as its checkpoint tells of them. Mutable.

    A listener would tell as well, but Spark makes Python objects for it in a way that takes 65 ms of CPU a batch.
    """

    def __init__(self, query: StreamingQuery, checkpoint: Path) -> None:
        self.query = query
        self._checkpoint = checkpoint
        self._counted = -1
        self._rows = 0

    def wait_for(self, rows: int, *, seconds: float) -> None:
        """Wait until the query has processed so many rows since its beginning."""
        deadline = time.monotonic() + seconds
        while not self._has(rows):
            assert self.query.isActive, str(self.query.exception())
            assert time.monotonic() < deadline, f"expected {rows} rows, got {self._rows}"
            time.sleep(_LOOK_EVERY_SECONDS)

    def durations(self) -> list[dict[str, int]]:
        """Give ``durationMs`` of each of the last batches with rows, in milliseconds by part."""
        return [progress.durationMs for progress in self.query.recentProgress if progress.numInputRows]

    def _has(self, rows: int) -> bool:
        while (self._checkpoint / "commits" / str(self._counted + 1)).exists():
            self._counted += 1
            text = (self._checkpoint / "offsets" / str(self._counted)).read_text()
            document = json.loads(text.splitlines()[-1])
            offset = QueryOffset.from_document(document, document["streams"])
            shards = [shard for stream in offset.streams.values() for shard in stream.shards.values()]
            self._rows += sum(shard.read.rows for shard in shards if shard.read is not None)
        return self._rows >= rows
