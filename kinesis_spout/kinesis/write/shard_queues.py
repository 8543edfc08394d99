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
from typing import NamedTuple

from kinesis_spout.errors import KinesisError
from kinesis_spout.kinesis.patience import Patience, Tries
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.key_lines import KeyLines
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, CallLimits, PutOrder, Puttable


class GivenUp(NamedTuple):
    """Records of one shard that are not to be put again."""

    records: list[Puttable]
    error: KinesisError


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

    def add_all(self, entries: Sequence[Puttable]) -> None:
        """Queue records, in their order."""
        if self._lines is not None or self.unblocks_at < inf:
            for entry in entries:
                self.add(entry)
            return
        size_bytes = sum([entry.size_bytes for entry in entries])
        self._open.extend(entries)
        self._open_bytes += size_bytes
        self.records += len(entries)
        self.size_bytes += size_bytes

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
        if self._lines is not None:
            for entry in batch:
                self._lines.go(entry)
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
        """Learn that these are on the stream: their shards get a new deadline, and refuse no longer.

        A shard that refused others meanwhile, of another call, stays blocked.
        """
        if self._shards:
            for name in {self._shard_of(entry) for entry in entries} & self._shards.keys():
                shard = self._shards[name]
                if shard.blocked_until is None:
                    del self._shards[name]  # nothing waits there: what was in a call was open
                else:
                    shard.tries = Tries(self._patience, f"{self._work}, {name}")
        self.done(entries)

    def done(self, entries: Iterable[Puttable]) -> None:
        """Learn that these are on the stream, or given up: what they held back may go."""
        if self._lines is not None:
            for entry in entries:
                for following in self._lines.leave(entry):
                    self._queue(following)

    def refused(self, entries: Sequence[Puttable], failure: KinesisError, now: float) -> list[GivenUp]:
        """Take back, in order, what a call refused, and block its shards.

        Gives the records of those shards that have taken nothing until the deadline, with an error of the
        failure's kind: they are done with, and what waits behind them may go.
        """
        by_shard: dict[str, list[Puttable]] = {}
        for entry in entries:
            by_shard.setdefault(self._shard_of(entry), []).append(entry)
        given_up = []
        for name, of_shard in list(by_shard.items()):
            try:
                self._block(name, of_shard, failure, now)
            except KinesisError as error:
                given_up.append(GivenUp(of_shard, error))
                del by_shard[name]
                self._unblock(self._shards.pop(name))
                self.done(of_shard)
        still_open: deque[Puttable] = deque()
        for entry in self._open:  # it came later, and stays behind
            name = self._shard_of(entry)
            (self._shards[name].waiting if name in by_shard else still_open).append(entry)
        self._open = still_open
        self._open_bytes = sum(entry.size_bytes for entry in still_open)
        self._note_next_unblock()
        return given_up

    def _block(self, name: str, entries: list[Puttable], failure: KinesisError, now: float) -> None:
        shard = self._shards.get(name)
        if shard is None:
            shard = self._shards[name] = _RefusingShard(Tries(self._patience, f"{self._work}, {name}"))
        wait_seconds = shard.tries.failed(failure)
        shard.blocked_until = now + wait_seconds
        shard.waiting.extendleft(reversed(entries))  # another call may have been refused before
        self.records += len(entries)
        self.size_bytes += sum(entry.size_bytes for entry in entries)
        if self._lines is not None:
            for entry in entries:
                self._lines.back(entry)

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
