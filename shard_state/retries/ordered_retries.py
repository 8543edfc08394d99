"""The records that wait for their retry, and those that wait behind them.

    UNORDERED   nobody: other records go on while a failed one waits
    KEY         later records of the same partition key wait behind the failed one, in shard order
    SHARD       the whole shard waits: nothing new is handed out until the failed record is finished

The unfinished records of a key that failed, and those held behind them, form a line. Only its first is *offered*,
and only while it waits: not while it is delivered again, nor once it is given up and its dead letter is on the
way. The others are offered together with it (a slice takes the whole line along, in order) or, one by one, as each
before them is finished. Without order every line has one record.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from shard_state.sequence_number import SequenceNumber

_COMPACT_ABOVE: Final = 64

_Line = str | SequenceNumber | None
"""The name of a line: a partition key, a record that nobody waits behind, or None for a whole shard."""


class Order(StrEnum):
    """The records that a failure holds up."""

    UNORDERED = "unordered"
    KEY = "key"
    SHARD = "shard"


class OrderedRetries:
    """The waiting records of one shard. Mutable; not thread-safe.

    A record is in one line from its first failure (or since it was held) until it is finished: while it is
    delivered again, it goes on blocking those behind it. It waits at most once (invariant 3).
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._due: dict[SequenceNumber, float] = {}
        """When each waiting record is due by itself."""
        self._offered: list[tuple[float, SequenceNumber]] = []
        """A heap of those that are first in their lines, by due time, then in shard order. An entry is *dead* once
        its record has another due time, or none, or is not the first any more; such entries go when they come to
        the front, or when they outnumber the waiting records."""
        self._lines: dict[_Line, list[SequenceNumber]] = {}
        """Those that records wait in. A record that nobody waits behind has none of these: there are thousands."""
        self.line_of: dict[SequenceNumber, _Line] = {}
        """The line of every record that is in one: empty means that no record has to be looked for here."""

    def __len__(self) -> int:
        """The number of records in line, those being delivered again included."""
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
        """Let a record wait for ``due_at``, behind the earlier ones of its key; one that waits keeps its time."""
        name = self._join(sequence, partition_key)
        if sequence not in self._due:
            self._due[sequence] = due_at
            if self._is_first(sequence, name):
                heapq.heappush(self._offered, (due_at, sequence))

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
        line = self._lines.get(name) if self._lines else None
        if line is None:
            return
        at = bisect_left(line, sequence)
        del line[at]
        if not line:
            del self._lines[name]
        elif at == 0 and line[0] in self._due:
            due_at = self._due[line[0]] = max(now, self._due[line[0]])
            heapq.heappush(self._offered, (due_at, line[0]))

    def take(self, sequence: SequenceNumber) -> None:
        """Note that a record is delivered again: it stays in its line until it is finished."""
        if self._due.pop(sequence, None) is not None:
            self._compact()

    def take_alone(
        self, now: float, most: int, stops_at: Callable[[SequenceNumber], bool]
    ) -> list[SequenceNumber]:
        """Take the records that are due first, at most so many: those before one that has a line, or stops it."""
        taken: list[SequenceNumber] = []
        due, offered, lines = self._due, self._offered, self._lines
        while offered and len(taken) < most:
            due_at, sequence = offered[0]
            if due.get(sequence) == due_at:
                if due_at > now or stops_at(sequence) or (lines and self.line_of[sequence] in lines):
                    break
                del due[sequence]
                taken.append(sequence)
            heapq.heappop(offered)
        self._compact()
        return taken

    def first_due(self, now: float) -> SequenceNumber | None:
        due_at = self.next_due()
        return None if due_at is None or due_at > now else self._offered[0][1]

    def next_due(self) -> float | None:
        while self._offered:
            if self._counts(*self._offered[0]):
                return self._offered[0][0]
            heapq.heappop(self._offered)
        return None

    def soonest(self, most: int) -> list[tuple[SequenceNumber, float]]:
        """The waiting records that are due first, at most so many, each with when; for people."""
        return heapq.nsmallest(most, self._due.items(), key=lambda item: item[1])

    def behind(self, sequence: SequenceNumber, now: float) -> list[SequenceNumber]:
        """Name the records that may be delivered right after one, in shard order.

        Those held behind it, as far as the first that is itself out, given up, or not due at ``now``: nobody
        may overtake that.
        """
        line = self._lines.get(self.line_of[sequence]) if sequence in self.line_of else None
        if line is None:
            return []
        held: list[SequenceNumber] = []
        for other in line[bisect_left(line, sequence) + 1 :]:
            if self._due.get(other, math.inf) > now:
                break
            held.append(other)
        return held

    def _compact(self) -> None:
        if len(self._offered) > _COMPACT_ABOVE and len(self._offered) > 2 * len(self._due):
            self._offered = sorted({entry for entry in self._offered if self._counts(*entry)})

    def _join(self, sequence: SequenceNumber, partition_key: str | None) -> _Line:
        if sequence in self.line_of:
            return self.line_of[sequence]
        is_alone = self._order is Order.UNORDERED or (partition_key is None and self._order is Order.KEY)
        if is_alone:
            self.line_of[sequence] = sequence
            return sequence
        name = self.line_of[sequence] = None if self._order is Order.SHARD else partition_key
        insort(self._lines.setdefault(name, []), sequence)
        return name

    def _is_first(self, sequence: SequenceNumber, name: _Line) -> bool:
        line = self._lines.get(name)
        return line is None or line[0] == sequence

    def _counts(self, due_at: float, sequence: SequenceNumber) -> bool:
        """Tell whether an entry of the heap is not dead."""
        return self._due.get(sequence) == due_at and self._is_first(sequence, self.line_of[sequence])
