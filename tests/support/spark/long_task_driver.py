"""A driver process of its own whose Spark repeats tasks, for a test of what becomes of a long task then.

``python -m tests.support.spark.long_task_driver LOG SETTINGS``: it runs a query until its input ends, and then
prints JSON: how many micro-batches each long task was handed, and whether its job failed.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from kinesis_spout import KinesisSpout
from kinesis_spout.spark.long_tasks.long_task_runner import LongTaskRunner
from tests.support.spark.micro_batch_world import DeliveryLog, logging_handler

if TYPE_CHECKING:
    from kinesis_spout.spark.long_tasks.long_task import LongTask

KILLER = "kills"


def ends_its_worker(payload: str, _: int) -> None:
    if payload == KILLER:
        os._exit(3)


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    handle = logging_handler(DeliveryLog(Path(sys.argv[1])), ends_its_worker)
    handed: list[LongTask] = []
    ended = threading.Event()
    with KinesisSpout(**json.loads(sys.argv[2])).foreach_record(spark, handle) as query:
        runner = query._engines[0]._running._runner
        assert isinstance(runner, LongTaskRunner)

        def look() -> None:
            while not ended.wait(0.005):
                task = runner._task
                if task is not None and task not in handed:
                    handed.append(task)

        looking = threading.Thread(target=look)
        looking.start()
        sys.stdin.read()
        query.processAllAvailable()
        ended.set()
        looking.join()
    sys.stdout.write(json.dumps([[task.handed, task._error is not None] for task in handed]) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
