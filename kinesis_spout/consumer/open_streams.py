"""The streams that one reader has open: a spout, or a query of ``format("kinesis")``.

Streams come and go while they are read: those that a pattern finds later are opened then, one that is deleted
ends alone, and all that are not open are looked for again and again.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from kinesis_spout.model.errors import KinesisSpoutError, StreamNotFound

F = TypeVar("F")
S = TypeVar("S")

_log = logging.getLogger(__name__)


class OpenStreams(ABC, Generic[F, S]):
    """Mutable. ``lock`` guards both mappings, which are replaced and never changed.

    An ``S`` is an open stream; an ``F`` says what there is to open. The owner calls ``open_new`` every
    ``look_seconds``, on one thread.
    """

    def __init__(self, *, lock: AbstractContextManager[Any], look_seconds: float) -> None:
        self._lock = lock
        self._look_seconds = look_seconds
        self._is_closing = False
        self.current: Mapping[str, S] = {}
        """The streams that are read now, or were at the end, by name."""
        self.gone: Mapping[str, BaseException] = {}
        """The streams that have ended while others are read, and why. They are looked for again."""
        self._told: dict[str, str] = {}
        """Logged reasons why a stream cannot be opened."""

    @abstractmethod
    def _find(self) -> Mapping[str, F]:
        """Return the streams that there are to read now, by name."""

    @abstractmethod
    def _open_late(self, found: F) -> S:
        """Open a stream while others are read. One try."""

    @abstractmethod
    def _joined(self, name: str, made: S) -> None:
        """Take in that a stream is read from now on."""

    def _refused(self, made: S) -> None:
        """Take in that a stream was opened too late, while all are closed, or twice. The lock is held."""

    def open_new(self) -> None:
        """Open the streams that are not open. A failure is logged, and the next call tries again."""
        try:
            found = self._find()
        except KinesisSpoutError as error:
            self._tell("", f"streams cannot be listed now: {error}")
            return
        self._told.pop("", None)
        for name in [name for name in found if name not in self.current]:
            if self._is_closing:
                return
            self._look_at(name, found[name])

    def _look_at(self, name: str, found: F) -> None:
        try:
            made = self._open_late(found)
        except KinesisSpoutError as error:
            # Kinesis lists streams for a while after their deletion has begun.
            if name not in self.gone or not isinstance(error, StreamNotFound):
                self._tell(name, f"stream {name} cannot be read yet: {error}")
            return
        self._told.pop(name, None)
        if self._join(name, made):
            _log.info("stream %s is read from now on", name)

    def _join(self, name: str, made: S) -> bool:
        with self._lock:
            if self._is_closing or name in self.current:
                self._refused(made)
                return False
            self.current = {**self.current, name: made}
            self.gone = {each: why for each, why in self.gone.items() if each != name}
        self._joined(name, made)
        return True

    def _left(self, name: str) -> S:
        """Forget an open stream. The lock is held."""
        made = self.current[name]
        self.current = {each: other for each, other in self.current.items() if each != name}
        return made

    def _say_gone(self, name: str, error: BaseException) -> None:
        """Note and log that a stream has ended."""
        self.gone = {**self.gone, name: error}
        _log.error(
            "stream %s has ended: %s. The other streams are read on; it is looked for every %g s",
            name,
            error,
            self._look_seconds,
        )

    def _tell(self, what: str, message: str) -> None:
        if self._told.get(what) != message:
            self._told[what] = message
            _log.error("%s; it is tried again every %g s", message, self._look_seconds)
