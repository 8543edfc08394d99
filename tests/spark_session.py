"""One SparkSession for the whole test run."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kinesis_spout.spark import session


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
