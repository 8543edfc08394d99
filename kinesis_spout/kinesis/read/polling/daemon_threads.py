"""Threads for what may block. They are daemons: a process that ends does not wait for a call under way."""

import queue
import threading
import time
from collections.abc import Callable


class DaemonThreads:
    """Runs functions on at most so many threads, which start when needed. Thread-safe; ``close`` it."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._free = 0
        """Threads that wait, less the functions that wait for one."""
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def run(self, function: Callable[[], None]) -> None:
        """Run a function on a thread, as soon as one is free. It must not raise.

        Raises:
            RuntimeError: the machine can start no thread, not even the first one.
        """
        with self._lock:
            if self._free <= 0 and len(self._threads) < self._most:
                self._start()
            self._free -= 1
        self._work.put(function)

    def close(self, seconds: float) -> None:
        """End the threads, after all that was given to them; return after so many seconds in any case.

        Idempotent. Nothing may be given afterwards.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self) -> None:
        """Start a thread, or leave the work to those that there are; under the lock."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)
            self._free += 1

    def _run(self) -> None:
        while (function := self._work.get()) is not None:
            function()
            with self._lock:
                self._free += 1
