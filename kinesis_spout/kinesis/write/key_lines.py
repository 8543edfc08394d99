"""Sends one record of a partition key at a time: the later ones of the key wait in a line.

PutRecords may refuse a record and take a later one of the same call. So the order of a key's records holds
only if each is sent when the one before it is known to be on the stream. An aggregate has several keys, and
waits in the line of each.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from kinesis_spout.kinesis.write.put_records import Puttable


@dataclass(slots=True, eq=False)
class _InLine:
    record: Puttable
    is_behind_in: int
    """In how many lines others are before it."""
    is_on_its_way: bool = False


class KeyLines:
    """Which of the waiting records may be sent. Mutable."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[_InLine]] = {}
        self._held: dict[_InLine, None] = {}

    def join(self, record: Puttable) -> bool:
        """Put a record at the end of its lines. Returns whether it is first in all, and may be sent."""
        lines = [self._lines.setdefault(key, deque()) for key in record.partition_keys]
        entry = _InLine(record, sum(map(bool, lines)))
        for line in lines:
            line.append(entry)
        if entry.is_behind_in:
            self._held[entry] = None
        return not entry.is_behind_in

    def go(self, record: Puttable) -> None:
        """Note that the first in line is in a call, until `leave` or `back`."""
        self._first(record).is_on_its_way = True

    def back(self, record: Puttable) -> None:
        """Note that a record was in a call, and waits again, first in line."""
        self._first(record).is_on_its_way = False

    def leave(self, record: Puttable) -> Iterator[Puttable]:
        """Remove a record that was sent from its lines, and yield those that may be sent now."""
        for key in record.partition_keys:
            line = self._lines[key]
            left = line.popleft()
            assert left.record is record, "only the first in line is sent"
            if not line:
                del self._lines[key]
                continue
            line[0].is_behind_in -= 1
            if not line[0].is_behind_in:
                del self._held[line[0]]
                yield line[0].record

    @property
    def held(self) -> list[Puttable]:
        """The records held back, in the order they joined."""
        return [entry.record for entry in self._held]

    def clear(self) -> list[Puttable]:
        """Forget all records but those in calls. Returns the ones held back."""
        held = self.held
        self._held.clear()
        self._lines = {key: deque([line[0]]) for key, line in self._lines.items() if line[0].is_on_its_way}
        return held

    def _first(self, record: Puttable) -> _InLine:
        first = self._lines[next(iter(record.partition_keys))][0]
        assert first.record is record, "only the first in line is sent"
        return first
