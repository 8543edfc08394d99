"""The records that wait to be put on a stream: one queue, and one more for each shard that refuses.

As long as no shard refuses, everything is in the open queue, in the order it came. What a shard refuses is put
first in the shard's own queue. From then on a record of that shard goes behind it when its turn comes in the
open queue, which goes on: so no call walks over all that waits, and a shard holds up nobody else. No record
overtakes an earlier one of its own shard.

A shard that took nothing of a call rests for a while, longer each time. One that took a part is given records
at the pace that it takes them; see ``shard_pace``. When nothing waits there and all is taken, its queue is
removed.

The list of the shards may be out of date, or not known. A refusal shows it: then the shards are listed, and
everything is one queue again.

With `PutOrder.KEY`, only the first of each key's records is in a queue; see `key_lines`.
"""

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.kinesis.patience import Patience, Tries
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.key_lines import KeyLines
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, CallLimits, PutOrder, Puttable
from kinesis_spout.kinesis.write.shard_pace import ShardPace
from kinesis_spout.model.errors import KinesisError

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result


class GivenUp(NamedTuple):
    """Records of one shard that are not to be put again."""

    records: list[Puttable]
    error: KinesisError


@dataclass(slots=True)
class _RefusingShard:
    """A shard that refused of late. Mutable."""

    tries: Tries
    pace: ShardPace
    rests_until: float = -inf
    waiting: deque[Puttable] = field(default_factory=deque)
    backlog: int = 0
    """How many user records wait for it, those included that stand in line behind one of their key."""
    backlog_bytes: int = 0

    def count(self, entry: Puttable, sign: int) -> None:
        self.backlog += sign * len(entry.user_records)
        self.backlog_bytes += sign * entry.size_bytes

    def append(self, entry: Puttable) -> None:
        self.waiting.append(entry)
        self.count(entry, 1)

    def put_first(self, entries: Sequence[Puttable]) -> None:
        self.waiting.extendleft(reversed(entries))
        for entry in entries:
            self.count(entry, 1)

    def take_first(self) -> Puttable:
        entry = self.waiting.popleft()
        self.count(entry, -1)
        return entry

    def take_all(self) -> deque[Puttable]:
        waiting, self.waiting = self.waiting, deque()
        self.backlog = self.backlog_bytes = 0
        return waiting

    def refused(self, failure: KinesisError, now: float, *, has_taken: bool) -> None:
        """Rest, if it took nothing of a call.

        Raises:
            KinesisError: to try again does not help, or has not for too long.
        """
        if has_taken or self.rests_until <= now:  # of calls that were under way together, one says enough
            wait_seconds = self.tries.failed(failure)
            if not has_taken:
                self.rests_until = now + wait_seconds
                self.pace.rest(self.rests_until)

    def ready_at(self, now: float) -> float:
        """Say when some of what waits may go; infinite if nothing waits."""
        if not self.waiting:
            return inf
        return max(self.rests_until, self.pace.ready_at(len(self.waiting), now))


