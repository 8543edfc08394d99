"""When which poll is due.

Of the due polls, the one whose next poll would be due first comes first. So a thousand idle shards that are
due together delay a busy one by at most one call, and are not starved.
"""

import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

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
