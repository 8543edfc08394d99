"""Which shard is polled when. An idle shard costs nothing here until its time comes.

Polls are *aligned*: all shards share one clock whose ticks are a little further apart than the read limits ask
for, and a shard that is polled less often keeps to every second tick, every fourth, and so on. So records that
were put into many shards at once are found at once, and go out in one Spark job.

Of the shards whose time has come, the one goes first whose next poll would come first. So a thousand idle
shards, due all at once, hold up no busy one for longer than a call takes, and are not starved by them either.
"""

import heapq
import math
from typing import Final, NamedTuple

ALLOWANCE: Final = 0.1
"""The part of a tick by which a poll may be late without missing the next tick."""


def tick_seconds(poll_seconds: float) -> float:
    """Give the time between ticks, for polls of one shard that must be ``poll_seconds`` apart."""
    return poll_seconds * (1 + ALLOWANCE)


def aligned(earliest: float, period: float) -> float:
    """Give the first tick after ``earliest`` among those that are ``period`` apart; monotonic times."""
    return (math.floor(earliest / period) + 1) * period


class _Entry(NamedTuple):
    due_at: float
    next_at: float
    """When the poll after this one would be due."""
    shard_id: str


class PollSchedule:
    """The next poll of each shard. Mutable; not thread-safe. Times are monotonic."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        """What holds. Anything else in the heaps was replaced."""
        self._waiting: list[tuple[float, _Entry]] = []
        self._due: list[tuple[float, _Entry]] = []

    def put(self, shard_id: str, due_at: float, period: float) -> None:
        """Have a shard polled at ``due_at``, instead of when it would have been."""
        entry = _Entry(due_at, due_at + period, shard_id)
        if self._entries.get(shard_id) != entry:
            self._entries[shard_id] = entry
            heapq.heappush(self._waiting, (due_at, entry))

    def remove(self, shard_id: str) -> None:
        """Poll a shard no more."""
        self._entries.pop(shard_id, None)

    def take(self, now: float) -> str | None:
        """Give the most urgent shard whose time has come, and take it off; None if none's has."""
        while self._waiting and self._waiting[0][0] <= now:
            _, entry = heapq.heappop(self._waiting)
            if self._holds(entry):
                heapq.heappush(self._due, (entry.next_at, entry))
        while self._due:
            _, entry = heapq.heappop(self._due)
            if self._holds(entry):
                del self._entries[entry.shard_id]
                return entry.shard_id
        return None

    def next_at(self) -> float | None:
        """Tell when the next poll is due; None if none is."""
        for heap in (self._due, self._waiting):
            while heap and not self._holds(heap[0][1]):
                heapq.heappop(heap)
        soonest = [entry.due_at for _, entry in (*self._due[:1], *self._waiting[:1])]
        return min(soonest, default=None)

    def _holds(self, entry: _Entry) -> bool:
        return self._entries.get(entry.shard_id) is entry
