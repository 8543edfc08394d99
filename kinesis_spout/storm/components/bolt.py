"""The interface of the user's bolts, and kinds of bolts that make the common cases short.

A bolt runs on the executors. Each of its tasks has its own object, which a Python worker keeps from
micro-batch to micro-batch. Yet workers come and go: **what a bolt remembers in itself is lost with its
worker, and another worker can have another copy.** That is good for connections and caches. Values that must
be kept, or counted exactly, belong into the state of a ``StatefulBolt``.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Failure, NotNow, RaisedAt, Reject, RetryLater
from kinesis_spout.model.unfinished_work import refuse_unfinished
from kinesis_spout.storm.components.given import KeyValueState, OutputCollector, TaskContext
from kinesis_spout.storm.components.tuples import OutputFields, Tuple, are_field_names
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM


class FailedException(Exception):  # noqa: N818 - Storm's name
    """Raised by a bolt: the tuple fails, for the reason given. It is not counted or logged as an error."""


class CallHangs(BaseException):
    """Raised in a call of a component that has not returned in time. No Exception, so that no retry catches it."""

    def __init__(self, text: str, where: RaisedAt) -> None:
        super().__init__(text)
        self.failure = Failure(error_text=text, timed_out=True, raised=where)


class Suspected(NotNow):
    """The tuple was under way with others when a process died: it comes again, uncounted and alone."""


VERDICTS: Final = (FailedException, Reject, RetryLater)
"""Exceptions by which a bolt says how a tuple fails. Anything else that it raises counts as an error, too."""


class Bolt(ABC):
    """Handles tuples. Each must be acked or failed, at the latest when ``flush`` returns.

    An error that ``execute`` raises fails its tuple, unless that was acked or failed before.
    """

    tick_seconds: float | None = None
    """If set, ``execute`` gets a tick tuple (``tup.is_tick``) every this many seconds, at the end of the next
    micro-batch; if no record comes, one without tuples runs for it. With 0 a tick comes at the end of every
    micro-batch. It is read when the bolt is set."""
    is_sticky: ClassVar[bool] = False
    """True if each of its tasks must come back to one machine, as to the process of a ``ShellBolt``. Leave it
    in your own bolts."""
    collector: OutputCollector

    def declare_output_fields(self) -> OutputFields:
        """Name the fields of its tuples, or its streams with the fields of each. Called when the bolt is set."""
        return ()

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        """Begin, once for each object; keeps the collector as ``self.collector``.

        Args:
            conf: the topology's, with the component's own over it.
            context: which task this is.
            collector: to emit, ack and fail with.
        """
        del conf, context
        self.collector = collector

    @abstractmethod
    def execute(self, tup: Tuple) -> None:
        """Handle a tuple."""

    def flush(self) -> None:
        """Finish what is held back: the micro-batch ends. Tuples neither acked nor failed then have timed out.

        An error that it raises fails all tuples that the bolt still holds.
        """

    def cleanup(self) -> None:
        """End. Called when the object is given up in order; not when its worker is killed."""


class BasicBolt(Bolt):
    """A bolt that anchors and acks for you: write ``process`` and emit with ``emit``.

    The tuple is acked when ``process`` returns, unless that failed it, and fails when it raises.
    """

    _given: Tuple | tuple[()] = ()

    @abstractmethod
    def process(self, tup: Tuple) -> None:
        """Handle a tuple."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple, anchored to the one that ``process`` is handling; outside of ``process`` unanchored."""
        self.collector.emit(values, self._given, stream)

    def emit_all(self, rows: Iterable[Sequence[Any]], stream: str = DEFAULT_STREAM) -> None:
        """Emit several tuples, anchored as ``emit`` does; each costs about half of what it costs by ``emit``."""
        self.collector.emit_all(rows, self._given, stream)

    def execute(self, tup: Tuple) -> None:
        self._given = tup
        try:
            returned: object = self.process(tup)
            if returned is not None:
                refuse_unfinished(returned)
        finally:
            self._given = ()
        if not tup.state and not tup.is_tick:
            self.collector.ack(tup)


