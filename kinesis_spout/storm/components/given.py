"""Things that a component gets: its context, the collector that it emits and acks with, and its keyed state."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kinesis_spout.storm.components.tuples import Tuple
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """Given to ``prepare`` and ``open``. The same in every micro-batch, and after a restart."""

    topology: str
    """Its name."""
    component: str
    task: int
    """This task's id, unique in the topology, from 1."""
    index: int
    """The number of the task among those of its component, from 0."""
    parallelism: int
    """The number of the component's tasks."""
    tasks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The tasks of every component."""
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The components that subscribe to each of this one's streams."""
    sources: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """The fields of each stream that it subscribes to, by component."""
    groupings: Mapping[tuple[str, str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Its groupings, and those of its subscribers: the name of each, such as "fields", and its fields. The key
    is the component that emits, its stream, and the component that subscribes."""
    processing_time: Callable[[], float] = time.time
    """When the micro-batch at hand began, in seconds since the epoch. One clock for all tasks; it never runs
    backwards. ``run_local`` and ``local`` take it from their ``clock``, if given."""
    read_to: Callable[[], float] = time.time
    """The processing time up to which every record of the stream is in this micro-batch or was in an earlier one.
    It stands still while records wait: in a backlog, or while nothing can be read or delivered."""


class KeyValueState(Protocol):
    """One task's part of a bolt's keyed state (Storm's name for it).

    Values are pickled when the micro-batch ends. A value that cannot be pickled, or not be unpickled, fails
    the tuple that left it, even if that was acked.

    A put value is stored in one transaction with the checkpoints of the records that it came from, or not at
    all. A key is the values of the fields that the bolt's tuples are grouped by: one value, or a tuple of
    several; any other key could belong to another task, and is refused.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """Give the value of a key. Change it by ``put``, never in place, which may not be kept."""
        ...

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key.

        Raises:
            InvalidConfig: the key is not of this task.
        """
        ...

    def delete(self, key: Any) -> None:
        """Forget a key, if it is there."""
        ...

    def __contains__(self, key: Any) -> bool: ...

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Give every key of this task with its value as it is now, each once, in no particular order.

        Keys can be put and deleted meanwhile; that does not show here.
        """
        ...


class TimedState(KeyValueState, Protocol):
    """The state of windowed bolts."""

    def due_keys(self, now: float, due_at: Callable[[Any], float]) -> list[Any]:
        """Name the keys whose values are due: a tick that closes nothing unpickles nothing.

        Args:
            now: they are due then or before.
            due_at: says when a value is due. Always the same function, of the value alone; of a value that is
                stored it is asked once.
        """
        ...


class OutputCollector(Protocol):
    """``prepare`` gives it to a bolt. Use it in ``execute`` and ``flush`` only, on the thread that calls them.

    A bolt with its own threads waits for them in ``flush``, and acks there. An ack by another thread can get
    lost: then its record fails, and is delivered again.
    """

    def emit(
        self,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit a tuple to all who subscribe to a stream.

        Args:
            values: a list or tuple with as many as the stream has fields. A list can be used again
                afterwards. Do not change the values afterwards: they can still be on their way. Behind an
                exchange every value must be one that can be pickled and unpickled; otherwise the tuple's
                trees fail.
            anchors: the tuples that it came from, neither acked nor failed yet. It becomes part of their
                trees: when it fails, or is not done in time, so do they. Without anchors no tree waits for
                it, and no spout retries it, but on a tick of a ``StatefulBolt``: see there.
            stream: as declared.

        Raises:
            InvalidConfig: no such stream, another number of values, or an anchor that is acked, failed or
                timed out; the error names what was expected. Nothing was emitted.
        """
        ...

    def emit_all(
        self,
        rows: Iterable[Sequence[Any]],
        anchors: Tuple | Sequence[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit several tuples with the same anchors; each costs about half of what it costs by ``emit``.

        Raises:
            InvalidConfig: as for ``emit``, of any of them. Nothing was emitted.
        """
        ...

    def emit_telling_tasks(
        self,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> list[int]:
        """Emit as ``emit`` does, and say which tasks the tuple went to, by their ids."""
        ...

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit a tuple to one task, whose component subscribes to a direct stream by ``direct_grouping``.

        Raises:
            InvalidConfig: as for ``emit``; or the stream is not direct, or no such task subscribes to it.
        """
        ...

    def ack(self, tup: Tuple) -> None:
        """Say that a tuple is done.

        The second ack or fail of a tuple changes nothing and is counted (``acked_twice``), as is one that comes
        when the tuple has timed out.
        """
        ...

    def fail(self, tup: Tuple, reason: str | BaseException = "") -> None:
        """Say that a tuple failed, and with it every record that it came from.

        Args:
            tup: as given to ``execute``.
            reason: kept with the record. ``Reject`` gives the record up at once, ``RetryLater`` chooses when it
                is tried again.
        """
        ...

    def report_error(self, error: BaseException) -> None:
        """Show an error in the query's progress and in the log, at most ten a minute there. It fails no tuple."""
        ...

    def report_metric(self, name: str, value: Any) -> None:
        """Show a value in the query's progress, under ``metrics`` of the component.

        Its reports are counted, the numbers among them summed, over all tasks, and the newest is shown, as JSON
        has it or as text.
        """
        ...

    def reset_timeout(self, tup: Tuple) -> None:
        """Give the tuple's trees the whole message time-out again, from now, in this task of Spark.

        Only ``is_overdue`` here uses it: after an exchange trees have the whole time-out in any case. The
        call that is under way can then take the whole time-out from now, too; see
        ``message_timeout_seconds``.
        """
        ...

    def is_overdue(self, tup: Tuple) -> bool:
        """Tell whether the message time-out of one of a tuple's trees is over: wait for it no longer.

        It counts from the beginning of this task of Spark, so each exchange starts it again. It ends no tree:
        one that completes before its micro-batch ends is done.
        """
        ...


class SpoutOutputCollector(Protocol):
    """``open`` gives it to a spout of your own."""

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple.

        Args:
            values: a list or tuple with as many as the stream has fields; a list can be used again afterwards.
            message_id: what ``ack`` or ``fail`` is called with in the end; hashable. Without it the tuple is not
                tracked.
            stream: as declared.

        Raises:
            InvalidConfig: no such stream, or another number of values.
        """
        ...

    def report_error(self, error: BaseException) -> None:
        """Show an error in the query's progress and in the log, at most ten a minute there."""
        ...

    def report_metric(self, name: str, value: Any) -> None:
        """Show a value in the query's progress, under ``metrics`` of the component.

        Its reports are counted, the numbers among them summed, over all tasks, and the newest is shown, as JSON
        has it or as text.
        """
        ...


class Results(Protocol):
    """Emits what has no record that would be delivered again: see ``storm.running.results``."""

    def of(self, work: Callable[[], object]) -> None:
        """Do work for a tuple; what it emits without anchors is kept until it is done, unless the work raises."""
        ...

    def attempt(self, work: Callable[[], object]) -> bool:
        """Do work of a tick likewise. If it raises that is reported, and undone; tells whether it was done."""
        ...


class ResultCollector(OutputCollector, Protocol):
    """The collector of windowed bolts."""

    @property
    def results(self) -> Results:
        """Those of the task."""
        ...
