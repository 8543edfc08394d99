"""Spark is not started by tests of commands, unless one lets its stand-in start."""

import logging
import signal
from typing import Self

import pytest


class FakeSpark:
    """Stands for the start of Spark, and for its session."""

    def __init__(self) -> None:
        self.may_start = False
        self.signal: signal.Signals | None = None
        """Comes while it starts."""
        self.names: list[str] = []
        """Of the applications that were started."""
        self.stopped = False

    def start(self, name: str, *_: object) -> Self:
        assert self.may_start, "Spark was started"
        self.names.append(name)
        logging.getLogger("kinesis_spout.spark").debug("starts")
        if self.signal is not None:
            signal.raise_signal(self.signal)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as a Spark context does
        return self

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    spark = FakeSpark()
    monkeypatch.setattr("kinesis_spout.cli.runs.spark_session.start_spark", spark.start)
    return spark


@pytest.fixture
def started_spark(spark: FakeSpark) -> FakeSpark:
    spark.may_start = True
    return spark


@pytest.fixture
def interrupted_spark(started_spark: FakeSpark) -> FakeSpark:
    """One during whose start Ctrl-C is pressed."""
    started_spark.signal = signal.SIGINT
    return started_spark
