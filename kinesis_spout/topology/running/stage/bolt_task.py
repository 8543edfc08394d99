"""One task of a bolt: calls the user's object, and keeps the tuples that it holds back."""

from collections.abc import Sequence
from time import perf_counter
from types import CodeType
from typing import Any, Final

from kinesis_spout.handler import failure_of, failure_saying
from kinesis_spout.topology.components.bolt import VERDICTS, Bolt, StatefulBolt
from kinesis_spout.topology.components.context import TaskContext
from kinesis_spout.topology.components.state import KeyValueState
from kinesis_spout.topology.components.tuples import TICK, Source, Tuple, TupleState
from kinesis_spout.topology.running.stage.collecting import Collector, Send
from kinesis_spout.topology.running.tick_clock import Ticks
from kinesis_spout.topology.running.trees import Trees
from kinesis_spout.topology.state.checked_state import CheckedState
from kinesis_spout.unfinished_work import refuse_unfinished

_SAMPLE: Final = 64
"""One call in so many is timed, beginning with the first of each micro-batch."""
_LOOK_THROUGH: Final = 1_024
"""Tuples held, at least, before those that the bolt has acked meanwhile are let go."""
_NOT_ACKED: Final = "neither acked nor failed by the end of the micro-batch"


class BoltTask:
    """One task of one bolt, in this process. Mutable.

    Args:
        bolt: the user's object, this task's own.
        context: which task it is.
        conf: the topology's, with the component's own over it.
        collector: already wired.
        trees: of this process.
    """

    def __init__(
        self,
        bolt: Bolt,
        *,
        context: TaskContext,
        conf: dict[str, Any],
        collector: Collector,
        trees: Trees,
    ) -> None:
        self.context = context
        self.collector = collector
        self._bolt = bolt
        self._call = bolt.execute
        self._trees = trees
        self._counts = collector.counts
        self._held: list[Tuple] = []
        """Those with a tree that the bolt had not acked or failed when it returned."""
        self._look_through_at = _LOOK_THROUGH
        self._last_tick = 0
        self._ticked_in: str | None = None
        """The micro-batch of that tick."""
        self._is_stateful = isinstance(bolt, StatefulBolt)
        self._checked: CheckedState | None = None
        """Its state, in a run that finds out who puts into it what cannot be kept."""
        self._remembers_as_one = self._is_stateful or bolt.has_home
        try:
            bolt.prepare(conf, context, collector)
        except BaseException as error:
            error.add_note(f"raised by prepare of component {context.component!r}, task {context.task}")
            raise

    def give_state(self, state: KeyValueState) -> None:
        """Give the bolt its state, before the tuples of a micro-batch."""
        assert isinstance(self._bolt, StatefulBolt)
        self._checked = state if isinstance(state, CheckedState) else None
        self._bolt.init_state(state)

    def sender(self, source: Source) -> Send:
        """Give what has the bolt execute the tuples of one source."""
        counts, trees, call, hold = self._counts, self._trees, self._call, self._hold
        is_stateful = self._is_stateful

        def send(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            tup = Tuple(values, source, root, others)
            counts.executed = number = counts.executed + 1
            if is_stateful:
                trees.touched.update(tup.roots)
            began = perf_counter() if number % _SAMPLE == 1 else 0.0
            try:
                returned: object = call(tup)
                if returned is not None:
                    refuse_unfinished(returned)
            except BaseException as error:  # noqa: BLE001 - whatever it raises fails its tuple
                self._raised(error, tup)
            if began:
                counts.sampled += 1
                counts.sampled_seconds += perf_counter() - began
            if root and not tup.state:
                hold(tup)

        return send if self._checked is None else self._checking(send, self._checked)

    def _checking(self, send: Send, checked: CheckedState) -> Send:
        """Have a tuple fail that leaves in the state what cannot be kept, with those that the bolt held back."""

        def send_and_check(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            send(values, root, others)
            reason = checked.take_back()
            if reason is not None:
                self.collector.refused({root, *(others or ()), *self._held_roots()} - {0}, reason)

        return send_and_check

    def tick(self, ticks: Ticks) -> None:
        """Give the bolt a tick, if one is due (see ``tick_clock``). What it raises then fails no tuple."""
        component = self.context.component
        number = ticks.numbers.get(component, 0)
        if self._remembers_as_one:
            is_due = component in ticks.new
        else:
            is_due = number > self._last_tick or self._ticked_in == ticks.batch
        if not is_due:
            return
        self._last_tick, self._ticked_in = number, ticks.batch
        tick = Tuple((), TICK)
        try:
            self._call(tick)
        except BaseException as error:  # noqa: BLE001 - no tuple is at stake
            self.collector.report_error(error)
        # Bolts of Storm ack ticks, too; but they are no tuples, and counted as executed neither.
        self._counts.acked -= tick.state is TupleState.ACKED
        self._counts.failed -= tick.state is TupleState.FAILED
        reason = self._checked.take_back() if self._checked is not None else None
        if reason is not None:
            self.collector.refused((), reason)

    def flush(self) -> None:
        """Have the bolt finish. What it still holds then has timed out, or fails if ``flush`` raised."""
        held_roots = self._held_roots() if self._checked is not None else set()
        raised: BaseException | None = None
        try:
            self._bolt.flush()
        except BaseException as error:  # noqa: BLE001 - it fails what the bolt still holds
            if not isinstance(error, VERDICTS):
                self.collector.report_error(error)
            raised = error
        held, self._held, self._look_through_at = self._held, [], _LOOK_THROUGH
        for tup in held:
            if tup.state:
                continue
            if raised is not None:
                self.collector.fail(tup, raised)
            else:
                self.collector.time_out(tup, failure_saying(_NOT_ACKED))
        if self._checked is not None:
            self._end_check(self._checked, held_roots)

    def _end_check(self, checked: CheckedState, held_roots: set[int]) -> None:
        reason = checked.take_back()
        if reason is not None:
            self.collector.refused(held_roots, reason)
        reason = checked.take_back_all()
        if reason is not None:
            # It was changed in place, by what did not ask the state for it. Whose tuple did it, nobody knows.
            self.collector.refused(self._trees.touched, reason)

    def _held_roots(self) -> set[int]:
        return {root for tup in self._held for root in tup.roots}

    def cleanup(self) -> None:
        """End the bolt."""
        try:
            self._bolt.cleanup()
        except BaseException as error:  # noqa: BLE001 - nothing depends on it any more
            self.collector.report_error(error)

    def _hold(self, tup: Tuple) -> None:
        tup.is_held = True
        self._trees.count(tup.roots, 1)
        held = self._held
        held.append(tup)
        if len(held) >= self._look_through_at:
            held[:] = [each for each in held if not each.state]
            self._look_through_at = max(_LOOK_THROUGH, 2 * len(held))

    def _raised(self, error: BaseException, tup: Tuple) -> None:
        self.collector.let_through(error)
        is_verdict = isinstance(error, VERDICTS)
        if not is_verdict:
            self.collector.errors.count(failure_of(error).error_text)
        if not tup.state:
            self.collector.fail(tup, error)
        elif not is_verdict:
            self.collector.errors.log(
                f"raised {self._counts.last_error} after it had {tup.state.name.lower()} the tuple, which stays so"
            )


CALLS: Final = frozenset(
    code
    for code in (BoltTask.tick.__code__, BoltTask.flush.__code__, *BoltTask.sender.__code__.co_consts)
    if isinstance(code, CodeType)
)
"""The functions in which a call of a component is under way: of ``execute`` (``send``), or of ``flush``."""
