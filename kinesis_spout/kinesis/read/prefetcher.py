"""A few threads that poll many shards, each when it is due.

An idle shard costs nothing until it is due. So a thousand idle shards cost a few threads and one short call
each now and then, and no shard waits for another one's pause or back-off.

Of the due polls, the one whose next poll would be due first runs first. So a thousand idle shards that are
due together delay a busy one by at most one call, and are not starved.
"""

import heapq
import itertools
import math
import threading
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from kinesis_spout.model.clock import Clock, SystemClock

Fetch = Callable[[], float | None]
"""Fetches once. Returns the monotonic time of its next run, or None to be put aside until submitted."""


Poll = TypeVar("Poll", bound=Hashable)


class _Entry(NamedTuple):
    due_at: float
    next_at: float
    """When the poll after this one would be due."""
    tie: int


class PollSchedule(Generic[Poll]):
    """When each poll is due. Mutable; not thread-safe. Times are monotonic."""

    def __init__(self) -> None:
        self._entries: dict[Poll, _Entry] = {}
        """The valid entries. Anything else in the heaps was replaced."""
        self._waiting: list[tuple[float, int, Poll]] = []
        """A heap, by due time."""
        self._due: list[tuple[float, int, Poll]] = []
        """A heap of the due polls, by when the one after each would be due."""
        self._ties = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, poll: Poll) -> bool:
        return poll in self._entries

    def put(self, poll: Poll, due_at: float, period: float) -> None:
        entry = self._entries[poll] = _Entry(due_at, due_at + period, next(self._ties))
        heapq.heappush(self._waiting, (due_at, entry.tie, poll))

    def remove(self, poll: Poll) -> None:
        self._entries.pop(poll, None)

    def clear(self) -> None:
        self._entries.clear()

    def take(self, now: float) -> Poll | None:
        while self._waiting and self._waiting[0][0] <= now:
            _, tie, poll = heapq.heappop(self._waiting)
            if self._holds(poll, tie):
                heapq.heappush(self._due, (self._entries[poll].next_at, tie, poll))
        while self._due:
            _, tie, poll = heapq.heappop(self._due)
            if self._holds(poll, tie):
                del self._entries[poll]
                return poll
        return None

    def next_at(self) -> float | None:
        soonest: float | None = None
        for heap in (self._due, self._waiting):
            while heap and not self._holds(heap[0][2], heap[0][1]):
                heapq.heappop(heap)
            if heap:
                due_at = self._entries[heap[0][2]].due_at
                soonest = due_at if soonest is None else min(soonest, due_at)
        return soonest

    def _holds(self, poll: Poll, tie: int) -> bool:
        entry = self._entries.get(poll)
        return entry is not None and entry.tie == tie


class Prefetcher:
    """Runs submitted fetches when they are due, on daemon threads. Thread-safe.

    Threads start when needed, and end with ``close``. A fetch never runs twice at a time, and must not raise.
    Due times are read from ``clock``; the threads' waits are real time.
    """

    def __init__(
        self, *, threads: int = 8, clock: Clock | None = None, name: str = "kinesis-prefetch"
    ) -> None:
        self._threads_allowed = threads
        self._clock = clock or SystemClock()
        self._name = name
        self._schedule = PollSchedule[Fetch]()
        self._running: set[Fetch] = set()
        self._again_at: dict[Fetch, float] = {}
        """The times for which running fetches were submitted again."""
        self._hastened: set[Fetch] = set()
        """Running fetches that are due again at once, unless they are put aside."""
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._watcher: threading.Thread | None = None
        self._closed = False

    def submit(self, fetch: Fetch, due_at: float) -> None:
        """Run ``fetch`` at ``due_at`` (monotonic) or soon after. After ``close`` this does nothing.

        A running fetch runs again at that time, or at the time that it returns, whichever is sooner.
        """
        with self._changed:
            if self._closed:
                return
            if fetch in self._running:
                self._again_at[fetch] = min(due_at, self._again_at.get(fetch, math.inf))
                return
            self._put(fetch, due_at)
            if len(self._schedule) > self._waiting and len(self._threads) < self._threads_allowed:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def hasten(self, fetch: Fetch) -> None:
        """Run a waiting fetch now; a running one runs once more. Others are left alone."""
        with self._changed:
            if fetch in self._running:
                self._hastened.add(fetch)
            elif fetch in self._schedule:
                self._put(fetch, -math.inf)

    def withdraw(self, fetch: Fetch) -> None:
        with self._changed:
            self._schedule.remove(fetch)

    @property
    def is_behind(self) -> bool:
        with self._changed:
            next_at = self._schedule.next_at()
            return next_at is not None and next_at <= self._clock.monotonic()

    def stop(self) -> None:
        with self._changed:
            self._closed = True
            self._schedule.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads, after the running calls. Idempotent."""
        self.stop()
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
                again_at = self._again_at.pop(fetch, None)
                if fetch in self._hastened:
                    self._hastened.discard(fetch)
                    due_at = None if due_at is None else -math.inf
                soonest = min((at for at in (due_at, again_at) if at is not None), default=None)
                if soonest is not None and not self._closed:
                    self._put(fetch, soonest)

    def _put(self, fetch: Fetch, due_at: float) -> None:
        before = self._schedule.next_at()
        self._schedule.put(fetch, due_at, max(0.0, due_at - self._clock.monotonic()))
        if before is None or due_at < before:
            # Due before what the watcher waits for: another thread must watch for this one.
            self._watcher = None
            self._changed.notify()

    def _take_due(self) -> Fetch | None:
        """Wait for the next fetch. One thread watches the clock, so that a due time wakes one and not all."""
        me = threading.current_thread()
        with self._changed:
            while not self._closed:
                now = self._clock.monotonic()
                taken, next_at = self._schedule.take(now), self._schedule.next_at()
                if taken is not None:
                    self._running.add(taken)
                    if next_at is not None and self._watcher is None:
                        self._changed.notify()  # the watcher of the next one, which may be due as well
                    return taken
                is_watcher = next_at is not None and self._watcher is None
                if is_watcher:
                    self._watcher = me
                self._waiting += 1
                self._changed.wait(next_at - now if is_watcher and next_at is not None else None)
                self._waiting -= 1
                if self._watcher is me:
                    self._watcher = None
            return None
