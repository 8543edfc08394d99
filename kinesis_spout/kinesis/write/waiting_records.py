"""The records that wait for one stream: what goes into the next call, and what an answer means. No I/O.

PutRecords answers for each record of a call; refused records are put again. While no shard refuses,
everything is in the open queue, in the order it came. What a shard refuses goes to the front of the shard's
queue. From then on a record of that shard moves behind it when its turn comes in the open queue. So no call
walks over all that waits, and a shard delays no other. No record overtakes an earlier one of its shard.

A shard that took nothing of a call rests for a while, longer each time. One that took a part gets records at
the pace that it takes them; see ``shard_pace``. When nothing waits there and all is taken, its queue is removed.

A record's shard follows from its key and the stream's shards. These are listed at the first refusal, and
again when an answer names a shard that is not listed; then everything is one queue again. A list that is out
of date, or missing, only makes the waiting coarser.

**Order.** Records of one partition key are given out in the order in which they were held. Within one call
Kinesis may refuse a record and take a later one of the same key; the first then comes after it. The same
happens with concurrent calls. With `PutOrder.KEY` a record is given out when the one before it of its key has
ended, which prevents this: only the first of each key's records is in a queue; see `key_lines`.
"""

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.kinesis.calls import ERRORS_BY_CODE
from kinesis_spout.kinesis.retry_policy import RetryPolicy, Tries
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.key_lines import KeyLines
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, CallLimits, PutOrder, Puttable
from kinesis_spout.kinesis.write.shard_pace import RefusingShard
from kinesis_spout.model.errors import KinesisError, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result


class GivenUp(NamedTuple):
    records: list[Puttable]
    error: KinesisError


class Settled(NamedTuple):
    taken: "list[tuple[Puttable, Result]]"
    """What is on the stream now, each with its answer."""
    given_up: list[GivenUp]
    """What is not put again: of shards that took nothing until the deadline, or with errors that do not pass.
    The rest waits again."""


class _Backlogs:
    """How many user records and bytes wait for each shard, while one refuses: in all queues and lines. Mutable."""

    def __init__(self, ranges: HashKeyRanges) -> None:
        self._ranges = ranges
        self._counts: dict[str, list[int]] = {}

    def count(self, entries: Iterable[Puttable], sign: int = 1) -> None:
        """Add records (``sign`` 1) or remove them (-1)."""
        ranges, counts = self._ranges, self._counts
        for entry in entries:
            name = entry.shard_in(ranges)
            count = counts.get(name)
            if count is None:
                count = counts[name] = [0, 0]
            count[0] += sign * entry.count
            count[1] += sign * entry.size_bytes

    def of(self, name: str) -> tuple[int, int]:
        records, size_bytes = self._counts.get(name, (0, 0))
        return records, size_bytes


class _Batch:
    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self.entries: list[Puttable] = []
        self.size_bytes = 0
        self._is_full = False

    def takes(self, entry: Puttable) -> bool:
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

    def fill(self, entries: list[Puttable]) -> Sequence[Puttable]:
        """Take a call's worth of entries together if they fit; return those that must be looked at one by one."""
        sizes = [entry.size_bytes for entry in entries]
        if sum(sizes) > self._limits.size_bytes or max(sizes, default=0) > COMMON_RECORD_BYTES:
            return entries
        self.entries, self.size_bytes = entries, sum(sizes)
        return ()

    @property
    def is_full(self) -> bool:
        return self._is_full or len(self.entries) >= self._limits.records


