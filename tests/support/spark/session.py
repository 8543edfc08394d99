"""One SparkSession for the whole test run."""

import gc
import sys
import warnings
from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql import SparkSession

from kinesis_spout.spark import session

_LEFT_BY_SPARK: Final = (
    "ignore:Exception ignored in. <socket.socket fd=[0-9]+, family=1,:pytest.PytestUnraisableExceptionWarning"
)
"""PySpark leaves the Unix socket of a result that is not read to its end to the garbage collector, which may find
it in any later test of the process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Blame no test in a process with Spark for a socket that Spark left behind in an earlier one."""
    if any("spark" in getattr(item, "fixturenames", ()) for item in items):
        for item in items:
            item.add_marker(pytest.mark.filterwarnings(_LEFT_BY_SPARK))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect those that are left before pytest does, which would end a passed run with an error."""
    for name in (
        "last_exc",
        "last_value",
        "last_traceback",
    ):  # of a failed test, whose frames hold more of them
        setattr(sys, name, None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <socket.socket fd=[0-9]+, family=1,", ResourceWarning)
        for _ in range(3):
            gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    started = session(
        "kinesis-spout-tests",
        "local[2]",
        spark__ui__enabled="false",
        spark__sql__shuffle__partitions="2",
        spark__driver__bindAddress="127.0.0.1",
        spark__driver__host="127.0.0.1",
        spark__sql__warehouse__dir=str(tmp_path_factory.mktemp("warehouse")),
        # A worker whose handler hangs is killed so soon after its task was cancelled.
        spark__python__task__killTimeout="200ms",
    )
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()
