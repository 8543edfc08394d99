"""The records of a page as one Arrow array for each field."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.model.columns import ARROW_TYPES
from kinesis_spout.model.record import Record

ARRIVAL_TYPE: Final = ARROW_TYPES["timestamp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Columns of the same length, in the records' order."""

    data: pa.Array
    """Binary; the others are strings, except ``arrival``."""
    partition_key: pa.Array
    sequence_number: pa.Array
    arrival: pa.Array
    """Of ``ARRIVAL_TYPE``."""
    encryption_type: pa.Array | None
    """None if it was not requested."""
    sub_sequence_number: pa.Array | None = None
    """64-bit integers, null for a record that was not aggregated; None if none was."""
    explicit_hash_key: pa.Array | None = None
    """Null where its producer gave none, or it was not aggregated; None as for ``sub_sequence_number``."""

    @property
    def size_bytes(self) -> int:
        return _content_bytes(self.data) + _content_bytes(self.partition_key)


def columns_of(
    records: Sequence[Record], *, encryption_type: bool = False, user_records: bool = False
) -> RecordColumns:
    if not records:
        return _NO_RECORDS
    return RecordColumns(
        data=pa.array([record.data for record in records], pa.binary()),
        partition_key=pa.array([record.partition_key for record in records], pa.string()),
        sequence_number=pa.array([record.sequence_number for record in records], pa.string()),
        arrival=arrivals(pa.array([record.arrival_timestamp for record in records], pa.float64())),
        encryption_type=pa.array([record.encryption_type for record in records], pa.string())
        if encryption_type
        else None,
        sub_sequence_number=pa.array([record.sub_sequence_number for record in records], pa.int64())
        if user_records
        else None,
        explicit_hash_key=pa.array([record.explicit_hash_key for record in records], pa.string())
        if user_records
        else None,
    )


_NO_RECORDS: Final = RecordColumns(
    # Made once: most replies at the tip of a shard are empty, and this would be a third of their cost.
    # Not ``pa.array``, which imports pandas: a quarter of each process's start time.
    data=pa.nulls(0, pa.binary()),
    partition_key=pa.nulls(0, pa.string()),
    sequence_number=pa.nulls(0, pa.string()),
    arrival=pa.nulls(0, ARRIVAL_TYPE),
    encryption_type=pa.nulls(0, pa.string()),
)


def arrivals(seconds: pa.Array) -> pa.Array:
    # Whole microseconds: Kinesis sends milliseconds, which a double of seconds holds only nearly.
    return pc.round(pc.multiply(seconds, 1e6)).cast(pa.int64()).cast(ARRIVAL_TYPE)


def _content_bytes(column: pa.Array) -> int:
    total: int | None = pc.sum(pc.binary_length(column)).as_py()
    return total or 0
