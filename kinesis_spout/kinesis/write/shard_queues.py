"""The records that wait to be put on a stream: one queue, and one more for each shard that refused.

As long as no shard refuses, everything is in the open queue, in the order it came. A shard that refuses is
blocked for a while: what was refused, and everything of that shard that is behind it, waits in the shard's own
queue, and what is added for it goes there. When the time is over, that queue joins the open one, where nothing
of the shard is left. So a shard holds up nobody else, and no record overtakes an earlier one of its own shard.

With `PutOrder.KEY`, only the first of each key's records is in a queue; see `key_lines`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from kinesis_spout.errors import KinesisError
from kinesis_spout.kinesis.patience import Patience, Tries
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.key_lines import KeyLines
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, CallLimits, PutOrder, Puttable


@dataclass(slots=True)
class _RefusingShard:
    """A shard that refused, until it takes a record again."""

    tries: Tries
    blocked_until: float | None = None
    waiting: deque[Puttable] = field(default_factory=deque)


class ShardQueues:
    """Mutable. ``now`` is the monotonic time of the patience's clock.

    Args:
        limits: of one call.
        patience: for each shard that refuses.
        work: what is tried, for errors: "PutRecords on orders".
        order: what of the records' order holds.
    """

    def __init__(self, limits: CallLimits, patience: Patience, work: str, order: PutOrder) -> None:
        self._limits = limits
        self._patience = patience
        self._work = work
        self._lines = KeyLines() if order is PutOrder.KEY else None
        self._ranges = HashKeyRanges.unknown()
        self._open: deque[Puttable] = deque()
        self._open_bytes = 0
        self._shards: dict[str, _RefusingShard] = {}
        self.records = 0
        """How many wait."""
        self.size_bytes = 0
        """What they weigh."""
        self.unblocks_at = inf
        """When the first blocked shard may be tried again; infinite if none is blocked."""

    def add(self, entry: Puttable) -> None:
        """Queue a record behind the others of its shard; or hold it back for one of its key."""
        self.records += 1
        self.size_bytes += entry.size_bytes
        if self._lines is None or self._lines.join(entry):
            self._queue(entry)

    def _queue(self, entry: Puttable) -> None:
        if self.unblocks_at < inf:
            shard = self._shards.get(self._shard_of(entry))
            if shard is not None and shard.blocked_until is not None:
                shard.waiting.append(entry)
                return
        self._open.append(entry)
        self._open_bytes += entry.size_bytes

    @property
    def has_open(self) -> bool:
        """Whether a record may go now."""
        return bool(self._open)

    @property
    def has_a_full_call(self) -> bool:
        """Whether what may go now fills a call."""
        return len(self._open) >= self._limits.records or self._open_bytes >= self._limits.size_bytes

    def take(self) -> list[Puttable]:
        """Give what goes into the next call, and hold it no longer; empty if nothing may go now."""
        batch: list[Puttable] = []
        batch_bytes = 0
        while self._open and len(batch) < self._limits.records:
            size = self._open[0].size_bytes
            if batch and (size > COMMON_RECORD_BYTES or batch_bytes + size > self._limits.size_bytes):
                break
            batch.append(self._open.popleft())
            batch_bytes += size
            if size > COMMON_RECORD_BYTES:
                break
        self._open_bytes -= batch_bytes
        self.records -= len(batch)
        self.size_bytes -= batch_bytes
        return batch

    def take_all(self) -> list[Puttable]:
        """Give everything that waits, each shard's in order, and hold nothing; all shards may try again."""
        self._unblock_all()
        entries = list(self._open)
        if self._lines is not None:
            entries += self._lines.clear()
        self._open.clear()
        self._open_bytes = self.records = self.size_bytes = 0
        return entries

    def unblock(self, now: float) -> None:
        """Let those shards try again whose time has come."""
        if now < self.unblocks_at:
            return
        for shard in self._shards.values():
            if shard.blocked_until is not None and shard.blocked_until <= now:
                self._unblock(shard)
        self._note_next_unblock()

    def regroup(self, ranges: HashKeyRanges) -> None:
        """Go by other shards from now on. All may try again at once, and have their whole patience again."""
        self._unblock_all()
        self._shards.clear()
        self._ranges = ranges

    def taken(self, entries: Sequence[Puttable]) -> None:
        """Learn that these are on the stream: their shards refuse no longer, and get a new deadline."""
        if self._shards:
            for name in {self._shard_of(entry) for entry in entries} & self._shards.keys():
                del self._shards[name]  # nothing waits there: what was in a call was open
        self.done(entries)

    def done(self, entries: Iterable[Puttable]) -> None:
        """Learn that these are on the stream, or given up: what they held back may go."""
        if self._lines is not None:
            for entry in entries:
                for following in self._lines.leave(entry):
                    self._queue(following)

    def refused(self, entries: Sequence[Puttable], failure: KinesisError, now: float) -> None:
        """Take back, in order, what the last call refused, and block its shards.

        Raises:
            KinesisError: of the failure's kind: one of the shards has taken nothing until the deadline.
        """
        by_shard: dict[str, list[Puttable]] = {}
        for entry in entries:
            by_shard.setdefault(self._shard_of(entry), []).append(entry)
        for name, of_shard in by_shard.items():
            shard = self._shards.get(name)
            if shard is None:
                shard = self._shards[name] = _RefusingShard(Tries(self._patience, f"{self._work}, {name}"))
            shard.waiting.extend(of_shard)
            self.records += len(of_shard)
            self.size_bytes += sum(entry.size_bytes for entry in of_shard)
            shard.blocked_until = now + shard.tries.failed(failure)
        still_open: deque[Puttable] = deque()
        for entry in self._open:  # it came later, and stays behind
            name = self._shard_of(entry)
            (self._shards[name].waiting if name in by_shard else still_open).append(entry)
        self._open = still_open
        self._open_bytes = sum(entry.size_bytes for entry in still_open)
        self._note_next_unblock()

    def _unblock_all(self) -> None:
        for shard in self._shards.values():
            self._unblock(shard)
        self._note_next_unblock()

    def _unblock(self, shard: _RefusingShard) -> None:
        shard.blocked_until = None
        self._open.extend(shard.waiting)
        self._open_bytes += sum(entry.size_bytes for entry in shard.waiting)
        shard.waiting.clear()

    def _note_next_unblock(self) -> None:
        self.unblocks_at = min(
            (shard.blocked_until for shard in self._shards.values() if shard.blocked_until is not None),
            default=inf,
        )

    def _shard_of(self, entry: Puttable) -> str:
        return self._ranges.shard_of(entry.hash_key)
