"""A local Spark session for a benchmark, what a spout needs to run in it, and how far its queries are."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import ProcessTree
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from kinesis_spout import SpoutConfig
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.spark.session import session


@contextmanager
def local_session(**settings: str) -> Iterator[SparkSession]:
    """Start a session with two cores, with the spout's settings under yours; end it with the block."""
    quiet = {"spark__ui__enabled": "false", "spark__log__level": "ERROR"}
    spark = session("kinesis-spout benchmark", "local[2]", **(quiet | settings))
    try:
        yield spark
    finally:
        spark.stop()


def spark_processes(spark: SparkSession) -> ProcessTree:
    """Give the JVM of a local session with its Python workers."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no public way
    return ProcessTree(jvm.ProcessHandle.current().pid())


def spout_config(kinesis: KinesisClientSettings, stream: str, directory: Path) -> SpoutConfig:
    """Configure a spout on the canned endpoint that keeps everything in ``directory``."""
    return SpoutConfig.of(
        stream=stream,
        app="benchmark",
        region=kinesis.region,
        endpoint_url=kinesis.endpoint_url,
        aws_access_key_id=kinesis.access_key,
        aws_secret_access_key=kinesis.secret_key,
        initial_position="trim_horizon",
        zookeeper=f"embedded:{directory / 'zookeeper'}",
        dead_letters=str(directory / "dead-letters"),
    )


class Batches(StreamingQueryListener):
    """The micro-batches of a session's queries, as Spark tells of them. Mutable; Spark's thread fills it."""

    def __init__(self, spark: SparkSession) -> None:
        self._changed = threading.Condition()
        self._durations: dict[str, list[dict[str, int]]] = {}
        self._rows: dict[str, int] = {}
        spark.streams.addListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """See Spark."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """See Spark."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """See Spark."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Note a batch, if it had rows."""
        run, rows = str(event.progress.runId), event.progress.numInputRows
        if rows:
            with self._changed:
                self._durations.setdefault(run, []).append(dict(event.progress.durationMs))
                self._rows[run] = self._rows.get(run, 0) + rows
                self._changed.notify_all()

    def wait_for(self, query: StreamingQuery, rows: int, *, seconds: float) -> None:
        """Wait until a query has processed so many rows."""
        run = str(query.runId)
        with self._changed:
            came = self._changed.wait_for(lambda: self._rows.get(run, 0) >= rows, seconds)
        assert came, f"expected {rows} rows, got {self._rows.get(run, 0)}: {query.exception()}"

    def durations(self, query: StreamingQuery) -> list[dict[str, int]]:
        """Give ``durationMs`` of each batch with rows, in milliseconds by part."""
        return self._durations[str(query.runId)]
