"""Listeners that learn the outcome of each record.

A listener only observes. It is called on the thread that called the spout, after the spout's work is done and
outside of its lock, so it may call the spout. Its errors are logged with their traceback and go no further:
the record's fate is decided by then, and an observer's mistake must not lose a tuple.

A message id names one delivery, as ``next_tuple`` gave it; the part before the ``#`` names the record.
"""

import logging
from collections import deque
from enum import StrEnum
from functools import partial

from shard_state import Exhausted, Retry

_log = logging.getLogger(__name__)


class FailReason(StrEnum):
    """Why a delivery did not end well."""

    FAIL = "fail"
    """``fail`` was called, or the scheme raised."""
    TIME_OUT = "time-out"
    """Neither acked nor failed within the message time-out."""


class SpoutListener:
    """Override the methods you need. By default each does nothing."""

    def emitted(self, message_id: str, attempt: int) -> None:
        """A tuple was handed out, for the ``attempt``-th time (1 at first)."""

    def acked(self, message_id: str) -> None:
        """A record was finished by an ack of this delivery. Not called for acks that changed nothing."""

    def failed(self, message_id: str, reason: FailReason, error: str, retry_in: float | None) -> None:
        """A delivery failed. It comes again after ``retry_in`` seconds; None: ``exhausted`` follows."""

    def exhausted(self, message_id: str, attempts: int, error: str) -> None:
        """A record was given up after ``attempts`` deliveries; its dead letter is being written."""


class Announcements:
    """Calls to a listener that wait until the lock is free. Mutable; thread-safe."""

    def __init__(self, listener: SpoutListener) -> None:
        self._listener = listener
        self._waiting: deque[partial[None]] = deque()

    def emitted(self, message_id: str, attempt: int) -> None:
        self._waiting.append(partial(self._listener.emitted, message_id, attempt))

    def acked(self, message_id: str) -> None:
        self._waiting.append(partial(self._listener.acked, message_id))

    def failed(self, message_id: str, reason: FailReason, error: str, decision: Retry | Exhausted) -> None:
        retry_in = decision.delay_seconds if isinstance(decision, Retry) else None
        self._waiting.append(partial(self._listener.failed, message_id, reason, error, retry_in))
        if isinstance(decision, Exhausted):
            self._waiting.append(partial(self._listener.exhausted, message_id, decision.attempts, error))

    def make(self) -> None:
        """Make the calls, in order. Never raises an Exception."""
        while self._waiting:
            try:
                call = self._waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                call()
            except Exception:  # noqa: BLE001 - logged; the spout's work must stand whatever an observer does
                _log.exception("a SpoutListener raised; the spout goes on")
