"""One thread that serves many sockets, and runs calls of other threads in between.

It sleeps until a socket is ready, a time has come, or a call is queued; a byte on a socket pair wakes it.
Nothing that it calls may block.
"""

import contextlib
import heapq
import itertools
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from kinesis_spout.model.clock import Clock

_LONGEST_SLEEP_SECONDS: Final = 1.0

Call = Callable[[], None]


class SocketLoop:
    """Mutable. ``call`` and ``close`` may be called on any thread, all else on the loop's.

    The thread starts with the first call, and ends with ``close``.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._calls: deque[Call] = deque()
        self._timers: list[tuple[float, int, Call]] = []
        self._ties = itertools.count()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._identity = 0
        self._closed = False
        self._selector: selectors.BaseSelector
        self._alarm: socket.socket
        self._bed: socket.socket

    def call(self, call: Call) -> bool:
        """Run a function on the thread; False, and it does not run, after ``close``.

        Raises:
            RuntimeError: the machine can start no thread.
        """
        with self._lock:
            if self._closed:
                return False
            if self._thread is None:
                self._start()
            self._calls.append(call)
        self._wake()
        return True

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the loop's."""
        return threading.get_ident() == self._identity

    def at(self, moment: float, call: Call) -> None:
        heapq.heappush(self._timers, (moment, next(self._ties), call))

    def watch(self, connection: socket.socket | int, ready: Call, events: int = selectors.EVENT_READ) -> None:
        """Call ``ready`` whenever a connection, by its socket or descriptor, is ready for ``events``."""
        self._selector.register(connection, events, ready)

    def unwatch(self, connection: socket.socket | int) -> None:
        self._selector.unregister(connection)

    def close(self) -> None:
        """End the thread, after the queued calls. Idempotent."""
        with self._lock:
            was_closed, self._closed = self._closed, True
            thread = self._thread
        if was_closed or thread is None:
            return
        self._wake()
        thread.join()
        self._release()

    def _start(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._alarm, self._bed = socket.socketpair()
        for end in (self._alarm, self._bed):
            end.setblocking(False)
        self._selector.register(self._bed, selectors.EVENT_READ, self._woken)
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the machine can start no more threads; there is none to end then
            self._release()
            raise
        self._thread = thread

    def _release(self) -> None:
        self._selector.close()
        self._alarm.close()
        self._bed.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake: the buffer is full, or it has ended
            self._alarm.send(b"\0")

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bed.recv(4096)

    def _run(self) -> None:
        self._identity = threading.get_ident()
        while not self._closed:
            for key, _ in self._selector.select(self._sleep_seconds()):
                key.data()
            while self._timers and self._timers[0][0] <= self._clock.monotonic():
                heapq.heappop(self._timers)[2]()
            for _ in range(len(self._calls)):
                self._calls.popleft()()
        while self._calls:
            self._calls.popleft()()

    def _sleep_seconds(self) -> float:
        if self._calls:
            return 0.0
        if not self._timers:
            return _LONGEST_SLEEP_SECONDS
        return min(_LONGEST_SLEEP_SECONDS, max(0.0, self._timers[0][0] - self._clock.monotonic()))
