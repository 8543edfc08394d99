"""The data of records that wait for another delivery, on the driver, bounded in bytes.

What came back with a failure is kept while there is room. Beyond that only the sequence number is remembered,
and the record is read from Kinesis again when its retry is due.
"""

from collections.abc import Callable, Collection

from kinesis_spout.model.record import Record
from shard_state import SequenceNumber

_OVERHEAD_BYTES = 500
"""The approximate size of a record without its data."""


class RetryBuffer:
    """Waiting records. Mutable; not thread-safe. ``max_bytes`` returns the present limit."""

    def __init__(self, max_bytes: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._records: dict[str, dict[SequenceNumber, Record]] = {}
        self.size_bytes = 0

    def keep(self, shard_id: str, record: Record) -> None:
        shard = self._records.setdefault(shard_id, {})
        self._forget(shard, record.sequence)
        weight = _weight(record)
        if self.size_bytes + weight <= self._max_bytes():
            shard[record.sequence] = record
            self.size_bytes += weight

    def get(self, shard_id: str, sequence: SequenceNumber) -> Record | None:
        """None if the record's data was not kept. It stays until dropped."""
        return self._records.get(shard_id, {}).get(sequence)

    def drop(self, shard_id: str, sequences: Collection[SequenceNumber]) -> None:
        shard = self._records.get(shard_id, {})
        for sequence in sequences:
            self._forget(shard, sequence)

    def drop_shard(self, shard_id: str) -> None:
        shard = self._records.pop(shard_id, {})
        self.size_bytes -= sum(_weight(record) for record in shard.values())

    def _forget(self, shard: dict[SequenceNumber, Record], sequence: SequenceNumber) -> None:
        record = shard.pop(sequence, None)
        if record is not None:
            self.size_bytes -= _weight(record)


def _weight(record: Record) -> int:
    return len(record.data) + _OVERHEAD_BYTES