class BatchBolt(Bolt):
    """A bolt that handles the tuples of a micro-batch together, at its end. They are acked for you.

    When ``process_batch`` raises, all of them fail but those that it acked or failed itself.
    """

    max_batch: ClassVar[int] = 10_000
    """``process_batch`` is called before the end, too, when this many tuples have come together."""
    _batch: list[Tuple]

    @abstractmethod
    def process_batch(self, batch: Sequence[Tuple]) -> None:
        """Handle tuples, one or more. Emitted tuples are anchored to the tuples that you name."""

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self._batch = []

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            return
        self._batch.append(tup)
        if len(self._batch) >= self.max_batch:
            self.flush()

    def execute_all(self, tuples: Sequence[Tuple]) -> None:
        """Take several tuples at once, in place of ``execute``, unless that or ``flush`` is your own."""
        waiting = [*self._batch, *tuples]
        while len(waiting) >= self.max_batch:
            self._batch, waiting = waiting[: self.max_batch], waiting[self.max_batch :]
            self.flush()
        self._batch = waiting

    def flush(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        try:
            returned: object = self.process_batch(batch)
            if returned is not None:
                refuse_unfinished(returned)
        except BaseException as error:  # noqa: BLE001 - whatever it raises fails its tuples
            if not isinstance(error, VERDICTS):
                self.collector.report_error(error)
            for tup in batch:
                if not tup.state:
                    self.collector.fail(tup, error)
            return
        for tup in batch:
            if not tup.state:
                self.collector.ack(tup)


class StatefulBolt(Bolt):
    """A bolt with keyed state that is exact: a record counts in it once, however often it is delivered.

    It must subscribe by ``fields_grouping`` only. Its tuples must be acked or failed as any bolt's; when a
    record fails, what it has changed is undone, so that a failed tree leaves no trace (unless the topology
    says ``state_guarantee="at_least_once"``). That is true of anchored tuples only: what ``execute`` emits
    without anchors belongs to no tree, and counts each time it is emitted. Changes by a bolt belong to the
    tuple at hand, or to those that it holds. A tick is done as a whole or not at all; what it emits without
    anchors is kept in the state, and emitted again if it fails, until it is done.
    """

    @abstractmethod
    def init_state(self, state: KeyValueState) -> None:
        """Keep the state. Called after ``prepare``, and before every micro-batch, as the object can change.

        After failures a micro-batch can run in groups of records; then it is called for each of them.
        """


class CombinerBolt(Bolt):
    """Combines tuples with equal keys, and emits one for each key at the end of the micro-batch.

    Set it before an exchange, by ``shuffle_grouping``: then it runs where its tuples are made, as partial
    aggregates do in Spark, and Trident's ``CombinerAggregator``. A ``fields_grouping`` by the key follows, to a
    bolt that combines what comes from several processes.

    The emitted tuple is anchored to all tuples that are in it: when it fails, they all do.

    Args:
        key: the fields of its input by which tuples are combined; their values must be hashable.
        result: the name of the field that follows them in what it emits.
        value: the field that is combined; None: each tuple counts 1.
        combine: combines two values, in any order and in any groups. Pickled; an error fails the tuple at
            hand. It must not change its arguments.

    Raises:
        InvalidConfig: no names of fields, or a name is there twice.
    """

    def __init__(
        self,
        key: Sequence[str],
        result: str = "count",
        *,
        value: str | None = None,
        combine: Callable[[Any, Any], Any] = operator.add,
    ) -> None:
        names = [*key, result] if are_field_names(key) else []
        if not key or not are_field_names(names) or len(set(names)) < len(names):
            raise InvalidConfig(
                f"expected the names of the fields of a key, and another one for the result, got {key!r} and "
                f"{result!r}"
            )
        self.key = tuple(key)
        self.result = result
        self.value = value
        self.combine = combine

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields that its input must have."""
        return self.key if self.value is None else (*self.key, self.value)

    def declare_output_fields(self) -> list[str]:
        """The key, and the result."""
        return [*self.key, self.result]

    def execute(self, tup: Tuple) -> None:
        """Never called: tuples are combined many at a time."""
        raise NotImplementedError(f"a CombinerBolt takes no single tuple, got {tup!r}")
