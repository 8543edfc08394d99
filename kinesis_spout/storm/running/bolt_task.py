"""One task of a bolt: calls the user's object, and keeps the tuples that it holds back."""

from array import array
from collections.abc import Collection, Sequence
from functools import partial
from time import perf_counter
from types import CodeType
from typing import Any, Final

from kinesis_spout.model.handler import failure_of, failure_saying
from kinesis_spout.model.unfinished_work import refuse_unfinished
from kinesis_spout.storm.components.bolt import VERDICTS, BatchBolt, Bolt, CombinerBolt, StatefulBolt
from kinesis_spout.storm.components.given import TaskContext
from kinesis_spout.storm.components.tuples import TICK, Source, Tuple, TupleState
from kinesis_spout.storm.graph.grouping import Send
from kinesis_spout.storm.running.blocks import TupleBlock
from kinesis_spout.storm.running.clocks import BatchTicks
from kinesis_spout.storm.running.collecting import SendAll, TaskCollector
from kinesis_spout.storm.running.combining import Combining
from kinesis_spout.storm.running.results import TaskResults
from kinesis_spout.storm.running.trees import Trees
from kinesis_spout.storm.state.key_values import PartitionState

_SAMPLE: Final = 64
"""One call in this many is timed, beginning with the first of each micro-batch."""
_LOOK_THROUGH: Final = 1_024
"""Tuples held, at least, before those that the bolt has acked meanwhile are let go."""
_NOT_ACKED: Final = "neither acked nor failed by the end of the micro-batch"


