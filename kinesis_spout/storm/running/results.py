"""Emits the results of a task with state, and undoes a tick that raises.

A window, and a tick of a bolt with state, handle tuples that were acked before: if what they emit fails, no
record is delivered again for it. So each such tuple, a *result*, is the root of a tree of its own, and is kept
in the state until that tree is complete. It is stored in the transaction of the change that it came with. If its
tree fails, it is emitted again, after a rest that grows.

Tuples that a bolt emits in a tick, or for a window, are gathered until its call returns. If that raises,
nothing was emitted. Otherwise each tuple is a root. One whose tree completes before its ``emit`` has returned
needs no more; any other is put into the state.

A result is *sent* while it is not known how its tree ended: in a job the driver decides that, after the part of
the state was written. The manifest names the sent results that failed; the next micro-batch that opens the part
learns from it which ones to forget and which ones to emit again.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from kinesis_spout.storm.components.bolt import FailedException
from kinesis_spout.storm.running.collecting import ChosenTuple, TaskCollector
from kinesis_spout.storm.running.trees import Trees, new_result_root
from kinesis_spout.storm.state.key_values import PartitionState, Result, ResultKey, UnfitValue

MOST_WAITING: Final = 10_000
"""The most failed results of a bolt, over all its tasks. With more its windows stay open: then their records
fail, deliveries slow down, and the state does not grow."""


class ResultFails(Exception):  # noqa: N818 - what happened
    """Reported when a result is emitted again, because its tree failed before."""


class QueuedResult(NamedTuple):
    """A result that a group runs as one of its roots."""

    root: int
    emit: Callable[[], object]
    decide: Callable[[bool], None]
    """Called when its group ends, with whether its tree failed."""


class OpenGroup(Protocol):
    """The group of roots that a careful run has at hand: see ``groups``."""

    @property
    def is_open(self) -> bool: ...

    def queue(self, result: QueuedResult) -> None:
        """Take a result, to run it as a root."""
        ...

    def fail(self, collector: TaskCollector, reason: str) -> None:
        """Fail all roots of the group, so that all of it is taken back."""
        ...


class TaskResults:
    """Those of one task. Mutable.

    ``group``: of a careful run, which runs results as roots; None: they are emitted at once.
    """

    def __init__(
        self,
        collector: TaskCollector,
        trees: Trees,
        *,
        time: Callable[[], float],
        parallelism: int,
        group: OpenGroup | None = None,
    ) -> None:
        self._collector = collector
        self._trees = trees
        self._time = time
        self._most = max(1, MOST_WAITING // parallelism)
        self._group = group
        self._state: PartitionState | None = None

    def give_state(self, state: PartitionState) -> None:
        self._state = state

    def of(self, work: Callable[[], object]) -> None:
        """Do work whose emits are results. FailedException: too many of those before have failed."""
        if self._state is not None and self._state.failed_results >= self._most:
            raise FailedException(
                f"expected fewer than {self._most} tuples of this task's windows or ticks that failed in later "
                "bolts, got as many: no window is executed until they are done; mend those bolts"
            )
        collector = self._collector
        emits_results, collector.emits_results = collector.emits_results, True
        try:
            work()
        finally:
            collector.emits_results = emits_results

    def attempt(self, work: Callable[[], object]) -> bool:
        """Do work of a tick as a whole or not at all; tells whether it was done. Errors are reported."""
        state, collector = self._state, self._collector
        assert state is not None, "it was given"
        is_alone = self._group is None or not self._group.is_open
        collector.ended_in_tick = []
        try:
            if is_alone:
                state.keep()
            self.of(work)
            if self._group is not None:
                self.emit()  # They are queued, and kept with the rest.
            if is_alone:
                state.keep()
        except BaseException as error:  # noqa: BLE001 - whatever it raises is undone
            collector.gathered.clear()
            collector.let_through(error)
            self._undo(error, is_alone=is_alone)
            return False
        finally:
            collector.ended_in_tick = None
        self.emit()
        return True

    def _undo(self, error: BaseException, *, is_alone: bool) -> None:
        state, collector = self._state, self._collector
        assert state is not None, "it was given"
        why = "undone, because the tick in which it was acked has raised"
        if not is_alone:
            assert self._group is not None, "it is open"
            self._group.fail(collector, why)
        elif state.kept is None:
            return  # A tuple has left a value that cannot be kept: the micro-batch will not count.
        else:
            state.take_back()
            if collector.ended_in_tick:
                collector.refused(collector.ended_in_tick, why)
        collector.report_error(TypeError(str(error)) if isinstance(error, UnfitValue) else error)

    def emit(self) -> None:
        """Emit what was gathered."""
        collector = self._collector
        gathered, collector.gathered = collector.gathered, []
        for each in gathered:
            self._emit(ResultKey(new_result_root()), Result(each.stream, each.values, each.task), each)

    def emit_again(self) -> None:
        """Emit the results that failed, and are due."""
        state, now = self._state, self._time()
        assert state is not None, "it was given"
        results = state.results() if state.failed_results else []
        due = [(key, each) for key, each in results if each.not_before is not None and each.not_before <= now]
        if due:
            most = max(result.tries for _, result in due)
            self._collector.report_error(
                ResultFails(
                    f"{len(due)} tuples that it emitted for windows or on ticks failed in later bolts, up to "
                    f"{most} times: they are emitted again"
                )
            )
        for key, result in due:
            try:
                chosen = self._collector.chosen(result.stream, result.values, result.task)
            except Exception as error:  # noqa: BLE001 - whatever a grouping raises
                self._collector.report_error(error)
                state.put(key, result.after_failure(now))
            else:
                self._emit(key, result, chosen)

    def _emit(self, key: ResultKey, result: Result, chosen: ChosenTuple) -> None:
        state, trees, root = self._state, self._trees, key.root
        assert state is not None, "it was given"

        def emit() -> None:
            self._collector.counts.emitted += 1
            for _, send in chosen.targets:
                send(result.values, root, None)

        def emit_if_there() -> None:
            if state.has(key):  # It is not if what it came from was undone.
                emit()

        if self._group is not None:
            state.put(key, result._replace(not_before=None))
            self._group.queue(QueuedResult(root, emit_if_there, partial(self._decide, key, result)))
            return
        trees.has_left = False
        emit()
        if root in trees.opened or trees.has_left:
            state.put(key, result._replace(not_before=None))
        elif result.tries:
            state.delete(key)

    def _decide(self, key: ResultKey, result: Result, has_failed: bool) -> None:  # noqa: FBT001 - called by Groups only
        assert self._state is not None, "it was given"
        if has_failed:
            self._state.failed_results += 1
            self._state.put(key, result.after_failure(self._time()))
        else:
            self._state.delete(key)
