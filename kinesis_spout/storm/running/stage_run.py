"""Runs the components of one stage in one process, tuple by tuple.

A tuple goes depth first: what a bolt emits to a bolt of the same stage is executed before ``emit`` returns.
So nothing queues up, and a spout's tuple whose tree stays in the process is decided when its ``emit`` has
returned. Tuples for a later stage are packed into blocks.

A micro-batch ends in the order of the flow: a bolt gets its tick and its ``flush``, what it still holds has
timed out, then it is the next bolt's turn. Then it is reported which trees are not complete.

A run is kept by its process and used for micro-batch after micro-batch, with the user's objects in it. That of
a program that ``is_careful`` has all stages in one, and runs the roots in groups: see ``groups``.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kinesis_spout.storm.components.tuples import Source
from kinesis_spout.storm.graph.grouping import Choose, Send, Target, chooser
from kinesis_spout.storm.graph.plan import Route, context_of, source_of
from kinesis_spout.storm.running.blocks import (
    FULL_BLOCK,
    GroupBlock,
    Keyed,
    Parcel,
    StageOutbox,
    StageReport,
    TupleBlock,
)
from kinesis_spout.storm.running.bolt_task import BoltTask
from kinesis_spout.storm.running.clocks import NO_TICKS, BatchTicks
from kinesis_spout.storm.running.collecting import Output, SendAll, TaskCollector
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.running.groups import Groups
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.results import TaskResults
from kinesis_spout.storm.running.trees import Trees
from kinesis_spout.storm.state.key_values import PartitionState

Record = Callable[[str, str, Sequence[Any]], None]
OpenState = Callable[[str, int], PartitionState]
"""Gives the state of a task at the beginning of the micro-batch, by its component and index."""
EmitRoot = Callable[..., bool]
_CALLS_OF_A_BOLT: Final = 8
"""That Python nests, at most, until the next bolt is called."""
_USERS_CALLS: Final = 250
"""For what bolts call, and for what has called us."""


class StageRun:
    """One stage, in one partition. Mutable.

    ``partition`` decides which task a bolt is here if any will do. ``record``, if given, is called with all
    that is emitted: component, stream, values. ``ends_run``: see ``TaskCollector``.
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
        self.trees = Trees(clock, program.timeout_seconds)
        if program.is_tracked and not program.ackers and stage < self._plan.exchanges:
            self.trees.groups = {}
        self.outbox = StageOutbox(program.partitions)
        self._tasks: dict[tuple[str, int], BoltTask] = {}
        self._ticks = NO_TICKS
        self.spout = TaskCollector(self._plan.spout, self.trees, ends_run)
        """The spout's output; wired in stage 0 only."""
        self.emit_root: EmitRoot = self.spout.emit_root
        self._groups: Groups | None = None
        self._record = record
        self._batches = 0
        if program.is_careful:
            self._groups = Groups(self.spout, self.trees, self._in_order, record)
            self.emit_root = self._groups.emit_root
            self._record = None if record is None else self._groups.note
            # All bolts call each other here, also those that exchanges separate elsewhere.
            needed = _USERS_CALLS + _CALLS_OF_A_BOLT * len(self._plan.stage_of)
            sys.setrecursionlimit(max(sys.getrecursionlimit(), needed))
        if stage == 0:
            self.spout.drop_last = self.outbox.drop_last
            self._wire(self.spout, self._plan.spout, 0)

    # A micro-batch

    def begin(self, states: OpenState | None = None, ticks: BatchTicks = NO_TICKS) -> None:
        """Begin a micro-batch. ``states`` gives each task with state its own; ``ticks`` come at the end."""
        self.trees.begin()
        self._ticks = ticks
        self._batches += 1
        self.outbox.clear()
        given: list[tuple[BoltTask, PartitionState]] = []
        for name in self._plan.stages[self.stage]:
            if self._graph[name].is_stateful:
                for index in self._own(name):
                    assert states is not None
                    given.append((self._task(name, index), states(name, index)))
                    given[-1][0].give_state(given[-1][1])
        if self._groups is not None:
            self._groups.begin(given)

    def run(
        self, blocks: Iterable[Keyed], states: OpenState | None = None, ticks: BatchTicks = NO_TICKS
    ) -> Iterator[Keyed]:
        self.begin(states, ticks)
        for partition, block in blocks:
            if isinstance(block, TupleBlock) and self._plan.stage_of[block.component] == self.stage:
                if self.program.ackers:
                    self.trees.tell(block)
                self._task(block.component, block.index).receive(block)
                yield from self.outbox.take()
            else:
                yield partition, block
        self.finish()
        yield from self.outbox.take()

    def finish(self) -> None:
        """End the micro-batch: tick, flush, time out. The outbox then has its last tuples, and the counts."""
        if self._groups is not None:
            self._finish_groups(self._groups)
        else:
            for task in self._ending():
                task.tick(self._ticks)
                task.emit_results_again()
                task.flush()
        self._close()

    def _finish_groups(self, groups: Groups) -> None:
        """End all groups. The ticks come once more if they came among roots whose group was taken back."""
        groups.end()
        for task in self._ending():
            task.emit_results_again()
        do_ticks_stand = False
        while True:
            groups.end()
            is_held = groups.is_open
            if do_ticks_stand and not is_held:
                return
            if not is_held:
                groups.give_states()
            for task in self._in_order():
                if not do_ticks_stand:
                    task.tick(self._ticks)
                task.flush()
                if not is_held:
                    groups.keep_work_of(task)
            do_ticks_stand = (not is_held or groups.settle()) or do_ticks_stand

    def _ending(self) -> Iterator[BoltTask]:
        """The tasks in the order of the flow, also those that only tick."""
        for component in self._plan.stages[self.stage]:
            if component in self._ticks.numbers and component in self._plan.exchanged:
                for index in self._own(component):
                    self._task(component, index)  # It ticks, whether a tuple has ever come to it or not.
        return self._in_order()

    def _in_order(self) -> Iterator[BoltTask]:
        for component in self._plan.stages[self.stage]:
            yield from [task for (name, _), task in self._tasks.items() if name == component]

    def _close(self) -> None:
        self.outbox.close()
        counts = self._taken_counts()
        if self.program.ackers and self._plan.exchanges:
            for acker, block in self.trees.ack_blocks(self.program.ackers):
                self.outbox.add(acker, block)
            self.outbox.add(0, StageReport(counts=counts))
            return
        self.outbox.add(0, self.trees.report(counts))
        if self.trees.groups:
            self.outbox.add(~self._partition, GroupBlock.of(self.trees.groups))

    def _own(self, component: str) -> range:
        return range(self._partition, self._graph[component].parallelism, self.program.partitions)

    def _taken_counts(self) -> dict[str, ComponentCounts]:
        taken: dict[str, ComponentCounts] = defaultdict(ComponentCounts)
        for (component, _), task in self._tasks.items():
            taken[component].add(task.collector.counts.take())
        if self.stage == 0:
            taken[self._plan.spout].add(self.spout.counts.take())
        return dict(taken)

    def forget(self) -> None:
        """Let go of the micro-batch that has ended, and been taken: until the next one comes, if one comes."""
        self.trees.begin()
        self.outbox.clear()
        for task in self._tasks.values():
            task.forget()

    def close(self) -> None:
        for task in self._tasks.values():
            task.cleanup()

    # Wiring

    def _task(self, component: str, index: int) -> BoltTask:
        task = self._tasks.get((component, index))
        if task is None:
            program = self.program
            collector = TaskCollector(component, self.trees, self._ends_run)
            collector.drop_last = self.outbox.drop_last
            self._wire(collector, component, index)
            context = context_of(
                self._graph,
                program.topology,
                self._graph[component],
                index,
                processing_time=lambda: self._ticks.time,
                read_to=lambda: self._ticks.read_to,
            )
            results = None
            if self._graph[component].is_stateful:
                results = TaskResults(
                    collector,
                    self.trees,
                    time=lambda: self._ticks.time,
                    parallelism=context.parallelism,
                    group=self._groups,
                )
                collector.results = results
            task = BoltTask(
                program.new_bolt(component),
                context=context,
                conf=program.conf_of(component),
                collector=collector,
                trees=self.trees,
                tells_touched=program.is_careful or (self._plan.exchanges > 0 and program.is_exact),
                results=results,
            )
            self._tasks[component, index] = task
        return task

    def _wire(self, collector: TaskCollector, component: str, index: int) -> None:
        for name, stream in self._graph[component].streams.items():
            source = source_of(self._graph, component, name, index)
            to_all: list[Target] = []
            chosen: list[Choose] = []
            tasks: dict[int, Send] = {}
            send_all: SendAll | None = None
            for route in self._plan.routes[component, name]:
                targets = self._targets(route, source, collector)
                if route.fused:
                    to_all += targets
                    send_all = self._task_at_hand(route.target).sender_of_all(source)
                elif stream.direct:
                    tasks.update(targets)
                else:
                    chosen.append(chooser(route.grouping, stream, targets, self._partition))
            if self._record is not None:
                record = partial(self._record, component, name)
                chosen.append(partial(_chosen_by_none, record))
                tasks = {task: partial(_recorded, record, send) for task, send in tasks.items()}
            collector.outputs[name] = Output(
                len(stream.fields),
                direct=stream.direct,
                to_all=to_all,
                chosen=chosen,
                tasks=tasks,
                send_all=send_all,
            )

    def _targets(self, route: Route, source: Source, collector: TaskCollector) -> list[Target]:
        tasks = self._graph.tasks[route.target]
        if route.fused:
            task = self._task_at_hand(route.target)
            return [(task.context.task, task.sender(source))]
        return [(task, self._way(route.target, at, source, collector)) for at, task in enumerate(tasks)]

    def _task_at_hand(self, component: str) -> BoltTask:
        return self._task(component, self._partition % len(self._graph.tasks[component]))

    def _way(self, component: str, index: int, source: Source, collector: TaskCollector) -> Send:
        if self.program.is_careful:
            return self._direct_way(component, index, source)
        outbox, trees = self.outbox, self.trees
        is_undone = self._graph[component].is_stateful and self.program.is_exact
        tell = trees.tell if self.program.ackers else None
        parcel = Parcel(component, index, source, collector.refused, tell)
        outbox.fill(parcel, is_undone=is_undone)
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

    def _direct_way(self, component: str, index: int, source: Source) -> Send:
        send: Send | None = None
        made_in = 0

        def send_to_task(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            nonlocal send, made_in
            if send is None or made_in != self._batches:  # A task with state can have got another one.
                send, made_in = self._task(component, index).sender(source), self._batches
            send(values, root, others)

        return send_to_task


def _chosen_by_none(record: Callable[[Sequence[Any]], None], values: Sequence[Any]) -> Sequence[Target]:
    record(values)
    return ()


def _recorded(
    record: Callable[[Sequence[Any]], None],
    send: Send,
    values: Sequence[Any],
    root: int,
    others: tuple[int, ...] | None,
) -> None:
    record(values)
    send(values, root, others)