class WaitingRecords:
    """The records on their way to one stream. Mutable; for one thread at a time.

    Its owner takes a batch, makes the call, and reports: `settle` for answers, `done` for records that are
    given up, and nothing yet for a call that is made again. Several calls may be under way. Before it settles
    answers, it asks whether it `must_list` first.
    """

    def __init__(self, work: str, *, retry_policy: RetryPolicy, limits: CallLimits, order: PutOrder) -> None:
        self._work = work
        self._retry_policy = retry_policy
        self._clock = retry_policy.clock
        self._limits = limits
        self._lines = KeyLines() if order is PutOrder.KEY else None
        self.must_list_first = False
        """Whether the shards are needed before anything is held."""
        self.ranges = HashKeyRanges.unknown()
        self._is_listed = False
        self._was_in_vain = False
        """Whether the shards were listed again, and had not changed."""
        self._open: deque[Puttable] = deque()
        self._open_bytes = 0
        self._shards: dict[str, RefusingShard] = {}
        self._backlogs: _Backlogs | None = None
        """None while no shard refuses: then it would cost more than it is worth."""
        self._count = 0
        self._size_bytes = 0

    # What waits.

    @property
    def waiting(self) -> int:
        """How many records of Kinesis are held, without those in calls."""
        return self._count

    @property
    def waiting_bytes(self) -> int:
        return self._size_bytes

    @property
    def ready_at(self) -> float:
        """When a batch can be taken, as monotonic time: minus infinity for now, infinity if nothing is held.

        Infinity also if all that is held waits, for its order, for records in calls.
        """
        return -inf if self._open else self.paced_at

    @property
    def paced_at(self) -> float:
        """When waiting records of a refusing shard may go, as monotonic time: infinity if none waits."""
        now = self._clock.monotonic()
        return min([shard.ready_at(now) for shard in self._shards.values()], default=inf)

    @property
    def has_ready(self) -> bool:
        """Whether ``take`` may return something although no refusing shard is due."""
        return bool(self._open)

    @property
    def has_a_full_call(self) -> bool:
        """Whether what may go now, unless a shard turns out to refuse, fills a call."""
        return len(self._open) >= self._limits.records or self._open_bytes >= self._limits.size_bytes

    def backlogs(self) -> Iterator[tuple[str, int, int]]:
        """Yield the (user) records and bytes that wait for each shard that refused lately."""
        if self._backlogs is not None:
            for name in self._shards:
                yield name, *self._backlogs.of(name)

    # What comes, and goes into calls.

    def hold_all(self, entries: Sequence[Puttable]) -> None:
        """Hold records, in order: each after the others of its shard."""
        size_bytes = sum([entry.size_bytes for entry in entries])
        self._count += len(entries)
        self._size_bytes += size_bytes
        if self._backlogs is not None:
            self._backlogs.count(entries)
        if self._lines is None:
            self._open.extend(entries)
            self._open_bytes += size_bytes
            return
        for entry in entries:
            if self._lines.join(entry):
                self._queue(entry)

    def _queue(self, entry: Puttable) -> None:
        self._open.append(entry)
        self._open_bytes += entry.size_bytes

    @property
    def is_packing(self) -> bool:
        """Whether some of what is held may be taken only after ``finish_packing``."""
        return False

    def finish_packing(self) -> None:
        """Let all that is held go, full or not."""

    def take(self) -> list[Puttable]:
        """Return what goes into the next call; empty if nothing may go now."""
        batch = _Batch(self._limits)
        if self._shards:
            now = self._clock.monotonic()
            self._take_from_shards(batch, now)
            self._take_from_open(batch, now)
        else:
            opened = self._open
            for entry in batch.fill(list(islice(opened, self._limits.records))):
                if not batch.takes(entry):
                    break
            for _ in batch.entries:
                opened.popleft()
            self._open_bytes -= batch.size_bytes
        self._count -= len(batch.entries)
        self._size_bytes -= batch.size_bytes
        if self._backlogs is not None:
            self._backlogs.count(batch.entries, -1)
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
                pace.spend(waiting.popleft().size_bytes)
            if waiting:
                pace.ran_short()
            if batch.is_full:
                return

    def _take_from_open(self, batch: _Batch, now: float) -> None:
        opened, shards, ranges = self._open, self._shards, self.ranges
        while opened and not batch.is_full:
            entry = opened[0]
            shard = shards.get(entry.shard_in(ranges))
            if shard is not None and (shard.waiting or shard.rests_until > now or not shard.pace.allows(now)):
                shard.waiting.append(entry)
            elif not batch.takes(entry):
                return
            elif shard is not None:
                shard.pace.spend(entry.size_bytes)
            opened.popleft()
            self._open_bytes -= entry.size_bytes

    def take_back(self) -> list[Puttable]:
        """Return everything that waits, each shard's in order; all shards may try again."""
        self._merge()
        entries = list(self._open)
        if self._lines is not None:
            entries += self._lines.clear()
        self._open.clear()
        if self._backlogs is not None:
            self._backlogs = _Backlogs(self.ranges)
        self._open_bytes = self._count = self._size_bytes = 0
        return entries

    # Which shards there are.

    def must_list(self, results: "Sequence[Result]") -> bool:
        """Whether the shards must be listed before these answers are settled."""
        if any(result.get("ErrorCode") for result in results):
            return not self._is_listed or self._names_a_new_shard(results)
        # The children of a split shard would be held to the pace of their parent.
        return bool(self._shards) and self._names_a_new_shard(results) and not self._was_in_vain

    def _names_a_new_shard(self, results: "Sequence[Result]") -> bool:
        named = {result.get("ShardId") for result in results}
        return any(map(self.ranges.are_older_than, filter(None, named)))

    def go_by(self, ranges: HashKeyRanges) -> None:
        """Use these shards from now on. All may try again at once, with their whole deadline."""
        self._was_in_vain = self._is_listed and self.ranges == ranges
        self._is_listed = True
        self._merge()
        self._shards.clear()
        self._backlogs = None
        self.ranges = ranges

    def _merge(self) -> None:
        """Make one queue of all: what waits for a shard came before what the open queue has for it."""
        for shard in self._shards.values():
            shard.rests_until = -inf
            self._put_first(shard.take_all())

    def _put_first(self, entries: Sequence[Puttable]) -> None:
        self._open.extendleft(reversed(entries))
        self._open_bytes += sum([entry.size_bytes for entry in entries])

    # The ends of calls.

    def done(self, entries: Iterable[Puttable]) -> None:
        """Note that these are on the stream, or given up: what they held back may go."""
        if self._lines is not None:
            for entry in entries:
                for following in self._lines.leave(entry):
                    self._queue(following)

    def settle(self, batch: Sequence[Puttable], results: "Sequence[Result]") -> Settled:
        """Settle a call's answers, and take back refused records, in order.

        Records of a shard that has taken nothing until the deadline are given up, with an error of the
        failure's kind; what waits behind them may go.
        """
        taken: list[tuple[Puttable, Result]] = []
        refused: list[tuple[Puttable, Result]] = []
        for pair in zip(batch, results, strict=True):
            (refused if pair[1].get("ErrorCode") else taken).append(pair)
        given_up: list[GivenUp] = []
        if self._shards or refused:
            by_shard: dict[str, list[Puttable]] = {}
            for entry, _ in refused:
                by_shard.setdefault(entry.shard_in(self.ranges), []).append(entry)
            takers = Counter([result.get("ShardId", "") for _, result in taken])
            shards = 1
            if not self.ranges.are_known:
                shards = max(1, len(takers))
                takers = Counter({self.ranges.shard_of(0): len(taken)})
            now = self._clock.monotonic()
            self._note_taken(takers, by_shard, now)
            for name, entries in by_shard.items():
                failure = refusal_error(refused[0][1], f"{len(refused)} of {len(results)} records refused")
                shard = self._shards.get(name) or self._new_shard(name, now)
                try:
                    shard.refused(entries, failure, now, taken=takers[name], shards=shards)
                except KinesisError as error:
                    given_up.append(GivenUp(entries, error))
                    self._put_first(shard.take_all())
                    self._is_free(name)
                    self.done(entries)
                else:
                    self._wait_again(entries)
        if self._lines is not None:
            self.done([entry for entry, _ in taken])
        return Settled(taken, given_up)

    def _note_taken(self, takers: Counter[str], refusing: Container[str], now: float) -> None:
        for name, shard in list(self._shards.items()):
            if takers[name]:
                shard.tries = self._tries(name)
                if name not in refusing:
                    shard.pace.answered(takers[name], 0, now, shards=1)
                    if not shard.waiting and shard.pace.is_over:
                        self._is_free(name)

    def _new_shard(self, name: str, now: float) -> RefusingShard:
        shard = self._shards[name] = RefusingShard(self._tries(name), now)
        if self._backlogs is None:
            self._backlogs = _Backlogs(self.ranges)
            self._backlogs.count(self._open)
            if self._lines is not None:
                self._backlogs.count(self._lines.held)
        return shard

    def _is_free(self, name: str) -> None:
        del self._shards[name]
        if not self._shards:
            self._backlogs = None

    def _wait_again(self, entries: Sequence[Puttable]) -> None:
        self._count += len(entries)
        self._size_bytes += sum([entry.size_bytes for entry in entries])
        if self._backlogs is not None:
            self._backlogs.count(entries)
        if self._lines is not None:
            for entry in entries:
                self._lines.back(entry)

    def _tries(self, name: str) -> Tries:
        return Tries(self._retry_policy, f"{self._work}, {name}")


def refusal_error(refusal: "Result", what: str) -> KinesisError:
    code = refusal.get("ErrorCode", "")
    # Others of the call were taken: an unknown code may pass, too.
    return ERRORS_BY_CODE.get(code, Unavailable)(f"{what}, {code}: {refusal.get('ErrorMessage')}")
