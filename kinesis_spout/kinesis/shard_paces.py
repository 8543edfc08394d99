"""The pacings of all shards that one process reads of a stream.

Whatever reads a shard in this process has the same pacing: polls, a getter that was opened anew, records that are
read again for a retry. What executors read is told to it when it is done.

The application's budget is divided by the shards that are assigned, to all members; this member has the part of
those that are its own. Every member knows that number from the assignment, so they need not talk about it, and it
holds after a failover. Shards that have nothing leave their part to the others of the same member, see
``pace.byte_budget``; a member leaves nothing to another.
"""

import random
import threading
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from kinesis_spout.clock import Clock
from kinesis_spout.kinesis.pace.byte_budget import ByteBudget
from kinesis_spout.kinesis.pace.pace import Pace
from kinesis_spout.kinesis.patience import Jitter
from kinesis_spout.kinesis.read.pacing import Pacing

_NO_SHARDS: Final = frozenset[str]()


class ShardPaces:
    """Mutable, thread-safe.

    Args:
        clock: that of the getters.
        pace: of each shard.
        bytes_per_second: of all shards of the application together; None: no limit.
        jitter: see ``backoff_seconds``.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        pace: Pace | None = None,
        bytes_per_second: float | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._clock = clock
        self._pace = pace or Pace()
        self._budget = ByteBudget(bytes_per_second)
        self._jitter = jitter
        self._pacings: dict[str, Pacing] = {}
        self._assigned: tuple[Collection[str], int] = _NO_SHARDS, 0
        self._lock = threading.Lock()

    def of(self, shard_id: str) -> Pacing:
        """Give the pacing of a shard; always the same one, while the shard is this member's."""
        with self._lock:
            pacing = self._pacings.get(shard_id)
            if pacing is None:
                ready_at = self._clock.monotonic()
                pacing = Pacing(ready_at=ready_at, jitter=self._jitter, pace=self._pace, budget=self._budget)
                self._pacings[shard_id] = pacing
            return pacing

    @property
    def elsewhere(self) -> Pace:
        """The pace of a shard that an executor reads: no shard alone may have more than this member has."""
        rate = min(self._pace.bytes_per_second, self._budget.bytes_per_second)
        return replace(self._pace, bytes_per_second=rate)

    def not_before(self, shard_id: str) -> float:
        """Say when a shard may be read next, in seconds since the epoch, for another process."""
        return self._clock.time() + self.of(shard_id).ready_at - self._clock.monotonic()

    def assigned(self, ours: Collection[str], shards: int) -> None:
        """Take in which shards are to be this member's, of so many that are assigned to all members."""
        if (ours, shards) == self._assigned:
            return
        self._assigned = ours, shards
        if ours and shards:
            self._budget.take_part(min(1.0, len(ours) / shards))
        with self._lock:
            for shard_id in self._pacings.keys() - set(ours):
                del self._pacings[shard_id]
