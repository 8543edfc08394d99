"""A page as Arrow columns, for the doors into Spark: the names and types that Kinesis sources use there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kinesis_spout.kinesis.page import GetRecordsReply, decode_reply
from kinesis_spout.kinesis.record_columns import ARRIVAL_TYPE, RecordColumns, columns_of
from kinesis_spout.kinesis.regular_records import WORTHWHILE_BYTES, regular_columns
from kinesis_spout.record import Record
from shard_state import SequenceNumber, Shard

SCHEMA: Final = pa.schema(
    [
        ("partitionKey", pa.string()),
        ("data", pa.binary()),
        ("stream", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("approximateArrivalTimestamp", ARRIVAL_TYPE),
    ]
)
EXTRA_COLUMNS: Final = {"encryptionType": pa.string(), "millisBehindLatest": pa.int64()}
"""Further columns, for those who ask for them. The second is of the page: reading again may give another value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowPage:
    """One answer of GetRecords as columns; its other fields mean what ``kinesis_spout.ports.Page`` says."""

    batch: pa.RecordBatch
    size_bytes: int
    millis_behind_latest: int
    at_end: bool
    child_shards: tuple[Shard, ...] = ()


class ColumnsReply:
    """A reply of GetRecords whose records are columns.

    Args:
        columns: the records.
        rest: everything else; its own records do not count.
    """

    def __init__(self, columns: RecordColumns, rest: GetRecordsReply) -> None:
        self.columns = columns
        self.next_shard_iterator = rest.next_shard_iterator
        self.millis_behind_latest = rest.millis_behind_latest
        self.child_shards = rest.child_shards
        self.at_end = rest.at_end
        self.children = rest.children
        self.size_bytes = columns.size_bytes

    @classmethod
    def of(cls, reply: GetRecordsReply) -> "ColumnsReply":
        """Turn the records of a decoded reply into columns."""
        return cls(columns_of(reply.records), reply)

    @classmethod
    def decoded(cls, body: bytes) -> "ColumnsReply":
        """Decode the body of a good JSON reply.

        Raises:
            Unavailable: see ``decode_reply``.
        """
        regular = regular_columns(body) if len(body) >= WORTHWHILE_BYTES else None
        if regular is None:
            return cls.of(decode_reply(body))
        columns, rest = regular
        return cls(columns, decode_reply(rest))

    @property
    def last(self) -> SequenceNumber | None:
        """The last record's number; None if there is no record."""
        numbers = self.columns.sequence_number
        return SequenceNumber(int(numbers[-1].as_py())) if len(numbers) else None


def decode_to_arrow(body: bytes, *, stream: str, shard_id: str) -> pa.RecordBatch:
    """Decode the body of a good JSON reply of GetRecords into columns of ``SCHEMA``.

    Raises:
        Unavailable: see ``decode_reply``.
    """
    return _batch_of(ColumnsReply.decoded(body).columns, stream=stream, shard_id=shard_id)


def arrow_page_of(
    reply: ColumnsReply, *, stream: str, shard_id: str, extra_columns: Sequence[str] = ()
) -> ArrowPage:
    """Make a page out of a reply; ``extra_columns`` are names of ``EXTRA_COLUMNS``."""
    batch = _batch_of(reply.columns, stream=stream, shard_id=shard_id)
    for name in extra_columns:
        batch = batch.append_column(pa.field(name, EXTRA_COLUMNS[name]), _extra_column(name, reply))
    return ArrowPage(
        batch=batch,
        size_bytes=reply.size_bytes,
        millis_behind_latest=reply.millis_behind_latest or 0,
        at_end=reply.at_end,
        child_shards=reply.children,
    )


def batch_of_records(records: Sequence[Record], *, stream: str, shard_id: str) -> pa.RecordBatch:
    """Turn records of one shard into columns of ``SCHEMA``, in their order."""
    return _batch_of(columns_of(records), stream=stream, shard_id=shard_id)


def _batch_of(columns: RecordColumns, *, stream: str, shard_id: str) -> pa.RecordBatch:
    rows = len(columns.data)
    return pa.RecordBatch.from_arrays(
        [
            columns.partition_key,
            columns.data,
            pa.repeat(pa.scalar(stream, pa.string()), rows),
            pa.repeat(pa.scalar(shard_id, pa.string()), rows),
            columns.sequence_number,
            columns.arrival,
        ],
        schema=SCHEMA,
    )


def _extra_column(name: str, reply: ColumnsReply) -> pa.Array:
    if name == "encryptionType":
        return reply.columns.encryption_type
    return pa.repeat(pa.scalar(reply.millis_behind_latest, EXTRA_COLUMNS[name]), len(reply.columns.data))
