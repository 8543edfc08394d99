"""The Spark session of ``run``."""

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
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 - PySpark is slow to import
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from kinesis_spout.spark.session import session  # noqa: PLC0415

    try:
        spark = session(app_name, master)
    except (PySparkException, Py4JError) as error:
        told = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        reason = told.strip().partition("\n")[0]
        where = "" if master is None else f" at {master}"
        raise SparkFailed(
            f"Spark did not start{where}: {reason}; its own messages are above, --debug shows more"
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    for path in py_files:
        spark.sparkContext.addPyFile(str(path))
    return spark
