"""The records that wait for one stream, in a queue for each shard. No I/O.

A record's shard follows from its key and the stream's shards. Until these are listed, all records are in one
queue. They are listed at the first refusal (before the first call, if records are aggregated), and again when an
answer names a shard that is not listed; then all that waits is sorted anew. A list that is out of date, or
missing, only makes the waiting coarser.

The queues take turns, so a call holds records of many shards. PutRecords answers for each record; refused ones
go back to the front of their queue. A shard that took nothing of a call rests for a while, longer each time. One
that took a part gets records at the pace that it takes them; see ``shard_pace``. It delays no other.

**Aggregates** (the KPL's format) are packed when a call is made. A consumer of that format may leave out a whole
aggregate if the hash key of one of its records lies outside the shard that it reads (the KCL does), because after
a resharding another shard may deliver that record. So an aggregate holds records of one shard, as last listed,
and its explicit hash key puts it there. If the answer names another shard, the stream was resharded in between:
the shards are listed again, and an aggregate with a record outside the shard it came to is put again as a whole.
Consumers that leave nothing out see those records twice. If the shards cannot be listed, or the list contradicts
the answers, every record is put alone. So is one that lies in no listed shard, which may happen during a
resharding.

**Order.** Records of one partition key are given out in the order in which they were held. Within one call
Kinesis may refuse a record and take a later one of the same key; the first then comes after it. The same happens
with concurrent calls. With `PutOrder.KEY` a record is given out when those before it of its key have ended,
which prevents this: only the first of each key's records is in a queue. One aggregate may have several of a key,
in their order; no call has two such aggregates.
"""

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from kinesis_spout.kinesis.calls import ERRORS_BY_CODE
from kinesis_spout.kinesis.retry_policy import RetryPolicy, Tries
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import (
    Aggregate,
    CallLimits,
    Entry,
    PutOrder,
    Puttable,
)
from kinesis_spout.kinesis.write.shard_queue import Batch, RefusingShard, ShardQueue
from kinesis_spout.model.errors import KinesisError, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

_PYTHON_BYTES: Final = 200
"""The memory of a record besides its data, roughly: a tuple, a text, bytes."""
_FEW_ENDED: Final = 1_000

_log = logging.getLogger(__name__)


class Settled(NamedTuple):
    taken: "list[tuple[Puttable, Result]]"
    """What is on the stream now, each with its answer."""
    given_up: list[tuple[list[Puttable], KinesisError]]
    """What is not put again: of shards that took nothing until the deadline, or with errors that do not pass.
    The rest waits again."""


