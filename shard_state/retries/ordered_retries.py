"""Which records wait behind which after a failure.

    UNORDERED   nobody: other records go on while a failed one waits
    KEY         later records of the same partition key wait behind the failed one, in shard order
    SHARD       the whole shard waits: nothing new is handed out until the failed record is finished

The unfinished records of a key that failed, and those held behind them, form a line. Only its first may be in
the ``RetryQueue``, and only while it waits: not while it is delivered again, nor once it is given up and its
dead letter is on the way. The others are *held*: they are offered together with it (a slice takes the whole
line along, in order) or, one by one, as each before them is finished. Without order every line has one record.
So the due time of a waiting record is in one place: in the queue at the head of a line, else with the held ones.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from shard_state.sequence_number import SequenceNumber

_COMPACT_ABOVE: Final = 64

_Line = str | SequenceNumber | None
"""What names a line: a partition key, a record that nobody waits behind, or None for a whole shard."""


class Order(StrEnum):
    """What a failure holds up."""

    UNORDERED = "unordered"
    KEY = "key"
    SHARD = "shard"


class RetryQueue:
    """A priority queue of records by due time, then by shard order. Mutable; not thread-safe.

    A record waits at most once (invariant 3): adding it again keeps the first entry. A cancelled record is gone
    at once; its entry in the heap is cleared away later: dead entries never outnumber live ones for long.
    """

    def __init__(self) -> None:
        self._due: dict[SequenceNumber, float] = {}
        self._heap: list[tuple[float, SequenceNumber]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, sequence: SequenceNumber) -> bool:
        return sequence in self._due

    def __iter__(self) -> Iterator[SequenceNumber]:
        return iter(self._due)

    def add(self, sequence: SequenceNumber, due_at: float) -> bool:
        """Queue a record for ``due_at``; False if it waits already, which changes nothing."""
        if sequence in self._due:
            return False
        self._due[sequence] = due_at
        heapq.heappush(self._heap, (due_at, sequence))
        return True

    def cancel(self, sequence: SequenceNumber) -> bool:
        if self._due.pop(sequence, None) is None:
            return False
        if len(self._heap) > _COMPACT_ABOVE and len(self._heap) > 2 * len(self._due):
            self._heap = [(due_at, waiting) for waiting, due_at in self._due.items()]
            heapq.heapify(self._heap)
        return True

    def first_due(self, now: float) -> SequenceNumber | None:
        due_at = self.next_due()
        return None if due_at is None or due_at > now else self._heap[0][1]

    def due_at(self, sequence: SequenceNumber) -> float | None:
        return self._due.get(sequence)

    def next_due(self) -> float | None:
        while self._heap:
            due_at, sequence = self._heap[0]
            if self._due.get(sequence) == due_at:
                return due_at
            heapq.heappop(self._heap)
        return None


class OrderedRetries:
    """The waiting records of one shard. Mutable; not thread-safe.

    A record is in one line from its first failure (or since it was held) until it is finished: while it is
    delivered again, it goes on blocking those behind it.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._queue = RetryQueue()
        self._held: dict[SequenceNumber, float] = {}
        """When each record that waits behind the head of its line is due by itself."""
        self._lines: dict[_Line, list[SequenceNumber]] = {}
        self.line_of: dict[SequenceNumber, _Line] = {}
        """Of every record that is in line: empty means that no record has to be looked for here."""

    def __len__(self) -> int:
        """How many records are in line, those being delivered again included."""
        return len(self.line_of)

    def blocks(self, partition_key: str | None) -> bool:
        """Tell whether a record of that key, read now, must be held behind an earlier one."""
        if self._order is Order.KEY:
            return partition_key is not None and partition_key in self._lines
        return self.blocks_shard

    @property
    def blocked_keys(self) -> frozenset[str]:
        """The partition keys that have a line. Empty unless the order is KEY."""
        if self._order is not Order.KEY:
            return frozenset()
        return frozenset(line for line in self._lines if isinstance(line, str))

    @property
    def blocks_shard(self) -> bool:
        return self._order is Order.SHARD and bool(self._lines)

    def wait(self, sequence: SequenceNumber, partition_key: str | None, due_at: float) -> None:
        """Queue a failed record for ``due_at``; one that waits already keeps its time (invariant 3)."""
        if self._join(sequence, partition_key)[0] == sequence:
            self._queue.add(sequence, due_at)
        else:
            self._held.setdefault(sequence, due_at)

    def hold(self, sequence: SequenceNumber, partition_key: str | None, now: float) -> None:
        """Put an undelivered record behind the earlier ones of its key; due at once if there are none left."""
        self.wait(sequence, partition_key, now)

    def block(self, sequence: SequenceNumber, partition_key: str | None) -> None:
        """Let later records wait behind one that is itself not offered: it is out again, or given up."""
        if self._order is not Order.UNORDERED:
            self._join(sequence, partition_key)
            self.take(sequence)

    def finished(self, sequence: SequenceNumber, now: float) -> None:
        """Take a record out of its line. The one behind it comes next, once its own delay is over too."""
        if sequence not in self.line_of:
            return
        self.take(sequence)
        name = self.line_of.pop(sequence)
        line = self._lines[name]
        del line[bisect_left(line, sequence)]
        if not line:
            del self._lines[name]
        elif line[0] in self._held:
            self._queue.add(line[0], max(now, self._held.pop(line[0])))

    def first_due(self, now: float) -> SequenceNumber | None:
        return self._queue.first_due(now)

    def take(self, sequence: SequenceNumber) -> None:
        """Note that a record is delivered again: it stays in its line until it is finished."""
        if not self._queue.cancel(sequence):
            self._held.pop(sequence, None)

    def behind(self, sequence: SequenceNumber, now: float) -> list[SequenceNumber]:
        """Name the records that may be delivered right after one, in shard order.

        Those held behind it, as far as the first that is itself out, given up, or not due at ``now``: nobody
        may overtake that.
        """
        if self._order is Order.UNORDERED or sequence not in self.line_of:
            return []
        line = self._lines[self.line_of[sequence]]
        held: list[SequenceNumber] = []
        for other in line[bisect_left(line, sequence) + 1 :]:
            if self._held.get(other, math.inf) > now:
                break
            held.append(other)
        return held

    def next_due(self) -> float | None:
        return self._queue.next_due()

    def _join(self, sequence: SequenceNumber, partition_key: str | None) -> list[SequenceNumber]:
        if sequence in self.line_of:
            return self._lines[self.line_of[sequence]]
        name = self._line_name(sequence, partition_key)
        self.line_of[sequence] = name
        line = self._lines.setdefault(name, [])
        insort(line, sequence)
        if line[0] == sequence and len(line) > 1:
            due_at = self._queue.due_at(line[1])
            if due_at is not None:
                self._queue.cancel(line[1])
                self._held[line[1]] = due_at
        return line

    def _line_name(self, sequence: SequenceNumber, partition_key: str | None) -> _Line:
        if self._order is Order.SHARD:
            return None
        return sequence if self._order is Order.UNORDERED or partition_key is None else partition_key
