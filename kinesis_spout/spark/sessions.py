"""Sessions: settings that small Python tasks need, and ``format("kinesis")``.

Each setting names what it cures, with what was measured.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from kinesis_spout.model.errors import InvalidConfig, refuse_other_kind
from kinesis_spout.processes.executor_python import unfit_python
from kinesis_spout.structured.data_source import KinesisDataSource, KinesisSpoutDataSource

SETTINGS: Final = {
    # A Python task over TCP loopback stalls 40 ms; over a Unix socket it does not. Before the context starts.
    "spark.python.unix.domain.socket.enabled": "true",
    # Reused Python workers keep their imports, clients and the user's connections.
    "spark.python.worker.reuse": "true",
    # A Python worker that a handler kills should tell what it was doing.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # The console bar of a job every few hundred milliseconds is noise.
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of ``session``. For your own session, set these before it starts."""

_MOVED_IN: Final = (4, 1)
"""The PySpark that has the class below in another package than those before."""

LOCAL_CHECKPOINTS: Final = {
    # Every file of a checkpoint on a local disk is made by way of a process, ``chmod``: 60 ms a micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    + ("checkpointing." if tuple(map(int, pyspark.__version__.split(".")[:2])) >= _MOVED_IN else "")
    + "FileSystemBasedCheckpointFileManager",
}
"""For queries of Structured Streaming whose checkpoints are on a local disk, and only there: on an object store
this would write checkpoints that are not whole. It is an SQL setting, so ``spark.conf.set`` takes it too, before
a query starts."""


_LONGEST_SOCKET_FOLDER: Final = 60
"""Characters; Spark refuses more, because the path of a Unix socket is short."""
_SHORT_FOLDERS: Final = ("/tmp", "/var/tmp")  # noqa: S108 - Spark makes unguessable names in it, as it does by default


def socket_settings(temporary: Path) -> dict[str, str]:
    """Choose where Python's Unix sockets go, if the name of Spark's folder ``temporary`` is too long for them."""
    if len(str(temporary)) <= _LONGEST_SOCKET_FOLDER:
        return {}
    for folder in _SHORT_FOLDERS:
        if os.access(folder, os.W_OK | os.X_OK):
            return {"spark.python.unix.domain.socket.dir": folder}
    return {"spark.python.unix.domain.socket.enabled": "false"}


def session(app_name: str, master: str | None = None, **settings: str) -> SparkSession:
    """Start (or get) a classic SparkSession with ``SETTINGS``; yours come last and win.

    Args:
        app_name: shown in the Spark UI.
        master: "local[2]", "spark://..."; None leaves it to spark-submit and spark-defaults.
        settings: more settings, with ``__`` for the dots: ``spark__executor__memory="2g"``.
    """
    builder = SparkSession.builder
    for name, value in session_settings(app_name, master, **settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def session_settings(app_name: str, master: str | None = None, **settings: str) -> dict[str, str]:
    """Return what ``session`` starts Spark with, by Spark's names; it sets the environment of executors, too."""
    # Without it executors may start another Python, which lacks what this one has installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = {"spark.app.name": app_name} | ({} if master is None else {"spark.master": master})
    given = {name.replace("__", "."): value for name, value in settings.items()}
    return where | SETTINGS | socket_settings(Path(tempfile.gettempdir())) | given


def register(spark: SparkSession) -> None:
    """Register ``format("kinesis")`` and ``format("kinesis_spout")`` with a session, classic or Spark Connect.

    Not needed if this package is installed on the driver: Spark finds ``pyspark_kinesis`` there. It helps if
    Spark does not look there: a package from ``spark.submit.pyFiles`` or a folder added to ``sys.path``
    later. And it says what to set where the Python that Spark starts lacks this package: Spark itself only
    says that it finds no data source.

    Raises:
        InvalidConfig: the Python that Spark starts does not fit.
    """
    refuse_other_kind("spark", "a SparkSession", spark, "dataSource")
    for source in (KinesisDataSource, KinesisSpoutDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark Connect before 4.1 refuses a name that the server has found already: then all is well.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
    _check_python(spark)


def _check_python(spark: SparkSession) -> None:
    """Let Spark make a data source in the Python that it starts; this makes no call to Kinesis."""
    try:
        spark.read.format(KinesisSpoutDataSource.name()).option("streamName", "any").load()
    except (PySparkException, Py4JJavaError) as error:
        unfit = unfit_python(str(error))
        if unfit is None:
            raise
        raise InvalidConfig(unfit) from error
