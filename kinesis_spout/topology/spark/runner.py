"""Runs a micro-batch of a Kinesis spout through a topology.

With state the job may run again, without the records that failed after they had touched it: see ``exactly_once``.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from time import monotonic

from pyspark import SparkContext

from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.jobs import HandlerRaised, cancel, has_begun
from kinesis_spout.spark.tasks.task import TaskSettings
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.topology.acking import TreeEnd
from kinesis_spout.topology.running.blocks import Block
from kinesis_spout.topology.running.component_counts import ComponentCounts
from kinesis_spout.topology.running.exactly_once import NeverClean, Ran, run_until_clean
from kinesis_spout.topology.running.program import Program
from kinesis_spout.topology.running.tick_clock import TickClock, Ticks
from kinesis_spout.topology.spark.keyed_state import KeyedState
from kinesis_spout.topology.spark.tasks.job import TopologyJobs
from kinesis_spout.topology.spark.tasks.stages import FirstStage
from kinesis_spout.topology.spark.tasks.state_parts import UnfitState, UpdateBlock
from kinesis_spout.topology.spark.tasks.tree_delivery import (
    FailedTree,
    FailedTrees,
    RecordId,
    SliceBlock,
    ToValues,
    with_failed,
)
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
        *,
        program: Program,
        to_values: ToValues,
        state: KeyedState | None = None,
    ) -> None:
        self._context = context
        self._settings = settings
        self._state = state
        self._jobs = TopologyJobs(context, program, None if state is None else state.address)
        self._to_values = PickledHandler.of(to_values)
        self.ticks = TickClock(program.ticks, monotonic())
        """See ``BatchRunner``."""
        self._changes: dict[str, tuple[StateManifest, list[StateUpdate], Ticks]] = {}
        """What jobs have changed of the state, by their tags, and by which ticks, until it is said whether they
        count."""

    @property
    def counts(self) -> dict[str, ComponentCounts]:
        """See ``TopologyJobs``."""
        return self._jobs.counts

    def run(self, tag: str, packs: Packs) -> list[WorkResult]:
        """See ``BatchRunner``. Without slices there is one task of the first stage, which only ticks."""
        packs, began = packs or [[]], monotonic()
        if self._state is None:
            return self._told(_results(self._run(tag, packs, {}, self.ticks.ticks(tag))), began)
        manifest = self._state.begin()
        self.ticks.clock.not_before(manifest.time)
        ticks = self.ticks.ticks(tag)
        found: list[Block] = []

        def attempt(refused: Mapping[RecordId, TreeEnd], checks_state: bool) -> Ran[RecordId]:  # noqa: FBT001
            found[:] = self._run(tag, packs, refused, ticks, manifest, checks_state=checks_state)
            return _ran(found)

        try:
            run_until_clean(attempt)
        except BaseException as error:
            self.ticks.did_not_count(ticks)
            if isinstance(error, NeverClean):
                raise HandlerRaised(str(error)) from error
            raise
        updates = [block.update for block in found if isinstance(block, UpdateBlock)]
        self._changes[tag] = (manifest, updates, ticks)
        return self._told(_results(found), began)

    def _told(self, results: list[WorkResult], began: float) -> list[WorkResult]:
        """Count the ends of the records' trees."""
        delivered = sum(result.delivered for result in results)
        failed = sum(result.failed for result in results)
        timed_out = sum(result.timed_out for result in results)
        self._jobs.add_trees(
            acked=delivered - failed,
            failed=failed - timed_out,
            timed_out=timed_out,
            seconds=monotonic() - began,
        )
        return results

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        """See ``BatchRunner``. State that records have changed which do not count does not count either."""
        changes = self._changes.pop(tag, None)
        if changes is None or self._state is None:
            return True
        manifest, updates, ticks = changes
        counts = is_whole and self._state.settled(manifest, updates, ticks.time)
        if not counts:
            self.ticks.did_not_count(ticks)
        return counts

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
        ticks: Ticks,
        state: StateManifest | None = None,
        *,
        checks_state: bool = False,
    ) -> list[Block]:
        first = FirstStage(
            shipped=self._jobs.shipped,
            settings=self._settings.of_one_task(len(packs)),
            to_values=self._to_values,
            refused=refused,
            ticks=ticks,
        )
        return self._jobs.run(tag, packs, first, ticks=ticks, state=state, checks_state=checks_state)


def _results(found: Sequence[Block]) -> list[WorkResult]:
    failed: dict[int, list[FailedTree]] = defaultdict(list)
    for block in found:
        if isinstance(block, FailedTrees):
            failed[block.batch] += block.failed
    slices = [block for block in found if isinstance(block, SliceBlock)]
    return [with_failed(block.result, failed[block.batch]) for block in slices]


def _ran(found: Sequence[Block]) -> Ran[RecordId]:
    ends: dict[RecordId, TreeEnd] = {}
    touched: set[RecordId] = set()
    for block in found:
        if isinstance(block, FailedTrees):
            for tree in block.failed:
                record_id = (tree.record.shard_id, tree.record.sequence_text)
                ends[record_id] = tree.end
                if tree.index in block.touched:
                    touched.add(record_id)
    return Ran(ends, touched, is_unfit=any(isinstance(block, UnfitState) for block in found))
