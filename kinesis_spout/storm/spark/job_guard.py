"""Cancels the job of an own spout that takes too long; the engine does so for jobs of a ``KinesisSpout``."""

import threading
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from kinesis_spout.spark.tasks.jobs import cancel, has_begun

_LOOK_SECONDS: Final = 1.0


class JobGuard:
    """Used as a context manager around one job. Mutable.

    While others have the cluster, no component is to blame for the time. So it is counted from when the
    first task was seen to run; Spark is asked once a second.

    Args:
        spark: runs the job.
        tag: the job's.
        seconds: the most that it may take once it has begun.
    """

    def __init__(self, spark: SparkContext, tag: str, seconds: float) -> None:
        self._spark = spark
        self._tag = tag
        self._seconds = seconds
        self._ended = threading.Event()
        self.has_cancelled = False
        """Whether the job took too long."""

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, name=f"kinesis-spout-guard-{self._tag}", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        if self._begins() and not self._ended.wait(self._seconds):
            self.has_cancelled = True
            cancel(self._spark, self._tag)
            # Again and again: a job that is about to follow another one under the tag is not met.
            while not self._ended.wait(_LOOK_SECONDS):
                cancel(self._spark, self._tag)

    def _begins(self) -> bool:
        """Wait for the first task; False if the job ends before it is seen."""
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                if has_begun(self._spark, self._tag):
                    return True
            except (Py4JError, PySparkException, OSError, AttributeError):  # AttributeError: it was stopped
                return False  # Spark is gone, which the job says.
        return False
