"""How a component hands out tuples, and says what became of those it was given."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kinesis_spout.storm.components.output import DEFAULT_STREAM
from kinesis_spout.storm.components.tuples import Tuple


class OutputCollector(Protocol):
    """Given to a bolt by ``prepare``. To be used in ``execute`` and ``flush`` only, on the thread that calls them.

    A bolt with threads of its own waits for them in ``flush``, and acks there. What another thread acks may get
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
            values: a list or tuple with as many as the stream has fields. A list may be used again afterwards.
                What is in it must not be changed: it may still be on its way. Behind an exchange every value must
                be one that can be pickled and unpickled; otherwise the tuple's trees fail.
            anchors: the tuples that it came from, neither acked nor failed yet. It becomes part of their trees:
                when it fails, or is not done in time, so do they. Without anchors nobody waits for it, and
                nobody retries it.
            stream: as declared.

        Raises:
            InvalidConfig: no such stream, another number of values, or an anchor that is acked, failed or timed
                out; the error names what was expected. Nothing was emitted.
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

        Only ``is_overdue`` here goes by it: after an exchange trees have the whole time-out in any case. The call
        that is under way may then take the whole time-out from now, too; see ``message_timeout_seconds``.
        """
        ...

    def is_overdue(self, tup: Tuple) -> bool:
        """Tell whether the message time-out of one of a tuple's trees is over: no use in waiting any longer.

        It is counted from the beginning of this task of Spark, so anew after each exchange. It says when a bolt
        should wait no longer, and ends no tree: one that completes before its micro-batch ends is done.
        """
        ...


class SpoutOutputCollector(Protocol):
    """Given to a spout of your own by ``open``."""

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple.

        Args:
            values: a list or tuple with as many as the stream has fields; a list may be used again afterwards.
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


class RootCollector(OutputCollector, Protocol):
    """What windowed bolts are given, too."""

    @property
    def as_root(self) -> Callable[[Callable[[Tuple], None]], None]:
        """Do work of a tick as the root of a tree of its own, at once or not at all.

        The work is given the tuple to anchor to. What it changes in the state is undone if the tree fails.
        """
        ...
