"""A job that died is told from one that is broken."""

import pytest
from pyspark.errors import AnalysisException, PySparkRuntimeError, PythonException

from kinesis_spout.errors import HandlerKilledWorker, InvalidConfig
from kinesis_spout.spark.jobs import HandlerBroken, classic_context, translate

ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times"
)
PYTHON = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"


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


def test_a_python_error_as_pyspark_gives_it_is_a_broken_handler() -> None:
    text = "An exception was thrown from the Python worker: No module named 'cancelled_orders'"

    assert isinstance(translate(PythonException(text)), HandlerBroken)


def test_what_spark_itself_refuses_is_broken() -> None:
    assert isinstance(translate(AnalysisException("no such column")), HandlerBroken)


def test_an_error_nobody_knows_is_a_death_that_is_tried_again() -> None:
    assert isinstance(translate(OSError("the gateway is gone")), HandlerKilledWorker)


def test_a_session_without_a_context_is_refused() -> None:
    class RemoteSession:
        """Like Spark Connect's, which knows no context."""

    with pytest.raises(InvalidConfig, match=r"RemoteSession.*Spark Connect"):
        classic_context(RemoteSession())
