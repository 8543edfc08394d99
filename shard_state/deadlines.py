"""When each delivery times out.

Every delivery has the same time-out, so deadlines pass in the order in which deliveries began: a queue serves,
and nothing is searched. A delivery that ended meanwhile stays in the queue until its deadline passes; the
shell's tracker tells that it is over.
"""

from collections import deque
from collections.abc import Iterator

from shard_state.sequence_number import SequenceNumber


class Deadlines:
    """The deadlines of the deliveries of one consumer. Mutable; not thread-safe."""

    def __init__(self, timeout_seconds: float | None) -> None:
        self._timeout_seconds = timeout_seconds
        self._deliveries: deque[tuple[float, str, SequenceNumber, int]] = deque()

    def start(self, shard_id: str, sequence: SequenceNumber, attempt: int, now: float) -> None:
        """Note that a delivery began. Without a time-out nothing is kept."""
        if self._timeout_seconds is not None:
            self._deliveries.append((now + self._timeout_seconds, shard_id, sequence, attempt))

    def forget(self, shard_id: str) -> None:
        """Drop the deliveries of a shard: under a later epoch they are made again, with deadlines of their own."""
        self._deliveries = deque(delivery for delivery in self._deliveries if delivery[1] != shard_id)

    def expired(self, now: float) -> Iterator[tuple[str, SequenceNumber, int]]:
        """Take out the deliveries (shard, record, attempt) whose deadline has passed."""
        while self._deliveries and self._deliveries[0][0] <= now:
            _, shard_id, sequence, attempt = self._deliveries.popleft()
            yield shard_id, sequence, attempt
