"""How fast one shard may be read: what AWS allows, or the part of it that a user gives us.

A shard gives 5 calls and 2 MB a second to all its pollers together.
"""

from dataclasses import dataclass
from typing import Final

MIN_INTERVAL_SECONDS: Final = 0.2
BYTES_PER_SECOND: Final = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The rate of one shard. Can be pickled: it travels with what an executor is to read."""

    interval_seconds: float = MIN_INTERVAL_SECONDS
    """Between the beginnings of two calls, at least."""
    bytes_per_second: float = BYTES_PER_SECOND

    def seconds_for(self, size_bytes: int) -> float:
        """Say how long after the beginning of a read of so many bytes the next one may begin."""
        return max(self.interval_seconds, size_bytes / self.bytes_per_second)
