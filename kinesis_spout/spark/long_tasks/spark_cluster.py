"""Spark's part in long tasks: how many it can run, who waits for a core, and whether its settings allow them."""

import logging
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from kinesis_spout.processes.application_server import ApplicationServer, is_local
from kinesis_spout.spark.long_tasks.held_task import HeldTask
from kinesis_spout.spark.long_tasks.long_task import LongTasks
from kinesis_spout.spark.long_tasks.long_task_runner import Jobs, LongTaskRunner
from kinesis_spout.spark.tasks.jobs import BatchRunner, cancel, tagged

_NO_ANSWER: Final = (Py4JError, PySparkException, OSError, AttributeError)
"""AttributeError: the context was stopped. The next job says it in its own way."""
_ENCRYPTION: Final = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")

_log = logging.getLogger(__name__)


class SparkCluster:
    """The ``Cluster`` of a SparkContext."""

    def __init__(self, context: SparkContext, tasks: LongTasks) -> None:
        self._context = context
        self.tasks = tasks

    def slots(self) -> int:
        try:
            scala = self._scala_context()
            profile = scala.resourceProfileManager().defaultResourceProfile()
            return int(scala.maxNumConcurrentTasks(profile))
        except _NO_ANSWER as error:
            _log.warning("Spark does not tell how many tasks can run, so none stays: %r", error)
            return 0

    def has_waiting_tasks(self) -> bool:
        try:
            # The public status is written when a task ends, or some seconds late.
            task_sets = self._scala_context().taskScheduler().rootPool().getSortedTaskSetQueue()
            return any(
                task_set.numTasks() > task_set.runningTasks() + task_set.tasksSuccessful()
                for task_set in map(task_sets.apply, range(task_sets.size()))
                if not task_set.isZombie()
            )
        except _NO_ANSWER as error:
            _log.warning("Spark does not tell which tasks wait, so no task stays: %r", error)
            return True

    def _scala_context(self) -> Any:
        """PySpark's public status has neither the slots nor the waiting tasks."""
        jvm_context: Any = self._context._jsc  # noqa: SLF001 - PySpark has no public way to its JVM
        return jvm_context.sc()

    def run(self, tag: str, task: HeldTask) -> list[str]:
        with tagged(self._context, tag):
            return self._context.parallelize([None], 1).mapPartitions(task).collect()

    def cancel(self, tag: str) -> None:
        cancel(self._context, tag)


def with_long_tasks(jobs: Jobs, context: SparkContext, *, life_seconds: float) -> BatchRunner:
    """``jobs``, with long tasks where ``life_seconds`` and the context allow them."""
    tasks = long_tasks_of(context) if life_seconds else None
    if tasks is None:
        return jobs
    return LongTaskRunner(jobs, SparkCluster(context, tasks), life_seconds=life_seconds)


def long_tasks_of(context: SparkContext) -> LongTasks | None:
    """Return those of an application; None where Spark may start a task twice, or encrypts what it sends."""
    conf = context.getConf()
    is_encrypted = any(conf.get(name, "false") == "true" for name in _ENCRYPTION)
    if conf.get("spark.speculation", "false") == "true" or (is_encrypted and not is_local(context)):
        return None
    return _long_tasks.of(context)


_long_tasks: Final = ApplicationServer(LongTasks)