class BoltTask:
    """One task of one bolt, in this process. Mutable.

    ``tells_touched``: whether the task reports which roots have changed its state. ``results``: of a bolt with
    state.
    """

    def __init__(
        self,
        bolt: Bolt,
        *,
        context: TaskContext,
        conf: dict[str, Any],
        collector: TaskCollector,
        trees: Trees,
        tells_touched: bool = False,
        results: TaskResults | None = None,
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
        self._state: PartitionState | None = None
        self._tells_touched = tells_touched
        self.results = results
        self._came: list[TupleBlock] = []
        """The blocks that have come to a bolt with state in this micro-batch."""
        self._batching: BatchBolt | None = None
        """The bolt, if it takes whole blocks. With state it gets tuples one by one."""
        if isinstance(bolt, BatchBolt) and not isinstance(bolt, StatefulBolt):
            is_ours = (type(bolt).execute, type(bolt).flush) == (BatchBolt.execute, BatchBolt.flush)
            self._batching = bolt if is_ours else None
        self._combining: Combining | None = None
        if isinstance(bolt, CombinerBolt):
            self._combining = Combining(bolt, collector, trees, self._raised)
        self.does_flush = self._combining is not None or type(bolt).flush is not Bolt.flush
        self._remembers_as_one = isinstance(bolt, StatefulBolt) or bolt.is_sticky
        try:
            bolt.prepare(conf, context, collector)
        except BaseException as error:
            error.add_note(f"raised by prepare of component {context.component!r}, task {context.task}")
            raise

    def give_state(self, state: PartitionState) -> None:
        assert isinstance(self._bolt, StatefulBolt)
        assert self.results is not None
        self._came.clear()
        self._state = state
        self.results.give_state(state)
        self._bolt.init_state(state)

    def receive(self, block: TupleBlock) -> None:
        """Execute the tuples of a block; all at once if the bolt takes them so, which costs less."""
        if self._batching is not None:
            self.receive_all(block, self._batching)
            return
        if self._tells_touched and self._state is not None:
            self._came.append(block)
        send, ends, drop_last = self.sender(block.source), self._trees.ends, self.collector.drop_last
        for values, root, others in block.tuples():
            send(values, root, others)
            if ends and root in ends:
                drop_last(root)

    def receive_all(self, block: TupleBlock, bolt: BatchBolt) -> None:
        """Tuples are not counted as held: nobody asks before the stage ends, when they are acked or failed."""
        counts, source, began = self._counts, block.source, perf_counter()
        tuples = [Tuple(values, source, root, others) for values, root, others in block.tuples()]
        counts.executed += len(tuples)
        bolt.execute_all(tuples)
        counts.sampled += len(tuples)
        counts.sampled_seconds += perf_counter() - began

    def sender(self, source: Source) -> Send:
        if self._combining is not None:
            return self._combining.senders(source)[0]
        counts, call, hold = self._counts, self._call, self._hold

        def send(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            tup = Tuple(values, source, root, others)
            counts.executed = number = counts.executed + 1
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

        if self._state is None or self.results is None:
            return send
        return self._with_state(send, self._state, self.results)

    def sender_of_all(self, source: Source) -> SendAll | None:
        """Take several tuples of the same trees in one call; None if that saves nothing."""
        return None if self._combining is None else self._combining.senders(source)[1]

    def _with_state(self, send: Send, state: PartitionState, results: TaskResults) -> Send:
        """Report which roots change the state. Undo at once what a tuple that failed at once has changed.

        A careful run does that itself, for whole trees. Tuples that it leaves to emit are emitted behind it.
        """
        collector, log, ends, touch = self.collector, state.log, self._trees.ends, self._trees.touched.add
        tells, is_careful = self._tells_touched, state.kept is not None

        def send_and_tell(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            if tells and ends and others is None and root in ends:
                return  # Its tree has failed: what it did here would have to be undone.
            before = len(log)
            send(values, root, others)
            if len(log) == before:
                return
            if tells and (others or (ends and not is_careful)):
                self._tell_touched((root, *(others or ())), state)
            elif tells:
                touch(root)
            if collector.gathered:
                results.emit()
            if is_careful:
                state.attribute(before, (root, *others) if others else (root,))
            else:
                log.clear()

        return send_and_tell

    def _tell_touched(self, roots: Collection[int], state: PartitionState) -> None:
        ends = self._trees.ends
        if ends and state.kept is None and all(root in ends for root in roots) and state.can_undo():
            state.undo()
            self.collector.gathered.clear()
        else:
            self._trees.touched.update(roots)

    def tick(self, ticks: BatchTicks) -> None:
        """Give the bolt a tick, if one is due (see ``clocks``). An error of it then fails no tuple."""
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
            if self.results is None:
                returned: object = self._call(tick)
                if returned is not None:
                    refuse_unfinished(returned)
            else:
                self.results.attempt(partial(self._call, tick))
        except BaseException as error:  # noqa: BLE001 - no tuple is at stake
            self.collector.report_error(error)
        # Bolts of Storm ack ticks, too; but ticks are no tuples, and not counted as executed either.
        self._counts.acked -= tick.state is TupleState.ACKED
        self._counts.failed -= tick.state is TupleState.FAILED

    def emit_results_again(self) -> None:
        if self.results is not None:
            self.results.emit_again()

    def flush(self) -> None:
        """Flush the bolt. Tuples that it still holds then have timed out, or fail if ``flush`` raised."""
        self.release()
        for tup in self._held:
            self.collector.time_out(tup, failure_saying(_NOT_ACKED))
        self._held.clear()
        self._look_through_at = _LOOK_THROUGH

    def release(self) -> None:
        """Flush the bolt. Tuples that it still holds fail only if ``flush`` raised."""
        state = self._state if self._tells_touched else None
        before = 0 if state is None else len(state.log)
        try:
            if self._combining is not None:
                self._combining.flush()
            returned: object = self._bolt.flush()  # type: ignore[func-returns-value]
            if returned is not None:
                refuse_unfinished(returned)
        except BaseException as error:  # noqa: BLE001 - it fails what the bolt still holds
            if not isinstance(error, VERDICTS):
                self.collector.report_error(error)
            for tup in self._held:
                if not tup.state:
                    self.collector.fail(tup, error)
        self._held[:] = [tup for tup in self._held if not tup.state]
        if state is not None and len(state.log) > before:
            # Any tuple that came could have left in the bolt's memory what was put now.
            for block in self._came:
                self._trees.touched.update(array("Q", block.roots))
                self._trees.touched.update(*block.others.values())
            self._trees.touched.discard(0)

    def forget(self) -> None:
        self._came.clear()

    @property
    def is_holding(self) -> bool:
        return any(not tup.state for tup in self._held)

    def cleanup(self) -> None:
        try:
            self._bolt.cleanup()
        except BaseException as error:  # noqa: BLE001 - nothing depends on it any more
            self.collector.report_error(error)

    def _hold(self, tup: Tuple) -> None:
        tup.is_held = True
        self._trees.count(tup.roots, 1)
        if self._state is not None and self._tells_touched:
            # The bolt can put something for it while another one is executed.
            self._trees.touched.update(tup.roots)
        held = self._held
        held.append(tup)
        if len(held) >= self._look_through_at:
            held[:] = [each for each in held if not each.state]
            self._look_through_at = max(_LOOK_THROUGH, 2 * len(held))

    def _raised(self, error: BaseException, tup: Tuple) -> None:
        self.collector.let_through(error)
        self.collector.gathered.clear()
        is_verdict = isinstance(error, VERDICTS)
        if not is_verdict:
            self.collector.errors.count(failure_of(error).error_text)
        if not tup.state:
            self.collector.fail(tup, error)
        elif not is_verdict:
            self.collector.errors.log(
                f"raised {self._counts.last_error} after it had {tup.state.name.lower()} the tuple, which stays so"
            )


_CALLING: Final = (BoltTask.receive_all, BoltTask.tick, BoltTask.release, TaskResults.of)
CALLS: Final = frozenset(
    code
    for code in (*(each.__code__ for each in _CALLING), *BoltTask.sender.__code__.co_consts)
    if isinstance(code, CodeType)
)
"""The functions in which a call of a component is under way; ``of`` that of a window or a tick."""
