"""Runs a topology in this process, without Spark: for tests of bolts and of how they are wired.

Stages, exchanges and ackers are those that run on Spark; only the way between them is shorter.
"""

import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.acking import TreeEnd
from kinesis_spout.storm.components.output import DEFAULT_STREAM
from kinesis_spout.storm.running.blocks import Block, CountsBlock, OpenTrees
from kinesis_spout.storm.running.component_counts import ComponentCounts
from kinesis_spout.storm.running.exactly_once import RunChoice, counts
from kinesis_spout.storm.running.processing_clock import ProcessingClock
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.stage.one_by_one import OneByOneRun
from kinesis_spout.storm.running.stage.stage_run import StageRun, new_root
from kinesis_spout.storm.running.tick_clock import TickClock, Ticks
from kinesis_spout.storm.running.verdicts import Unfinished, decide, decide_here
from kinesis_spout.storm.state.key_values import PartitionState, UnfitValue

_ONE_BY_ONE: Final = -1
"""In place of a stage: all of them, root by root."""

Values = Sequence[Any]
Emitted = Mapping[str, Mapping[str, Sequence[Values]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalResult:
    """What came of one micro-batch."""

    acked: list[Values]
    """The spout's tuples whose trees are done, in order."""
    failed: list[tuple[Values, TreeEnd]]
    """Those that failed or timed out, each with how and where."""
    emitted: Emitted = field(repr=False)
    """What each component emitted on each stream. With state a batch may run again; then, in its last run."""
    counts: Mapping[str, ComponentCounts] = field(repr=False)
    """What each component did, in all runs of the batch."""

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
        self._clock = clock or time.monotonic
        self._time = ProcessingClock(self._clock, wall_clock or clock or time.time)
        self._runs: dict[tuple[str, int, int], StageRun] = {}
        self._emitted: dict[str, dict[str, list[Values]]] = {}
        self._counts: dict[str, ComponentCounts] = {}
        self._states: dict[tuple[str, int], PartitionState] = {}
        self._choices = {spout: RunChoice() for spout in programs}
        self._batches = 0
        self._tick_clocks = self._new_tick_clocks()

    @property
    def state(self) -> dict[str, dict[Any, Any]]:
        """What each bolt with state has kept, by key. A copy."""
        kept: dict[str, dict[Any, Any]] = defaultdict(dict)
        for (component, _), state in self._states.items():
            kept[component].update(state.items())
        return dict(kept)

    def run(
        self, tuples: Iterable[Values], *, spout: str | None = None, stream: str = DEFAULT_STREAM
    ) -> LocalResult:
        """Run tuples of a spout as one micro-batch; without tuples as Spark does when only ticks are due.

        Args:
            tuples: the values of each.
            spout: whose; needed where there are several.
            stream: of that spout.

        Raises:
            InvalidConfig: no such spout or stream, or a tuple has another number of values than fields.
            KeyboardInterrupt: a component raised it, or it is the developer's Ctrl-C. On Spark it fails its tuple.

        After an error, also one of a grouping or of ``prepare``, state is as before, and the bolts are new.
        """
        program = self._program(spout)
        batch, began = list(tuples), self._clock()
        ticks = self._ticks_now(program)
        self._counts, self._emitted = defaultdict(ComponentCounts), _nothing_emitted()
        try:
            ends = self._run(program, batch, stream, ticks)
            for state, changed in self._changed():
                state.apply(changed)
            self._forget_changes()
        except BaseException:
            self._forget_changes()
            self.close()
            raise
        timed_out = sum(end.failure.timed_out for end in ends.values())
        self._counts[program.plan.spout].add_trees(
            acked=len(batch) - len(ends),
            failed=len(ends) - timed_out,
            timed_out=timed_out,
            seconds=self._clock() - began,
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

    def _ticks_now(self, program: Program) -> Ticks:
        self._batches += 1
        tick_clock = self._tick_clocks[program.plan.spout]
        now = self._clock()
        tick_clock.advance(now, now)
        return tick_clock.ticks(str(self._batches))

    def _program(self, spout: str | None) -> Program:
        if spout is None and len(self._programs) == 1:
            return next(iter(self._programs.values()))
        if spout is None or spout not in self._programs:
            raise InvalidConfig(
                f"expected one of the topology's spouts ({', '.join(self._programs)}), as in "
                f'spout="{next(iter(self._programs))}"; got {spout!r}'
            )
        return self._programs[spout]

    def _run(self, program: Program, batch: list[Values], stream: str, ticks: Ticks) -> Mapping[int, TreeEnd]:
        """Run a micro-batch; gives how those ended that did not complete, by number."""
        choice = self._choices[program.plan.spout]
        if choice.is_one_by_one:
            ends = self._run_one_by_one(program, batch, stream, ticks)
            choice.ran_one_by_one(failed=bool(ends))
            return ends
        ends, blocks = self._run_at_once(program, batch, stream, ticks)
        counted = counts(blocks) and self._can_be_kept()
        if program.stateful:
            choice.ran_at_once(counted=counted)
        return ends if counted else self._run_one_by_one(program, batch, stream, ticks)

    def _can_be_kept(self) -> bool:
        try:
            self._changed()
        except UnfitValue:
            return False
        return True

    def _changed(self) -> list[tuple[PartitionState, Mapping[Any, bytes | None]]]:
        return [(state, state.changed()) for state in self._states.values()]

    def _run_at_once(
        self, program: Program, batch: list[Values], stream: str, ticks: Ticks
    ) -> tuple[dict[int, TreeEnd], list[Block]]:
        first = self._stage(program, 0, 0)
        first.begin(self._open_state, ticks)
        roots = _emitted(first, batch, stream)
        blocks: list[tuple[int, Block]] = first.outbox.take()
        if not program.plan.exchanges:
            self._add_counts(block for _, block in blocks)
            return _decided_here(first, roots), []
        blocks += _opened(roots, program.ackers)
        for stage in range(1, len(program.plan.stages)):
            blocks = [each for part in self._exchanged(program, stage, blocks, ticks) for each in part]
        return self._decide(program, blocks)

    def _run_one_by_one(
        self,
        program: Program,
        batch: list[Values],
        stream: str,
        ticks: Ticks,
    ) -> dict[int, TreeEnd]:
        self._forget_changes()
        self._emitted = _nothing_emitted()
        run = self._stage(program, _ONE_BY_ONE, 0)
        run.begin(self._open_state, ticks)
        roots = _emitted(run, batch, stream)
        self._add_counts(block for _, block in run.outbox.take())
        return _decided_here(run, roots)

    def _exchanged(
        self, program: Program, stage: int, blocks: list[tuple[int, Block]], ticks: Ticks
    ) -> Iterator[Iterator[tuple[int, Block]]]:
        for partition in range(program.partitions):
            here = [each for each in blocks if each[0] % program.partitions == partition]
            yield self._stage(program, stage, partition).run(here, self._open_state, ticks)

    def _decide(
        self, program: Program, blocks: list[tuple[int, Block]]
    ) -> tuple[dict[int, TreeEnd], list[Block]]:
        ends: dict[int, TreeEnd] = {}
        others: list[Block] = []
        for acker in range(max(1, program.ackers)):
            for found in decide(block for key, block in blocks if key % max(1, program.ackers) == acker):
                if isinstance(found, Unfinished):
                    ends.update(found.ends)
                else:
                    others.append(found)
        self._add_counts(others)
        return ends, others

    def _stage(self, program: Program, stage: int, partition: int) -> StageRun:
        key = (program.plan.spout, stage, partition)
        if key not in self._runs:
            is_one_by_one = stage == _ONE_BY_ONE
            self._runs[key] = (OneByOneRun if is_one_by_one else StageRun)(
                program.one_by_one() if is_one_by_one else program,
                max(0, stage),
                partition,
                self._clock,
                record=self._record,
                ends_run=(KeyboardInterrupt,),
            )
        return self._runs[key]

    def _record(self, component: str, stream: str, values: Values) -> None:
        self._emitted[component][stream].append(values)

    def _open_state(self, component: str, index: int) -> PartitionState:
        # Every program has the same graph.
        parallelism = next(iter(self._programs.values())).graph[component].parallelism
        return self._states.setdefault((component, index), PartitionState(index, parallelism))

    def _forget_changes(self) -> None:
        for state in self._states.values():
            state.forget_changes()

    def _add_counts(self, blocks: Iterable[object]) -> None:
        for block in blocks:
            if isinstance(block, CountsBlock):
                for component, of_component in block.counts.items():
                    self._counts[component].add(of_component)


def _nothing_emitted() -> dict[str, dict[str, list[Values]]]:
    return defaultdict(lambda: defaultdict(list))


def _emitted(run: StageRun, batch: Sequence[Values], stream: str) -> dict[int, int]:
    """Emit a micro-batch, and end it; gives the numbers of those that are open, by root."""
    run.spout.output(stream)  # Raises even where there are no tuples.
    roots: dict[int, int] = {}
    for number, values in enumerate(batch):
        root = new_root() if run.program.ackers else 0
        if run.emitter.emit_root(values, root, stream):
            roots[root] = number
    run.finish()
    return roots


def _decided_here(run: StageRun, roots: Mapping[int, int]) -> dict[int, TreeEnd]:
    found = {number: decide_here(run.trees, root) for root, number in roots.items()}
    return {number: end for number, end in found.items() if end is not None}


def _opened(roots: Mapping[int, int], ackers: int) -> Iterator[tuple[int, OpenTrees]]:
    for acker in range(ackers):
        here = [root for root in roots if root % ackers == acker]
        numbers = array("Q", (roots[root] for root in here))
        opened = OpenTrees(acker=acker, batch=0, roots=array("Q", here).tobytes(), numbers=numbers.tobytes())
        yield acker, opened
