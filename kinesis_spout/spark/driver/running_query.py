"""The handle on what runs on Spark, shaped like PySpark's ``StreamingQuery``: on a spout, and on a topology.

``await_termination`` stops a ``StreamingQuery`` itself in order.
"""

import uuid
from abc import abstractmethod
from math import inf
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Self

from kinesis_spout.consumer.handle import Handle
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.stop_signals import stop_signals

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS: Final = 0.2
"""The interval of looks for a signal."""
_BATCH_LOOK_SECONDS: Final = 0.005
"""The interval of looks for the end of a micro-batch: Spark plans the next one for longer before it runs it."""


def await_termination(query: "StreamingQuery", stop_timeout_seconds: float = 30.0) -> None:
    """Wait until a query of Structured Streaming ends; in the main thread SIGTERM and Ctrl-C stop it in order.

    ``query.awaitTermination()`` ends in the middle of a micro-batch then, whose records come again. This waits for
    the end of the micro-batch under way, for ``stop_timeout_seconds`` at most, and stops the query before the next
    one runs. A second Ctrl-C does not wait; a handler of the program's own is left alone.

    Raises:
        StreamingQueryException: the error that ended the query.
    """
    with stop_signals() as stop:
        while not query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type] # it takes fractions, too
            if stop.signal is not None:
                _await_batch_end(query, monotonic() + stop_timeout_seconds)
                if query.isActive:
                    query.stop()
                    return


def _await_batch_end(query: "StreamingQuery", until: float) -> None:
    ended = query.lastProgress
    while (
        query.isActive
        and query.status["isTriggerActive"]
        and query.lastProgress == ended
        and monotonic() < until
    ):
        sleep(_BATCH_LOOK_SECONDS)


class RunningQuery(Handle):
    """A query that was started. Its methods may be called from any thread.

    ``id`` is the same over restarts, ``runId`` is new for each start.
    """

    def __init__(self, name: str, run_id: str | None = None) -> None:
        self._name = name
        self._run_id = run_id or str(uuid.uuid4())

    @property
    @abstractmethod
    def id(self) -> str:
        """The same for every run of this application, or topology, on the same streams."""

    @property
    def runId(self) -> str:  # noqa: N802 - as StreamingQuery spells it
        """A new one for every run."""
        return self._run_id

    @property
    def name(self) -> str:
        """The query's name: the application's or the topology's, unless another was given."""
        return self._name

    @property
    @abstractmethod
    def isActive(self) -> bool:  # noqa: N802
        """Return whether the query runs: not stopped, not ended by an error, and not come up to its end."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Return whether the query reached its end: all up to its `until` is finished, and that is stored."""

    @property
    def status(self) -> dict[str, Any]:
        """The query's present work, or how it ended: message, isDataAvailable, isTriggerActive."""
        if self.isActive:
            return self._status_while_active()
        error = self.exception()
        by_itself = "Done: came up to its end" if self.is_done else "Stopped"
        ended = f"Terminated with exception: {type(error).__name__}: {error}" if error else by_itself
        return {"message": ended, "isDataAvailable": False, "isTriggerActive": False}

    @abstractmethod
    def _status_while_active(self) -> dict[str, Any]: ...

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """The progress of the newest micro-batch, with the totals of all; None before the first."""
        progress = self.recentProgress
        return progress[-1] if progress else None

    @property
    @abstractmethod
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The progress of the newest micro-batches, oldest first, at most 100 of each stream."""

    @abstractmethod
    def exception(self) -> BaseException | None:
        """The error that ended the query, if one did."""

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends; without `until` it ends only by ``stop``, by a signal or an error.

        In the main thread SIGTERM and Ctrl-C stop the query, as ``stop`` does, and this returns. A second Ctrl-C
        does not wait; a handler of the program's own is left alone.

        Args:
            timeout: the most seconds to wait.

        Returns:
            With a timeout, whether the query ended in that time; otherwise None.

        Raises:
            Exception: the error that ended the query, unless it was stopped.
        """
        if timeout is not None and timeout <= 0:
            raise InvalidConfig(f"expected a timeout of more than 0 seconds, got {timeout!r}")
        with stop_signals() as stop:
            until = inf if timeout is None else monotonic() + timeout
            ended = False
            while not ended and stop.signal is None and (left := until - monotonic()) > 0:
                ended = self._await_end(min(left, _LOOK_SECONDS) if stop.listens else timeout)
            if not ended and stop.signal is not None:
                self.stop()
                ended = True
        if ended and (error := self.exception()) is not None:
            raise error
        return None if timeout is None else ended

    @abstractmethod
    def _await_end(self, timeout: float | None) -> bool: ...

    @abstractmethod
    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that is in the streams now is finished: acked, or dead-lettered."""

    @abstractmethod
    def stop(self) -> None:
        """End the query, and store what is finished. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