class _Batch:
    """What goes into one call. Mutable."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self.entries: list[Puttable] = []
        self.size_bytes = 0
        self._is_full = False

    def takes(self, entry: Puttable) -> bool:
        """Take a record in, if it fits."""
        size = entry.size_bytes
        limits, is_large = self._limits, size > COMMON_RECORD_BYTES
        if self.entries and (is_large or self.size_bytes + size > limits.size_bytes):
            self._is_full = True
        if self.is_full:
            return False
        self.entries.append(entry)
        self.size_bytes += size
        self._is_full = is_large
        return True

    @property
    def is_full(self) -> bool:
        return self._is_full or len(self.entries) >= self._limits.records


class ShardQueues:
    """Mutable. ``now`` is the monotonic time of the patience's clock.

    Args:
        limits: of one call.
        patience: for each shard that takes nothing.
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
        self._held_for: dict[int, _RefusingShard] = {}
        """Of records that stand in line behind one of their key, by identity: whose backlog they are in."""
        self.records = 0
        """How many wait."""
        self.size_bytes = 0
        """What they weigh."""

    def add(self, entry: Puttable) -> None:
        """Queue a record behind the others of its shard; or hold it back for one of its key."""
        self.records += 1
        self.size_bytes += entry.size_bytes
        if self._lines is None or self._lines.join(entry):
            self._queue(entry)
        elif self._shards and (shard := self._shards.get(self._shard_of(entry))):
            self._held_for[id(entry)] = shard
            shard.count(entry, 1)

    def add_all(self, entries: Sequence[Puttable]) -> None:
        """Queue records, in their order."""
        if self._lines is not None:
            for entry in entries:
                self.add(entry)
            return
        size_bytes = sum([entry.size_bytes for entry in entries])
        self._open.extend(entries)
        self._open_bytes += size_bytes
        self.records += len(entries)
        self.size_bytes += size_bytes

    def _queue(self, entry: Puttable) -> None:
        self._open.append(entry)
        self._open_bytes += entry.size_bytes

    @property
    def has_open(self) -> bool:
        """Whether a record may go now, unless its shard turns out to refuse."""
        return bool(self._open)

    @property
    def has_a_full_call(self) -> bool:
        """Whether what may go now, unless a shard turns out to refuse, fills a call."""
        return len(self._open) >= self._limits.records or self._open_bytes >= self._limits.size_bytes

    @property
    def has_refusing(self) -> bool:
        """Whether a shard refused of late."""
        return bool(self._shards)

    def paced_at(self, now: float) -> float:
        """Say when the first of the shards that refuse may be given records; infinite if none waits for that."""
        return min([shard.ready_at(now) for shard in self._shards.values()], default=inf)

    @property
    def ranges(self) -> HashKeyRanges:
        """The shards that everything goes by."""
        return self._ranges

    def backlogs(self) -> Iterator[tuple[str, int, int]]:
        """Give how many (user) records and bytes wait for each shard that refuses."""
        return (
            (name, shard.backlog, shard.backlog_bytes)
            for name, shard in self._shards.items()
            if shard.backlog
        )

    def take(self, now: float) -> list[Puttable]:
        """Give what goes into the next call, and hold it no longer; empty if nothing may go now."""
        batch = _Batch(self._limits)
        if self._shards:
            self._take_from_shards(batch, now)
            self._take_from_open(batch, now)
        else:
            opened = self._open
            while opened and batch.takes(opened[0]):
                opened.popleft()
            self._open_bytes -= batch.size_bytes
        self.records -= len(batch.entries)
        self.size_bytes -= batch.size_bytes
        if self._lines is not None:
            for entry in batch.entries:
                self._lines.go(entry)
        return batch.entries

    def _take_from_shards(self, batch: _Batch, now: float) -> None:
        for shard in self._shards.values():
            waiting, pace = shard.waiting, shard.pace
            if not waiting or shard.rests_until > now or not pace.is_worth_a_call(len(waiting), now):
                continue
            while waiting and pace.allows(now) and batch.takes(waiting[0]):
                pace.spend(shard.take_first().size_bytes)
            if waiting:
                pace.ran_short()
            if batch.is_full:
                return

    def _take_from_open(self, batch: _Batch, now: float) -> None:
        opened, shards, shard_of = self._open, self._shards, self._ranges.shard_of
        while opened and not batch.is_full:
            entry = opened[0]
            shard = shards.get(shard_of(entry.hash_key))
            if shard is not None and (shard.waiting or shard.rests_until > now or not shard.pace.allows(now)):
                shard.append(entry)
            elif not batch.takes(entry):
                return
            elif shard is not None:
                shard.pace.spend(entry.size_bytes)
            opened.popleft()
            self._open_bytes -= entry.size_bytes

    def take_all(self) -> list[Puttable]:
        """Give everything that waits, each shard's in order, and hold nothing; all shards may try again."""
        self._merge()
        entries = list(self._open)
        if self._lines is not None:
            entries += self._lines.clear()
            self._held_for.clear()
        self._open.clear()
        self._open_bytes = self.records = self.size_bytes = 0
        return entries

    def regroup(self, ranges: HashKeyRanges) -> None:
        """Go by other shards from now on. All may try again at once, and have their whole patience again."""
        self._merge()
        self._shards.clear()
        self._ranges = ranges

    def done(self, entries: Iterable[Puttable]) -> None:
        """Learn that these are on the stream, or given up: what they held back may go."""
        if self._lines is not None:
            for entry in entries:
                for following in self._lines.leave(entry):
                    shard = self._held_for.pop(id(following), None)
                    if shard is not None:
                        shard.count(following, -1)
                    self._queue(following)

    def settle(
        self,
        taken: "Sequence[tuple[Puttable, Result]]",
        refused: Sequence[Puttable],
        failure: KinesisError | None,
        now: float,
    ) -> list[GivenUp]:
        """Learn what of a call is on the stream, and take back, in order, what was refused, with what failure.

        Gives the records of those shards that have taken nothing until the deadline, with an error of the
        failure's kind: they are done with, and what waits behind them may go.
        """
        given_up: list[GivenUp] = []
        if self._shards or refused:
            takers = Counter([result.get("ShardId", "") for _, result in taken])
            shards = 1
            if not self._ranges.are_known:
                shards = max(1, len(takers))
                takers = Counter({self._ranges.shard_of(0): len(taken)})
            by_shard: dict[str, list[Puttable]] = {}
            for entry in refused:
                by_shard.setdefault(self._shard_of(entry), []).append(entry)
            self._note_taken(takers, by_shard, now)
            for name, entries in by_shard.items():
                assert failure is not None, "what is refused has a reason"
                try:
                    self._take_back(name, entries, failure, now, taken=takers[name], shards=shards)
                except KinesisError as error:
                    given_up.append(GivenUp(entries, error))
                    self._give_up(name, entries)
        if self._lines is not None:
            self.done([entry for entry, _ in taken])
        return given_up

    def _note_taken(self, takers: Counter[str], refusing: Container[str], now: float) -> None:
        for name, shard in list(self._shards.items()):
            if takers[name]:
                shard.tries = Tries(self._patience, f"{self._work}, {name}")
                if name not in refusing:
                    shard.pace.answered(takers[name], 0, now, shards=1)
                    if not shard.waiting and shard.pace.is_over:
                        del self._shards[name]

    def _take_back(
        self,
        name: str,
        entries: list[Puttable],
        failure: KinesisError,
        now: float,
        *,
        taken: int,
        shards: int,
    ) -> None:
        shard = self._shards.get(name)
        if shard is None:
            tries = Tries(self._patience, f"{self._work}, {name}")
            shard = self._shards[name] = _RefusingShard(tries, ShardPace(now))
        shard.refused(failure, now, has_taken=bool(taken))
        shard.pace.answered(taken, len(entries), now, shards=shards)
        shard.put_first(entries)
        self.records += len(entries)
        self.size_bytes += sum([entry.size_bytes for entry in entries])
        if self._lines is not None:
            for entry in entries:
                self._lines.back(entry)

    def _give_up(self, name: str, entries: list[Puttable]) -> None:
        waiting = self._shards.pop(name).take_all()
        self._open.extendleft(reversed(waiting))
        self._open_bytes += sum([entry.size_bytes for entry in waiting])
        self.done(entries)

    def _merge(self) -> None:
        """Make one queue of all: what waits for a shard came before what the open queue has for it."""
        for shard in self._shards.values():
            shard.rests_until = -inf
            waiting = shard.take_all()
            self._open.extendleft(reversed(waiting))
            self._open_bytes += sum([entry.size_bytes for entry in waiting])

    def _shard_of(self, entry: Puttable) -> str:
        return self._ranges.shard_of(entry.hash_key)
