"""One Spark job for a micro-batch, whatever its spout is: stages, and an exchange between each two.

    first stage > exchange > stage ... > results
    first stage > exchange > stage ... > exchange > ackers > results, with ``ackers=N``

All that leaves a stage passes one exchange, packed in blocks by target, also what a later stage only passes
on. So what is for the driver comes out at the end, once. Without a grouping that needs an exchange there is
one stage, which decides its trees itself.

Without ackers the driver decides by what the tasks report. Any tree may fail, and then its record is needed. So
the first stage leaves the records in partitions of the last exchange that no stage reads. Only when a tree has
failed, a second job reads those of its slices: Spark still has what the exchange wrote.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.spark.tasks.jobs import cancel, has_begun, tagged
from kinesis_spout.storm.running.blocks import (
    Block,
    ChangesDoNotCount,
    CountsBlock,
    FailedResults,
    GroupBlock,
    Keyed,
    TreeReport,
)
from kinesis_spout.storm.running.clocks import Ticks
from kinesis_spout.storm.running.counts import ComponentCounts, RunningCounts
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.trees import ends_reported, place_of, results_in
from kinesis_spout.storm.spark.kept_runs import ShippedProgram
from kinesis_spout.storm.spark.stages import (
    EndedTuples,
    FindFailed,
    LaterStage,
    SeenRuns,
    StateFailed,
    blocks_of,
    contradict,
    find_groups,
    run_acker,
)
from kinesis_spout.storm.spark.tree_delivery import FailedTrees
from kinesis_spout.storm.state.manifest import StateManifest

if TYPE_CHECKING:
    from kinesis_spout.storm.running.acking import TreeEnd

_OTHER_SHUFFLES: Final = ("spark.shuffle.manager", "spark.shuffle.push.enabled")
"""With one of these set, a shuffle can join what several tasks have written. What Java's serializer
writes cannot be joined, and Spark looks at ``spark.serializer`` alone to know that.
Source: Spark's ``Serializer.supportsRelocationOfSerializedObjects``, and SPARK-36705."""
_LOOK_SECONDS: Final = 1.0

_log: Final = logging.getLogger(__name__)

FirstStage = Callable[[Iterable[Any]], Iterator[Keyed]]


class TopologyJobs:
    """Runs the jobs of one spout of a topology, and counts what the components do. Mutable; thread-safe."""

    def __init__(
        self, context: SparkContext, program: Program, state: str | None, *, has_records: bool
    ) -> None:
        """``has_records``: whether the spout's tuples are records, which the first stage reads."""
        self._context = context
        self._has_records = has_records
        self._program = program
        self.shipped = ShippedProgram(program, state)
        self.shipped_careful = None if state is None else ShippedProgram(program.carefully(), state)
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
            exchanged = travelling
            for stage in range(1, len(program.plan.stages)):
                is_last = stage == program.plan.exchanges and not program.ackers
                kept = program.partitions if is_last and program.is_tracked else 0
                later = LaterStage(shipped=self.shipped, stage=stage, state=state, ticks=ticks)
                exchanged = self._exchanged(travelling, program.partitions, kept)
                travelling = exchanged.mapPartitions(later)
            if not program.plan.exchanges:
                found: list[Block] = travelling.values().collect()
            elif program.ackers:
                found = self._exchanged(travelling, program.ackers).mapPartitions(run_acker).collect()
            else:
                found = self._context.runJob(travelling, blocks_of, range(program.partitions))
                found += self._decided(found, exchanged)
        self._take_in(found)
        if contradict(block for block in found if isinstance(block, SeenRuns)):
            raise HandlerKilledWorker(
                f"job {tag}: an executor was lost, and Spark ran a part of the job again"
            )
        return found

    def run_carefully(self, tag: str, pack: Any, only: FirstStage) -> list[Block]:
        with tagged(self._context, tag):
            found = self._context.parallelize([pack], 1).mapPartitions(only).values().collect()
        self._take_in(found)
        return found

    def _decided(self, found: Sequence[Block], exchanged: RDD[Keyed]) -> Iterator[Block]:
        """Decide the trees by what tasks report; gives those that failed, with their records."""
        reports = [block for block in found if isinstance(block, TreeReport)]
        partitions = self._program.partitions
        groups: list[Block] = []
        if any(report.ends for report in reports) and any(report.has_groups for report in reports):
            groups = self._context.runJob(exchanged, find_groups, range(partitions, 2 * partitions))
            yield from groups
        ends, has_touched = ends_reported(reports, (each for each in groups if isinstance(each, GroupBlock)))
        if has_touched:
            yield ChangesDoNotCount()
        if failed := results_in(ends):
            yield FailedResults(roots=failed)
        by_batch: defaultdict[int, dict[int, TreeEnd]] = defaultdict(dict)
        for root, end in ends.items():
            place = place_of(root)
            if place is not None:
                by_batch[place[0]][place[1]] = end
        if not by_batch:
            return
        if not self._has_records:
            yield EndedTuples(ends={number: ended[0] for number, ended in by_batch.items()})
            return
        left = sorted({partitions + batch % partitions for batch in by_batch})
        records = self._context.runJob(exchanged, FindFailed(ends=dict(by_batch)), left)
        found_ends = sum(len(block.failed) for block in records if isinstance(block, FailedTrees))
        if found_ends != sum(map(len, by_batch.values())):
            raise HandlerKilledWorker("the records that failed are gone: Spark ran a part of the job again")
        yield from records

    def _exchanged(self, blocks: RDD[Keyed], partitions: int, kept: int = 0) -> RDD[Keyed]:
        """``kept``: how many partitions more there are, for what only a failure needs."""
        exchanged = blocks.partitionBy(partitions + kept, _Partition(partitions, kept))
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


@dataclass(frozen=True, slots=True)
class _Partition:
    """Where a block goes by its key: below 0 it is for the partitions that are kept, if there are any."""

    partitions: int
    kept: int

    def __call__(self, key: int) -> int:
        if key < 0 and self.kept:
            return self.partitions + ~key % self.kept
        return key % self.partitions


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
