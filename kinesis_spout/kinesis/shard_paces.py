"""The pacings of all shards of a stream that one process reads.

All readers of a shard in this process share its pacing: polls, getters opened again, records read again for a
retry. Reads of executors are noted when they are done. For the budget of the application, see ``pace``.
"""

import random
import threading
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from kinesis_spout.kinesis.pace import ApplicationBudget, Pace
from kinesis_spout.kinesis.read.pacing import Pacing
from kinesis_spout.kinesis.retry_policy import Jitter
from kinesis_spout.model.clock import Clock

_NO_SHARDS: Final = frozenset[str]()


class ShardPaces:
    """Mutable, thread-safe. The application's other streams in this process share the ``budget``."""

    def __init__(
        self,
        clock: Clock,
        *,
        pace: Pace | None = None,
        budget: ApplicationBudget | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._clock = clock
        self._pace = pace or Pace()
        self._budget = budget or ApplicationBudget()
        self._jitter = jitter
        self._pacings: dict[str, Pacing] = {}
        self._assigned: tuple[Collection[str], int] = _NO_SHARDS, 0
        self._lock = threading.Lock()

    def of(self, shard_id: str) -> Pacing:
        with self._lock:
            pacing = self._pacings.get(shard_id)
            if pacing is None:
                ready_at = self._clock.monotonic()
                pacing = Pacing(
                    ready_at=ready_at, jitter=self._jitter, pace=self._pace, budget=self._budget.bytes
                )
                self._pacings[shard_id] = pacing
            return pacing

    @property
    def elsewhere(self) -> Pace:
        """The pace of a shard that an executor reads: no shard alone may exceed this member's rate."""
        rate = min(self._pace.bytes_per_second, self._budget.bytes.bytes_per_second)
        return replace(self._pace, bytes_per_second=rate)

    def not_before(self, shard_id: str) -> float:
        """Return when a shard may be read next, in seconds since the epoch, for another process."""
        return self._clock.time() + self.of(shard_id).ready_at - self._clock.monotonic()

    def assigned(self, ours: Collection[str], shards: int) -> None:
        """Note that ``shards`` shards are assigned to all members, and ``ours`` of them to this one."""
        if (ours, shards) == self._assigned:
            return
        self._assigned = ours, shards
        self._budget.assigned(self, len(ours), shards)
        with self._lock:
            for shard_id in self._pacings.keys() - set(ours):
                del self._pacings[shard_id]

    def close(self) -> None:
        """Leave the budget to the application's other streams. Idempotent."""
        self._budget.left(self)
