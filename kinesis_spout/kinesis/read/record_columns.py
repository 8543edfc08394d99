"""The records of a page as one Arrow array for each field, aggregated records taken apart.

No object is made for a user record: the fields of all are found in their bytes together, and the values
gathered from there. ``take_apart`` handles a carrier with a record that producers do not write so: it accepts
everything in the format, and its carrier is encoded again from the result.

``take_apart`` also decides which records only begin like an aggregated one: they stay rows. An aggregated
record with no user records gives no row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.kinesis.aggregated_record import MAGIC, aggregate, take_apart
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.kinesis.read.user_rows import Gathering, Messages, UserRows
from kinesis_spout.model.columns import ARROW_TYPES
from kinesis_spout.model.record import Record

_SMALL_BYTES: Final = 16 * 1024
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


def columns_taken(taken: Any) -> RecordColumns:
    """Make columns of the buffers that the native decoder has filled."""
    rows, data, keys, numbers, encryption_types, (known, microseconds), *_ = taken
    if rows == 0:
        return _NO_RECORDS
    arrival = pa.Array.from_buffers(ARRIVAL_TYPE, rows, [_buffer(known), pa.py_buffer(microseconds)])
    return RecordColumns(
        data=_column(pa.binary(), rows, data),
        partition_key=_column(pa.string(), rows, keys),
        sequence_number=_column(pa.string(), rows, numbers),
        arrival=arrival,
        encryption_type=_column(pa.string(), rows, encryption_types),
    )


def _column(kind: pa.DataType, rows: int, buffers: tuple[bytes | None, bytes, bytes]) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [_buffer(buffer) for buffer in buffers])


def _buffer(content: bytes | None) -> pa.Buffer | None:
    return None if content is None else pa.py_buffer(content)


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


class AggregateCounts(NamedTuple):
    aggregates: int = 0
    user_records: int = 0
    damaged: int = 0
    """Records that begin like an aggregated one but have a wrong digest, message or key: they stay
    unchanged."""
    outside: int = 0
    """User records outside the shard by their hash keys, if that was checked."""


NOTHING: Final = AggregateCounts()


def with_user_rows(
    columns: RecordColumns, hash_keys: HashKeys | None = None
) -> tuple[RecordColumns, AggregateCounts]:
    """Take aggregated records apart. Returns the same columns if the page has none."""
    suspects = _suspects(columns.data)
    if not suspects:
        return columns, NOTHING
    gathering = _gathering(suspects)
    users = gathering.rows()
    counts = AggregateCounts(
        aggregates=len(users.carriers),
        user_records=len(users.data),
        damaged=len(suspects) - len(users.carriers),
        outside=0 if hash_keys is None else gathering.outside(hash_keys),
    )
    return (_spliced(columns, users) if counts.aggregates else columns), counts


def _suspects(data: pa.Array) -> dict[int, memoryview]:
    """Return the rows that begin like an aggregated record, with their data."""
    if not len(data):
        return {}  # most pages at the tip
    _, offsets_buffer, content_buffer = data.buffers()
    if content_buffer is None or not content_buffer.size:
        return {}
    if content_buffer.size < _SMALL_BYTES and MAGIC not in content_buffer.to_pybytes():
        return {}  # searching a few records takes less than NumPy's overhead
    content = np.frombuffer(content_buffer, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int32)[: len(data) + 1]
    # One check for each record, because most pages have none. (Empty ones at the end: their last byte.)
    rows = np.flatnonzero(content.take(offsets[:-1], mode="clip") == MAGIC[0])
    whole = memoryview(content_buffer).cast("B")  # its bytes are signed otherwise
    values = (
        (row, whole[start:end])
        for row, start, end in zip(
            rows.tolist(), offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True
        )
    )
    return {row: value for row, value in values if bytes(value[: len(MAGIC)]) == MAGIC}


def _gathering(suspects: Mapping[int, memoryview]) -> Gathering:
    messages = Messages()
    for row, data in suspects.items():
        messages.add(row, data)
    gathering = Gathering(messages)
    odd = gathering.odd_carriers()
    return gathering if not odd else _written_anew(suspects, odd)


def _written_anew(suspects: Mapping[int, memoryview], odd: set[int]) -> Gathering:
    messages = Messages()
    for row, data in suspects.items():
        records = take_apart(data) if row in odd else ()
        if records is not None:
            messages.add(row, aggregate(records) if row in odd else data)
    return Gathering(messages)


def _spliced(columns: RecordColumns, users: UserRows) -> RecordColumns:
    rows = len(columns.data)
    counts = np.ones(rows, np.int64)
    counts[users.carriers] = users.counts
    of_record = np.repeat(np.arange(rows), counts)
    is_user = np.zeros(rows, bool)
    is_user[users.carriers] = True
    is_user = np.repeat(is_user, counts)
    carried = pa.array(of_record)
    if is_user.all():
        data, keys, hash_keys = users.data, users.partition_key, users.explicit_hash_key
    else:
        # The user records follow the page's own.
        at = of_record.copy()
        at[is_user] = np.arange(rows, rows + len(users.data))
        places = pa.array(at)
        data = pa.concat_arrays([columns.data, users.data]).take(places)
        keys = pa.concat_arrays([columns.partition_key, users.partition_key]).take(places)
        no_hash_keys = pa.nulls(rows, pa.string())
        hash_keys = pa.concat_arrays([no_hash_keys, users.explicit_hash_key]).take(places)
    subs = np.zeros(len(of_record), np.int64)
    subs[is_user] = users.sub_sequence_number
    return replace(
        columns,
        data=data,
        partition_key=keys,
        sequence_number=columns.sequence_number.take(carried),
        arrival=columns.arrival.take(carried),
        encryption_type=None if columns.encryption_type is None else columns.encryption_type.take(carried),
        sub_sequence_number=pa.array(subs, mask=~is_user),
        explicit_hash_key=hash_keys,
    )
