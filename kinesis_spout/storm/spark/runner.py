"""Runs a micro-batch of a Kinesis spout through a topology. With state it can run again: see ``groups``."""

from collections import defaultdict
from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple

from pyspark import SparkContext

from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.jobs import HandlerRaised, SparkRunner
from kinesis_spout.spark.tasks.task import TaskSettings
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.storm.running.blocks import Block, ChangesDoNotCount, FailedResults
from kinesis_spout.storm.running.clocks import TickClock, Ticks
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.running.groups import RunChoice
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.spark.job import TopologyJobs
from kinesis_spout.storm.spark.stages import FirstStage, UpdateBlock
from kinesis_spout.storm.spark.tree_delivery import (
    FailedTree,
    FailedTrees,
    SliceBlock,
    ToValues,
    TreeResult,
    with_failed,
)
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.versions import KeyedState

Packs = Sequence[Sequence[WorkSlice]]

_MOST_FAILED: Final = 10_000
"""Results of a micro-batch, as their roots are stored in the manifest. With more it is run carefully: then each
task knows at once which of its results failed."""


class _Changes(NamedTuple):
    began_with: StateManifest
    updates: list[StateUpdate]
    ticks: Ticks
    failed: frozenset[int]
    """The roots of results."""


class TopologyRunner(SparkRunner):
    """A ``BatchRunner`` that pushes records through the graph of a topology. Mutable; thread-safe."""

    def __init__(
        self,
        context: SparkContext,
        settings: TaskSettings,
        *,
        program: Program,
        to_values: ToValues,
        state: KeyedState | None = None,
    ) -> None:
        super().__init__(context)
        self._settings = settings
        self._state = state
        address = None if state is None else state.address
        self._jobs = TopologyJobs(context, program, address, has_records=True)
        self._is_exact = program.is_exact
        self._to_values = PickledHandler.of(to_values)
        self.ticks: TickClock = TickClock(
            program.ticks, monotonic(), retry_at=None if state is None else lambda: state.retry_at
        )
        self._choice = RunChoice()
        """Needs no lock: micro-batches with state run one at a time."""
        self._changes: dict[str, _Changes] = {}
        """What jobs have changed of the state, by their tags, until it is said whether they count."""

    @property
    def counts(self) -> dict[str, ComponentCounts]:
        return self._jobs.counts

    def run(self, tag: str, packs: Packs) -> list[WorkResult]:
        """Without slices there is one task of the first stage, which only ticks."""
        packs, began = packs or [[]], monotonic()
        if self._state is None:
            results = _results(self._run(tag, packs, self.ticks.ticks(tag)))
        else:
            results = _results(self._run_exactly(tag, packs, self._state))
        self._jobs.count_trees(
            sum(result.delivered for result in results),
            unfinished=sum(result.failed for result in results),
            timed_out=sum(result.timed_out for result in results),
            seconds=monotonic() - began,
        )
        return results

    def _run_exactly(self, tag: str, packs: Packs, state: KeyedState) -> list[Block]:
        manifest = state.begin()
        if manifest is None:
            raise HandlerRaised("the shards of the micro-batch were lost before it began")
        self.ticks.clock.not_before(manifest.time)
        ticks = self.ticks.ticks(tag)

        def at_once() -> list[Block] | None:
            found = self._run(tag, packs, ticks, manifest)
            counts = not any(isinstance(block, ChangesDoNotCount) for block in found)
            # What comes again would count twice.
            counts = counts and not (self._is_exact and any(each.is_cut for each in _tree_results(found)))
            counts = counts and len(_failed_results(found)) <= _MOST_FAILED
            return found if counts else None

        try:
            found = self._choice.run(
                at_once,
                lambda: self._run_carefully(tag, packs, ticks, manifest),
                lambda found: any(result.failed for result in _results(found)),
            )
        except BaseException:
            self.ticks.did_not_count(ticks)
            raise
        updates = [block.update for block in found if isinstance(block, UpdateBlock)]
        self._changes[tag] = _Changes(manifest, updates, ticks, _failed_results(found))
        return found

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        """Changes of state by records that do not count do not count either."""
        changes = self._changes.pop(tag, None)
        if changes is None or self._state is None:
            return True
        began_with, updates, ticks, failed = changes
        counts = is_whole and self._state.settled(began_with, updates, ticks.time, failed)
        if not counts:
            self.ticks.did_not_count(ticks)
        return counts

    def _run(self, tag: str, packs: Packs, ticks: Ticks, state: StateManifest | None = None) -> list[Block]:
        first = FirstStage(
            shipped=self._jobs.shipped,
            settings=self._settings.of_one_task(len(packs)),
            to_values=self._to_values,
            ticks=ticks,
        )
        return self._jobs.run(tag, packs, first, ticks=ticks, state=state)

    def _run_carefully(self, tag: str, packs: Packs, ticks: Ticks, state: StateManifest) -> list[Block]:
        shipped = self._jobs.shipped_careful
        assert shipped is not None, "there is state"
        only = FirstStage(
            shipped=shipped, settings=self._settings, to_values=self._to_values, ticks=ticks, state=state
        )
        return self._jobs.run_carefully(tag, [work for pack in packs for work in pack], only)


def _failed_results(found: Sequence[Block]) -> frozenset[int]:
    return frozenset(root for each in found if isinstance(each, FailedResults) for root in each.roots)


def _results(found: Sequence[Block]) -> list[WorkResult]:
    return [each.result for each in _tree_results(found)]


def _tree_results(found: Sequence[Block]) -> list[TreeResult]:
    failed: dict[int, list[FailedTree]] = defaultdict(list)
    for block in found:
        if isinstance(block, FailedTrees):
            failed[block.batch] += block.failed
    slices = [block for block in found if isinstance(block, SliceBlock)]
    return [with_failed(block.result, failed[block.batch], block.expired_at) for block in slices]
