"""Runs a micro-batch of a Kinesis spout through a topology, as one Spark job.

    slices > first stage > exchange > stage ... > exchange > ackers > what came of the slices

All that leaves a stage goes through one exchange, packed in blocks by target; also what only passes on: what the
driver is to know comes out at the end, once. Without a grouping that needs an exchange there is one stage, which
decides its trees by itself.

With state the job may run again, without the records that failed after they had touched it: see ``exactly_once``.
"""

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark import RDD, SparkContext

from kinesis_spout.errors import HandlerKilledWorker
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.jobs import HandlerRaised, cancel, has_begun, tagged
from kinesis_spout.spark.tasks.task import TaskSettings
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.topology.acking import TreeEnd
from kinesis_spout.topology.running.blocks import Block, CountsBlock
from kinesis_spout.topology.running.component_counts import ComponentCounts
from kinesis_spout.topology.running.exactly_once import NeverClean, run_until_clean
from kinesis_spout.topology.running.program import Program
from kinesis_spout.topology.spark.kept_runs import ShippedProgram
from kinesis_spout.topology.spark.keyed_state import KeyedState
from kinesis_spout.topology.spark.stages import FirstStage, Keyed, LaterStage, run_acker
from kinesis_spout.topology.spark.state_parts import UpdateBlock
from kinesis_spout.topology.spark.tree_delivery import (
    FailedTree,
    FailedTrees,
    RecordId,
    SliceBlock,
    ToValues,
    with_failed,
)
from kinesis_spout.topology.spark.witness import Seen, contradict
from kinesis_spout.topology.state import StateManifest, StateUpdate

Packs = Sequence[Sequence[WorkSlice]]


class TopologyRunner:
    """A ``BatchRunner`` that pushes records through the graph of a topology. Mutable; thread-safe.

    Args:
        context: what the jobs run on.
        settings: of the tasks that read.
        program: what runs.
        to_values: makes a tuple's values of a record.
        state: of the bolts that keep some.
    """

    def __init__(
        self,
        context: SparkContext,
        settings: TaskSettings,
        program: Program,
        to_values: ToValues,
        state: KeyedState | None = None,
    ) -> None:
        self._context = context
        self._settings = settings
        self._program = program
        self._state = state
        self._shipped = ShippedProgram(program, None if state is None else state.address)
        self._changes: dict[str, tuple[StateManifest, list[StateUpdate]]] = {}
        """What jobs have changed of the state, by their tags, until it is said whether they count."""
        self._to_values = PickledHandler.of(to_values)
        self._lock = threading.Lock()
        self._counts: dict[str, ComponentCounts] = defaultdict(ComponentCounts)

    @property
    def counts(self) -> dict[str, ComponentCounts]:
        """What the components have done since the start. A copy."""
        with self._lock:
            return {component: replace(counts) for component, counts in self._counts.items()}

    def run(self, tag: str, packs: Packs) -> list[WorkResult]:
        """See ``BatchRunner``."""
        if self._state is None:
            return self._results(self._run(tag, packs, {}, None))
        manifest = self._state.begin()
        found: list[Block] = []

        def attempt(
            refused: Mapping[RecordId, TreeEnd],
        ) -> tuple[Mapping[RecordId, TreeEnd], set[RecordId]]:
            found[:] = self._run(tag, packs, refused, manifest)
            return _ends(found)

        try:
            run_until_clean(attempt)
        except NeverClean as error:
            raise HandlerRaised(str(error)) from error
        updates = [block.update for block in found if isinstance(block, UpdateBlock)]
        self._changes[tag] = (manifest, updates)
        return self._results(found)

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        """See ``BatchRunner``. State that records have changed which do not count does not count either."""
        changes = self._changes.pop(tag, None)
        if changes is None or self._state is None:
            return True
        return is_whole and self._state.settled(*changes)

    def has_begun(self, tag: str) -> bool:
        """See ``BatchRunner``."""
        return has_begun(self._context, tag)

    def cancel(self, tag: str) -> None:
        """See ``BatchRunner``."""
        cancel(self._context, tag)

    def _run(
        self,
        tag: str,
        packs: Packs,
        refused: Mapping[RecordId, TreeEnd],
        state: StateManifest | None,
    ) -> list[Block]:
        program = self._program
        first = FirstStage(
            shipped=self._shipped,
            settings=self._settings.of_one_task(len(packs)),
            to_values=self._to_values,
            refused=refused,
        )
        with tagged(self._context, tag):
            travelling: RDD[Keyed] = self._context.parallelize(packs, len(packs)).mapPartitions(first)
            for stage in range(1, len(program.plan.stages)):
                later = LaterStage(shipped=self._shipped, stage=stage, state=state)
                travelling = travelling.partitionBy(program.partitions, _as_told).mapPartitions(later)
            if program.plan.exchanges and program.ackers:
                found = travelling.partitionBy(program.ackers, _as_told).mapPartitions(run_acker).collect()
            else:
                found = travelling.values().collect()
        # Of every run: in the last one of several nothing fails that had touched state.
        for block in found:
            if isinstance(block, CountsBlock):
                self._add(block)
        if contradict(block for block in found if isinstance(block, Seen)):
            raise HandlerKilledWorker(
                f"job {tag}: an executor was lost, and Spark ran a part of the job again"
            )
        return found

    def _results(self, found: Sequence[Block]) -> list[WorkResult]:
        failed: dict[int, list[FailedTree]] = defaultdict(list)
        for block in found:
            if isinstance(block, FailedTrees):
                failed[block.batch] += block.failed
        slices = [block for block in found if isinstance(block, SliceBlock)]
        return [with_failed(block.result, failed[block.batch]) for block in slices]

    def _add(self, block: CountsBlock) -> None:
        with self._lock:
            for component, counts in block.counts.items():
                self._counts[component].add(counts)


def _ends(found: Sequence[Block]) -> tuple[dict[RecordId, TreeEnd], set[RecordId]]:
    ends: dict[RecordId, TreeEnd] = {}
    touched: set[RecordId] = set()
    for block in found:
        if isinstance(block, FailedTrees):
            for tree in block.failed:
                record_id = (tree.record.shard_id, tree.record.sequence_number)
                ends[record_id] = tree.end
                if tree.index in block.touched:
                    touched.add(record_id)
    return ends, touched


def _as_told(partition: int) -> int:
    return partition
