"""What of a buffer that fills up each shard may have: one that refuses must not push out the others.

A quarter of the buffer is anybody's. Of the rest a shard that refuses may take no more when it has its even
part of the whole: with ten shards, a tenth. So all of the buffer is used where all shards are slow, and three
quarters are left to the others where one is.
"""

from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.producer.ticket import Ticket


class Shares:
    """Mutable; for whoever holds the inbox's lock.

    Args:
        ranges: the shards.
        left: how many more records, and bytes, each shard that refuses may have; others are free.
    """

    def __init__(self, ranges: HashKeyRanges, left: dict[str, tuple[int, int]]) -> None:
        self._ranges = ranges
        self._left = left

    def admit(self, ticket: Ticket) -> bool:
        """Say whether a record has room in its shard's share."""
        left = self._left.get(self._ranges.shard_of(ticket.hash_key))
        return left is None or min(left) > 0

    def take(self, ticket: Ticket) -> None:
        """Note that a record came in."""
        name = self._ranges.shard_of(ticket.hash_key)
        left = self._left.get(name)
        if left is not None:
            self._left[name] = left[0] - 1, left[1] - ticket.size_bytes
