"""A driver process on a cluster, with a query of each door on one stream, for tests of what is killed there.

``python -m tests.support.spark.cluster_driver JOB``: the JSON of a ``Job``.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kinesis_spout import KinesisSpout
from kinesis_spout.model.record import Record
from kinesis_spout.spark import LOCAL_CHECKPOINTS, Collector, SpoutQuery, session

RECORD_DOOR, BATCH_DOOR, SOURCE_DOOR = DOORS = ("foreach_record", "foreach_batch", 'format("kinesis")')
_MILLIS_PER_RECORD: Final = 50
"""So slow that a kill hits a task amid its records."""
_VISITS: Final = f"""concat_ws('\\t',
  cast(data as string),
  reflect('java.lang.System', 'getProperty', 'user.dir'),
  reflect('java.lang.Thread', 'sleep', {_MILLIS_PER_RECORD}L)
) as value"""
"""Makes a line of each row: its data, where its executor works, and, after some time, nothing of interest."""


class Visit(NamedTuple):
    """A record was handled."""

    payload: str
    executor: str
    """The folder that its executor works in."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    """For what the doors leave, on a disk that all processes share."""
    master: str
    conf: dict[str, str]
    spout: dict[str, Any]
    """Settings of the record door and the batch door but for the name of the application."""
    options: dict[str, str]
    """Of ``format("kinesis")``."""

    def visits(self, door: str) -> list[Visit]:
        """What the executors were given so far through a door."""
        files = self.sink.glob("part-*") if door == SOURCE_DOOR else [self.notes(door)]
        return [Visit(*line.split("\t")[:2]) for line in _whole_lines(files)]

    def notes(self, door: str) -> Path:
        """Name the file with the visits of a door of ``KinesisSpout``."""
        return Path(self.folder, f"{door}.visits")

    @property
    def sink(self) -> Path:
        """The folder that ``format("kinesis")`` writes its visits to."""
        return Path(self.folder, "sink")

    @property
    def sunk(self) -> Path:
        """The file with all that Spark reads from the sink in the end."""
        return Path(self.folder, "sunk")

    @property
    def end(self) -> Path:
        """Once this file is there the driver finishes what is on the stream, and ends."""
        return Path(self.folder, "end")


def foreach_record(spark: SparkSession, job: Job) -> SpoutQuery:
    path, seconds = str(job.notes(RECORD_DOOR)), _MILLIS_PER_RECORD / 1000

    def handle(record: Record) -> None:
        _append(path, f"{record.data.decode()}\t{Path.cwd()}\n")
        time.sleep(seconds)

    return KinesisSpout(app="records", **job.spout).foreach_record(spark, handle)


def foreach_batch(spark: SparkSession, job: Job) -> SpoutQuery:
    def handle(frame: DataFrame, _: Collector) -> None:
        visits = frame.selectExpr(_VISITS).collect()
        _append(str(job.notes(BATCH_DOOR)), "".join(f"{row.value}\n" for row in visits))

    return KinesisSpout(app="batches", **job.spout).foreach_batch(spark, handle)


def structured(spark: SparkSession, job: Job) -> StreamingQuery:
    visits = spark.readStream.format("kinesis").options(**job.options).load().selectExpr(_VISITS)
    writer = visits.writeStream.format("text").option("checkpointLocation", f"{job.folder}/checkpoint")
    return writer.start(str(job.sink))


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    conf = {key.replace(".", "__"): value for key, value in {**LOCAL_CHECKPOINTS, **job.conf}.items()}
    spark = session("cluster", job.master, **conf)
    waiting = threading.Event()
    source = structured(spark, job)
    while source.isActive and source.status["message"] == "Initializing sources":
        waiting.wait(0.1)  # its process has ten seconds to start in: nothing else makes the machine busier
    queries: list[SpoutQuery | StreamingQuery] = [
        source,
        foreach_record(spark, job),
        foreach_batch(spark, job),
    ]
    while not job.end.exists() and not waiting.wait(0.2):
        for query in queries:
            if not query.isActive:
                query.awaitTermination()  # raises what it ended with
    for query in queries:
        query.processAllAvailable()
        query.stop()
    job.sunk.write_text("".join(f"{row.value}\n" for row in spark.read.text(str(job.sink)).collect()))
    spark.stop()


def _append(path: str, lines: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, lines.encode())  # one write: lines of several processes do not mix
    finally:
        os.close(file)


def _whole_lines(files: Iterator[Path] | list[Path]) -> Iterator[str]:
    """Give lines, without those that are being written."""
    for file in files:
        if file.exists():
            yield from (line[:-1] for line in file.read_text().splitlines(True) if line.endswith("\n"))


if __name__ == "__main__":
    main()
