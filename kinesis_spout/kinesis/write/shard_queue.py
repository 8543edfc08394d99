"""The queue of a shard, the shard's pace while it refuses records, and the call that records go to."""

from collections import deque
from itertools import islice
from math import inf

from kinesis_spout.kinesis.retry_policy import Tries
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, CallLimits, Entry, Puttable
from kinesis_spout.kinesis.write.shard_pace import ShardPace
from kinesis_spout.model.errors import KinesisError


class ShardQueue:
    """The records that wait for one shard, in order. Mutable."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clear()

    def clear(self) -> None:
        self.records: deque[Entry] = deque()
        self.size_bytes = 0
        self.behind = self.behind_bytes = 0
        """How many more wait for an earlier record of their key to end, and what they weigh."""

    def pop(self) -> None:
        self.size_bytes -= self.records.popleft().size_bytes

    def hold_back(self, entry: Entry) -> None:
        """Count a record that waits for an earlier one of its key."""
        self.behind += 1
        self.behind_bytes += entry.size_bytes

    def let_go(self, entry: Entry) -> None:
        """Count out a record that was held back."""
        self.behind -= 1
        self.behind_bytes -= entry.size_bytes


class RefusingShard:
    """A shard that refused lately. ``tries`` limit how long it takes nothing. Mutable."""

    def __init__(self, queue: ShardQueue, tries: Tries, now: float) -> None:
        self.queue = queue
        self.tries = tries
        self.pace = ShardPace(now)
        self.rests_until = -inf

    def refused(self, records: int, failure: KinesisError, now: float, *, taken: int, shards: int) -> None:
        """Note refused records, of ``shards`` as one; rest, if nothing else of the call was taken.

        Raises:
            KinesisError: trying again does not help, or has not for too long.
        """
        if taken or self.rests_until <= now:  # of calls that were under way together, one is enough
            wait_seconds = self.tries.failed(failure)
            if not taken:
                self.rests_until = now + wait_seconds
                self.pace.rest(self.rests_until)
        self.pace.answered(taken, records, now, shards=shards)

    def takes_all(self, now: float) -> bool:
        """Whether it neither rests nor has a pace: it refused too little."""
        return self.rests_until <= now and self.pace.scale == inf

    def ready_at(self, now: float, records: int) -> float:
        """Return when a call is worth making for so many; infinity for none."""
        if not records:
            return inf
        return max(self.rests_until, self.pace.ready_at(records, now))


class Batch:
    """What goes into one call. Mutable."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self.entries: list[Puttable] = []
        self._size_bytes = 0
        self.is_full = False

    def has_room(self, size_bytes: int) -> bool:
        is_beyond = (
            size_bytes > COMMON_RECORD_BYTES or self._size_bytes + size_bytes > self._limits.size_bytes
        )
        if self.entries and is_beyond:
            self.is_full = True
        return not self.is_full

    def add(self, entry: Puttable) -> None:
        """Add what there is room for."""
        self.entries.append(entry)
        self._size_bytes += entry.size_bytes
        self.is_full = entry.size_bytes > COMMON_RECORD_BYTES or len(self.entries) >= self._limits.records

    def add_from(self, queue: ShardQueue) -> None:
        """Take a whole call's worth of a queue, if that fits: one by one they would cost more."""
        entries: list[Puttable] = list(islice(queue.records, self._limits.records))
        sizes = [entry.size_bytes for entry in entries]
        size_bytes = sum(sizes)
        if size_bytes > self._limits.size_bytes or max(sizes) > COMMON_RECORD_BYTES:
            return
        self.entries, self._size_bytes = entries, size_bytes
        self.is_full = len(entries) == self._limits.records
        for _ in entries:
            queue.records.popleft()
        queue.size_bytes -= size_bytes
