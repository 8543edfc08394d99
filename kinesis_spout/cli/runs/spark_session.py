"""The Spark session of a command, the output of its JVM, and the options that every such command has.

A JVM that had our standard streams would fill the terminal at its start, and write into the middle of lines. So
it writes into pipes: until Spark has started into a log file, after that where the run is shown. The output
after the start goes to ``sys.stdout`` and ``sys.stderr``: mostly what handlers print, because Spark passes
the output of its Python workers on by the JVM's standard error.
"""

import codecs
import contextlib
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TextIO

import typer

from kinesis_spout.cli.failures import SparkFailed
from kinesis_spout.cli.output import note
from kinesis_spout.cli.runs.progress_views import LogLevel
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.zookeeper.java_server import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOG: Final = Path(".kinesis-spout/spark.log")
"""Next to the embedded ZooKeeper and the dead letters, below the working directory."""

_LONGEST_LOG: Final = 1 << 20
"""Bytes, beyond which a start begins the file anew: each start adds about one kilobyte."""
_CHUNK: Final = 1 << 16
_PARTIAL_SECONDS: Final = 0.2
"""The beginning of a line waits so long for its end."""
_QUIET_SECONDS: Final = 0.1
_LONGEST_DRAIN_SECONDS: Final = 2.0
_TOLD_LINES: Final = 20
"""Lines shown of a start that failed, for those who cannot open the file: its container can be gone."""

_FRAMES: Final = ("\tat ", "\t... ")
"""Beginnings of the lines of a stack, which only the file has."""

_Name = Literal["stdout", "stderr"]


class SparkOutput:
    """The output of one JVM. Mutable; a thread for each of its two streams, which share the log under the lock."""

    def __init__(self, *, shown: bool) -> None:
        """With ``shown`` nothing goes to a log file."""
        self._shown = shown
        self._lock = threading.Lock()
        self._log: TextIO | None = None
        self._start = deque[str](maxlen=_TOLD_LINES)
        self._streams: list[_Stream] = []

    @contextlib.contextmanager
    def given_to(self) -> Iterator[dict[str, Any]]:
        """Give the arguments of ``Popen`` for the JVM, and begin to read what it prints."""
        self._log = None if self._shown else _open_log()
        ends: dict[_Name, tuple[int, int]] = {"stdout": os.pipe(), "stderr": os.pipe()}
        for name, (read, _) in ends.items():
            self._streams.append(_Stream(read, name, self._take))
        try:
            yield {name: write for name, (_, write) in ends.items()}
        finally:
            for _, write in ends.values():
                os.close(write)

    def started(self) -> None:
        """Show from now on what is printed."""
        self._end_log()

    def failed(self) -> str:
        """Like ``started``, for a start that failed; give the end of what it printed and was not shown."""
        self._end_log()
        return "".join(self._start)

    def _end_log(self) -> None:
        for stream in self._streams:
            stream.read_up()
        with self._lock:
            if self._log is not None:
                self._log.close()
            self._log = None

    def drain(self) -> None:
        """Show what is still on its way from handlers that have ended."""
        for stream in self._streams:
            stream.read_up(_QUIET_SECONDS)

    def _take(self, name: _Name, text: str) -> None:
        with self._lock:
            if self._log is not None:
                self._log.write(text)
                self._log.flush()
                lines = text.splitlines(keepends=True)
                self._start.extend(line for line in lines if not line.startswith(_FRAMES))
                return
        shown = getattr(sys, name)
        # Without a reader, as after the terminal was closed, it is dropped: a full pipe would stop the JVM.
        with contextlib.suppress(OSError, ValueError):
            shown.write(text)
            shown.flush()


class _Stream:
    """Reads one pipe, on a thread of its own and by ``read_up``; passes on whole lines while they come quickly."""

    def __init__(self, read: int, name: _Name, take: Callable[[_Name, str], None]) -> None:
        os.set_blocking(read, False)
        self._read = read
        self._name: _Name = name
        self._take = take
        self._lock = threading.Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._partial = ""
        self._ended = False
        threading.Thread(target=self._keep_reading, name=f"kinesis-spout-spark-{name}", daemon=True).start()

    def read_up(self, quiet_seconds: float = 0.0) -> None:
        """Pass on all that was printed, until nothing more comes for so long."""
        until = monotonic() + _LONGEST_DRAIN_SECONDS
        while monotonic() < until and self._comes(quiet_seconds) and self._pass_on():
            pass
        with self._lock:
            self._flush_partial()

    def _keep_reading(self) -> None:
        while not self._ended:
            if self._comes(_PARTIAL_SECONDS if self._partial else None):
                self._pass_on()
            else:
                with self._lock:
                    self._flush_partial()

    def _comes(self, seconds: float | None) -> bool:
        return not self._ended and bool(select.select([self._read], [], [], seconds)[0])

    def _pass_on(self) -> bool:
        with self._lock:
            if self._ended:
                return False
            try:
                data = os.read(self._read, _CHUNK)
            except BlockingIOError:  # the other reader was quicker
                return True
            self._ended = not data
            lines, newline, rest = (self._partial + self._decoder.decode(data)).rpartition("\n")
            self._partial = rest
            if newline:
                self._take(self._name, lines + newline)
            if self._ended or len(rest) > _CHUNK:
                self._flush_partial()
            return not self._ended

    def _flush_partial(self) -> None:
        if self._partial:
            self._take(self._name, self._partial)
            self._partial = ""


def _open_log() -> TextIO | None:
    try:
        LOG.parent.mkdir(exist_ok=True)
        fresh = LOG.exists() and LOG.stat().st_size > _LONGEST_LOG
        log = LOG.open("w" if fresh else "a", encoding="utf-8")
    except OSError as error:
        note(f"what Spark prints at its start is shown here, because {LOG} cannot be written: {error}")
        return None
    log.write(f"--- {datetime.now(UTC).isoformat(timespec='seconds')} process {os.getpid()}\n")
    return log


Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help='Where Spark runs: "local[2]", "spark://..."; without it as spark-submit or spark-defaults say.',
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
    typer.Option("--spark-log", help=f"Show what Spark prints at its start; without it that goes to {LOG}."),
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
    # py4j raises what it logs; a Ctrl-C during a call would show as three tracebacks.
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
            f"Spark did not start{where}: {reason}; its own messages are above{kept}, "
            "`kinesis-spout --debug …` shows more"
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    for path in py_files:
        spark.sparkContext.addPyFile(str(path))
    return spark
