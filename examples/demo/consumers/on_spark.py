"""The consumer on Spark: a session and one query on it.

It is started as ``python -m examples.demo.consumers.on_spark SETTINGS`` and stops in order when its standard input
ends.
"""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from examples.demo.consumers.settings import STATUS_SECONDS, ConsumerSettings, ConsumerStatus, input_ended
from kinesis_spout import KinesisSpout, session
from kinesis_spout.spark.sessions import socket_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def consume(settings: ConsumerSettings) -> None:
    """Run the query until standard input ends, or the query does."""
    directory = Path(settings.directory)
    started = time.monotonic()
    spark = local_session(directory)
    now = time.monotonic()
    status = ConsumerStatus(joined_at=now, spark_seconds=now - started)
    status.tell(settings)
    with KinesisSpout(config=settings.spout_config()).foreach_record(spark, settings.handler()) as query:
        while query.isActive and not input_ended(STATUS_SECONDS):
            status.now(query.shards(), query.last_error).tell(settings)
    error = query.exception()
    if error is not None:
        raise error
    spark.stop()


def local_session(directory: Path) -> "SparkSession":
    """Start Spark on this machine, with all that it leaves in a folder that goes with the demo."""
    spark = session(
        "demo",
        "local[2]",
        spark__ui__enabled="false",
        # A JVM that is killed leaves its files behind; here they go with the rest.
        spark__local__dir=str(directory),
        # A JVM that lives for seconds never earns back the slow compiler.
        spark__driver__extraJavaOptions=f"-Djava.io.tmpdir={directory} -XX:-UsePerfData "
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__driver__host="127.0.0.1",
        spark__driver__bindAddress="127.0.0.1",
        **(socket_settings(directory) or {"spark.python.unix.domain.socket.dir": str(directory)}),
    )
    spark.sparkContext.setLogLevel("WARN")
    return spark


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    consume(ConsumerSettings.of_command_line())
