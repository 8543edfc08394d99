"""Runs a micro-batch as one Spark job, and distinguishes a job that died from one that is broken.

A job *dies* when a Python worker or executor ends under it, or when it is cancelled for outliving the message
time-out: its slices are planned again. It is *broken* when our code or the user's fails outside of a record
(a handler that cannot be unpickled, a missing module on the executors), or when Spark itself is gone: trying
again cannot help, and blaming records would dead-letter the stream. So that is an error of the query.
"""

import logging
import secrets
from collections.abc import Sequence
from itertools import dropwhile, takewhile
from typing import Final, Protocol

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PythonException

from kinesis_spout.model.errors import HandlerKilledWorker, InvalidConfig, KinesisSpoutError
from kinesis_spout.processes.executor_python import unfit_python
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice

WORTH_A_TASK_SECONDS: Final = 0.01
"""The handling time that justifies another task, which costs some 4 ms of CPU."""

_WORKER_GONE: Final = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "cancelled",
    "canceled",
    "java.net.SocketException",
    "java.io.EOFException",
    "java.lang.OutOfMemoryError",
    "TASK_KILLED",
)
_SPARK_GONE: Final = (
    "stopped SparkContext",
    "SparkContext was shut down",
    "SparkContext has been shut down",
    "SparkContext was stopped",
)
_ROWS_GONE: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = "org.apache.spark.api.python.PythonException"

_log = logging.getLogger(__name__)


class HandlerBroken(KinesisSpoutError):  # noqa: N818 - a query's end, told in the package's tree
    """The handler fails outside of any record: it, or what it needs, cannot be loaded on the executors."""


class HandlerRaised(HandlerKilledWorker):
    """A DataFrame handler raised: its batch failed as a whole, and the executors are well."""


class SparkGone(KinesisSpoutError):  # noqa: N818
    """The SparkContext was stopped, or its JVM has ended: no job can run, and no record is to blame."""


class Ticks(Protocol):
    """Work of a runner at certain times in the micro-batch at hand, or in one without slices."""

    @property
    def due_at(self) -> float | None:
        """When to run a batch even without records; monotonic. None: never."""
        ...

    def advance(self, now: float, read_to: float | None = None) -> None:
        """A batch is about to run. Called by one thread; monotonic times.

        Everything put before ``read_to`` has gone out, with this batch; None: unknown.
        """
        ...


class BatchRunner(Protocol):
    """Runs one micro-batch; several can run at a time, each on its own thread."""

    @property
    def ticks(self) -> Ticks | None:
        """None: nothing is timed."""
        ...

    @property
    def worth_a_task_seconds(self) -> float:
        """The handling time that justifies another task."""
        ...

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        """Run the slices, packed by task, and wait for all of them; no slices only where there are ``ticks``.

        Raises:
            HandlerKilledWorker: the job died; nothing is known of its slices.
            HandlerRaised: nothing died, but the record to blame is unknown.
            HandlerBroken, SparkGone: these end the query.
            KinesisSpoutError: ends the query, too, unless it is retriable: then something the job needs is
                unavailable at present, no record is to blame, and its slices are planned again.
        """
        ...

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        """Return whether the outcomes of a job may be taken in; if not, its slices are planned again.

        Called under the consumer's lock, after ``run``. ``is_whole``: all its shards are still owned.
        """
        ...

    def has_begun(self, tag: str) -> bool:
        """Return whether a task of the job under ``tag`` has begun. Until then it waits for its turn."""
        ...

    def cancel(self, tag: str) -> None:
        """Make the job that runs under ``tag``, if any, die. Never raises an Exception."""
        ...

    def close(self) -> None:
        """Keep nothing for further jobs; what runs goes on. May be called twice."""
        ...


class SparkRunner:
    """A ``BatchRunner`` without ticks, for whose jobs nothing is left to do when they have ended."""

    ticks: Ticks | None = None
    worth_a_task_seconds: float = WORTH_A_TASK_SECONDS

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        del tag, is_whole
        return True

    def has_begun(self, tag: str) -> bool:
        return has_begun(self._context, tag)

    def cancel(self, tag: str) -> None:
        cancel(self._context, tag)

    def close(self) -> None:
        """Nothing is kept."""


