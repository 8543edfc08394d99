"""The records of one shard that wait for another delivery, by the time they are due.

A record waits at most once (invariant 3): adding it again keeps the first entry. A cancelled record is gone
at once; its entry in the heap is cleared away later: dead entries never outnumber live ones for long.
"""

import heapq
from collections.abc import Iterator

from shard_state.sequence_number import SequenceNumber

_COMPACT_ABOVE = 64


class RetryQueue:
    """A priority queue by due time, then by shard order. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._due: dict[SequenceNumber, float] = {}
        self._heap: list[tuple[float, SequenceNumber]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, sequence: SequenceNumber) -> bool:
        return sequence in self._due

    def __iter__(self) -> Iterator[SequenceNumber]:
        return iter(self._due)

    def add(self, sequence: SequenceNumber, due_at: float) -> bool:
        """Queue a record for ``due_at``; False if it waits already, which changes nothing."""
        if sequence in self._due:
            return False
        self._due[sequence] = due_at
        heapq.heappush(self._heap, (due_at, sequence))
        return True

    def cancel(self, sequence: SequenceNumber) -> bool:
        """Take a record out; False if it does not wait."""
        if self._due.pop(sequence, None) is None:
            return False
        if len(self._heap) > _COMPACT_ABOVE and len(self._heap) > 2 * len(self._due):
            self._heap = [(due_at, waiting) for waiting, due_at in self._due.items()]
            heapq.heapify(self._heap)
        return True

    def first_due(self, now: float) -> SequenceNumber | None:
        """Name the record that is due first, if it is due at ``now``."""
        due_at = self.next_due()
        return None if due_at is None or due_at > now else self._heap[0][1]

    def next_due(self) -> float | None:
        """Tell when the next record is due; None when nothing waits."""
        while self._heap:
            due_at, sequence = self._heap[0]
            if self._due.get(sequence) == due_at:
                return due_at
            heapq.heappop(self._heap)
        return None
