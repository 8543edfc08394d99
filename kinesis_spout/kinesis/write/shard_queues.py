"""The queues of a stream's shards: what waits in them, and what of it goes into the next call. No I/O.

The queues take turns, so a call holds records of many shards. Aggregates are packed when a call is made, of
records of one shard. With `PutOrder.KEY` only the first of each key's records is in a queue, and the others wait
behind it until it has ended. An aggregate may have several of a key, in their order; no call has two such
aggregates.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final

from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import (
    Aggregate,
    CallBatch,
    CallLimits,
    Entry,
    PutOrder,
    Puttable,
)
from kinesis_spout.kinesis.write.shard_pace import RefusingShard
from kinesis_spout.model.clock import Clock

_PYTHON_BYTES: Final = 200
"""The memory of a record besides its data, roughly: a tuple, a text, bytes."""
_FEW_ENDED: Final = 8
"""The number of ended records that may wait; more only if twice as many others do."""
_MOST_PASSED: Final = 8
"""The calls in a row for which a queue may be passed over."""


class ShardQueue:
    """The records that wait for one shard, in order. Mutable."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.passed = 0
        """The number of calls in a row for which others were preferred, because they fill an aggregate."""
        self.clear()

    def clear(self) -> None:
        self.records: deque[Entry] = deque()
        self.size_bytes = 0
        self.behind = self.behind_bytes = 0
        """The number that wait for an earlier record of their key to end, and their size."""

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


