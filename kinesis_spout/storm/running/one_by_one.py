"""How a tree that failed leaves no trace in the state: when roots run one by one, and what that is.

At first all roots of a micro-batch run at once, in many processes. A tuple that fails where it has changed
state is undone there. A failed tree that also changed state elsewhere cannot be undone alone: others have
read what it put. Then nothing of what the micro-batch has changed counts. It is run again, *one by one*, and
only what happens then decides, because what failed before can have failed because of what was undone.

One by one, all bolts are in one process. A root's whole tree is executed, its bolts are flushed, and only
then the next root begins. What the root has changed is then kept, or taken back, as if it had never come. So
there is progress at any rate of failure. To a bolt each root is its own micro-batch.

A bolt can hold a tuple over its flush, because it waits for another one. The roots up to the moment when
nothing is held are then one *unit*: all of it is kept, or it is taken back and run again without those that
failed.
"""

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kinesis_spout.model.handler import failure_of
from kinesis_spout.storm.components.tuples import Source, Tuple
from kinesis_spout.storm.graph.grouping import Send
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.running.bolt_task import BoltTask
from kinesis_spout.storm.running.clocks import NO_TICKS, Ticks
from kinesis_spout.storm.running.collecting import AsRoot, Collector
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.stage_run import OpenState, Record, StageRun
from kinesis_spout.storm.running.trees import new_root
from kinesis_spout.storm.state.key_values import PartitionState, UnfitValue

MOST_ONE_BY_ONE: Final = 64
"""Micro-batches, before it is tried again to run one at once."""
_CALLS_OF_A_BOLT: Final = 8
"""That Python nests, at most, until the next bolt is called."""
_USERS_CALLS: Final = 250
"""For what bolts call, and for what has called us."""

_Found = TypeVar("_Found")


