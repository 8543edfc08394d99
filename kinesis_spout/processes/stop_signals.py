"""SIGINT and SIGTERM as a request to stop in order, while a program's main thread waits for a handle.

Only signals that nobody else handles are taken: those with the handler of the system or of Python, or PySpark's
for SIGINT, which would cancel every job. The first one asks for a stop; of the next ones SIGINT raises
KeyboardInterrupt.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_STANDARD_ERROR: Final = 2
_STOPPING: Final = b"stopping: what was begun ends first; a second Ctrl-C does not wait\n"


class Stop:
    """Whether a stop was asked for. Mutable; listens in the main thread alone."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        """Written to standard error at the first one."""
        self.signal: signal.Signals | None = None
        """The first one that came."""
        self._before: dict[int, Any] = {}
        self._told = threading.Event()
        self._is_over = False

    @property
    def listens(self) -> bool:
        """Whether a signal can ask for a stop."""
        return bool(self._before)

    def listen(self) -> None:
        """Take the signals that nobody else handles; called again, also those that PySpark took meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if _is_nobodys(handler) or (_is_ours(handler) and handler != self._tell):
                self._before.setdefault(number, handler)
                signal.signal(number, self._tell)

    def end(self) -> None:
        """Give the signals back."""
        self._is_over = True
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._tell:
                signal.signal(number, handler)

    def wait(self, seconds: float) -> bool:
        """Whether a stop is asked for within so many seconds."""
        return self._told.wait(seconds)

    def _tell(self, number: int, frame: object) -> None:
        before = self._before[number]
        if _is_ours(before):
            before(number, frame)  # a loop around this one stops too
        if self.signal is None and not self._is_over:
            self.signal = signal.Signals(number)
            self._told.set()
            if self.text and not _is_ours(before):
                # Not by way of sys.stderr, which can be in the middle of a write.
                with suppress(OSError):
                    os.write(_STANDARD_ERROR, self.text)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        elif self._is_over:  # a loop around this one ended before it, and its handler was put back
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


@contextmanager
def stop_signals(text: bytes = _STOPPING) -> Iterator[Stop]:
    """Let signals ask for a stop while the context is open; outside of the main thread none does."""
    stop = Stop(text)
    stop.listen()
    try:
        yield stop
    finally:
        stop.end()


def _is_nobodys(handler: Any) -> bool:
    of_pyspark = getattr(handler, "__module__", None) or ""
    return handler in {signal.SIG_DFL, signal.default_int_handler} or of_pyspark.startswith("pyspark.")


def _is_ours(handler: Any) -> bool:
    return isinstance(getattr(handler, "__self__", None), Stop)
