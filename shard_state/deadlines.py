"""When each delivery times out.

Every delivery has the same time-out, so deadlines pass in the order in which deliveries began: nothing is
searched, and only deliveries that have no outcome yet are kept (invariant 12).
"""

from collections import OrderedDict
from collections.abc import Iterator

from shard_state.sequence_number import SequenceNumber

Place = tuple[str, SequenceNumber]
"""A shard's id, and a record of it."""


class Deadlines:
    """The deadlines of the deliveries of one consumer. Mutable; not thread-safe."""

    def __init__(self, timeout_seconds: float | None) -> None:
        self._timeout_seconds = timeout_seconds
        self._deliveries: OrderedDict[Place, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._deliveries)

    def start(self, shard_id: str, sequence: SequenceNumber, now: float) -> None:
        """Note that a delivery of a record began, in place of any before it."""
        if self._timeout_seconds is not None:
            place = shard_id, sequence
            self._deliveries.pop(place, None)
            self._deliveries[place] = now + self._timeout_seconds

    def end(self, shard_id: str, sequence: SequenceNumber) -> None:
        """Note that the outcome of a delivery is known."""
        self._deliveries.pop((shard_id, sequence), None)

    def forget(self, shard_id: str) -> None:
        """Drop the deliveries of a shard: under a later epoch they are made again, with deadlines of their own."""
        for place in [place for place in self._deliveries if place[0] == shard_id]:
            del self._deliveries[place]

    def expired(self, now: float) -> Iterator[Place]:
        """Take out the deliveries whose deadline has passed."""
        while self._deliveries:
            place = next(iter(self._deliveries))
            if self._deliveries[place] > now:
                return
            del self._deliveries[place]
            yield place
