"""A few threads that fetch for many shards.

Each shard's next fetch is one entry of a queue ordered by when it is due. A thread takes the entry that is
due longest, runs it, and puts it back with its next due time. So a thousand idle shards cost a handful of
threads and one short call each now and then, and no shard waits for another one's pause or back-off.
"""

import heapq
import itertools
import math
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from kinesis_spout.model.clock import Clock, SystemClock

Fetch = Callable[[], float | None]
"""Fetches once. Gives the monotonic time to be called again at, or None to be put aside until submitted."""


class Prefetcher:
    """Runs submitted fetches when they are due, on daemon threads. Thread-safe.

    Threads start as they are needed, and end with ``close``. A fetch is never run twice at a time, because
    it is in the queue at most once: who submits it must keep to that. It must not raise.

    Args:
        threads: how many calls may be under way at once.
        clock: what due times are read from; the threads' own waits are real time.
    """

    def __init__(self, *, threads: int = 8, clock: Clock | None = None) -> None:
        self._threads_allowed = threads
        self._clock = clock or SystemClock()
        self._queue: list[tuple[float, int, Fetch]] = []
        self._entries: dict[Fetch, tuple[float, int, Fetch]] = {}
        """The entry of each fetch in the queue."""
        self._replaced: set[int] = set()
        """Entries of the queue that do not count, by their second part."""
        self._running: set[Fetch] = set()
        self._hastened: set[Fetch] = set()
        """Of those that run: they are due again at once."""
        self._ties = itertools.count()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._watcher: threading.Thread | None = None
        self._closed = False

    def submit(self, fetch: Fetch, due_at: float) -> None:
        """Run ``fetch`` at ``due_at`` (monotonic) or soon after. After ``close`` this does nothing."""
        with self._changed:
            if self._closed:
                return
            self._put(fetch, due_at)
            if len(self._queue) > self._waiting and len(self._threads) < self._threads_allowed:
                thread = threading.Thread(target=self._run, name="kinesis-prefetch", daemon=True)
                self._threads.append(thread)
                thread.start()

    def hasten(self, fetch: Fetch) -> None:
        """Run a fetch now that is in the queue; one that runs is run once more. Others are left alone."""
        with self._changed:
            if fetch in self._running:
                self._hastened.add(fetch)
            elif fetch in self._entries:
                self._replaced.add(self._entries[fetch][1])
                self._put(fetch, -math.inf)

    def close(self) -> None:
        """End the threads, after the calls that are under way. May be called twice."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._entries.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while (fetch := self._take_due()) is not None:
            due_at = fetch()
            with self._changed:
                self._running.discard(fetch)
                is_hastened = fetch in self._hastened
                self._hastened.discard(fetch)
                if due_at is not None and not self._closed:
                    self._put(fetch, -math.inf if is_hastened else due_at)

    def _put(self, fetch: Fetch, due_at: float) -> None:
        entry = self._entries[fetch] = (due_at, next(self._ties), fetch)
        heapq.heappush(self._queue, entry)
        if self._queue[0] is entry:
            # Due before what the watcher waits for: somebody has to watch for this one.
            self._watcher = None
            self._changed.notify()

    def _take_due(self) -> Fetch | None:
        """Wait for the next fetch. One thread watches the clock, so that a due time wakes one and not all."""
        me = threading.current_thread()
        with self._changed:
            while not self._closed:
                while self._queue and self._queue[0][1] in self._replaced:
                    self._replaced.remove(heapq.heappop(self._queue)[1])
                wait = self._queue[0][0] - self._clock.monotonic() if self._queue else None
                if wait is not None and wait <= 0:
                    taken = heapq.heappop(self._queue)[2]
                    self._entries.pop(taken, None)
                    self._running.add(taken)
                    if self._queue and self._watcher is None:
                        self._changed.notify()  # who watches for the next one, which may be due as well
                    return taken
                is_watcher = wait is not None and self._watcher is None
                if is_watcher:
                    self._watcher = me
                self._waiting += 1
                self._changed.wait(wait if is_watcher else None)
                self._waiting -= 1
                if self._watcher is me:
                    self._watcher = None
            return None