class ShardQueues:
    """The records that wait for one stream. Mutable; for one thread at a time."""

    def __init__(
        self, clock: Clock, *, limits: CallLimits, order: PutOrder, aggregate_bytes: int | None
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._aggregate_bytes = aggregate_bytes
        """None also where the shards turn out not to be known well enough."""
        self.ranges = HashKeyRanges.unknown()
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

    # Waiting records.

    @property
    def waiting(self) -> int:
        """The number of Kinesis records held, without those in calls; roughly, if they are aggregated."""
        if self._aggregate_bytes is None:
            return self._count
        return -(-self._size_bytes // self._aggregate_bytes)

    @property
    def waiting_bytes(self) -> int:
        """Their size in memory, roughly."""
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
            [shard.ready_at(now, self._records_of(queue)) for queue, shard in self._paced()], default=inf
        )

    @property
    def has_ready(self) -> bool:
        """True if ``take`` may return something although no refusing shard is due."""
        return bool(self._turns)

    @property
    def has_a_full_call(self) -> bool:
        """True if what may go now fills a call, or the part of one that a refusing shard takes at a time."""
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
        for name in self._refusing:
            queue = self._queues[name]
            yield name, len(queue.records) + queue.behind, queue.size_bytes + queue.behind_bytes

    # Records that come, and go into calls.

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
            if not queue.records:
                self._await_turn(queue)
            queue.records.append(entry)
            queue.size_bytes += entry.size_bytes

    def take(self) -> list[Puttable]:
        """Return what goes into the next call; empty if nothing may go now."""
        batch = CallBatch(self._limits)
        if self._refusing:
            self._take_paced(batch, self._clock.monotonic())
        if self._aggregate_bytes is not None:
            self._take_in_turn(batch, least_bytes=self._aggregate_bytes)
        self._take_in_turn(batch)
        return batch.entries

    def _take_paced(self, batch: CallBatch, now: float) -> None:
        for queue, shard in self._paced():
            pace = shard.pace
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

    def _take_in_turn(self, batch: CallBatch, least_bytes: int = 0) -> None:
        """Take of each queue that has so much, or was passed over some times, in turns."""
        turns, passed = self._turns, []
        if len(turns) == 1 and not (batch.entries or self._ended or self._aggregate_bytes):
            (queue,) = turns.values()
            size_bytes = batch.add_from(queue.records)
            queue.size_bytes -= size_bytes
            self._count -= len(batch.entries)
            self._size_bytes -= size_bytes
            if not queue.records:
                turns.clear()
        while turns and not batch.is_full:
            name, queue = turns.popitem(last=False)
            if queue.size_bytes + queue.behind_bytes < least_bytes and queue.passed < _MOST_PASSED:
                queue.passed += 1
                passed.append(queue)
                continue
            has_room = self._first(queue) is None or self._take_one(queue, batch)
            if queue.records:
                turns[name] = queue
                turns.move_to_end(name, last=bool(has_room))
            else:  # perhaps it got a turn meanwhile, for a record that was taken, too
                turns.pop(name, None)
        turns.update((queue.name, queue) for queue in passed)

    def _take_one(self, queue: ShardQueue, batch: CallBatch) -> int:
        """Move a record from a queue that is not empty, or an aggregate; returns its size, 0 without room."""
        first = queue.records[0]
        if not batch.has_room(max(first.size_bytes, self._aggregate_bytes or 0)):
            return 0
        queue.pop()
        queue.passed = 0
        self._count -= 1
        self._size_bytes -= first.size_bytes
        taken: Puttable = first
        if self._aggregate_bytes is not None:
            taken = self._packed(first, queue, self._aggregate_bytes)
        batch.add(taken)
        return taken.size_bytes

    def _packed(self, first: Entry, queue: ShardQueue, max_bytes: int) -> Puttable:
        """Return a record with those of its queue that fit into an aggregate with it."""
        records, behind = queue.records, self._behind
        if not self._lies_in(first, queue):
            return first
        aggregate = Aggregate(queue.name, self.ranges)
        aggregate.takes(first, max_bytes)
        if behind is not None:
            self._pack_line(behind[first.partition_key], queue, aggregate, max_bytes)
        taken = taken_bytes = 0
        gone: list[Entry] = []
        for entry in records:
            if self._ended and entry.is_gone:
                gone.append(entry)
            elif not self._lies_in(entry, queue) or not aggregate.takes(entry, max_bytes):
                break
            elif behind is not None:
                self._pack_line(behind[entry.partition_key], queue, aggregate, max_bytes)
            taken += 1
            taken_bytes += entry.size_bytes
        for _ in range(taken):
            records.popleft()
        queue.size_bytes -= taken_bytes
        self._count -= taken
        self._size_bytes -= taken_bytes
        self._ended = max(0, self._ended - len(gone))
        self._release([entry.partition_key for entry in gone])
        # A record alone is aggregated only for its trace context, if it fits.
        if aggregate.count == 1 and (first.trace is None or aggregate.size_bytes > max_bytes):
            return first
        return aggregate

    def _pack_line(self, line: deque[Entry], queue: ShardQueue, aggregate: Aggregate, max_bytes: int) -> None:
        """Add those that wait behind a record of their key, in their order."""
        while line and self._queue_of(line[0]) is queue:
            if line[0].is_gone:
                self._ended = max(0, self._ended - 1)
            elif not self._lies_in(line[0], queue) or not aggregate.takes(line[0], max_bytes):
                return
            self._count -= 1
            self._size_bytes -= line[0].size_bytes
            queue.let_go(line.popleft())

    def _lies_in(self, entry: Entry, queue: ShardQueue) -> bool:
        """Return whether the queue's shard has a record's hash key; some lie in no shard that is listed."""
        return self.ranges.are_whole or self.ranges.lies_in(entry.hash_key, queue.name)

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

    def _paced(self) -> list[tuple[ShardQueue, RefusingShard]]:
        """Return the refusing shards whose queues take no turns."""
        return [
            (self._queues[name], shard) for name, shard in self._refusing.items() if name not in self._turns
        ]

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

    def done(self, entries: Iterable[Puttable]) -> None:
        """Note that these are on the stream, or given up: what they held back may go."""
        if self._behind is not None:
            for entry in entries:
                self._release(entry.partition_keys)

    # Records that end while they wait.

    def leave_out(self, ended: int) -> None:
        """Note that so many have ended while they waited: they go into no call."""
        self._ended += ended
        if self._ended > (self._count - self._ended) // 2 + _FEW_ENDED:
            self.hold_all(self._take_back())

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
        """Return everything that waits and has not ended, each key's in order."""
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
        return [entry for entry in waiting if not entry.is_gone]
