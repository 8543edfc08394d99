"""The columns of a page with rows of user records in place of their aggregated carriers.

No object is made for a user record: the fields of all are found in their bytes together, and the values
gathered from there. ``take_apart`` handles a carrier with a record that producers do not write so: it accepts
everything in the format, and its carrier is encoded again from the result.

``take_apart`` also decides which records only begin like an aggregated one: they stay rows. An aggregated
record with no user records gives no row.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kinesis_spout.kinesis.aggregated_record import MAGIC, aggregate, take_apart
from kinesis_spout.kinesis.read.aggregates.messages import Messages
from kinesis_spout.kinesis.read.aggregates.user_rows import Gathering, UserRows
from kinesis_spout.kinesis.read.record_columns import RecordColumns
from kinesis_spout.kinesis.read.user_records import HashKeys


class AggregateCounts(NamedTuple):
    aggregates: int = 0
    user_records: int = 0
    damaged: int = 0
    """Records that begin like an aggregated one but have a wrong digest, message or key: they stay
    unchanged."""
    outside: int = 0
    """User records outside the shard by their hash keys, if that was checked."""


NOTHING: Final = AggregateCounts()

_SMALL_BYTES: Final = 16 * 1024


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
