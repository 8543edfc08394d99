"""A page as Arrow columns, for the doors into Spark: the names and types that Kinesis sources use there."""

import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from kinesis_spout.columns import ARROW_TYPES, EXTRA_COLUMNS, SCHEMA
from kinesis_spout.kinesis.read.page import ChildShard, GetRecordsReply, decode_reply
from kinesis_spout.kinesis.read.record_columns import RecordColumns, columns_of
from kinesis_spout.kinesis.read.regular_records import WORTHWHILE_BYTES, regular_columns
from kinesis_spout.record import Record
from shard_state import SequenceNumber, Shard

_one_at_a_time: Final = threading.Lock()
"""Threads that decode large pages at the same time take turns for the interpreter, and push each other's pages out
of the caches: eight of them need a quarter more CPU than one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowPage:
    """A page as columns; its other fields mean what ``kinesis_spout.ports.Page`` says."""

    batch: pa.RecordBatch
    size_bytes: int
    millis_behind_latest: int
    at_end: bool
    child_shards: tuple[Shard, ...] = ()
    says_nothing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowReply:
    """A reply of GetRecords whose records are columns. Can be pickled."""

    page: ArrowPage
    last: SequenceNumber | None
    """The last record's number; None if there is no record."""
    next_shard_iterator: str | None
    child_shards: list[ChildShard] | None

    @property
    def size_bytes(self) -> int:
        """What the data and the keys weigh."""
        return self.page.size_bytes

    @property
    def at_end(self) -> bool:
        """Whether nothing ever follows."""
        return self.page.at_end

    def after(self, number: int) -> "ArrowReply":
        """Give the reply without the records up to and including a sequence number."""
        numbers = self.page.batch.column("sequenceNumber")
        first = bisect_right(range(len(numbers)), number, key=lambda row: int(numbers[row].as_py()))
        if first == 0:
            return self
        return replace(self, page=replace(self.page, batch=self.page.batch.slice(first)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowForm:
    """Makes columns of the replies for one shard. Can be pickled."""

    stream: str
    shard_id: str
    extra_columns: tuple[str, ...] = ()
    """Names of ``EXTRA_COLUMNS``."""

    def decode(self, body: bytes) -> ArrowReply:
        """Decode the body of a good JSON reply.

        Raises:
            Unavailable: see ``decode_reply``.
        """
        if len(body) < WORTHWHILE_BYTES:
            return self.convert(decode_reply(body))
        with _one_at_a_time:
            regular = regular_columns(body)
            if regular is None:
                return self.convert(decode_reply(body))
            columns, rest = regular
            return self._reply(columns, decode_reply(rest))

    def convert(self, reply: GetRecordsReply) -> ArrowReply:
        """Turn the records of a decoded reply into columns."""
        encryption_type = "encryptionType" in self.extra_columns
        return self._reply(columns_of(reply.records, encryption_type=encryption_type), reply)

    def _reply(self, columns: RecordColumns, rest: GetRecordsReply) -> ArrowReply:
        batch = _batch_of(columns, stream=self.stream, shard_id=self.shard_id)
        rows = batch.num_rows
        for name in self.extra_columns:
            extra, kind = columns.encryption_type, ARROW_TYPES[EXTRA_COLUMNS[name]]
            if name != "encryptionType":
                extra = pa.repeat(pa.scalar(rest.millis_behind_latest, kind), rows)
            batch = batch.append_column(pa.field(name, kind), extra)
        return ArrowReply(
            page=ArrowPage(
                batch=batch,
                size_bytes=columns.size_bytes,
                millis_behind_latest=rest.millis_behind_latest or 0,
                at_end=rest.at_end,
                child_shards=rest.children,
            ),
            last=SequenceNumber(int(columns.sequence_number[-1].as_py())) if rows else None,
            next_shard_iterator=rest.next_shard_iterator,
            child_shards=rest.child_shards,
        )


def sequence_at(batch: pa.RecordBatch, row: int) -> SequenceNumber:
    """Give the sequence number of a row of a batch with ``SCHEMA``."""
    return SequenceNumber(int(batch.column("sequenceNumber")[row].as_py()))


def decode_to_arrow(body: bytes, *, stream: str, shard_id: str) -> pa.RecordBatch:
    """Decode the body of a good JSON reply of GetRecords into columns of ``SCHEMA``.

    Raises:
        Unavailable: see ``decode_reply``.
    """
    return ArrowForm(stream=stream, shard_id=shard_id).decode(body).page.batch


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
