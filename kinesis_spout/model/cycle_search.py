"""No search for cycles while thousands of records are taken in at once.

What fails comes as some ten small objects a record, none of which is part of a cycle, and most are gone when its
batch is settled. CPython's collector takes their number for growth of the process, and goes through all objects of
the process for nearly every batch: that was half of what a failed record cost the driver.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pauses:
    """How many threads have paused the collector. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._is_ours = False
        """Whether the collector was enabled before: one that the user has disabled stays so."""

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._is_ours = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count and self._is_ours:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def paused_cycle_search() -> Iterator[None]:
    """Pause the process's collector for a piece of work that takes milliseconds and calls no user's code."""
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
