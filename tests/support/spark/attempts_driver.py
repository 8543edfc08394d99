"""A driver process whose queries have tasks that run more than once, for tests of what comes of that.

``python -m tests.support.spark.attempts_driver JOB``: the JSON of a `Job`. It runs the queries in turn, each until
it read so many rows, and writes what their batches had to their logs, one line a batch.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from kinesis_spout.spark import session
from tests.support.kinesis.watched import WatchedKinesis
from tests.support.spark.structured_queries import Batch, Seen, seen
from tests.support.waiting import STARTING_SECONDS

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SPECULATING = "two hosts that speculate"


class WatchedQuery(msgspec.Struct, frozen=True, kw_only=True):
    source: Mapping[str, str]
    """The format and its options."""
    sink: Mapping[str, str] | None = None
    """The same of the sink; None: the log."""
    folder: str
    rows: int
    """It is stopped when it read so many."""

    @property
    def log(self) -> Path:
        return Path(self.folder) / "log"

    @property
    def batches(self) -> list[Batch]:
        """What it wrote to its log."""
        lines = map(json.loads, self.log.read_text().splitlines())
        return [Batch(number=number, rows=[Seen(*row) for row in rows]) for number, rows in lines]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    master: str
    """A master of Spark, or `SPECULATING`."""
    folder: str
    queries: list[WatchedQuery]


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    master, settings = job.master, {}
    if master == SPECULATING:
        master = two_hosts(job.folder)
        settings = {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.task.duration.threshold": "1s",
            "spark.executor.memory": "512m",
        }
    given = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **settings,
    }
    spark = session("attempts", master, **{name.replace(".", "__"): given[name] for name in given})
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(WatchedKinesis)
    for query in job.queries:
        run(spark, query)
    spark.stop()


def two_hosts(folder: str) -> str:
    """Start a master and two workers in this process's JVM, and give the master's URL.

    Spark puts a speculative copy of a task on another host than the first, so neither local[2] nor local-cluster,
    whose workers are one host, ever has one. Here the hosts are two addresses of the loopback device.
    """
    SparkContext._ensure_initialized()
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    assert gateway is not None
    assert jvm is not None
    deploy: Any = jvm.org.apache.spark.deploy
    conf = jvm.org.apache.spark.SparkConf()
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
    urls = gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = f"spark://{master._1().address().hostPort()}"
    for number, host in enumerate(("127.0.0.2", "127.0.0.3")):
        start_worker = deploy.worker.Worker.startRpcEnvAndEndpoint
        start_worker(
            host, 0, 0, 1, 1024, urls, folder, jvm.scala.Option.apply(number), conf, jvm.scala.Option.empty()
        )
    return str(urls[0])


def run(spark: SparkSession, query: WatchedQuery) -> None:
    def log(frame: DataFrame, number: int) -> None:
        with query.log.open("a") as file:
            file.write(json.dumps([number, seen(frame)]) + "\n")

    source = dict(query.source)
    rows = spark.readStream.format(source.pop("format")).options(**source).load()
    if query.sink is None:
        writer = rows.writeStream.foreachBatch(log)
    else:
        sink = dict(query.sink)
        writer = rows.select("partitionKey", "data").writeStream.format(sink.pop("format")).options(**sink)
    running = writer.option("checkpointLocation", f"{query.folder}/checkpoint").start()
    try:
        wait_until_read(running, query.rows)
    finally:
        running.stop()


def wait_until_read(query: "StreamingQuery", rows: int) -> None:
    deadline = time.monotonic() + STARTING_SECONDS
    while sum(progress.numInputRows for progress in query.recentProgress) < rows:
        if not query.isActive:
            query.awaitTermination()  # raises what it ended with
        assert time.monotonic() < deadline, f"{rows} rows were not read: {query.status}"
        time.sleep(0.05)


if __name__ == "__main__":
    main()
