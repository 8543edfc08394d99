"""Runs a topology in this process, without Spark: for tests of bolts and of how they are wired.

Stages, exchanges and who decides trees are as on Spark; only the way between them is shorter.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.blocks import AckBlock, Block, GroupBlock, Keyed, StageReport
from kinesis_spout.storm.running.clocks import BatchTicks, ProcessingClock, TickClock
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.running.groups import RunChoice
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.running.trees import TreeVerdict, acker_decides, root_of, verdict_of
from kinesis_spout.storm.state.key_values import PartitionState, UnfitValue

Values = Sequence[Any]
Emitted = Mapping[str, Mapping[str, Sequence[Values]]]
Ends = dict[int, TreeEnd]
"""The ends of trees that did not complete, by the numbers of the spout's tuples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalResult:
    """The results of one micro-batch."""

    acked: list[Values]
    """The spout's tuples whose trees are done, in order."""
    failed: list[tuple[Values, TreeEnd]]
    """Those that failed or timed out, each with how and where."""
    emitted: Emitted = field(repr=False)
    """The tuples of each component and stream. With state a batch can run again; then those of its last run."""
    counts: Mapping[str, ComponentCounts] = field(repr=False)
    """The counts of each component, in all runs of the batch."""

    @property
    def reasons(self) -> list[str]:
        """Why tuples failed, in their order."""
        return [end.reason for _, end in self.failed]


