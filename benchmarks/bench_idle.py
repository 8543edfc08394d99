"""What a query costs while nothing comes: a started spout on 8 shards at their tip, left alone.

The driver's Python polls the shards, keeps its ZooKeeper session and looks after its work; the JVM has no
job to run. Both are counted, the endpoint and the embedded ZooKeeper, which are servers of others, are not.
The reference is a session with no query.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from canned_kinesis import CannedKinesis
from figures import Figure
from local_spark import local_session, spark_processes, spout_config

from kinesis_spout import KinesisSpout

SHARDS = 8
GOAL_PERCENT = 3.0
_SETTLE_SECONDS = 8.0
"""Until polls have become rare and the JVM has compiled what it starts with."""


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