class tagged:  # noqa: N801 - a context manager, used like a function
    """Runs Spark actions under a job tag, and translates how they fail. See ``BatchRunner.run``."""

    def __init__(self, context: SparkContext, tag: str) -> None:
        self._context = context
        self._tag = tag

    def __enter__(self) -> None:
        self._context.setJobGroup(self._tag, f"kinesis-spout {self._tag}", interruptOnCancel=True)
        self._context.addJobTag(self._tag)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (Py4JError, PySparkException, EOFError, OSError)):
            translated = translate(error)
            if not isinstance(translated, SparkGone):
                self._context.removeJobTag(self._tag)
            raise translated from error
        self._context.removeJobTag(self._tag)


def tags_of(name: str) -> str:
    """Unique, because a cancel affects all jobs under a tag. Spark allows no comma in a tag."""
    return f"{name.replace(',', ' ')}-{secrets.token_hex(3)}"


def has_begun(context: SparkContext, tag: str) -> bool:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForGroup(tag)]
    stages = [tracker.getStageInfo(int(stage_id)) for job in jobs if job for stage_id in job.stageIds]
    return any(
        stage.numActiveTasks + stage.numCompletedTasks + stage.numFailedTasks > 0 for stage in stages if stage
    )


def cancel(context: SparkContext, tag: str) -> None:
    """Cancel the jobs under a tag. If Spark is gone they are gone as well, and the stop must continue."""
    try:
        context.cancelJobsWithTag(tag)
    except (Py4JError, PySparkException, OSError, AttributeError) as error:  # AttributeError: it was stopped
        _log.warning("the jobs under %s could not be cancelled: %s", tag, _headline(_text(error)))


def translate(error: BaseException) -> KinesisSpoutError:
    """Distinguish a job that died from one that is broken, and from Spark's own end."""
    text = _text(error)
    unfit = unfit_python(text)
    if unfit is not None:
        return HandlerBroken(unfit)
    # A Python error first: its text is the user's, and can hold any of the words that indicate a dead worker.
    is_python = isinstance(error, PythonException) or _PYTHON_ERROR in text
    if isinstance(error, Py4JNetworkError) or (not is_python and any(sign in text for sign in _SPARK_GONE)):
        return SparkGone(
            f"Spark was stopped, or ended, under a running query: {_headline(text)}. Stop the query before Spark; "
            "what was not finished comes again at the next start"
        )
    if not is_python and any(sign in text for sign in _WORKER_GONE):
        return HandlerKilledWorker(f"the Spark job died: {_headline(text)}")
    if is_python or isinstance(error, PySparkException):
        return HandlerBroken(
            f"the handler cannot run on the executors: {_last_python_line(text)}. "
            "Check that what it imports is installed there, and try it on one record first"
        )
    return HandlerKilledWorker(f"the Spark job died: {_headline(text)}")


def lost_rows(error: BaseException) -> bool:
    """Return whether an action on a DataFrame failed because an executor was lost that kept rows of it."""
    return isinstance(error, (Py4JJavaError, PySparkException)) and _ROWS_GONE in _text(error)


def classic_context(spark: object) -> SparkContext:
    """Raises InvalidConfig if there is none (Spark Connect), or if it was stopped."""
    context = getattr(spark, "_sc", None)
    if not isinstance(context, SparkContext) or context._jsc is None:  # noqa: SLF001 - no public way to ask
        raise InvalidConfig(
            f"expected a running classic SparkSession, got {type(spark).__name__}: micro-batches need its "
            "SparkContext, which Spark Connect and stopped sessions do not have"
        )
    return context


def _text(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString())
    return f"{type(error).__name__}: {error}"


def _headline(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")[:500]


def _last_python_line(text: str) -> str:
    """The end of the last traceback: the error that was raised, not one that led to it; and its notes."""
    _, found, after = text.rpartition(_TRACEBACK)
    if found:
        lines = dropwhile(lambda line: not line.strip() or line.startswith(" "), after.splitlines())
        said = " ".join(line.strip() for line in takewhile(_is_said, lines))
        if said:
            return said[:500]
    lines_of_all = [line.strip() for line in text.splitlines() if _is_said(line) and not line.startswith(" ")]
    python = [line for line in lines_of_all if "Error" in line and not line.startswith(("org.", "py4j."))]
    return (python or lines_of_all or ["no reason given"])[-1][:500]


def _is_said(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("\t")
