"""SIGINT and SIGTERM as a request to stop in order, while a program's main thread waits for a handle.

Only signals that nobody else handles are taken: those with the handler of the system or of Python, or PySpark's
for SIGINT, which would cancel every job. The first one asks for a stop; of the next ones SIGINT raises
KeyboardInterrupt.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_STANDARD_ERROR: Final = 2
_STOPPING: Final = b"stopping: what was begun ends first; a second Ctrl-C does not wait\n"


class Stop:
    """A request to stop, once a signal asks for it. Mutable; listens in the main thread alone."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        """Written to standard error at the first one."""
        self.signal: signal.Signals | None = None
        """The first one that came."""
        self._before: dict[int, Any] = {}
        self._told = SimpleQueue[None]()
        """Not an Event: a signal that comes while the main thread holds its lock would wait for that thread."""
        self._is_over = False

    @property
    def listens(self) -> bool:
        """Return whether a signal can ask for a stop."""
        return bool(self._before)

    def listen(self) -> None:
        """Take the signals that nobody else handles; called again, also those that PySpark took meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = _in_force(signal.getsignal(number), number)
            if _is_nobodys(handler) or (_is_ours(handler) and handler != self._tell):
                self._before.setdefault(number, handler)
                signal.signal(number, self._tell)

    def end(self) -> None:
        """Give the signals back; in another thread, the next signal does that."""
        self._is_over = True
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._tell:
                signal.signal(number, _in_force(handler, number))

    @contextmanager
    def calling(self, action: Callable[[], None]) -> Iterator[None]:
        """Call ``action`` on a thread once a stop is asked for, for a main thread that blocks elsewhere."""
        if not self.listens:
            yield
            return

        def call() -> None:
            if self.wait(None):
                action()

        thread = threading.Thread(target=call, name="kinesis-spout-stop", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._told.put(None)
            thread.join()

    def wait(self, seconds: float | None) -> bool:
        """Return whether a stop is asked for within so many seconds; None: without an end."""
        if self.signal is None:
            with suppress(Empty):
                self._told.get(timeout=seconds)
        return self.signal is not None

    def _tell(self, number: int, frame: object) -> None:
        before = _in_force(self._before[number], number)
        if self._is_over:
            signal.signal(number, before)
            signal.raise_signal(number)
            return
        if _is_ours(before):
            before(number, frame)  # a loop around this one stops too
        if self.signal is None:
            self.signal = signal.Signals(number)
            self._told.put(None)
            if self.text and not _is_ours(before):
                # Not by way of sys.stderr, which can be in the middle of a write.
                with suppress(OSError):
                    os.write(_STANDARD_ERROR, self.text)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt


@contextmanager
def stop_signals(text: bytes = _STOPPING) -> Iterator[Stop]:
    """Let signals ask for a stop while the context is open; outside of the main thread none does."""
    stop = Stop(text)
    stop.listen()
    try:
        yield stop
    finally:
        stop.end()


def _in_force(handler: Any, number: int) -> Any:
    """Look behind the handlers of loops that ended before one that they began outside of."""
    while _is_ours(handler) and handler.__self__._is_over:  # noqa: SLF001 - of this module
        handler = handler.__self__._before[number]  # noqa: SLF001
    return handler


def _is_nobodys(handler: Any) -> bool:
    of_pyspark = getattr(handler, "__module__", None) or ""
    return handler in {signal.SIG_DFL, signal.default_int_handler} or of_pyspark.startswith("pyspark.")


def _is_ours(handler: Any) -> bool:
    return isinstance(getattr(handler, "__self__", None), Stop)