class WaitingRecords:
    """The records on their way to one stream. Mutable; for one thread at a time.

    Its owner takes a batch, makes the call, and reports: `settle` for answers, `done` for records that are
    given up, and nothing yet for a call that is made again. Several calls may be under way. Before it takes a
    batch, it asks whether it `needs_shards`; before it settles answers, whether it `must_list` first.

    Args:
        work: names the calls in errors.
        aggregate_bytes: what a record of several may weigh, up to 1 MiB; None: no aggregates. A record that fits
            with no other is put alone.
    """

    def __init__(
        self,
        work: str,
        *,
        retry_policy: RetryPolicy,
        limits: CallLimits,
        order: PutOrder,
        aggregate_bytes: int | None = None,
    ) -> None:
        self._work = work
        self._retry_policy = retry_policy
        self._clock = retry_policy.clock
        self._limits = limits
        self._aggregates = aggregate_bytes is not None
        self._aggregate_bytes = aggregate_bytes
        """None also where the shards turn out not to be known well enough."""
        self.ranges = HashKeyRanges.unknown()
        self._is_listed = False
        self._was_in_vain = False
        """Whether the shards were listed again, and had not changed."""
        self._queues: dict[str, ShardQueue] = {}
        """By the names of their shards."""
        self._turns: OrderedDict[str, ShardQueue] = OrderedDict()
        """Those that are not empty, without those of shards that rest or have a pace."""
        self._refusing: dict[str, RefusingShard] = {}
        self._behind: dict[str, deque[Entry]] | None = {} if order is PutOrder.KEY else None
        """By partition key, what waits until one before it has ended. It has each key of which one is in a queue
        or a call."""
        self._count = 0
        self._size_bytes = 0
        self._ended = 0
        """Roughly how many of them have ended; see ``leave_out``."""

    # What waits.

    @property
    def waiting(self) -> int:
        """How many records of Kinesis are held, without those in calls; roughly, if they are aggregated."""
        if self._aggregate_bytes is None:
            return self._count
        return -(-self._size_bytes // self._aggregate_bytes)

    @property
    def waiting_bytes(self) -> int:
        """What they take in memory, roughly."""
        return self._size_bytes + (0 if self._aggregate_bytes is None else _PYTHON_BYTES * self._count)

    @property
    def ready_at(self) -> float:
        """When a batch can be taken, as monotonic time: minus infinity for now, infinity if nothing is held.

        Infinity also if all that is held waits, for its order, for records in calls.
        """
        return -inf if self._turns else self.paced_at

    @property
    def paced_at(self) -> float:
        """When waiting records of a refusing shard may go, as monotonic time: infinity if none waits."""
        if not self._refusing:
            return inf
        now = self._clock.monotonic()
        return min(
            [shard.ready_at(now, self._records_of(shard.queue)) for shard in self._paced()], default=inf
        )

    @property
    def has_ready(self) -> bool:
        """Whether ``take`` may return something although no refusing shard is due."""
        return bool(self._turns)

    @property
    def has_a_full_call(self) -> bool:
        """Whether what may go now fills a call, or the part of one that a refusing shard takes at a time."""
        most_bytes = self._limits.size_bytes
        most = self._limits.records
        if self._aggregate_bytes is not None:
            most_bytes, most = min(most_bytes, most * self._aggregate_bytes), self._count + 1
        if self._count < most and self._size_bytes < most_bytes:
            return False
        queues = self._turns.values()
        if sum([len(queue.records) for queue in queues]) >= most:
            return True
        return (
            sum([queue.size_bytes for queue in queues]) >= most_bytes
            or self.paced_at <= self._clock.monotonic()
        )

    def backlogs(self) -> Iterator[tuple[str, int, int]]:
        """Yield the (user) records and bytes that wait for each shard that refused lately."""
        for name, shard in self._refusing.items():
            queue = shard.queue
            yield name, len(queue.records) + queue.behind, queue.size_bytes + queue.behind_bytes

    # What comes, and goes into calls.

    def hold_all(self, entries: Sequence[Entry]) -> None:
        """Hold records, in order: each after the others of its shard."""
        size_bytes = sum([entry.size_bytes for entry in entries])
        self._count += len(entries)
        self._size_bytes += size_bytes
        if self._behind is None and not self.ranges.are_known and entries:
            queue = self._queue_of(entries[0])
            self._await_turn(queue)
            queue.records.extend(entries)
            queue.size_bytes += size_bytes
            return
        queues, behind, ranges = self._queues, self._behind, self.ranges
        for entry in entries:
            queue = queues.get(entry.shard_in(ranges)) or self._queue_of(entry)
            if behind is not None:
                line = behind.get(entry.partition_key)
                if line is not None:
                    line.append(entry)
                    queue.hold_back(entry)
                    continue
                behind[entry.partition_key] = deque()
            self._await_turn(queue)
            queue.records.append(entry)
            queue.size_bytes += entry.size_bytes

    def take(self) -> list[Puttable]:
        """Return what goes into the next call; empty if nothing may go now."""
        batch = Batch(self._limits)
        if self._refusing:
            self._take_paced(batch, self._clock.monotonic())
        if self._aggregate_bytes is not None:
            self._take_in_turn(batch, least_bytes=self._aggregate_bytes)
        self._take_in_turn(batch)
        for entry in batch.entries:
            self._count -= entry.count
        self._size_bytes -= sum([part.size_bytes for entry in batch.entries for part in entry.parts])
        return batch.entries

    def _take_paced(self, batch: Batch, now: float) -> None:
        for shard in self._paced():
            queue, pace = shard.queue, shard.pace
            if shard.rests_until > now or not pace.is_worth_a_call(self._records_of(queue), now):
                continue
            while self._first(queue) and pace.allows(now) and (size_bytes := self._take_one(queue, batch)):
                pace.spend(size_bytes)
            if queue.records:
                pace.ran_short()
            else:
                self._turns.pop(queue.name, None)
            if batch.is_full:
                return

    def _take_in_turn(self, batch: Batch, least_bytes: int = 0) -> None:
        """Take of each queue that has so much, in turns."""
        turns, passed = self._turns, []
        if len(turns) == 1 and not (batch.entries or self._ended or self._aggregate_bytes):
            (queue,) = turns.values()
            batch.add_from(queue)
            if not queue.records:
                turns.clear()
        while turns and not batch.is_full:
            name, queue = turns.popitem(last=False)
            if queue.size_bytes + queue.behind_bytes < least_bytes:
                passed.append(queue)
                continue
            has_room = self._first(queue) is None or self._take_one(queue, batch)
            if queue.records:
                turns[name] = queue
                turns.move_to_end(name, last=bool(has_room))
            else:  # perhaps it got a turn meanwhile, for a record that was taken, too
                turns.pop(name, None)
        turns.update((queue.name, queue) for queue in passed)

    def _take_one(self, queue: ShardQueue, batch: Batch) -> int:
        """Move a record from a queue that is not empty, or an aggregate; returns its size, 0 without room."""
        first = queue.records[0]
        if not batch.has_room(max(first.size_bytes, self._aggregate_bytes or 0)):
            return 0
        queue.pop()
        taken: Puttable = first
        if self._aggregate_bytes is not None:
            taken = self._packed(first, queue, self._aggregate_bytes)
        batch.add(taken)
        return taken.size_bytes

    def _packed(self, first: Entry, queue: ShardQueue, max_bytes: int) -> Puttable:
        """Return a record with those of its queue that fit into an aggregate with it."""
        ranges, records, behind = self.ranges, queue.records, self._behind
        are_whole = ranges.are_whole
        if not (are_whole or ranges.lies_in(first.hash_key, queue.name)):
            return first
        aggregate = Aggregate(queue.name, ranges)
        aggregate.takes(first, max_bytes)
        if behind is not None:
            self._pack_line(behind[first.partition_key], queue, aggregate, max_bytes)
        while records and (not self._ended or self._first(queue) is not None):
            entry = records[0]
            if not (are_whole or ranges.lies_in(entry.hash_key, queue.name)):
                break
            if not aggregate.takes(entry, max_bytes):
                break
            queue.pop()
            if behind is not None:
                self._pack_line(behind[entry.partition_key], queue, aggregate, max_bytes)
        # A record alone is aggregated only for its trace context, if it fits.
        if aggregate.count == 1 and (first.trace is None or aggregate.size_bytes > max_bytes):
            return first
        return aggregate

    def _pack_line(self, line: deque[Entry], queue: ShardQueue, aggregate: Aggregate, max_bytes: int) -> None:
        """Add those that wait behind a record of their key, in their order."""
        while line and self._queue_of(line[0]) is queue and aggregate.takes(line[0], max_bytes):
            queue.let_go(line.popleft())

    # Queues.

    def _queue_of(self, entry: Entry) -> ShardQueue:
        name = entry.shard_in(self.ranges)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = ShardQueue(name)
        return queue

    def _records_of(self, queue: ShardQueue) -> int:
        """Return how many records of Kinesis a queue is, roughly if they are aggregated."""
        records = len(queue.records)
        if self._aggregate_bytes is None:
            return records
        return min(records, -(-queue.size_bytes // self._aggregate_bytes))

    def _await_turn(self, queue: ShardQueue) -> None:
        """Give a queue its turns, before it gets its first record."""
        if not queue.records:
            shard = self._refusing.get(queue.name)
            if shard is None or shard.takes_all(self._clock.monotonic()):
                self._turns[queue.name] = queue

    def _paced(self) -> list[RefusingShard]:
        """Return the refusing shards whose queues take no turns."""
        return [shard for name, shard in self._refusing.items() if name not in self._turns]

    def _put_first(self, entries: Sequence[Puttable]) -> None:
        """Have records that were in calls wait again, before all others of their shards."""
        parts = [part for entry in entries for part in entry.parts]
        self._count += len(parts)
        self._size_bytes += sum([part.size_bytes for part in parts])
        firsts: dict[str, Entry] = {}
        if self._behind is not None:
            for part in parts:
                firsts.setdefault(part.partition_key, part)
        for part in reversed(parts):
            queue = self._queue_of(part)
            if self._behind is not None and part is not firsts[part.partition_key]:
                self._behind[part.partition_key].appendleft(part)
                queue.hold_back(part)
            else:
                self._await_turn(queue)
                queue.records.appendleft(part)
                queue.size_bytes += part.size_bytes
        keys = [key for entry in entries for key in entry.partition_keys]
        self._release([key for key in keys if key not in firsts])

    def _release(self, keys: Iterable[str]) -> None:
        """Let the next of each key go to its queue: those before it have ended."""
        if self._behind is None:
            return
        for key in keys:
            line = self._behind[key]
            while line and line[0].is_gone:
                self._forget(line[0])
                self._queue_of(line[0]).let_go(line.popleft())
            if not line:
                del self._behind[key]
                continue
            queue = self._queue_of(line[0])
            queue.let_go(line[0])
            self._await_turn(queue)
            queue.records.append(line[0])
            queue.size_bytes += line.popleft().size_bytes

    # What ends while it waits.

    def leave_out(self, ended: int) -> None:
        """Note that so many have ended while they waited: they go into no call."""
        self._ended += ended
        if self._ended > (self._count - self._ended) // 2 + _FEW_ENDED:
            self.hold_all([entry for entry in self._take_back() if not entry.is_gone])

    def left_of(self, batch: list[Puttable]) -> list[Puttable]:
        """Return what has not ended of a call's records."""
        left: list[Puttable] = []
        for each in batch:
            parts = [part for part in each.parts if not part.is_gone]
            if not parts:
                self.done((each,))
                continue
            if isinstance(each, Aggregate):
                each.parts = parts
            left.append(each)
        return left

    def _first(self, queue: ShardQueue) -> Entry | None:
        """Return the first of a queue that has not ended; the others before it are removed."""
        while queue.records:
            first = queue.records[0]
            if not (self._ended and first.is_gone):
                return first
            queue.pop()
            self._forget(first)
            self._release((first.partition_key,))
        return None

    def _forget(self, ended: Entry) -> None:
        self._count -= 1
        self._size_bytes -= ended.size_bytes
        self._ended = max(0, self._ended - 1)

    def _take_back(self) -> list[Entry]:
        """Return everything that waits, each key's in order."""
        waiting = [entry for queue in self._queues.values() for entry in queue.records]
        if self._behind is not None:
            behind = [entry for line in self._behind.values() for entry in line]
            for entry in waiting:  # it was the first of its key
                del self._behind[entry.partition_key]
            for line in self._behind.values():
                line.clear()
            waiting += behind
        for queue in self._queues.values():
            queue.clear()
        self._turns.clear()
        self._count = self._size_bytes = self._ended = 0
        return waiting

    # Which shards there are.

    @property
    def needs_shards(self) -> bool:
        """Whether the shards must be listed before anything is taken."""
        return self._aggregate_bytes is not None and not self._is_listed

    def must_list(self, results: "Sequence[Result]") -> bool:
        """Whether the shards must be listed before these answers are settled."""
        if self._aggregate_bytes is not None:
            return self._names_a_new_shard(results)
        if any(result.get("ErrorCode") for result in results):
            return not self._is_listed or self._names_a_new_shard(results)
        # The children of a split shard would be held to the pace of their parent.
        return bool(self._refusing) and self._names_a_new_shard(results) and not self._was_in_vain

    def _names_a_new_shard(self, results: "Sequence[Result]") -> bool:
        named = {result.get("ShardId") for result in results}
        return any(map(self.ranges.are_older_than, filter(None, named)))

    def go_by(self, ranges: HashKeyRanges) -> None:
        """Use these shards from now on. All may try again at once, with their whole deadline."""
        self._was_in_vain = self._is_listed and self.ranges == ranges
        self._is_listed = True
        waiting = self._take_back()
        self._queues.clear()
        self._refusing.clear()
        self.ranges = ranges
        self.hold_all(waiting)
        if self._aggregate_bytes is not None and not ranges.are_known:
            self._aggregate_bytes = None
            _log.warning("%s: records are not aggregated, because the shards are not known", self._work)

    # The ends of calls.

    def done(self, entries: Iterable[Puttable]) -> None:
        """Note that these are on the stream, or given up: what they held back may go."""
        if self._behind is not None:
            for entry in entries:
                self._release(entry.partition_keys)

    def settle(self, batch: Sequence[Puttable], results: "Sequence[Result]") -> Settled:
        """Settle a call's answers, and take back refused records, in order.

        Records of a shard that has taken nothing until the deadline are given up, with an error of the
        failure's kind; what waits behind them may go. A misplaced aggregate that was taken but must be put again
        waits, and is in neither list.
        """
        taken: list[tuple[Puttable, Result]] = []
        refused: list[tuple[Puttable, Result]] = []
        for pair in zip(batch, results, strict=True):
            (refused if pair[1].get("ErrorCode") else taken).append(pair)
        given_up: list[tuple[list[Puttable], KinesisError]] = []
        again: set[int] = set()
        if self._refusing or refused:
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
                shard = self._refusing.get(name) or self._note_refusing(name, now)
                try:
                    shard.refused(len(entries), failure, now, taken=takers[name], shards=shards)
                except KinesisError as error:
                    given_up.append((entries, error))
                    self._is_free(shard)
                    self.done(entries)
                else:
                    again |= set(map(id, entries))
                    if not shard.takes_all(now):
                        self._turns.pop(name, None)
        if self._aggregates and (misplaced := self._misplaced(taken)):
            again |= misplaced
            taken = [pair for pair in taken if id(pair[0]) not in misplaced]
        self._put_first([entry for entry in batch if id(entry) in again])
        self.done([entry for entry, _ in taken])
        return Settled(taken, given_up)

    def _misplaced(self, taken: "Sequence[tuple[Puttable, Result]]") -> set[int]:
        """Return the ``id`` of each aggregate of which a record lies outside the shard that they came to.

        If the list of shards does not explain where they came to, nothing is aggregated any more.
        """
        again: set[int] = set()
        unexplained: set[str] = set()
        for entry, result in taken:
            shard_id = result.get("ShardId", "")
            if not isinstance(entry, Aggregate) or entry.shard_id == shard_id:
                continue
            if not all(self.ranges.lies_in(part.hash_key, shard_id) for part in entry.parts):
                again.add(id(entry))
            # Explained: by a shard that is listed, and was made after the aggregate was packed.
            if self.ranges.are_older_than(shard_id) or not entry.ranges.are_older_than(shard_id):
                unexplained.add(shard_id)
        if unexplained and self._aggregate_bytes is not None:
            self._aggregate_bytes = None
            _log.warning(
                "%s: aggregated records came to %s, which the list of the shards does not explain: from now on "
                "every record is put alone",
                self._work,
                ", ".join(sorted(unexplained)),
            )
        return again

    def _note_taken(self, takers: Counter[str], refusing: Container[str], now: float) -> None:
        for name, shard in list(self._refusing.items()):
            if takers[name]:
                shard.tries = self._tries(name)
                if name not in refusing:
                    shard.pace.answered(takers[name], 0, now, shards=1)
                    if not shard.queue.records and shard.pace.is_over:
                        self._is_free(shard)

    def _note_refusing(self, name: str, now: float) -> RefusingShard:
        queue = self._queues.setdefault(name, ShardQueue(name))
        shard = self._refusing[name] = RefusingShard(queue, self._tries(name), now)
        return shard

    def _is_free(self, shard: RefusingShard) -> None:
        del self._refusing[shard.queue.name]
        if shard.queue.records:
            self._turns[shard.queue.name] = shard.queue

    def _tries(self, name: str) -> Tries:
        return Tries(self._retry_policy, f"{self._work}, {name}")


def refusal_error(refusal: "Result", what: str) -> KinesisError:
    code = refusal.get("ErrorCode", "")
    # Others of the call were taken: an unknown code may pass, too.
    return ERRORS_BY_CODE.get(code, Unavailable)(f"{what}, {code}: {refusal.get('ErrorMessage')}")
