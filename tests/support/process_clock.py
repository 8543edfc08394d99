"""A clock of what stands still: a busy machine, which gives a process no turn for a while, makes nothing late."""

import threading
from typing import Final, Self

from kinesis_spout.model.clock import SystemClock

_BEAT_SECONDS: Final = 0.01
_MOST_SECONDS: Final = 0.05
"""That pass between two beats."""


class ProcessClock(SystemClock):
    """The machine's clock, but that its monotonic time stands still while this process does. Thread-safe.

    A context manager: meanwhile a thread of its own sees that the process goes on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beaten_at = super().monotonic()
        self._lost_seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="process clock", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def monotonic(self) -> float:
        with self._lock:
            return min(super().monotonic(), self._beaten_at + _MOST_SECONDS) - self._lost_seconds

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            with self._lock:
                now = super().monotonic()
                self._lost_seconds += max(0.0, now - self._beaten_at - _MOST_SECONDS)
                self._beaten_at = now
