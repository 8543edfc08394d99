"""Polls many shards, each when it is due, in the I/O thread.

A thousand idle shards thus cost one thread and one short call each now and then, and no shard waits for
another one's pause, back-off or answer.

The first due poll to run is the one whose next poll would be due first. A thousand idle shards that are due
together thus delay a busy one by at most one call, and are not starved.
"""

import asyncio
import heapq
import itertools
import math
import threading
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.read.reply_getter import ReplyGetter
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.ports import Page, ShardGetter

Fetch = Callable[[], Coroutine[Any, Any, float | None]]
"""Fetches once. Returns the monotonic time of its next run, or None to be put aside until submitted."""
Poll = TypeVar("Poll", bound=Hashable)

READS_AT_ONCE: Final = 32
"""Each uses a connection while its call is under way."""
_LONGEST_REST_SECONDS: Final = 1.0
"""Between two looks at the clock, which a test may move."""


class Prefetcher:
    """Runs submitted fetches when they are due. Thread-safe.

    It holds the I/O thread from the first one until ``close``. A fetch never runs twice at a time, and must not
    raise. Due times are read from ``clock``; the waits are real time.

    Args:
        most: how many fetches run at a time.
    """

    def __init__(self, *, most: int = READS_AT_ONCE, clock: Clock | None = None) -> None:
        self._most = most
        self._clock = clock or SystemClock()
        self._schedule = PollSchedule[Fetch]()
        self._running: set[Fetch] = set()
        self._beginning = 0
        """The number of those whose tasks have not taken their first step."""
        self._again_at: dict[Fetch, float] = {}
        """The times for which running fetches were submitted again."""
        self._hastened: set[Fetch] = set()
        """Running fetches that are due again at once, unless they are put aside."""
        self._looks_at = math.inf
        """When the next look for due fetches is due."""
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        """Guards all above."""
        self._timer: asyncio.TimerHandle | None = None
        """The timer of the next look; for the I/O thread, like the tasks."""
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, fetch: Fetch, due_at: float) -> None:
        """Run ``fetch`` at ``due_at`` (monotonic) or soon after. After ``close`` this does nothing.

        A running fetch runs again at that time, or at the time that it returns, whichever is sooner.

        Raises:
            RuntimeError: the machine can start no thread.
        """
        with self._lock:
            if self._closed:
                return
            if fetch in self._running:
                self._again_at[fetch] = min(due_at, self._again_at.get(fetch, math.inf))
                return
            self._put(fetch, due_at)

    def hasten(self, fetch: Fetch) -> None:
        """Run a waiting fetch now; a running one runs once more. Others are left alone."""
        with self._lock:
            if fetch in self._running:
                self._hastened.add(fetch)
            elif fetch in self._schedule:
                self._put(fetch, -math.inf)

    def withdraw(self, fetch: Fetch) -> None:
        with self._lock:
            self._schedule.remove(fetch)

    def look(self) -> None:
        """Look at the clock now: it was moved. A clock that runs by itself needs no such call."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._look)

    async def page(self, getter: ShardGetter, limit: int) -> Page:
        """Read a page for a fetch; a getter that only has the port's ``read`` does it on a thread of its own."""
        if isinstance(getter, ReplyGetter):
            return await getter.reading(limit)
        return await IO.in_thread(partial(getter.read, limit))

    @property
    def is_behind(self) -> bool:
        """True while a due fetch has not taken its first step."""
        with self._lock:
            next_at = self._schedule.next_at()
            return self._beginning > 0 or (next_at is not None and next_at <= self._clock.monotonic())

    def stop(self) -> None:
        """Begin no more fetches."""
        with self._lock:
            self._closed = True
            self._schedule.clear()

    def close(self) -> None:
        """Abandon the fetches that run; what they have on other threads ends by itself, for nobody. Idempotent."""
        self.stop()
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and IO.runs(loop):
            try:
                IO.run(self._abandon())
            finally:
                IO.release(loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, fetch: Fetch, due_at: float) -> None:
        """Schedule a fetch; under the lock."""
        if self._loop is None:
            self._loop = IO.hold()
        self._schedule.put(fetch, due_at, max(0.0, due_at - self._clock.monotonic()))
        if len(self._running) < self._most:
            self._look_by(due_at)

    def _look_by(self, moment: float) -> None:
        """Have the I/O thread look for due fetches at a time, unless it looks before; under the lock."""
        if moment < self._looks_at and self._loop is not None:
            self._looks_at = moment
            self._loop.call_soon_threadsafe(self._rest)

    # In the I/O thread

    def _rest(self) -> None:
        """Look when the next fetch is due."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            loop, seconds = self._loop, self._looks_at - self._clock.monotonic()
        if loop is not None and seconds < math.inf:
            self._timer = loop.call_later(min(max(0.0, seconds), _LONGEST_REST_SECONDS), self._look)

    def _look(self) -> None:
        """Begin the fetches that are due, as many as may run."""
        with self._lock:
            self._looks_at = -math.inf  # what is put meanwhile is seen below
        loop = asyncio.get_running_loop()
        while (fetch := self._next_fetch()) is not None:
            task = loop.create_task(self._run(fetch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            loop.call_soon(self._has_begun)  # comes right after the task's first step
        self._rest()

    def _has_begun(self) -> None:
        with self._lock:
            self._beginning -= 1

    def _next_fetch(self) -> Fetch | None:
        with self._lock:
            is_full = len(self._running) >= self._most
            fetch = None if is_full else self._schedule.take(self._clock.monotonic())
            if fetch is not None:
                self._running.add(fetch)
                self._beginning += 1
                return fetch
            next_at = None if is_full else self._schedule.next_at()
            self._looks_at = math.inf if next_at is None else next_at
            return None

    async def _run(self, fetch: Fetch) -> None:
        again_at: float | None = None
        try:
            again_at = await fetch()
        except Exception as raised:  # noqa: BLE001 - not hidden: reported like one that ends a thread
            threading.excepthook(threading.ExceptHookArgs((type(raised), raised, raised.__traceback__, None)))
        with self._lock:
            was_full = len(self._running) >= self._most
            self._running.discard(fetch)
            submitted_for = self._again_at.pop(fetch, None)
            if fetch in self._hastened:
                self._hastened.discard(fetch)
                again_at = None if again_at is None else -math.inf
            soonest = min((at for at in (again_at, submitted_for) if at is not None), default=None)
            if soonest is not None and not self._closed:
                self._put(fetch, soonest)
            next_at = self._schedule.next_at() if was_full else None
            if next_at is not None:
                self._look_by(next_at)

    async def _abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@dataclass(frozen=True, slots=True)
class Blocking:
    """A function that may block, as a ``Fetch``. Equal if the functions are."""

    function: Callable[[], float | None]

    async def __call__(self) -> float | None:
        return await IO.in_thread(self.function)


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