class RunChoice:
    """How the next micro-batch is run. Mutable.

    Where trees fail behind state at a rate, most runs at once are in vain. So after one of them the next
    micro-batches are run one by one from the start: one after the first time in vain, then twice as many each
    time, and fewer after each run at once that counted.
    """

    def __init__(self) -> None:
        self._left = 0
        self._next_time = 1

    def run(
        self,
        at_once: Callable[[], _Found | None],
        one_by_one: Callable[[], _Found],
        has_failed: Callable[[_Found], bool],
    ) -> _Found:
        """Run a micro-batch, and give the results of the run that counts.

        ``at_once`` gives None if its changes of the state must not count; then ``one_by_one`` runs.
        """
        if self._left:
            found = one_by_one()
            self._left = self._left - 1 if has_failed(found) else 0
            return found
        counted = at_once()
        if counted is not None:
            self._next_time = max(1, self._next_time // 2)
            return counted
        self._left = self._next_time
        self._next_time = min(2 * self._next_time, MOST_ONE_BY_ONE)
        return one_by_one()


class _Root(NamedTuple):
    values: Sequence[Any]
    root: int
    stream: str


class OneByOneRun(StageRun):
    """The only stage of a program that ``is_one_by_one``. Mutable."""

    def __init__(self, *args: Any, record: Record | None = None, **settings: Any) -> None:
        self._recorded: list[tuple[str, str, Sequence[Any]]] = []
        self._record_kept = record
        self._open_state: OpenState | None = None
        self._states: dict[tuple[str, int], PartitionState] = {}
        """Of the tasks that got theirs in this micro-batch."""
        self._unit: list[_Root] = []
        """The roots whose work is neither kept nor taken back."""
        self._given: set[tuple[str, int]] = set()
        """The tasks that got their state in this unit, as at the beginning of a micro-batch."""
        self._active: dict[str, list[BoltTask]] = defaultdict(list)
        """These, and all without state, by component."""
        super().__init__(*args, record=None if record is None else self._note, **settings)
        self.emit_root = self._emit_root
        # All bolts call each other here, also those that exchanges separate elsewhere.
        needed = _USERS_CALLS + _CALLS_OF_A_BOLT * len(self._plan.stage_of)
        sys.setrecursionlimit(max(sys.getrecursionlimit(), needed))

    # A micro-batch

    def begin(self, states: OpenState | None = None, ticks: Ticks = NO_TICKS) -> None:
        self._open_state = states
        self._states.clear()
        self._forget_given()
        self._unit.clear()
        self._recorded.clear()
        super().begin(None, ticks)

    def _give_states(self, states: OpenState | None) -> None:
        """A task gets its state with its first tuple, or its tick."""

    def _emit_root(self, values: Sequence[Any], root: int, stream: str = DEFAULT_STREAM) -> bool:
        """As ``Collector.emit_root``; the tree is open also while its unit is."""
        self._run_root(_Root(values, root, stream))
        self._run_again(self._ended_unit())
        return bool(self._unit) or root in self.trees.opened

    def _run_root(self, given: _Root) -> None:
        if not self._unit:
            self.trees.begin_waiting()
        self.spout.emit_root(given.values, given.root, given.stream)
        self._unit.append(given)
        for task in self._in_order():
            if task.does_flush:
                task.release()

    def _run_again(self, given: Iterable[_Root]) -> None:
        waiting = deque(given)
        while waiting:
            each = waiting.popleft()
            try:
                self._run_root(each)
            except BaseException as error:  # noqa: BLE001 - whatever a grouping raises fails its tuple
                self.spout.let_through(error)
                self.spout.refused({each.root}, failure_of(error).error_text)
            waiting.extendleft(reversed(self._ended_unit()))

    def _ended_unit(self) -> list[_Root]:
        opened = self.trees.opened
        is_open = any(each.root in opened for each in self._unit)
        if is_open and any(task.is_holding for task in self._in_order()):
            return []
        return self._settled() or []

    def finish(self) -> None:
        """The ticks come once more if they came among roots whose unit was taken back."""
        while True:
            has_held = bool(self._unit)
            for task in self._ending():
                task.tick(self._ticks)
                task.flush()
                if not has_held:
                    self._keep_work_of(task)
            again = self._settled() if has_held else None
            if again is None:
                break
            self._run_again(again)
        self._close()

    def _ending(self) -> Iterator[BoltTask]:
        for component in self._plan.stages[0]:
            if component in self._ticks.numbers and component in self._plan.exchanged:
                for index in self._own(component):
                    self._ready(component, index)
        yield from self._in_order()

    def _in_order(self) -> Iterator[BoltTask]:
        """The tasks in the order of the flow, also those that get their first tuple meanwhile.

        Of those with state only the ones that got it in this unit: the others have had no tuple.
        """
        for component in self._plan.stages[0]:
            yield from tuple(self._active[component])

    def _settled(self) -> list[_Root] | None:
        """End the unit. None: it is kept. Otherwise it is taken back: gives the roots that must run again."""
        unit, self._unit = self._unit, []
        self._forget_given()
        opened = self.trees.opened
        if not any(each.root in opened for each in unit):
            unfit = self._kept()
            if unfit is None:
                return None
            task, reason = unfit
            task.collector.refused({each.root for each in unit}, reason)
        self._take_back()
        return [each for each in unit if each.root not in opened]

    def _keep_work_of(self, task: BoltTask) -> None:
        unfit = self._kept()
        if unfit is not None:
            self._take_back()
            task.collector.refused((), unfit[1])

    def _kept(self) -> tuple[BoltTask, str] | None:
        """Keep what was changed; or keep nothing, and give the task that put an unfit value, and why."""
        pickled = {}
        for key, state in self._states.items():
            try:
                pickled[key] = state.pickled_unit()
            except UnfitValue as error:
                return self._tasks[key], str(error)
        for key, state in self._states.items():
            state.keep_unit(pickled[key])
        if self._record_kept is not None:
            for noted in self._recorded:
                self._record_kept(*noted)
            self._recorded.clear()
        return None

    def _take_back(self) -> None:
        for state in self._states.values():
            state.take_unit_back()
        self._recorded.clear()

    def _note(self, component: str, stream: str, values: Sequence[Any]) -> None:
        self._recorded.append((component, stream, values))

    # Wiring

    def _ready(self, component: str, index: int) -> BoltTask:
        key, task = (component, index), self._task(component, index)
        if self._graph[component].is_stateful and key not in self._given:
            assert self._open_state is not None
            if key not in self._states:
                self._states[key] = self._open_state(component, index)
                self._states[key].begin_unit()
            task.give_state(self._states[key])
            self._given.add(key)
            self._active[component].append(task)
        return task

    def _task(self, component: str, index: int) -> BoltTask:
        is_new = (component, index) not in self._tasks
        task = super()._task(component, index)
        if is_new and not self._graph[component].is_stateful:
            self._active[component].append(task)
        return task

    def _forget_given(self) -> None:
        for component, _ in self._given:
            self._active[component].clear()
        self._given.clear()

    def _way(self, component: str, index: int, source: Source, collector: Collector) -> Send:
        del collector
        send: Send | None = None

        def send_when_ready(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            nonlocal send
            if send is None or (component, index) not in self._given:
                send = self._ready(component, index).sender(source)
            send(values, root, others)

        return send_when_ready

    def _as_root(self, task: BoltTask) -> AsRoot:
        """Keep or take back work alone; while a unit is open, the work waits for another tick."""

        def run_as_root(work: Callable[[Tuple], None]) -> None:
            if self._unit:
                return
            self._keep_work_of(task)
            root = new_root()
            task.run_as_root(work, root)
            for other in self._in_order():
                if other is not task:
                    other.flush()
            if root in self.trees.opened:
                self._take_back()
            else:
                self._keep_work_of(task)

        return run_as_root


def run_of(
    program: Program, stage: int, partition: int, clock: Callable[[], float], **settings: Any
) -> StageRun:
    kind = OneByOneRun if program.is_one_by_one else StageRun
    return kind(program, stage, partition, clock, **settings)
