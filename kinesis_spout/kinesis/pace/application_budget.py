"""What one member of an application may read of all its streams together.

The application's budget is divided by the shards that are assigned, of all streams to all members; this member has
the part of those that are its own. So a stream with many shards does not have less than its shards are worth, and
one that is idle leaves its part to the others of the same member, see ``byte_budget``. Every member knows those
numbers from the assignments, so they need not talk about it, and it holds after a failover. A member leaves
nothing to another.
"""

import threading

from kinesis_spout.kinesis.pace.byte_budget import ByteBudget


class ApplicationBudget:
    """One for all streams of a process. Mutable, thread-safe.

    Args:
        bytes_per_second: of the whole application; None: no limit.
    """

    def __init__(self, bytes_per_second: float | None = None) -> None:
        self.bytes = ByteBudget(bytes_per_second)
        """What whoever reads a shard of any stream pays from."""
        self._assigned: dict[object, tuple[int, int]] = {}
        """Of each stream: how many shards are this member's, and how many there are."""
        self._lock = threading.Lock()

    def assigned(self, stream: object, ours: int, shards: int) -> None:
        """Take in how many shards of a stream are to be this member's, of so many that are assigned to all."""
        with self._lock:
            self._assigned[stream] = ours, shards
            self._divide()

    def left(self, stream: object) -> None:
        """Take in that a stream is read no more."""
        with self._lock:
            if self._assigned.pop(stream, None) is not None:
                self._divide()

    def _divide(self) -> None:
        ours, shards = map(sum, zip(*self._assigned.values(), strict=True)) if self._assigned else (0, 0)
        if ours and shards:  # else nothing is read, or nothing is known yet
            self.bytes.take_part(min(1.0, ours / shards))
