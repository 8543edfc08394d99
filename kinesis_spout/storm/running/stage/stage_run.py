"""Runs the components of one stage in one process, tuple by tuple.

A tuple goes depth first: what a bolt emits to a bolt of the same stage is executed before ``emit`` returns.
So nothing queues up, and a spout's tuple whose tree stays in the process is decided when its ``emit`` has
returned. What is for a later stage is packed into blocks.

A micro-batch ends in the order of the flow: a bolt gets its tick and its ``flush``, what it still holds has
timed out, then it is the next bolt's turn. Then what was done to trees is packed for the ackers.

A run is kept by its process and used for micro-batch after micro-batch, with the user's objects in it.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import getrandbits
from typing import Any, Protocol

import numpy as np

from kinesis_spout.storm.components.output import DEFAULT_STREAM
from kinesis_spout.storm.components.tuples import Source
from kinesis_spout.storm.graph.plan import Route, context_of, source_of
from kinesis_spout.storm.running.blocks import FULL_BLOCK, AckBlock, Block, CountsBlock, TupleBlock
from kinesis_spout.storm.running.component_counts import ComponentCounts
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.stage.bolt_task import BoltTask
from kinesis_spout.storm.running.stage.choosing import chooser
from kinesis_spout.storm.running.stage.collecting import AsRoot, Choose, Collector, Output, Send, Target
from kinesis_spout.storm.running.stage.outbox import Outbox
from kinesis_spout.storm.running.tick_clock import NO_TICKS, Ticks
from kinesis_spout.storm.running.trees import ToldTrees, Trees
from kinesis_spout.storm.state.key_values import PartitionState

Record = Callable[[str, str, Sequence[Any]], None]
OpenState = Callable[[str, int], PartitionState]
"""Gives the state of a task, by its component and index, as the micro-batch is to find it."""


class EmitsRoots(Protocol):
    """Emits tuples of a spout."""

    def emit_root(self, values: Sequence[Any], root: int, stream: str = DEFAULT_STREAM, /) -> bool: ...


class StageRun:
    """One stage, in one partition. Mutable.

    Args:
        program: the topology.
        stage: which stage.
        partition: which partition of the stage; says which task a bolt is here that any task will do for.
        clock: monotonic.
        record: is told of all that is emitted, if given: component, stream, values.
        ends_run: see ``Collector``.
    """

    def __init__(
        self,
        program: Program,
        stage: int,
        partition: int,
        clock: Callable[[], float],
        *,
        record: Record | None = None,
        ends_run: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._ends_run = ends_run
        self.program = program
        self._graph = program.graph
        self._plan = program.plan
        self.stage = stage
        self._partition = partition
        self._record = record
        self._told = ToldTrees(clock, program.timeout_seconds) if program.plan.exchanges else None
        self.trees = self._told or Trees(clock, program.timeout_seconds)
        self.outbox = Outbox(program.partitions)
        self._tasks: dict[tuple[str, int], BoltTask] = {}
        self._ticks = NO_TICKS
        self._stateful = [
            task
            for name in self._plan.stages[stage]
            if self._graph[name].is_stateful
            for task in self._own(name)
        ]
        self._spout: Collector | None = None
        if stage == 0:
            self._spout = Collector(self._plan.spout, self.trees, ends_run)
            self._spout.drop_last = self.outbox.drop_last
            self._wire(self._spout, self._plan.spout, 0)

    # A micro-batch

    def begin(self, states: OpenState | None = None, ticks: Ticks = NO_TICKS) -> None:
        """Begin a micro-batch.

        Args:
            states: gives each task with state its own; not needed where there are none.
            ticks: that are to come at its end, and what time it is.
        """
        self.trees.begin()
        self._ticks = ticks
        self.outbox.clear()
        self._give_states(states)

    def _give_states(self, states: OpenState | None) -> None:
        for component, index in self._stateful:
            assert states is not None
            self._task(component, index).give_state(states(component, index))

    @property
    def emitter(self) -> "EmitsRoots":
        """What emits the spout's tuples; only in stage 0."""
        return self.spout

    @property
    def spout(self) -> Collector:
        """The spout's output; only in stage 0."""
        assert self._spout is not None
        return self._spout

    def receive(self, block: TupleBlock) -> None:
        """Execute the tuples of a block that is for this stage."""
        task, trees = self._task(block.component, block.index), self._told
        assert trees is not None
        task.come(block)
        send, ends = task.sender(block.source), trees.ends
        trees.tell(block)
        for values, root, others in block.tuples():
            send(values, root, others)
            if ends and root in ends:
                self.outbox.drop_last(root)

    def run(
        self,
        blocks: Iterable[tuple[int, Block]],
        states: OpenState | None = None,
        ticks: Ticks = NO_TICKS,
    ) -> Iterator[tuple[int, Block]]:
        """Take a whole micro-batch of what has come here by an exchange. Gives what goes on, by partition."""
        self.begin(states, ticks)
        for partition, block in blocks:
            if isinstance(block, TupleBlock) and self._plan.stage_of[block.component] == self.stage:
                self.receive(block)
                yield from self.outbox.take()
            else:
                yield partition, block
        self.finish()
        yield from self.outbox.take()

    def finish(self) -> None:
        """End the micro-batch: tick, flush, time out. What goes on is then in the outbox, counts and all."""
        for task in self._ending():
            task.tick(self._ticks)
            task.flush()
        self._close()

    def _ending(self) -> Iterator[BoltTask]:
        """Give the tasks in the order of the flow, also those that only tick."""
        for component in self._plan.stages[self.stage]:
            if component in self._ticks.numbers and component in self._plan.exchanged:
                for name, index in self._own(component):
                    self._task(name, index)  # It ticks, whether a tuple has ever come to it or not.
            yield from [task for (name, _), task in self._tasks.items() if name == component]

    def _close(self) -> None:
        """Put what goes on into the outbox."""
        self.outbox.close()
        if self.program.ackers and self._told is not None:
            self._tell_ackers(self._told)
        self.outbox.add(0, CountsBlock(counts=self._taken_counts()))

    def _time(self) -> float:
        return self._ticks.time

    def _read_to(self) -> float:
        return self._ticks.read_to

    def _own(self, component: str) -> list[tuple[str, int]]:
        """Name the tasks of a component that are here, if its tuples come by an exchange."""
        program = self.program
        tasks = range(self._partition, self._graph[component].parallelism, program.partitions)
        return [(component, index) for index in tasks]

    def _taken_counts(self) -> dict[str, ComponentCounts]:
        """Take what the components have done since the last micro-batch."""
        collectors = [(component, task.collector) for (component, _), task in self._tasks.items()]
        if self._spout is not None:
            collectors.append((self._plan.spout, self._spout))
        taken: dict[str, ComponentCounts] = defaultdict(ComponentCounts)
        for component, collector in collectors:
            taken[component].add(collector.counts.take())
        return dict(taken)

    def close(self) -> None:
        """Clean up the bolts."""
        for task in self._tasks.values():
            task.cleanup()

    # Wiring

    def _task(self, component: str, index: int) -> BoltTask:
        task = self._tasks.get((component, index))
        if task is None:
            collector = Collector(component, self.trees, self._ends_run)
            self._wire(collector, component, index)
            graph, program = self._graph, self.program
            made = graph[component]
            task = BoltTask(
                program.new_bolt(component),
                context=context_of(
                    graph, program.topology, made, index, processing_time=self._time, read_to=self._read_to
                ),
                conf=program.conf_of(component),
                collector=collector,
                trees=self.trees,
                tells_touched=self._told is not None and program.is_exact,
            )
            collector.as_root = self._as_root(task)
            self._tasks[component, index] = task
        return task

    def _as_root(self, task: BoltTask) -> AsRoot:
        return lambda work: task.run_as_root(work, new_root())

    def _wire(self, collector: Collector, component: str, index: int) -> None:
        for name, stream in self._graph[component].streams.items():
            source = source_of(self._graph, component, name, index)
            to_all: list[Target] = []
            chosen: list[Choose] = []
            tasks: dict[int, Send] = {}
            for route in self._plan.routes[component, name]:
                targets = self._targets(route, source, collector)
                if route.fused:
                    to_all += targets
                elif stream.direct:
                    tasks.update(targets)
                else:
                    chosen.append(chooser(route.grouping, stream, targets, self._partition))
            if self._record is not None:
                record = partial(self._record, component, name)
                chosen.append(partial(_chosen_by_none, record))
                tasks = {task: _recorded(record, send) for task, send in tasks.items()}
            collector.outputs[name] = Output(
                len(stream.fields), direct=stream.direct, to_all=to_all, chosen=chosen, tasks=tasks
            )

    def _targets(self, route: Route, source: Source, collector: Collector) -> list[Target]:
        """Give the tasks that a route may lead to: of a fused one, the one that is here."""
        tasks = self._graph.tasks[route.target]
        if route.fused:
            at_hand = self._partition % len(tasks)
            return [(tasks[at_hand], self._task(route.target, at_hand).sender(source))]
        return [(task, self._way(route.target, at, source, collector)) for at, task in enumerate(tasks)]

    def _way(self, component: str, index: int, source: Source, collector: Collector) -> Send:
        outbox, trees = self.outbox, self._told
        assert trees is not None
        is_undone = self._graph[component].is_stateful and self.program.is_exact
        parcel = outbox.parcel(component, index, source, collector.refused, trees.tell, is_undone=is_undone)
        add_values, add_root = parcel.values.append, parcel.roots.append
        in_parcel = parcel.values

        def send(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            trees.has_left = True
            if others is not None:
                parcel.others[len(in_parcel)] = others
            add_values(values)
            add_root(root)
            if len(in_parcel) >= FULL_BLOCK:
                outbox.send(parcel)

        return send

    # Ackers

    def _tell_ackers(self, trees: ToldTrees) -> None:
        ackers = self.program.ackers
        roots, values = trees.take()
        of_acker = roots % np.uint64(ackers)
        for acker in range(ackers):
            here = of_acker == acker
            ends = {root: end for root, end in trees.ends.items() if root % ackers == acker}
            touched = array("Q", (root for root in trees.touched if root % ackers == acker))
            if ends or touched or here.any():
                block = AckBlock(
                    acker=acker,
                    roots=roots[here].tobytes(),
                    values=values[here].tobytes(),
                    ends=ends,
                    touched=touched.tobytes(),
                )
                self.outbox.add(acker, block)


def new_root() -> int:
    """Give a root, which is never 0."""
    return getrandbits(64) or 1


def _chosen_by_none(record: Callable[[Sequence[Any]], None], values: Sequence[Any]) -> Sequence[Target]:
    """Tell of a tuple, and send it to nobody else."""
    record(values)
    return ()


def _recorded(record: Callable[[Sequence[Any]], None], send: Send) -> Send:
    """Tell of each tuple of a direct stream, too."""

    def recorded(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
        record(values)
        send(values, root, others)

    return recorded
