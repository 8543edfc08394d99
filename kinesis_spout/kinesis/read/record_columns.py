"""The records of a page as one Arrow array for each field, aggregated records taken apart.

A damaged aggregated record stays a row. An aggregated record with no user records gives no row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.kinesis.aggregated_record import MAGIC, Contents, contents
from kinesis_spout.kinesis.read.user_records import HashKeys, outside_of
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
    """The arrivals, of ``ARRIVAL_TYPE``."""
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
    suspects = pc.indices_nonzero(pc.starts_with(columns.data, pattern=MAGIC)).to_pylist()
    if not suspects:
        return columns, NOTHING
    found = {row: contents(memoryview(columns.data[row].as_buffer()).cast("B")) for row in suspects}
    whole = {row: inside for row, inside in found.items() if inside is not None}
    counts = AggregateCounts(
        aggregates=len(whole),
        user_records=sum(len(inside.data) for inside in whole.values()),
        damaged=len(found) - len(whole),
        outside=0 if hash_keys is None else sum(outside_of(hash_keys, inside) for inside in whole.values()),
    )
    return (_spliced(columns, whole) if whole else columns), counts


def _spliced(columns: RecordColumns, carried: dict[int, Contents]) -> RecordColumns:
    """Put the user records in place of the rows that carried them."""
    rows = len(columns.data)
    data: list[bytes] = []
    keys: list[str] = []
    hash_keys: list[str | None] = []
    subs: list[int | None] = []
    places: list[int] = []
    """The place of each row among the page's rows, with the user records behind them."""
    carriers: list[int] = []
    """The page's row that each row was, or was in."""
    done = 0
    for row, inside in carried.items():
        count = len(inside.data)
        places += [*range(done, row), *range(rows + len(data), rows + len(data) + count)]
        carriers += [*range(done, row), *[row] * count]
        subs += [*[None] * (row - done), *range(count)]
        data += inside.data
        keys += inside.partition_keys
        hash_keys += inside.explicit_hash_keys or [None] * count
        done = row + 1
    places += range(done, rows)
    carriers += range(done, rows)
    subs += [None] * (rows - done)
    of_users = pa.array(data, pa.binary()), pa.array(keys, pa.string()), pa.array(hash_keys, pa.string())
    if len(carried) < rows:
        of_page = columns.data, columns.partition_key, pa.nulls(rows, pa.string())
        of_users = tuple(
            pa.concat_arrays(both).take(pa.array(places)) for both in zip(of_page, of_users, strict=True)
        )
    of_carriers = pa.array(carriers, pa.int64())
    return replace(
        columns,
        data=of_users[0],
        partition_key=of_users[1],
        sequence_number=columns.sequence_number.take(of_carriers),
        arrival=columns.arrival.take(of_carriers),
        encryption_type=None
        if columns.encryption_type is None
        else columns.encryption_type.take(of_carriers),
        sub_sequence_number=pa.array(subs, pa.int64()),
        explicit_hash_key=of_users[2],
    )
