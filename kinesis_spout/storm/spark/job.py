"""One Spark job for a micro-batch, whatever its spout is: stages, an exchange between each two, and ackers.

    first stage > exchange > stage ... > exchange > ackers > results

All that leaves a stage passes one exchange, packed in blocks by target, also what a later stage only passes
on. So what is for the driver comes out at the end, once. Without a grouping that needs an exchange there is
one stage, which decides its trees itself.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.spark.tasks.jobs import cancel, has_begun, tagged
from kinesis_spout.storm.running.blocks import Block, CountsBlock, Keyed
from kinesis_spout.storm.running.clocks import Ticks
from kinesis_spout.storm.running.counts import ComponentCounts, RunningCounts
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.spark.kept_runs import ShippedProgram
from kinesis_spout.storm.spark.stages import LaterStage, SeenRuns, StateFailed, contradict, run_acker
from kinesis_spout.storm.state.manifest import StateManifest

_OTHER_SHUFFLES: Final = ("spark.shuffle.manager", "spark.shuffle.push.enabled")
"""With one of these set, a shuffle can join what several tasks have written. What Java's serializer
writes cannot be joined, and Spark looks at ``spark.serializer`` alone to know that.
Source: Spark's ``Serializer.supportsRelocationOfSerializedObjects``, and SPARK-36705."""
_LOOK_SECONDS: Final = 1.0

_log: Final = logging.getLogger(__name__)

FirstStage = Callable[[Iterable[Any]], Iterator[Keyed]]


class TopologyJobs:
    """Runs the jobs of one spout of a topology, and counts what the components do. Mutable; thread-safe."""

    def __init__(self, context: SparkContext, program: Program, state: str | None) -> None:
        self._context = context
        self._program = program
        self.shipped = ShippedProgram(program, state)
        self.shipped_one_by_one = None if state is None else ShippedProgram(program.one_by_one(), state)
        self._is_java_for_bytes = not any(map(context.getConf().contains, _OTHER_SHUFFLES))
        self._lock = threading.Lock()
        self._counts = RunningCounts(monotonic)

    @property
    def counts(self) -> dict[str, ComponentCounts]:
        """Since the start; what was timed, in the last ten minutes. A copy."""
        with self._lock:
            return self._counts.since_start()

    def run(
        self,
        tag: str,
        packs: Sequence[Any],
        first: FirstStage,
        *,
        ticks: Ticks,
        state: StateManifest | None = None,
    ) -> list[Block]:
        """Run a job of all stages, and give its results. Raises as ``BatchRunner.run``, and StateError.

        ``packs`` has one element for each task of the first stage; ``state`` is what the bolts with state
        begin with.
        """
        program = self._program
        with tagged(self._context, tag):
            travelling: RDD[Keyed] = self._context.parallelize(packs, len(packs)).mapPartitions(first)
            for stage in range(1, len(program.plan.stages)):
                later = LaterStage(shipped=self.shipped, stage=stage, state=state, ticks=ticks)
                travelling = self._exchanged(travelling, program.partitions).mapPartitions(later)
            if program.plan.exchanges and program.ackers:
                found = self._exchanged(travelling, program.ackers).mapPartitions(run_acker).collect()
            else:
                found = travelling.values().collect()
        self._take_in(found)
        if contradict(block for block in found if isinstance(block, SeenRuns)):
            raise HandlerKilledWorker(
                f"job {tag}: an executor was lost, and Spark ran a part of the job again"
            )
        return found

    def run_one_by_one(self, tag: str, pack: Any, only: FirstStage) -> list[Block]:
        with tagged(self._context, tag):
            found = self._context.parallelize([pack], 1).mapPartitions(only).values().collect()
        self._take_in(found)
        return found

    def _exchanged(self, blocks: RDD[Keyed], partitions: int) -> RDD[Keyed]:
        exchanged = blocks.partitionBy(partitions, _as_told)
        if self._is_java_for_bytes:
            try:
                _write_with_java(self._context, exchanged)
            except Py4JNetworkError:
                raise
            except (AttributeError, TypeError, Py4JError) as error:
                self._is_java_for_bytes = False
                _log.warning(
                    "this Spark lets nobody choose how an exchange is written, so that small micro-batches take "
                    "more CPU: %r",
                    error,
                )
        return exchanged

    def count_trees(self, ended: int, *, unfinished: int, timed_out: int, seconds: float) -> None:
        counts = ComponentCounts.of_trees(ended, unfinished=unfinished, timed_out=timed_out, seconds=seconds)
        with self._lock:
            self._counts.add(self._program.plan.spout, counts)

    def _take_in(self, found: Iterable[Block]) -> None:
        """Add the counts. Raises why the state could not be loaded or kept, if so: damage before outages."""
        errors = []
        with self._lock:
            for block in found:
                if isinstance(block, StateFailed):
                    errors.append(block.error)
                elif isinstance(block, CountsBlock):
                    for component, counts in block.counts.items():
                        self._counts.add(component, counts)
        if errors:
            raise min(errors, key=lambda error: error.retriable)


def _write_with_java(context: SparkContext, exchanged: RDD[Keyed]) -> None:
    """Make an exchange write its bytes by Java's serializer. PySpark has no public way.

    For bytes Spark itself takes Kryo, and each task sets up its own serializers: a third of what its threads
    do in a small job. Java's serializer has no such set-up, and all it writes are arrays of bytes.
    """
    jvm: Any = context._jvm  # noqa: SLF001 - as said above
    java = jvm.org.apache.spark.serializer.JavaSerializer(context._jsc.sc().conf())  # noqa: SLF001
    exchanged._jrdd.rdd().dependencies().head().rdd().setSerializer(java)  # noqa: SLF001


def _as_told(partition: int) -> int:
    return partition


class JobGuard:
    """Cancels the job of an own spout that takes too long; the engine does so for jobs of a ``KinesisSpout``.

    A context manager around one job. While other jobs have the cluster, no component is to blame for the
    time. So the ``seconds`` count from when the first task was seen to run; Spark is asked once a second.
    """

    def __init__(self, spark: SparkContext, tag: str, seconds: float) -> None:
        self._spark = spark
        self._tag = tag
        self._seconds = seconds
        self._ended = threading.Event()
        self.has_cancelled = False

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
