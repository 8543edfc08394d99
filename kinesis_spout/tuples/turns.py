"""Whose turn it is, when most shards have nothing.

A shard that may have records is *ready*: the ready ones are served in turn, a few records each time. One that
was found to have nothing *rests*, for a moment that grows with the number of shards. So however many shards
are idle, looking at them costs about the same share of one processor, and a busy shard's records cost nothing
more for them (invariant 15).
"""

from collections import deque
from typing import Final

RECORDS_PER_TURN: Final = 32
"""Taken from one shard before the next ready one is served."""

REST_SECONDS_PER_SHARD: Final = 50e-6
"""At most 20,000 looks a second in vain, which is about a tenth of a processor."""


class Turns:
    """The shards of one spout, by whose turn it is. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._ready: deque[str] = deque()
        self._resting: deque[tuple[float, str]] = deque()
        self._served = 0

    def add(self, shard_id: str) -> None:
        """Let a shard take part, last among the ready ones; one that does already starts anew."""
        self.remove(shard_id)
        self._ready.append(shard_id)

    def remove(self, shard_id: str) -> None:
        """Let a shard take part no more; unknown ones are passed over."""
        if self._ready and self._ready[0] == shard_id:
            self._served = 0
        self._ready = deque(other for other in self._ready if other != shard_id)
        self._resting = deque(rest for rest in self._resting if rest[1] != shard_id)

    def current(self, now: float) -> str | None:
        """Name the shard to be served now; None while all of them rest."""
        while self._resting and self._resting[0][0] <= now:
            self._ready.append(self._resting.popleft()[1])
        return self._ready[0] if self._ready else None

    def served(self) -> None:
        """Note that the current shard gave a record."""
        self._served += 1
        if self._served >= RECORDS_PER_TURN:
            self._served = 0
            self._ready.rotate(-1)

    def rest(self, now: float) -> None:
        """Note that the current shard has nothing to give: it rests."""
        self._served = 0
        shard_id = self._ready.popleft()
        shards = len(self._ready) + len(self._resting) + 1
        self._resting.append((now + REST_SECONDS_PER_SHARD * shards, shard_id))
