"""A driver process of its own, for tests that kill it.

``python -m tests.support.spark.micro_batch_driver LOG SETTINGS spark`` has a JVM; ``no-spark`` runs tasks in the
driver itself, so that it starts in a second.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kinesis_spout import KinesisSpout
from kinesis_spout.consumer.open_ports import RealPorts
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark import SpoutQuery, session
from kinesis_spout.spark.driver.query import start_query, task_settings
from tests.support.spark.micro_batch_world import DeliveryLog, Handle, logging_handler
from tests.unit.spark.driver.world import InProcessRunner

if TYPE_CHECKING:
    from pyspark import SparkContext


def slow_and_failing(payload: str, _: int) -> None:
    """What the killed drivers and the last one do with each record."""
    import time  # noqa: PLC0415 - runs in another process

    time.sleep(0.002)  # a handler slow enough that a kill hits it in the middle of a slice
    if payload == "poison":
        raise ValueError("always")


def main() -> None:
    handle = logging_handler(DeliveryLog(Path(sys.argv[1])), slow_and_failing)
    start = {"spark": on_spark, "no-spark": in_process}[sys.argv[3]]
    start(handle, json.loads(sys.argv[2])).awaitTermination()


def on_spark(handle: Handle, settings: dict[str, Any]) -> SpoutQuery:
    """What a user has."""
    spark = session("killed", "local[1]", spark__ui__enabled="false", spark__driver__bindAddress="127.0.0.1")
    spark.sparkContext.setLogLevel("OFF")
    return KinesisSpout(**settings).foreach_record(spark, handle)


def in_process(handle: Handle, settings: dict[str, Any]) -> SpoutQuery:
    """The same, but for Spark."""
    config = SpoutConfig.of(**settings)
    runner = InProcessRunner(task_settings(config), handle)
    context = cast("SparkContext", SimpleNamespace(defaultParallelism=1))
    return start_query(config, RealPorts(config), context, lambda _: runner, None, door="foreach_record")


if __name__ == "__main__":
    main()
