"""Runs a micro-batch of a Kinesis spout through a topology. With state it can run again: see ``groups``."""

from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple

from pyspark import SparkContext

from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.jobs import HandlerRaised, SparkRunner
from kinesis_spout.spark.tasks.task import TaskSettings
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.storm.running.clocks import BatchTicks, TickClock
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.running.groups import RunChoice
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.spark.job import JobResult, TopologyJobs
from kinesis_spout.storm.spark.stages import FirstStage
from kinesis_spout.storm.spark.tree_delivery import ToValues
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.versions import KeyedState

Packs = Sequence[Sequence[WorkSlice]]

_MOST_FAILED: Final = 10_000
"""Results of a micro-batch, as their roots are stored in the manifest. With more it is run carefully: then each
task knows at once which of its results failed."""


class _Changes(NamedTuple):
    began_with: StateManifest
    updates: list[StateUpdate]
    ticks: BatchTicks
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
        """The changes of state by jobs, by their tags, until it is decided whether they count."""

    @property
    def counts(self) -> dict[str, ComponentCounts]:
        return self._jobs.counts

    def run(self, tag: str, packs: Packs) -> list[WorkResult]:
        """Without slices there is one task of the first stage, which only ticks."""
        packs, began = packs or [[]], monotonic()
        if self._state is None:
            results = self._run(tag, packs, self.ticks.ticks(tag)).slices
        else:
            results = self._run_exactly(tag, packs, self._state).slices
        self._jobs.count_trees(
            sum(result.delivered for result in results),
            unfinished=sum(result.failed for result in results),
            timed_out=sum(result.timed_out for result in results),
            seconds=monotonic() - began,
        )
        return results

    def _run_exactly(self, tag: str, packs: Packs, state: KeyedState) -> JobResult:
        manifest = state.begin()
        if manifest is None:
            raise HandlerRaised("the shards of the micro-batch were lost before it began")
        self.ticks.clock.not_before(manifest.time)
        ticks = self.ticks.ticks(tag)

        def at_once() -> JobResult | None:
            found = self._run(tag, packs, ticks, manifest)
            # Records that come again would count twice.
            counts = found.do_changes_count and not (self._is_exact and found.is_cut)
            return found if counts and len(found.verdict.failed_results) <= _MOST_FAILED else None

        def carefully() -> JobResult:
            return self._run(tag, packs, ticks, manifest, carefully=True)

        try:
            found = self._choice.run(
                at_once, carefully, lambda found: any(result.failed for result in found.slices)
            )
        except BaseException:
            self.ticks.did_not_count(ticks)
            raise
        self._changes[tag] = _Changes(manifest, found.updates, ticks, found.verdict.failed_results)
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

    def _run(
        self,
        tag: str,
        packs: Packs,
        ticks: BatchTicks,
        state: StateManifest | None = None,
        *,
        carefully: bool = False,
    ) -> JobResult:
        shipped = self._jobs.careful if carefully else self._jobs.shipped
        assert shipped is not None, "there is state"
        if carefully:
            packs = [[work for pack in packs for work in pack]]
        first = FirstStage(
            shipped=shipped,
            settings=self._settings.of_one_task(len(packs)),
            to_values=self._to_values,
            ticks=ticks,
            state=state if carefully else None,
        )
        return self._jobs.run(tag, packs, first, ticks=ticks, state=state, carefully=carefully)
