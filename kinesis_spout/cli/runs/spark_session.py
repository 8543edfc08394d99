"""The Spark session of what a command runs, and the options that every such command has."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinesis_spout.cli.failures import SparkFailed
from kinesis_spout.cli.output import note
from kinesis_spout.cli.runs.progress_views import LogLevel
from kinesis_spout.cli.runs.spark_output import LOG, SparkOutput
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.zookeeper.java_server import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None,
    typer.Option(
        help='Where Spark runs: "local[2]", "spark://...". Unset: as spark-submit or spark-defaults say.',
        show_default=False,
    ),
]
PyFiles = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A .py or .zip file to send to the executors; repeatable."),
]
FailOnDeadLetters = Annotated[
    bool,
    typer.Option("--fail-on-dead-letters", help="End with exit code 7 if records were dead-lettered."),
]
SparkLog = Annotated[
    bool,
    typer.Option("--spark-log", help=f"Show what Spark prints at its start, which else goes to {LOG}."),
]
LogAtLeast = Annotated[
    LogLevel,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="The least that is logged, on standard error: debug, info (the spout's life), warning or error.",
    ),
]
NoProgress = Annotated[
    bool, typer.Option("--no-progress", help="Show no progress, only a line when the state changes.")
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print a line of JSON on standard output each second.")
]


def existing(py_files: Sequence[Path]) -> Sequence[Path]:
    missing = [str(path) for path in py_files if not path.exists()]
    if missing:
        raise WrongArguments(f"--py-files: expected files that exist, got {', '.join(missing)}")
    find_java()
    return py_files


@contextmanager
def running_spark(
    app_name: str, master: str | None, py_files: Sequence[Path], *, spark_log: bool = False
) -> Iterator["SparkSession"]:
    """Start Spark as ``start_spark`` does, and stop it at the end.

    A signal to the whole process group, as ``timeout`` sends it, has already ended its JVM.
    """
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - PySpark is slow to import

    output = SparkOutput(shown=spark_log)
    spark = start_spark(app_name, master, py_files, output)
    output.started()
    try:
        yield spark
    finally:
        try:
            spark.stop()
        except (Py4JNetworkError, ConnectionError):
            note("Spark's JVM had already ended, perhaps by the same signal")
        output.drain()


def start_spark(
    app_name: str, master: str | None, py_files: Sequence[Path], output: SparkOutput
) -> "SparkSession":
    # What py4j logs it raises too; a Ctrl-C during a call would show as three tracebacks.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 - PySpark is slow to import
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    from kinesis_spout.spark.sessions import session, session_settings  # noqa: PLC0415

    try:
        conf = SparkConf().setAll(list(session_settings(app_name, master).items()))
        with output.given_to() as streams:
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
        spark = session(app_name, master)
    except (PySparkException, Py4JError) as error:
        told = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        reason = told.strip().partition("\n")[0]
        where = "" if master is None else f" at {master}"
        text = output.failed()
        typer.echo(text, err=True, nl=False)
        kept = f" and in {LOG}" if text else ""
        raise SparkFailed(
            f"Spark did not start{where}: {reason}; its own messages are above{kept}, --debug shows more"
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    for path in py_files:
        spark.sparkContext.addPyFile(str(path))
    return spark
