"""The data of every record that is not finished, so that a retry needs no second read.

A record that was given up is retained too, until its dead letter is durable: otherwise a sink that is down
would let the memory grow beyond its cap (invariant 12).
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from kinesis_spout.record import Record
from shard_state import SequenceNumber


@dataclass(slots=True)
class Retained:
    """One record that was handed out, or is held. Mutable: ``record`` is its latest delivery."""

    record: Record
    sequence: SequenceNumber
    size_bytes: int


class RetainedRecords:
    """The retained records of one spout, by message id. Mutable; not thread-safe."""

    def __init__(self, full_at_bytes: int) -> None:
        self._full_at_bytes = full_at_bytes
        self._by_id: dict[str, Retained] = {}
        self._given_up: deque[Retained] = deque()
        self.size_bytes = 0
        """What the data and the keys weigh."""

    def __len__(self) -> int:
        return len(self._by_id) + len(self._given_up)

    @property
    def is_full(self) -> bool:
        """Whether no fresh record may be added. The last one may have gone beyond the limit."""
        return self.size_bytes >= self._full_at_bytes

    def add(self, message_id: str, record: Record, sequence: SequenceNumber, size_bytes: int) -> None:
        """Retain a record that was just read."""
        self._by_id[message_id] = Retained(record, sequence, size_bytes)
        self.size_bytes += size_bytes

    def get(self, message_id: str) -> Retained | None:
        """Give the record that is in flight or waits under this id."""
        return self._by_id.get(message_id)

    def finished(self, message_id: str) -> None:
        """Drop a record; unknown ones are passed over."""
        retained = self._by_id.pop(message_id, None)
        if retained is not None:
            self.size_bytes -= retained.size_bytes

    def given_up(self, message_id: str) -> None:
        """Note that a record waits for its dead letter only."""
        self._given_up.append(self._by_id.pop(message_id))

    def drop_buried(self, is_buried: Callable[[str, SequenceNumber], bool]) -> None:
        """Drop those given up, in the order in which they were, as long as ``is_buried`` says so."""
        while self._given_up:
            oldest = self._given_up[0]
            if not is_buried(oldest.record.shard_id, oldest.sequence):
                break
            self._given_up.popleft()
            self.size_bytes -= oldest.size_bytes

    def drop_shards(self, shard_ids: Collection[str]) -> None:
        """Drop every record of some shards."""
        self._by_id = {
            message_id: retained
            for message_id, retained in self._by_id.items()
            if retained.record.shard_id not in shard_ids
        }
        self._given_up = deque(
            retained for retained in self._given_up if retained.record.shard_id not in shard_ids
        )
        self.size_bytes = sum(retained.size_bytes for retained in (*self._by_id.values(), *self._given_up))
