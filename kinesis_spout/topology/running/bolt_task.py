"""One task of a bolt: calls the user's object, and keeps the tuples that it holds back."""

import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final

from kinesis_spout.handler import Failure, failure_of
from kinesis_spout.topology.acking import Ending, TreeEnd
from kinesis_spout.topology.components.bolt import Bolt, FailedException, StatefulBolt
from kinesis_spout.topology.components.context import TaskContext
from kinesis_spout.topology.components.state import KeyValueState
from kinesis_spout.topology.components.tuples import TICK, Source, Tuple
from kinesis_spout.topology.running.collecting import Collector, Send
from kinesis_spout.topology.running.trees import Trees

_SAMPLE: Final = 64
"""One call in so many is timed."""
_NOT_ACKED: Final = "neither acked nor failed by the end of the micro-batch"

_log: Final = logging.getLogger(__name__)


class BoltTask:
    """One task of one bolt, in this process. Mutable.

    Args:
        bolt: the user's object, this task's own.
        context: which task it is.
        conf: the topology's, with the component's own over it.
        collector: already wired.
        trees: of this process.
        clock: monotonic.
    """

    def __init__(
        self,
        bolt: Bolt,
        *,
        context: TaskContext,
        conf: dict[str, Any],
        collector: Collector,
        trees: Trees,
        clock: Callable[[], float],
    ) -> None:
        self.context = context
        self.collector = collector
        self._bolt = bolt
        self._call = bolt.execute
        self._trees = trees
        self._counts = collector.counts
        self._held: list[Tuple] = []
        self._clock = clock
        self._ticked_at = clock()
        self._is_stateful = isinstance(bolt, StatefulBolt)
        bolt.prepare(conf, context, collector)

    def give_state(self, state: KeyValueState) -> None:
        """Give the bolt its state, before the tuples of a micro-batch."""
        assert isinstance(self._bolt, StatefulBolt)
        self._bolt.init_state(state)

    def sender(self, source: Source) -> Send:
        """Give what executes tuples of one source."""
        execute = self.execute

        def send(values: Sequence[Any], edges: dict[int, int]) -> None:
            execute(Tuple(values, source, edges))

        return send

    def execute(self, tup: Tuple) -> None:
        """Have the bolt execute a tuple."""
        counts = self._counts
        counts.executed += 1
        if self._is_stateful:
            self._trees.touched.update(tup.edges)
        began = perf_counter() if not counts.executed % _SAMPLE else 0.0
        try:
            self._call(tup)
        except BaseException as error:  # noqa: BLE001 - whatever it raises fails its tuple
            self._raised(error, tup)
        if began:
            counts.sampled += 1
            counts.sampled_seconds += perf_counter() - began
        if not tup.state:
            self._held.append(tup)

    def tick(self) -> None:
        """Give the bolt a tick, if it wants one and its time has come."""
        every = self._bolt.tick_seconds
        if every is None or self._clock() - self._ticked_at < every:
            return
        self._ticked_at = self._clock()
        try:
            self._call(Tuple((), TICK, {}))
        except BaseException as error:  # noqa: BLE001
            self.collector.report_error(error)

    def flush(self) -> None:
        """Have the bolt finish, and end what it has not."""
        raised: BaseException | None = None
        try:
            self._bolt.flush()
        except BaseException as error:  # noqa: BLE001 - it fails what the bolt still holds
            self.collector.report_error(error)
            raised = error
        held, self._held = self._held, []
        for tup in held:
            if tup.state:
                continue
            if raised is not None:
                self.collector.fail(tup, raised)
            else:
                self._timed_out(tup)

    def cleanup(self) -> None:
        """End the bolt."""
        try:
            self._bolt.cleanup()
        except BaseException as error:  # noqa: BLE001 - nothing depends on it any more
            self.collector.report_error(error)

    def _timed_out(self, tup: Tuple) -> None:
        self._counts.timed_out += 1
        failure = Failure(error_text=_NOT_ACKED)
        end = TreeEnd(ending=Ending.TIMED_OUT, component=self.context.component, failure=failure)
        for root in tup.edges:
            self._trees.end(root, end)

    def _raised(self, error: BaseException, tup: Tuple) -> None:
        counts = self._counts
        if not isinstance(error, FailedException):
            counts.errors += 1
            counts.last_error = failure_of(error).error_text
        if not tup.state:
            self.collector.fail(tup, error)
        elif not isinstance(error, FailedException):
            _log.warning(
                "component %s raised %s after it had %s the tuple, which stays so",
                self.context.component,
                counts.last_error,
                tup.state.name.lower(),
            )
