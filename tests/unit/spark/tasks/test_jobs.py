"""A job that died is told from one that is broken."""

import sys
from typing import TYPE_CHECKING, cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkRuntimeError, PythonException

from kinesis_spout.model.errors import HandlerKilledWorker, InvalidConfig
from kinesis_spout.spark.tasks.jobs import (
    HandlerBroken,
    SparkGone,
    cancel,
    classic_context,
    tags_of,
    translate,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times"
)
PYTHON = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"

OTHER_VERSION = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark "
    "cannot run with different minor versions."
)


@pytest.mark.parametrize(
    "text",
    [
        f"{ABORTED}: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        f"{ABORTED}: ExecutorLostFailure (executor 1 exited)",
        "org.apache.spark.SparkException: Job 3 cancelled part of cancelled job tag billing-3",
        "java.net.SocketException: Connection reset",
    ],
)
def test_a_worker_that_went_away_or_was_cancelled_is_a_death(text: str) -> None:
    assert isinstance(translate(PySparkRuntimeError(text)), HandlerKilledWorker)


@pytest.mark.parametrize(
    "last_line",
    [
        "ModuleNotFoundError: No module named 'orders'",
        "ModuleNotFoundError: No module named 'cancelled_orders'",
        "ValueError: java.io.EOFException",
    ],
)
def test_a_python_error_is_a_broken_handler_whatever_its_words(last_line: str) -> None:
    error = translate(PySparkRuntimeError(f'{ABORTED}: {PYTHON}  File "x.py", line 1\n{last_line}\n'))

    assert isinstance(error, HandlerBroken)
    assert last_line in str(error)
    assert "installed" in str(error)


def test_an_error_is_told_with_its_notes_and_not_the_one_that_led_to_it() -> None:
    first = (
        f'{PYTHON}  File "x.py", line 1, in get\n    open(path)\n    ^^^^\nFileNotFoundError: no such file\n'
    )
    text = (
        f"{ABORTED}: {first}\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "y.py", line 2, in load\n    raise StateUnreadable(path)\n'
        "kinesis_spout.model.errors.StateUnreadable: /state/3.arrow: no such file. Restore it from a backup\n"
        "raised by prepare of component 'count', task 3\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.handle\n\nDriver stacktrace:"
    )
    error = translate(PySparkRuntimeError(text))

    assert isinstance(error, HandlerBroken)
    said = "StateUnreadable: /state/3.arrow: no such file. Restore it from a backup raised by prepare of component"
    assert said in str(error)
    for other in ("FileNotFoundError", "Driver", "org.apache"):
        assert other not in str(error)


def test_a_python_error_as_pyspark_gives_it_is_a_broken_handler() -> None:
    text = "An exception was thrown from the Python worker: No module named 'cancelled_orders'"

    assert isinstance(translate(PythonException(text)), HandlerBroken)


@pytest.mark.parametrize(
    "text",
    [
        f"{ABORTED}: {PYTHON}ModuleNotFoundError: No module named 'pyarrow'\n",
        f"{ABORTED}: {PYTHON}ModuleNotFoundError: No module named 'kinesis_spout'\n",
        f"{ABORTED}: {PYTHON}PySparkRuntimeError: {OTHER_VERSION}\n",
        f'{ABORTED}: java.io.IOException: Cannot run program "/home/me/python": error=2, No such file\n',
    ],
    ids=["lacks a dependency", "lacks this package", "another version", "is not there"],
)
def test_an_unfit_python_on_the_executors_is_told_in_one_line_with_what_to_set(text: str) -> None:
    error = translate(PySparkRuntimeError(text + "\tat org.apache.spark.SomeClass\n"))

    assert isinstance(error, HandlerBroken)
    assert "PYSPARK_PYTHON" in str(error)
    assert sys.executable in str(error)
    assert "\n" not in str(error)
    assert "org.apache" not in str(error)


def test_a_module_that_only_the_handler_needs_is_no_matter_of_the_python() -> None:
    error = translate(
        PySparkRuntimeError(f"{ABORTED}: {PYTHON}ModuleNotFoundError: No module named 'orders'\n")
    )

    assert "PYSPARK_PYTHON" not in str(error)


def test_queries_of_the_same_name_have_other_tags_so_that_a_cancel_meets_one_of_them() -> None:
    assert tags_of("billing") != tags_of("billing")
    assert tags_of("billing").startswith("billing-")
    assert "," not in tags_of("orders, returns")


def test_what_spark_itself_refuses_is_broken() -> None:
    assert isinstance(translate(AnalysisException("no such column")), HandlerBroken)


@pytest.mark.parametrize(
    "error",
    [
        PySparkRuntimeError(
            "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
            "This stopped SparkContext was created at: ..."
        ),
        PySparkRuntimeError(
            "org.apache.spark.SparkException: Job 3 cancelled because SparkContext was shut down"
        ),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
    ids=["stopped", "shut down amid a job", "its JVM ended"],
)
def test_the_end_of_spark_itself_is_nobodys_death(error: Exception) -> None:
    """Taken for a death, it would be tried again, halved, and blamed on record after record."""
    assert isinstance(translate(error), SparkGone)


@pytest.mark.parametrize(
    "error",
    [AttributeError("'NoneType' object has no attribute 'sc'"), Py4JNetworkError("Connection refused")],
    ids=["stopped", "its JVM ended"],
)
def test_a_cancel_after_sparks_own_end_keeps_nobody_from_stopping(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class ContextThatIsGone:
        def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
            del tag
            raise error

    cancel(cast("SparkContext", ContextThatIsGone()), "billing-3")

    assert "billing-3" in caplog.text


def test_an_error_nobody_knows_is_a_death_that_is_tried_again() -> None:
    assert isinstance(translate(OSError("the gateway is gone")), HandlerKilledWorker)


def test_a_session_without_a_context_is_refused() -> None:
    class RemoteSession:
        """Like Spark Connect's, which knows no context."""

    with pytest.raises(InvalidConfig, match=r"RemoteSession.*Spark Connect"):
        classic_context(RemoteSession())
