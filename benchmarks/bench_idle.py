"""What a query costs while nothing comes: a started spout on shards at their tip, left alone.

With 8 shards the record door on Spark: its driver's Python polls the shards, keeps its ZooKeeper session and looks
after its work; the JVM has no job to run. Both are counted, the endpoint and the embedded ZooKeeper, which are
servers of others, are not. The reference is a session with no query.

With 1,000 shards each door: the record door, ``format("kinesis")`` and the plain one, whose caller asks for a
tuple twenty times a second.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from canned_kinesis import CannedKinesis
from figures import Figure, ProcessTree
from local_spark import local_session, spark_processes, spout_config
from pyspark.sql import SparkSession

from kinesis_spout import KinesisSpout

SHARDS = 8
MANY_SHARDS = 1000
GOAL_PERCENT = 3.0
MANY_GOAL_PERCENT = 15.0
_SETTLE_SECONDS = 8.0
"""Until polls have become rare and the JVM has compiled what it starts with."""
_ASK_EVERY_SECONDS = 0.05
_QUIET_PERCENT = 5.0
_DEADLINE_SECONDS = 180.0


def figures(*, quick: bool) -> Iterator[Figure]:
    seconds = 8.0 if quick else 20.0
    with (
        CannedKinesis() as kinesis,
        tempfile.TemporaryDirectory() as directory,
        local_session() as spark,
    ):
        jvm = spark_processes(spark)

        def used() -> tuple[float, float]:
            driver, beside = time.process_time(), jvm.cpu_seconds()
            time.sleep(seconds)
            return (
                (time.process_time() - driver) / seconds * 100,
                (jvm.cpu_seconds() - beside) / seconds * 100,
            )

        spout = KinesisSpout(spout_config(kinesis.settings, f"shards-{SHARDS}-idle", Path(directory)))
        with spout.foreach_record(spark, lambda _record: None) as query:
            time.sleep(_SETTLE_SECONDS)
            driver, beside = used()
            assert query.isActive, str(query.exception())
        _, without = used()
        many = list(_many(spark, kinesis, Path(directory), seconds))
    name = f"{SHARDS} idle shards"
    yield Figure(what=f"{name}: driver's Python", value=driver, unit="% of a core")
    yield Figure(what=f"{name}: JVM and Python workers", value=beside, unit="% of a core")
    yield Figure(what="JVM and Python workers without a query", value=without, unit="% of a core")
    total = driver + beside
    yield Figure(
        what=f"{name}: in sum",
        value=total,
        unit="% of a core",
        at_most=GOAL_PERCENT,
    )
    yield from many


def _many(spark: SparkSession, kinesis: CannedKinesis, place: Path, seconds: float) -> Iterator[Figure]:
    """Yield what many idle shards cost in each door."""
    jvm = spark_processes(spark)

    def spent() -> float:
        return time.process_time() + jvm.cpu_seconds()

    def left_alone() -> float:
        _until_quiet(jvm)
        time.sleep(_SETTLE_SECONDS)
        before = spent()
        time.sleep(seconds)
        return (spent() - before) / seconds * 100

    without = left_alone()
    stream = f"shards-{MANY_SHARDS}-idle"
    spout = KinesisSpout(spout_config(kinesis.settings, stream, place, app="many"))
    with spout.foreach_record(spark, lambda _record: None) as query:
        record_door = left_alone()
        assert query.isActive, str(query.exception())
    frame = (
        spark.readStream.format("kinesis")
        .options(
            streamName=stream,
            region=kinesis.settings.region,
            endpointUrl=kinesis.url,
            awsAccessKey=kinesis.settings.aws_access_key_id,
            awsSecretKey=kinesis.settings.aws_secret_access_key,
            initialPosition="trim_horizon",
            pageServerHost="127.0.0.1",
        )
        .load()
    )
    started = frame.writeStream.format("noop").option("checkpointLocation", str(place / "many")).start()
    try:
        structured = left_alone()
        assert started.isActive, str(started.exception())
    finally:
        started.stop()
    plain = _plain(kinesis, stream, place, seconds)
    for door, value in (("foreach_record", record_door), ('format("kinesis")', structured)):
        yield Figure(
            what=f"{MANY_SHARDS:,} idle shards: {door}, all processes",
            value=value,
            unit="% of a core",
            at_most=MANY_GOAL_PERCENT,
            note=f"{without:.1f} % without a query",
        )
    yield Figure(
        what=f"{MANY_SHARDS:,} idle shards: plain door",
        value=plain,
        unit="% of a core",
        at_most=MANY_GOAL_PERCENT,
    )


def _plain(kinesis: CannedKinesis, stream: str, place: Path, seconds: float) -> float:
    with KinesisSpout(spout_config(kinesis.settings, stream, place, app="plain")).open() as spout:

        def asked_for(seconds: float) -> None:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                assert spout.next_tuple() is None
                time.sleep(_ASK_EVERY_SECONDS)

        asked_for(_SETTLE_SECONDS + 4.0)  # the first pages of all
        before = time.process_time()
        asked_for(seconds)
        return (time.process_time() - before) / seconds * 100


def _until_quiet(jvm: ProcessTree) -> None:
    """Wait until the JVM has no job any more, as after the first reads of all shards."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        before = jvm.cpu_seconds()
        time.sleep(2.0)
        if (jvm.cpu_seconds() - before) / 2.0 * 100 < _QUIET_PERCENT:
            return
        assert time.monotonic() < deadline, "expected the JVM to come to rest"
