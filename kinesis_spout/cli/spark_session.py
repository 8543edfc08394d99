"""A Spark session for ``run``: one that Ctrl-C does not reach.

A terminal sends SIGINT to every process of the foreground group. Spark's JVM ignores it, but its Python workers
do not: they would die in the middle of what the stop is meant to let them finish. So the JVM, and with it the
workers, are started in a group of their own. When this process ends, however it ends, they end too: the JVM
reads a pipe from it.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kinesis_spout.cli.failures import SparkFailed
from kinesis_spout.errors import InvalidConfig
from kinesis_spout.zookeeper.embedded import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark(app_name: str, master: str | None, py_files: Sequence[Path]) -> "SparkSession":
    """Start Spark with this package's settings, logging errors only.

    Raises:
        InvalidConfig: no Java, or a file that is not there.
        SparkFailed: it did not start.
    """
    missing = [str(path) for path in py_files if not path.exists()]
    if missing:
        raise InvalidConfig(f"--py-files: expected files that exist, got {', '.join(missing)}")
    find_java()
    from py4j.protocol import Py4JError  # noqa: PLC0415 - PySpark is slow to import
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    from kinesis_spout.spark.session import SETTINGS, session  # noqa: PLC0415

    # As ``session`` does; here it comes too late for the context.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(SETTINGS.items()))
    conf.setAppName(app_name)
    if master is not None:
        conf.setMaster(master)
    try:
        gateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
        context = SparkContext(conf=SparkConf(_jvm=gateway.jvm).setAll(conf.getAll()), gateway=gateway)
        spark = session(app_name, master)
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().partition("\n")[0]
        where = "" if master is None else f" at {master}"
        raise SparkFailed(
            f"Spark did not start{where}: {reason}; its own messages are above, --debug shows more"
        ) from error
    context.setLogLevel("ERROR")
    for path in py_files:
        context.addPyFile(str(path))
    return spark
