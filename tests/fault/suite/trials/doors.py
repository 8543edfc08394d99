"""The process in which doors are tried, one after the other: ``python -m tests.fault.suite.trials.doors JOBS``.

Spark is started once for all that need it. A door runs until the file ``end`` is there in its folder, and leaves
``stopped`` once it has; what it raised is in ``error``.
"""

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kinesis_spout import KinesisSpout
from kinesis_spout.model.record import Record
from kinesis_spout.spark import session
from kinesis_spout.spark.record_outcomes import each_record
from kinesis_spout.spark.sessions import LOCAL_CHECKPOINTS
from tests.fault.suite.trials.failing import Failing
from tests.fault.suite.trials.plan import RETRY_LIMIT, Door, Place, TrialRecord
from tests.fault.suite.trials.topology import trial_topology

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.spark.dataframe.dataframe_runner import Collector
    from kinesis_spout.spark.tasks.handlers import ArrowCollector

FINISH: Final = "finish"
"""What the file ``end`` says where a door is to end all that is under way, before it stops."""
STOP: Final = "stop"
_LOOK_SECONDS: Final = 0.05
_BACKOFF_SECONDS: Final = 0.1
_CAP_SECONDS: Final = 0.5


class DoorJob(msgspec.Struct, frozen=True, kw_only=True):
    door: Door
    folder: str
    settings: dict[str, Any]
    """Of a ``KinesisSpout``."""

    @property
    def failing(self) -> Failing:
        return Failing(log=str(Path(self.folder, "log")), folder=str(Path(self.folder, "failures")))

    @property
    def dead_letters(self) -> str:
        return str(Path(self.folder, "dead-letters"))

    @property
    def state(self) -> str:
        return str(Path(self.folder, "state"))

    @property
    def end(self) -> Path:
        return Path(self.folder, "end")

    @property
    def stopped(self) -> Path:
        return Path(self.folder, "stopped")

    @property
    def error(self) -> Path:
        return Path(self.folder, "error")

    @property
    def spout_settings(self) -> dict[str, Any]:
        return self.settings | {
            "dead_letters": self.dead_letters,
            "retry_limit": RETRY_LIMIT,
            "retry_backoff_seconds": _BACKOFF_SECONDS,
            "retry_backoff_cap_seconds": _CAP_SECONDS,
        }


class Handler:
    """Of a door that hands out record by record. Picklable."""

    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def __call__(self, record: Record) -> None:
        self._failing.handle(TrialRecord.decode(record.data), Place.HANDLER, record.attempt)


def _handled_rows(failing: Failing, rows: list[bytes]) -> Iterator[tuple[int, str]]:
    """Handle rows that were given together; give those that fail. One may make the whole call raise."""
    records = [TrialRecord.decode(row) for row in rows]
    for record in records:
        if failing.fails(record, Place.CALL):
            raise ValueError(f"all {len(records)} fail for one")
    for row, record in enumerate(records):
        try:
            failing.handle(record, Place.ROW)
        except ValueError as error:
            yield row, str(error)


class ArrowRows:
    """The handler of ``foreach_arrow``. Picklable."""

    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def __call__(self, batch: "pa.RecordBatch", collector: "ArrowCollector") -> None:
        for row, error in _handled_rows(self._failing, batch["data"].to_pylist()):
            collector.fail(row, error)


class FrameRows:
    """The handler of ``foreach_batch``, on the driver."""

    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def __call__(self, frame: "DataFrame", collector: "Collector") -> None:
        rows = frame.select("data", "shardId", "sequenceNumber").collect()
        for row, error in _handled_rows(self._failing, [bytes(row["data"]) for row in rows]):
            collector.fail([rows[row]], error)


def _plain(job: DoorJob) -> None:
    handle = Handler(job.failing)
    with KinesisSpout(**job.spout_settings).open() as spout:
        while not job.end.exists():
            emitted = spout.next_tuple()
            if emitted is None:
                time.sleep(_LOOK_SECONDS)
                continue
            try:
                handle(emitted.values)
            except ValueError as error:
                spout.fail(emitted.message_id, error)
            else:
                spout.ack(emitted.message_id)


def _structured(job: DoorJob, spark: "SparkSession") -> None:
    settings = job.settings
    function = each_record(
        Handler(job.failing),
        dead_letters=job.dead_letters,
        app="trial",
        retry_limit=RETRY_LIMIT,
        retry_backoff_seconds=_BACKOFF_SECONDS,
        retry_backoff_cap_seconds=_CAP_SECONDS,
    )
    options = {
        "streamName": settings["stream"],
        "region": settings["region"],
        "endpointUrl": settings["endpoint_url"],
        "awsAccessKeyId": settings["aws_access_key_id"],
        "awsSecretKey": settings["aws_secret_access_key"],
        "initialPosition": "trim_horizon",
    }
    query = (
        spark.readStream.format("kinesis")
        .options(**options)
        .load()
        .writeStream.foreachBatch(function)
        .option("checkpointLocation", str(Path(job.folder, "checkpoint")))
        .start()
    )
    try:
        while not job.end.exists():
            query.awaitTermination(1)  # raises what ended the query
    finally:
        query.stop()


def _on_spark(job: DoorJob, spark: "SparkSession") -> None:
    spout = KinesisSpout(**job.spout_settings)
    start: dict[Door, Callable[[], Any]] = {
        Door.RECORD: lambda: spout.foreach_record(spark, Handler(job.failing)),
        Door.ARROW: lambda: spout.foreach_arrow(spark, ArrowRows(job.failing)),
        Door.BATCH: lambda: spout.foreach_batch(spark, FrameRows(job.failing)),
        Door.TOPOLOGY: lambda: trial_topology(job.failing, job.spout_settings, job.state).run(spark),
    }
    with start[job.door]() as query:
        while not job.end.exists():
            query.awaitTermination(_LOOK_SECONDS)
        if job.end.read_text() == FINISH:
            query.processAllAvailable()


@contextmanager
def _one_session() -> Iterator[Callable[[], "SparkSession"]]:
    """Give what starts a session, once; stop it in the end."""
    started: list[SparkSession] = []

    def start() -> "SparkSession":
        if not started:
            local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"} | LOCAL_CHECKPOINTS
            local |= {"spark.driver.bindAddress": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}
            settings = {name.replace(".", "__"): value for name, value in local.items()}
            started.append(session("trials", "local[2]", **settings))
            started[0].sparkContext.setLogLevel("OFF")
        return started[0]

    try:
        yield start
    finally:
        for spark in started:
            spark.stop()


def main() -> None:
    with _one_session() as spark:
        for job in msgspec.json.decode(sys.argv[1], type=list[DoorJob]):
            try:
                if job.door is Door.PLAIN:
                    _plain(job)
                elif job.door is Door.STRUCTURED:
                    _structured(job, spark())
                else:
                    _on_spark(job, spark())
            except Exception:  # noqa: BLE001 - judged by the process that started this one
                job.error.write_text(traceback.format_exc())
            job.stopped.touch()


if __name__ == "__main__":
    main()
