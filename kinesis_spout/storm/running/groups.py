"""Careful runs, by which a failed tree leaves no trace in the state: groups of roots that halve.

At first all roots of a micro-batch run at once, in many processes. A tuple that fails where it has changed
state is undone there. A failed tree that also changed state elsewhere cannot be undone alone: others have
read what it put. Then nothing of what the micro-batch has changed counts. It is run again, *carefully*, and
only what happens then decides, because what failed before can have failed because of what was undone.

In a careful run all bolts are in one process, and the whole tree of a root is executed before the next root
begins. So a root that fails in that time is undone before anybody else has seen what it put, if that can be
undone: plain values can. Roots come in *groups*, at whose end bolts are flushed. If one fails only then, its
changes are undone key by key, together with those that came after them on the same keys: these roots run
again. A root that cannot be undone so is taken back with its whole group, which runs again in groups of half
the size, without the root that failed while it was executed. In a group of one nobody else is to blame. After
each group that is kept, groups are twice as large. So there is progress at any rate of failure.

A bolt can hold a tuple over its flush, because it waits for another one. A group then goes on until nothing is
held, and is kept or taken back as one: it runs again without all that failed.

Results (see ``storm.running.results``) are roots, too, of groups after the one that they came from.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kinesis_spout.model.handler import failure_of
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.running.bolt_task import BoltTask
from kinesis_spout.storm.running.collecting import TaskCollector
from kinesis_spout.storm.running.results import QueuedResult
from kinesis_spout.storm.running.trees import Trees
from kinesis_spout.storm.state.key_values import PartitionState, UnfitValue

MOST_CAREFUL: Final = 64
"""Micro-batches, before it is tried again to run one at once."""
_LARGEST: Final = 1_024
"""Roots in a group."""

_Found = TypeVar("_Found")
Noted = tuple[str, str, Sequence[Any]]
"""An emitted tuple: component, stream, values."""


class RunChoice:
    """Chooses how the next micro-batch is run. Mutable.

    If trees fail behind state at a rate, most runs at once are in vain. So after one of them the next
    micro-batches are run carefully from the start: one after the first time in vain, then twice as many each
    time, and fewer after each run at once that counted.
    """

    def __init__(self) -> None:
        self._left = 0
        self._next_time = 1

    def run(
        self,
        at_once: Callable[[], _Found | None],
        carefully: Callable[[], _Found],
        has_failed: Callable[[_Found], bool],
    ) -> _Found:
        """Run a micro-batch, and give the results of the run that counts.

        ``at_once`` gives None if its changes of the state must not count; then ``carefully`` runs.
        """
        if self._left:
            found = carefully()
            self._left = self._left - 1 if has_failed(found) else 0
            return found
        counted = at_once()
        if counted is not None:
            self._next_time = max(1, self._next_time // 2)
            return counted
        self._left = self._next_time
        self._next_time = min(2 * self._next_time, MOST_CAREFUL)
        return carefully()


class _Root(NamedTuple):
    root: int
    emit: Callable[[], object]
    result: QueuedResult | None = None


class Groups:
    """The roots of a careful run. Mutable.

    ``tasks`` gives all tasks in the order of the flow. ``record`` is called with what was emitted and stands.
    """

    def __init__(
        self,
        spout: TaskCollector,
        trees: Trees,
        tasks: Callable[[], Iterator[BoltTask]],
        record: Callable[[str, str, Sequence[Any]], None] | None,
    ) -> None:
        self._spout = spout
        self._trees = trees
        self._tasks = tasks
        self._record = record
        self._noted: list[Noted] = []
        """The tuples emitted since the last group was kept."""
        self._states: list[tuple[BoltTask, PartitionState]] = []
        self._group: list[_Root] = []
        self._failed_at_once: set[int] = set()
        """Those roots of the group that failed while they were executed."""
        self._touched: set[int] = set()
        """The roots that had changed state before the one at hand."""
        self._queued: list[_Root] = []
        """Results of roots that stand, and of the group; one whose root was undone is not in the state."""
        self._is_one = False
        """True if the group cannot be divided, as a bolt holds tuples of it over its flush."""
        self._size = _LARGEST

    def begin(self, states: list[tuple[BoltTask, PartitionState]]) -> None:
        self._states = states
        self._queued.clear()
        self._forget()
        for _, state in states:
            state.keep()

    def _forget(self) -> None:
        self._group.clear()
        self._noted.clear()
        self._forget_touched()

    def _forget_touched(self) -> None:
        self._failed_at_once.clear()
        self._touched.clear()
        self._trees.touched.clear()

    def note(self, component: str, stream: str, values: Sequence[Any]) -> None:
        """Note what was emitted, to record it if the group is kept."""
        self._noted.append((component, stream, values))

    @property
    def is_open(self) -> bool:
        return bool(self._group)

    def emit_root(self, values: Sequence[Any], root: int, stream: str = DEFAULT_STREAM) -> bool:
        """As ``TaskCollector.emit_root``; the tree is open also while its group is."""
        error = self._execute(_Root(root, partial(self._spout.emit_root, values, root, stream)))
        if self._is_full:
            self._run(self._ended())
        if error is not None:
            raise error
        return self.is_open or root in self._trees.opened

    @property
    def _is_full(self) -> bool:
        return len(self._group) >= self._size or bool(self._failed_at_once)

    def queue(self, result: QueuedResult) -> None:
        self._queued.append(_Root(result.root, result.emit, result))

    def end(self) -> None:
        """End all groups, but for one in which a bolt holds tuples over its flush; run all results."""
        while self._group or self._queued:
            again = self._ended() if self._group else self._taken_results()
            if self._group:
                return
            self._run(again)

    def settle(self) -> bool:
        """End a group in which nothing is held any more; tells whether all of it was kept."""
        self._is_one = True
        again = self._settled()
        if again is not None:
            self._run(again)
        return again is None

    def fail(self, collector: TaskCollector, reason: str) -> None:
        collector.refused({each.root for each in self._group}, reason)
        self._trees.touched.update(each.root for each in self._group)

    def keep_work_of(self, task: BoltTask) -> None:
        """Keep what no root has changed: a tick, or a flush after it."""
        unfit = self._kept()
        if unfit is not None:
            self._take_back()
            task.collector.refused((), unfit[1])

    def _run(self, roots: Iterable[_Root]) -> None:
        waiting = deque(roots)
        while waiting:
            self._execute(waiting.popleft())
            if self._is_full:
                waiting.extendleft(reversed(self._ended()))

    def _execute(self, each: _Root) -> BaseException | None:
        """Execute the tree of a root; undo it if it fails meanwhile, and can be undone.

        Gives what a grouping raised, which has failed the root.
        """
        trees = self._trees
        if not self._group:
            trees.begin_waiting()
            self.give_states()
        self._touched |= trees.touched
        trees.touched.clear()
        before = [len(state.log) for _, state in self._states]
        ended, noted = len(trees.ends), len(self._noted)
        self._group.append(each)
        raised = None
        try:
            each.emit()
        except BaseException as error:  # noqa: BLE001 - whatever a grouping raises fails its tuple
            self._spout.let_through(error)
            self._spout.refused({each.root}, failure_of(error).error_text)
            raised = error
        failed = list(trees.ends)[ended:] if len(trees.ends) > ended else []
        if failed and not self._is_holding:
            if failed == [each.root] and trees.touched <= {each.root} and self._is_undone(before):
                del self._noted[noted:]
            else:
                self._failed_at_once.update(failed)
        return raised

    def _is_undone(self, before: Sequence[int]) -> bool:
        """Undo what was changed since then, if that is possible."""
        changed = [
            (state, since)
            for (_, state), since in zip(self._states, before, strict=True)
            if len(state.log) > since
        ]
        can = all(state.can_undo(since) for state, since in changed)
        for state, since in changed if can else ():
            state.undo(since)
        if can:
            self._trees.touched.clear()
        return can

    def give_states(self) -> None:
        """Give each task its state, as at the beginning of a micro-batch."""
        for task, state in self._states:
            task.give_state(state)

    @property
    def _is_holding(self) -> bool:
        return any(task.is_holding for task in self._tasks())

    def _ended(self) -> list[_Root]:
        """End the group; gives what is to run after it. The group stays open if a bolt holds a tuple of it."""
        for task in self._tasks():
            if task.does_flush:
                task.release()
        opened = self._trees.opened
        if any(each.root in opened for each in self._group) and self._is_holding:
            self._is_one, self._size = True, 2 * len(self._group)
            self._failed_at_once.clear()
            return []
        again = self._settled()
        return self._taken_results() if again is None else again

    def _settled(self) -> list[_Root] | None:
        """End the group. None: it is kept. Otherwise it was taken back: gives the roots that must run again."""
        group, opened, touched = self._group[:], self._trees.opened, self._touched | self._trees.touched
        is_one, self._is_one = self._is_one or len(group) == 1, False
        failed = {each.root for each in group if each.root in opened}
        if not (touched.isdisjoint(failed) or is_one or self._failed_at_once):
            again = self._undone_by_key(group, failed)
            if again is not None:
                return again
        if touched.isdisjoint(failed):
            self._decide(group)
            unfit = self._kept()
            if unfit is None:
                self._size = min(2 * self._size, _LARGEST)
                self._group.clear()
                return None
            if is_one:
                task, reason = unfit
                failed = {each.root for each in group}
                task.collector.refused(failed, reason)
        final = failed if is_one else failed & self._failed_at_once
        self._size = max(1, len(group) // 2)
        self._take_back()
        for root in failed - final:
            self._trees.reopen(root)
        self._decide([each for each in group if each.root in final])
        self._kept()
        return [each for each in group if each.root not in final]

    def _undone_by_key(self, group: Sequence[_Root], failed: set[int]) -> list[_Root] | None:
        """Keep the group without what failed, and what came after it on its keys; gives what runs again.

        None: nothing was done, as that is not known, or would spare nobody.
        """
        states = [state for _, state in self._states]
        spoilt = _closure(states, failed)
        undone = spoilt | failed
        first_changes = [state.first_changes(undone) for state in states]
        again = [each for each in group if each.root in spoilt]
        if None in first_changes or len(again) == len(group):
            return None
        for state, changes in zip(states, first_changes, strict=True):
            state.put_back(changes or {})
        kept = [each for each in group if each.root not in spoilt]
        self._decide(kept)
        if self._kept() is not None:
            return None
        for each in again:
            self._trees.reopen(each.root)
        self._group.clear()
        return again + self._taken_results()

    def _decide(self, group: Iterable[_Root]) -> None:
        for each in group:
            if each.result is not None:
                each.result.decide(each.root in self._trees.opened)

    def _taken_results(self) -> list[_Root]:
        taken, self._queued = self._queued, []
        return taken

    def _kept(self) -> tuple[BoltTask, str] | None:
        """Keep what was changed; or keep nothing, and give the task that put an unfit value, and why."""
        pickled = []
        for task, state in self._states:
            try:
                pickled.append(state.pickled_since())
            except UnfitValue as error:
                return task, str(error)
        for (_, state), changed in zip(self._states, pickled, strict=True):
            state.kept_from(changed)
        if self._record is not None:
            for noted in self._noted:
                self._record(*noted)
        self._noted.clear()
        self._forget_touched()
        return None

    def _take_back(self) -> None:
        for _, state in self._states:
            state.take_back()
        self._forget()


def _closure(states: Sequence[PartitionState], failed: set[int]) -> set[int]:
    """The roots that have seen what these had changed, or what such roots had changed after that."""
    spoilt: set[int] = set()
    while True:
        found = spoilt.union(*(state.spoilt(failed | spoilt) for state in states))
        if found == spoilt:
            return found
        spoilt = found