class LocalTopology:
    """A topology in this process. Mutable: its bolts and its state live on from batch to batch.

    Args:
        programs: the topology, by spout.
        clock: a test's own, if it decides what time it is; the machine's otherwise.
        wall_clock: see ``Topology.local``.
    """

    def __init__(
        self,
        programs: Mapping[str, Program],
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] | None = None,
    ) -> None:
        self._programs = programs
        self._careful = {spout: program.carefully() for spout, program in programs.items()}
        self._clock = clock or time.monotonic
        self._time = ProcessingClock(self._clock, wall_clock or clock or time.time)
        self._runs: dict[tuple[str, bool, int, int], StageRun] = {}
        self._emitted: dict[str, dict[str, list[Values]]] = {}
        self._counts: dict[str, ComponentCounts] = {}
        self._states: dict[tuple[str, int], PartitionState] = {}
        self._failed_results: frozenset[int] = frozenset()
        """The roots of the results that failed in the micro-batch at hand."""
        self._choices = {spout: RunChoice() for spout in programs}
        self._batches = 0
        self._tick_clocks = self._new_tick_clocks()

    @property
    def state(self) -> dict[str, dict[Any, Any]]:
        """The state that each bolt keeps, by key. A copy."""
        kept: dict[str, dict[Any, Any]] = defaultdict(dict)
        for (component, _), state in self._states.items():
            kept[component].update(state.items())
        return dict(kept)

    @property
    def failed_results(self) -> dict[str, list[Values]]:
        """The tuples of windows and ticks that failed, by bolt with state; they are emitted again."""
        found: dict[str, list[Values]] = defaultdict(list)
        for (component, _), state in self._states.items():
            found[component] += [result.values for _, result in state.results()]
        return {component: results for component, results in found.items() if results}

    def run(
        self, tuples: Iterable[Values], *, spout: str | None = None, stream: str = DEFAULT_STREAM
    ) -> LocalResult:
        """Run tuples of a spout as one micro-batch; without tuples as Spark does when only ticks are due.

        Args:
            tuples: the values of each.
            spout: the spout of the tuples; needed if there are several.
            stream: of that spout.

        Raises:
            InvalidConfig: no such spout or stream, or a tuple has another number of values than fields.
            KeyboardInterrupt: a component raised it, or it is the developer's Ctrl-C. On Spark it fails its tuple.

        After an error, also one of a grouping or of ``prepare``, state is as before, and the bolts are new.
        """
        spout = self._spout(spout)
        batch, began = list(tuples), self._clock()
        ticks = self._ticks_now(spout)
        self._counts = defaultdict(ComponentCounts)
        self._forget()
        try:
            ends = self._run(spout, batch, stream, ticks)
            self._apply()
            for state in self._states.values():
                state.decide_results(self._failed_results, ticks.time)
            self._apply()
        except BaseException:
            self._forget()
            self.close()
            raise
        timed_out = sum(end.timed_out for end in ends.values())
        seconds = self._clock() - began
        self._counts[spout].add(
            ComponentCounts.of_trees(len(batch), unfinished=len(ends), timed_out=timed_out, seconds=seconds)
        )
        return LocalResult(
            acked=[values for number, values in enumerate(batch) if number not in ends],
            failed=[(batch[number], end) for number, end in sorted(ends.items())],
            emitted={component: dict(streams) for component, streams in self._emitted.items()},
            counts=dict(self._counts),
        )

    def close(self) -> None:
        """Clean up the bolts. A batch after that begins with new ones."""
        runs, self._runs = self._runs, {}
        self._tick_clocks = self._new_tick_clocks()
        for run in runs.values():
            run.close()

    def _new_tick_clocks(self) -> dict[str, TickClock]:
        return {
            spout: TickClock(program.ticks, self._clock(), self._time)
            for spout, program in self._programs.items()
        }

    def _ticks_now(self, spout: str) -> BatchTicks:
        self._batches += 1
        now = self._clock()
        self._tick_clocks[spout].advance(now, now)
        return self._tick_clocks[spout].ticks(str(self._batches))

    def _spout(self, spout: str | None) -> str:
        if spout is None and len(self._programs) == 1:
            return next(iter(self._programs))
        if spout is None or spout not in self._programs:
            raise InvalidConfig(
                f"expected one of the topology's spouts ({', '.join(self._programs)}), as in "
                f'spout="{next(iter(self._programs))}"; got {spout!r}'
            )
        return spout

    def _run(self, spout: str, batch: list[Values], stream: str, ticks: BatchTicks) -> Ends:
        def at_once() -> Ends | None:
            verdict = self._verdict(self._programs[spout], batch, stream, ticks)
            if verdict.has_touched or not self._can_be_kept():
                return None
            self._failed_results = verdict.failed_results
            return _ends(verdict)

        def carefully() -> Ends:
            self._forget()
            return _ends(self._verdict(self._careful[spout], batch, stream, ticks))

        return self._choices[spout].run(at_once, carefully, bool)

    def _verdict(self, program: Program, batch: list[Values], stream: str, ticks: BatchTicks) -> TreeVerdict:
        """Run all stages, and decide the trees."""
        first = self._stage(program, 0, 0)
        first.begin(self._open_state, ticks)
        blocks = _emitted(first, batch, stream)
        for stage in range(1, len(program.plan.stages)):
            here: defaultdict[int, list[Keyed]] = defaultdict(list)
            for each in blocks:
                here[each[0] % program.partitions].append(each)
            blocks = [
                each
                for partition in range(program.partitions)
                for each in self._stage(program, stage, partition).run(
                    here[partition], self._open_state, ticks
                )
            ]
        found: list[Block] = [block for _, block in blocks]
        if program.plan.exchanges:
            for acker in range(program.ackers):
                found += acker_decides(
                    block
                    for key, block in blocks
                    if isinstance(block, AckBlock) and key % program.ackers == acker
                )
        reports = [block for block in found if isinstance(block, StageReport)]
        for report in reports:
            for component, counts in report.counts.items():
                self._counts[component].add(counts)
        return verdict_of(reports, (block for block in found if isinstance(block, GroupBlock)))

    def _stage(self, program: Program, stage: int, partition: int) -> StageRun:
        key = (program.plan.spout, program.is_careful, stage, partition)
        if key not in self._runs:
            self._runs[key] = StageRun(
                program, stage, partition, self._clock, record=self._record, ends_run=(KeyboardInterrupt,)
            )
        return self._runs[key]

    def _record(self, component: str, stream: str, values: Values) -> None:
        self._emitted[component][stream].append(values)

    def _open_state(self, component: str, index: int) -> PartitionState:
        # Every program has the same graph.
        parallelism = next(iter(self._programs.values())).graph[component].parallelism
        state = self._states.setdefault((component, index), PartitionState(index, parallelism))
        state.decide_results((), 0.0)  # Those of the micro-batch before are decided.
        return state

    def _can_be_kept(self) -> bool:
        try:
            self._changed()
        except UnfitValue:
            return False
        return True

    def _changed(self) -> list[tuple[PartitionState, Mapping[Any, bytes | None]]]:
        return [(state, state.changed()) for state in self._states.values()]

    def _apply(self) -> None:
        for state, changed in self._changed():
            state.apply(changed)
            state.forget_changes()

    def _forget(self) -> None:
        """Begin a run of a micro-batch as if there had been none."""
        self._failed_results = frozenset()
        self._emitted = defaultdict(lambda: defaultdict(list))
        for state in self._states.values():
            state.forget_changes()


def _emitted(run: StageRun, batch: Sequence[Values], stream: str) -> list[Keyed]:
    """Emit a micro-batch, and end it; gives what leaves the stage."""
    run.spout.output(stream)  # Raises even where there are no tuples.
    for number, values in enumerate(batch):
        run.emit_root(values, root_of(number, 0) if run.program.is_tracked else 0, stream)
    run.finish()
    return run.outbox.take()


def _ends(verdict: TreeVerdict) -> Ends:
    return {number: end for number, ended in verdict.ends.items() for end in ended.values()}
