"""The doors of the package on the stream: what they read, where they go on after a restart."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout import KinesisSpout
from tests.aws.check import Check, check
from tests.aws.scene import Scene, expect, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOTO: Final = "moto never ends a closed shard and moves its records to the children"


def _spout(scene: Scene, name: str) -> KinesisSpout:
    """Make a spout of an application of that name, which keeps its progress in the folder."""
    return KinesisSpout(
        stream=scene.stream,
        app=name,
        scheme="raw",
        zookeeper=f"embedded:{scene.folder / 'zookeeper'}",
        dead_letters=str(scene.folder / "dead-letters"),
        initial_position="trim_horizon",
        **scene.settings,
    )


def _take(scene: Scene, name: str, until: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Take and ack tuples until the condition holds, and close the spout."""
    taken: list[bytes] = []
    with _spout(scene, name).open() as spout:

        def is_enough() -> bool:
            while not until(taken) and (emitted := spout.next_tuple()) is not None:
                taken.append(bytes(emitted.values.data))
                spout.ack(emitted.message_id)
            return until(taken)

        wait_until(is_enough, f"records for {name}")
    return taken


@check("a spout that is opened again goes on after the last record that it acked", asks="java")
def _restart(scene: Scene) -> None:
    payloads = scene.put_numbered("restart", 40)
    first = _take(scene, "restarts", lambda taken: sum(data in payloads for data in taken) >= 15)
    rest = _take(scene, "restarts", lambda taken: sum(data in payloads for data in [*first, *taken]) >= 40)
    both = [data for data in [*first, *rest] if data in payloads]
    expect(sorted(both) == sorted(payloads), f"expected each of 40 records once, got {len(both)}")


@check("a spout reads every record of a stream that was split and merged, once", moto=_MOTO, asks="java")
def _lineage(scene: Scene) -> None:
    wanted = {
        f"{name}-{number}".encode()
        for name in ("before-split", "before-merge", "after-merge")
        for number in range(20)
    }
    taken = _take(scene, "lineage", wanted.issubset)
    found = [data for data in taken if data in wanted]
    expect(len(found) == len(wanted), f"expected each of {len(wanted)} records once, got {len(found)}")


@check(
    'spark.read.format("kinesis") has what df.write put, and micro-batches hand it to executors', asks="spark"
)
def _on_spark(scene: Scene) -> None:
    spark = _session(scene.folder)
    try:
        run = uuid.uuid4().hex
        wanted = {f"spark-{run}-{number}" for number in range(50)}
        frame = spark.createDataFrame(
            [(text.encode(), text) for text in wanted], "data binary, partitionKey string"
        )
        frame.write.format("kinesis").options(**scene.options, streamName=scene.stream).mode("append").save()
        _read_in_a_batch(scene, spark, wanted)
        _handle_on_executors(scene, spark, wanted)
    finally:
        spark.stop()


def _session(folder: Path) -> "SparkSession":
    from kinesis_spout.spark import session  # noqa: PLC0415 - PySpark is slow to import, and not always asked for

    started = session(
        "kinesis-spout-aws",
        "local[2]",
        spark__ui__enabled="false",
        spark__driver__bindAddress="127.0.0.1",
        spark__driver__host="127.0.0.1",
        spark__sql__warehouse__dir=str(folder / "warehouse"),
    )
    started.sparkContext.setLogLevel("OFF")
    return started


def _read_in_a_batch(scene: Scene, spark: "SparkSession", wanted: set[str]) -> None:
    found: list[str] = []

    def has_all() -> bool:  # an arrival of this very moment may be beyond the end of the plan
        frame = spark.read.format("kinesis").options(**scene.options, streamName=scene.stream).load()
        found[:] = [bytes(row.data).decode(errors="replace") for row in frame.select("data").collect()]
        return wanted.issubset(found)

    wait_until(has_all, "the written rows in a batch read")
    expect(sum(text in wanted for text in found) == len(wanted), "expected each written row once")


def _handle_on_executors(scene: Scene, spark: "SparkSession", wanted: set[str]) -> None:
    folder = scene.folder / "handled"
    folder.mkdir()

    def note(record: Any) -> None:
        text = bytes(record.data).decode(errors="replace")
        if text.startswith("spark-"):
            (folder / text).touch()

    query = _spout(scene, "micro-batches").foreach_record(spark, note)
    try:
        wait_until(
            lambda: wanted.issubset(path.name for path in folder.iterdir()),
            "the written rows in micro-batches",
        )
    finally:
        query.stop()


CHECKS: Final[tuple[Check, ...]] = (_restart, _on_spark)
AFTER_RESHARDING: Final[tuple[Check, ...]] = (_lineage,)
