"""Stores a query's progress in the background: on a daemon thread, only the newest."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from kinesis_spout.kinesis.retry_policy import RetryPolicy, Tries, Work
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.structured.offsets import QueryOffset

_RETRY_SECONDS: Final = 0.5

_log = logging.getLogger(__name__)

Write = Callable[[QueryOffset], bool]
"""Stores progress. False: not all of it, try again. A retriable error is retried, any other ends the query."""


class Publisher:
    """Mutable; its methods are called by one thread. The thread starts with the first progress."""

    def __init__(self, write: Write, clock: Clock) -> None:
        self._write = write
        retry_policy = RetryPolicy.without_end(clock, first=_RETRY_SECONDS, cap=_RETRY_SECONDS)
        self._tries = Tries(retry_policy, "to publish progress", Work.QUERY)
        self._changed = threading.Condition()
        self._pending: QueryOffset | None = None
        self._is_writing = False
        self._is_leaving = False
        self._is_given_up = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def publish(self, done: QueryOffset) -> None:
        """Replace what still waits; no I/O. Ignored after ``leave``. Raises what ended the writing."""
        with self._changed:
            self.check()
            if self._is_leaving:
                return
            self._pending = done
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kinesis-publisher", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def check(self) -> None:
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def leave(self, seconds: float) -> bool:
        """End the thread when what waits is stored, or after ``seconds``. Returns whether all is stored."""
        with self._changed:
            self._is_leaving = True
            self._changed.notify_all()
            self._changed.wait_for(self._is_idle, seconds)
            self._is_given_up = True
            self._changed.notify_all()
            return self._pending is None and not self._is_writing

    def _is_idle(self) -> bool:
        return (self._pending is None and not self._is_writing) or self._failure is not None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None or self._is_leaving)
                done, self._pending = self._pending, None
                if done is None:
                    return
                self._is_writing = True
            wait = self._store(done)
            with self._changed:
                self._is_writing = False
                if wait is not None and self._pending is None:
                    self._pending = done
                self._changed.notify_all()
                if self._failure is None and wait is not None:
                    self._changed.wait_for(lambda: self._is_given_up, wait)
                if self._failure is not None or self._is_given_up:
                    return

    def _store(self, done: QueryOffset) -> float | None:
        """Store progress; return the seconds to wait before the next try, None if all of it is stored."""
        try:
            is_stored = self._write(done)
        except KinesisSpoutError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - not hidden: publish raises it
            self._failure = error
            return 0.0
        if not is_stored:
            return _RETRY_SECONDS
        if self._tries.failures:
            self._tries.succeeded()
            _log.warning("the query's progress is published again")
        return None

    def _failed(self, error: KinesisSpoutError) -> float:
        try:
            wait = self._tries.failed(error)
        except KinesisSpoutError as final:
            self._failure = final
            return 0.0
        if self._tries.failures == 1 and not self._is_given_up:
            _log.warning("%s; the query goes on, and its progress is published later", error)
        return wait
