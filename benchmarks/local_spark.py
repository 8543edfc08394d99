"""A local Spark session for a benchmark, and what a spout needs to run in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import ProcessTree
from pyspark.sql import SparkSession

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
