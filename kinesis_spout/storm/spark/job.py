"""One Spark job for a micro-batch, whatever its spout is: stages, and an exchange between each two.

    first stage > exchange > stage ... > results
    first stage > exchange > stage ... > exchange > ackers > results, with ``ackers=N``

All that leaves a stage passes one exchange, packed in blocks by target, also what a later stage only passes
on. So what is for the driver comes out at the end, once. Without a grouping that needs an exchange there is
one stage, which decides its trees itself.

The driver decides by what the tasks, or the ackers, report. Any tree may fail, and then its record is needed. So
the first stage leaves the records in partitions of the last exchange that no stage reads. Only when a tree has
failed, a second job reads those of its slices: Spark still has what the exchange wrote.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Self

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import RDD, SparkContext

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.spark.tasks.jobs import tagged
from kinesis_spout.spark.tasks.work import WorkResult
from kinesis_spout.storm.running.blocks import Block, GroupBlock, Keyed, StageReport
from kinesis_spout.storm.running.clocks import BatchTicks
from kinesis_spout.storm.running.counts import ComponentCounts, RunningCounts
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.trees import TreeVerdict, verdict_of
from kinesis_spout.storm.spark.kept_runs import ShippedProgram
from kinesis_spout.storm.spark.stages import (
    FindFailed,
    LaterStage,
    SeenRuns,
    StateReport,
    blocks_of,
    contradict,
    find_groups,
    run_acker,
)
from kinesis_spout.storm.spark.tree_delivery import FailedTree, FailedTrees, SliceBlock, with_failed
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate

_OTHER_SHUFFLES: Final = ("spark.shuffle.manager", "spark.shuffle.push.enabled")
"""With one of these set, a shuffle can join what several tasks have written. The output of Java's serializer
cannot be joined, and Spark looks at ``spark.serializer`` alone to know that. Source: Spark's
``Serializer.supportsRelocationOfSerializedObjects``, and SPARK-36705."""

_log: Final = logging.getLogger(__name__)

FirstStage = Callable[[Iterable[Any]], Iterator[Keyed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a job of all stages."""

    slices: list[WorkResult]
    """With the trees that failed."""
    verdict: TreeVerdict
    updates: list[StateUpdate]
    do_changes_count: bool
    """True if what it has changed of the state may count; of a careful run it always may."""
    is_cut: bool
    """True if records were delivered that come again, because more have failed than can be kept."""

    @classmethod
    def of(cls, found: Sequence[Block], verdict: TreeVerdict) -> Self:
        failed: defaultdict[int, list[FailedTree]] = defaultdict(list)
        for block in found:
            if isinstance(block, FailedTrees):
                failed[block.batch] += block.failed
        slices = [block for block in found if isinstance(block, SliceBlock)]
        results = [with_failed(block.result, failed[block.batch], block.expired_at) for block in slices]
        states = [block for block in found if isinstance(block, StateReport)]
        return cls(
            slices=results,
            verdict=verdict,
            updates=[update for each in states for update in each.updates],
            do_changes_count=not verdict.has_touched and all(each.is_fit for each in states),
            is_cut=any(
                result.outcome.count < block.result.outcome.count
                for result, block in zip(results, slices, strict=True)
            ),
        )


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
        self.careful = None if state is None else ShippedProgram(program.carefully(), state)
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
        ticks: BatchTicks,
        state: StateManifest | None = None,
        carefully: bool = False,
    ) -> JobResult:
        """Run a job of all stages. Raises as ``BatchRunner.run``, and StateError.

        ``packs`` has one element for each task of the first stage; ``state`` is what the bolts with state
        begin with. ``carefully``: the first stage is that of ``careful``, the only one.
        """
        program = self._program
        exchanges = 0 if carefully else program.plan.exchanges
        kept = program.partitions if program.is_tracked else 0
        with tagged(self._context, tag):
            travelling: RDD[Keyed] = self._context.parallelize(packs, len(packs)).mapPartitions(first)
            exchanged: RDD[Keyed] | None = None
            for stage in range(1, exchanges + 1):
                is_last = stage == exchanges and not program.ackers
                later = LaterStage(shipped=self.shipped, stage=stage, state=state, ticks=ticks)
                exchanged = self._exchanged(travelling, program.partitions, kept if is_last else 0)
                travelling = exchanged.mapPartitions(later)
            tasks = program.partitions if exchanges else len(packs)
            if exchanges and program.ackers:
                tasks = program.ackers
                exchanged = self._exchanged(travelling, tasks, kept)
                travelling = exchanged.mapPartitions(run_acker)
            found: list[Block] = self._context.runJob(travelling, blocks_of, range(tasks))
            verdict, failed = self._decided(found, exchanged, tasks)
            found += failed
        self._take_in(found)
        if contradict(block for block in found if isinstance(block, SeenRuns)):
            raise HandlerKilledWorker(
                f"job {tag}: an executor was lost, and Spark ran a part of the job again"
            )
        return JobResult.of(found, verdict)

    def _decided(
        self, found: Sequence[Block], exchanged: RDD[Keyed] | None, tasks: int
    ) -> tuple[TreeVerdict, list[Block]]:
        """Decide the trees by what tasks, or ackers, report; give the records of those that failed, too.

        Those records are in partitions behind those of the ``tasks``. Without an exchange the tasks have
        found the records themselves.
        """
        reports = [block for block in found if isinstance(block, StageReport)]
        groups: list[Block] = []
        partitions = self._program.partitions
        if exchanged is None:
            return verdict_of(reports), groups
        if any(report.ends for report in reports) and any(report.has_groups for report in reports):
            groups = self._context.runJob(exchanged, find_groups, range(tasks, tasks + partitions))
        verdict = verdict_of(reports, (each for each in groups if isinstance(each, GroupBlock)))
        if not verdict.ends or not self._has_records:
            return verdict, groups
        left = sorted({tasks + batch % partitions for batch in verdict.ends})
        records = self._context.runJob(exchanged, FindFailed(ends=verdict.ends), left)
        found_ends = sum(len(block.failed) for block in records if isinstance(block, FailedTrees))
        if found_ends != sum(map(len, verdict.ends.values())):
            raise HandlerKilledWorker("the records that failed are gone: Spark ran a part of the job again")
        return verdict, groups + records

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
                if isinstance(block, StateReport) and block.error is not None:
                    errors.append(block.error)
                elif isinstance(block, StageReport):
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
    """Sends a block where its key says: below 0 to the partitions that are kept, if there are any."""

    partitions: int
    kept: int

    def __call__(self, key: int) -> int:
        if key < 0 and self.kept:
            return self.partitions + ~key % self.kept
        return key % self.partitions
