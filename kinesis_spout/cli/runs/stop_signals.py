"""SIGINT and SIGTERM ask a run for a clean stop."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Final

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_STANDARD_ERROR: Final = 2
_STOPPING_AT_START: Final = b"stopping when the start is done; a second Ctrl-C does not wait\n"


class Stop:
    """Whether, and by which signal, the run was told to stop. Mutable."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._told = threading.Event()
        self._starting = True

    def listen(self) -> None:
        """Have SIGINT and SIGTERM told to this."""
        for number in _STOP_SIGNALS:
            signal.signal(number, self.tell)

    def started(self) -> None:
        """From now on the progress shows that it stops."""
        self._starting = False

    def tell(self, number: int, _frame: object) -> None:
        """Handle a signal: the first asks for a clean stop; of the next ones SIGINT breaks it off."""
        if self.signal is None:
            self.signal = signal.Signals(number)
            self._told.set()
            if self._starting:
                # Not by way of sys.stderr, which may be in the middle of a write.
                os.write(_STANDARD_ERROR, _STOPPING_AT_START)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> bool:
        """Wait to be told, but no longer than that."""
        return self._told.wait(seconds)


@contextlib.contextmanager
def stop_signals() -> Iterator[Stop]:
    """Let SIGINT and SIGTERM ask for a stop, and not PySpark, which would cancel every job."""
    stop = Stop()
    before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    stop.listen()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
