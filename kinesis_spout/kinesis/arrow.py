"""A page as Arrow columns, for the doors into Spark: the names and types that Kinesis sources use there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.kinesis.page import GetRecordsReply, decode_reply
from kinesis_spout.record import Record
from shard_state import Shard

SCHEMA: Final = pa.schema(
    [
        ("partitionKey", pa.string()),
        ("data", pa.binary()),
        ("stream", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
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


def decode_to_arrow(body: bytes, *, stream: str, shard_id: str) -> pa.RecordBatch:
    """Decode the body of a good JSON reply of GetRecords into columns of ``SCHEMA``.

    Raises:
        Unavailable: see ``decode_reply``.
    """
    return batch_of_records(decode_reply(body).records, stream=stream, shard_id=shard_id)


def arrow_page_of(
    reply: GetRecordsReply, *, stream: str, shard_id: str, extra_columns: Sequence[str] = ()
) -> ArrowPage:
    """Make a page of columns out of a reply; ``extra_columns`` are names of ``EXTRA_COLUMNS``."""
    batch = batch_of_records(reply.records, stream=stream, shard_id=shard_id)
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
    seconds = pa.array([record.arrival_timestamp for record in records], pa.float64())
    # Whole microseconds: Kinesis gives milliseconds, which a double of seconds holds only nearly.
    arrival = pc.round(pc.multiply(seconds, 1e6)).cast(pa.int64()).cast(SCHEMA.field(5).type)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.partition_key for record in records], pa.string()),
            pa.array([record.data for record in records], pa.binary()),
            pa.repeat(pa.scalar(stream, pa.string()), len(records)),
            pa.repeat(pa.scalar(shard_id, pa.string()), len(records)),
            pa.array([record.sequence_number for record in records], pa.string()),
            arrival,
        ],
        schema=SCHEMA,
    )


def _extra_column(name: str, reply: GetRecordsReply) -> pa.Array:
    if name == "encryptionType":
        return pa.array([record.encryption_type for record in reply.records], EXTRA_COLUMNS[name])
    return pa.repeat(pa.scalar(reply.millis_behind_latest, EXTRA_COLUMNS[name]), len(reply.records))
