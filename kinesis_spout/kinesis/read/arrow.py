"""A page as Arrow columns for Spark, with the names and types that Kinesis sources use there."""

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kinesis_spout.kinesis import native
from kinesis_spout.kinesis.read.page import Body, GetRecordsReply, decode_in_python, decode_reply
from kinesis_spout.kinesis.read.read_settings import DEFAULT, ReadSettings
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.model.extras import check_arrow
from kinesis_spout.model.record import Record
from shard_state import Position, SequenceNumber, Shard

try:
    import pyarrow as pa

    from kinesis_spout.kinesis.read.record_columns import (
        NOTHING,
        RecordColumns,
        columns_of,
        columns_taken,
        with_user_rows,
    )
    from kinesis_spout.model.columns import ARROW_TYPES, EXTRA_COLUMNS, HANDLED_SCHEMA, SCHEMA
except ImportError:
    check_arrow("Arrow columns")
    raise

_EMPTY_BYTES: Final = 512
"""The size up to which a reply has no records, or one, so that columns would gain nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowPage:
    """A GetRecords reply with its records as columns. Can be pickled."""

    batch: pa.RecordBatch
    size_bytes: int
    millis_behind_latest: int
    at_end: bool
    child_shards: tuple[Shard, ...] = ()
    kinesis_records: int = 0
    """The number of records of Kinesis; ``batch`` has a row for each user record of the aggregated ones."""
    aggregates: int = 0
    """The number of them that were taken apart."""
    damaged_aggregates: int = 0
    records_outside_shard: int = 0
    data_losses: int = 0
    since: float | None = None
    says_nothing: bool = False
    first: SequenceNumber | None
    last: SequenceNumber | None
    """The first and the last record's number; None without records."""
    first_arrival: float | None = None
    last_arrival: float | None = None
    next_shard_iterator: str | None
    sub_sequence_number: pa.Array | None = None
    """The index of each row, null for a record that was not aggregated; None if none was."""

    def from_position(self, position: Position) -> "ArrowPage":
        batch, subs = self.batch, self.sub_sequence_number

        def is_included(row: int) -> bool:
            sub = None if subs is None else subs[row].as_py()
            whole = sequence_at(batch, row)
            return position.includes(whole if sub is None else SequenceNumber(whole.number, sub))

        first = bisect_left(range(batch.num_rows), True, key=is_included)
        if first == 0:
            return self
        return replace(
            self,
            batch=batch.slice(first),
            sub_sequence_number=None if subs is None else subs.slice(first),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowForm:
    """Decodes the replies for one shard to columns. Can be pickled."""

    stream: str
    shard_id: str
    settings: ReadSettings = DEFAULT
    hash_keys: HashKeys | None = None
    """The shard's, to count the user records outside of them; None: not counted."""

    def decode(self, body: Body) -> ArrowPage:
        if len(body) <= _EMPTY_BYTES:
            return self.convert(decode_reply(body))
        taken = None if native.decoder is None else native.decoder.columns(body)
        if taken is not None:
            rest = decode_in_python(taken[-1])
            return self._reply(columns_taken(taken), rest, may_have_aggregates=taken[-2])
        return self.convert(decode_in_python(body))

    def convert(self, reply: GetRecordsReply) -> ArrowPage:
        if not reply.records:
            return ArrowPage(
                batch=_no_rows(self.settings.extra_columns),
                size_bytes=0,
                millis_behind_latest=reply.millis_behind_latest or 0,
                at_end=reply.at_end,
                child_shards=reply.child_shards,
                first=None,
                last=None,
                next_shard_iterator=reply.next_shard_iterator,
            )
        encryption_type = "encryptionType" in self.settings.extra_columns
        return self._reply(columns_of(reply.records, encryption_type=encryption_type), reply)

    def _reply(
        self, read: RecordColumns, rest: GetRecordsReply, *, may_have_aggregates: bool = True
    ) -> ArrowPage:
        columns, counts = (
            with_user_rows(read, self.hash_keys)
            if self.settings.deaggregate and may_have_aggregates
            else (read, NOTHING)
        )
        batch = _batch_of(columns, stream=self.stream, shard_id=self.shard_id)
        for name in self.settings.extra_columns:
            extra = self._extra(name, columns, rest)
            batch = batch.append_column(pa.field(name, extra.type), extra)
        records = len(read.data)
        return ArrowPage(
            batch=batch,
            size_bytes=read.size_bytes,
            millis_behind_latest=rest.millis_behind_latest or 0,
            at_end=rest.at_end,
            child_shards=rest.child_shards,
            kinesis_records=records,
            aggregates=counts.aggregates,
            damaged_aggregates=counts.damaged,
            records_outside_shard=counts.outside,
            first=SequenceNumber(int(read.sequence_number[0].as_py())) if records else None,
            last=SequenceNumber(int(read.sequence_number[-1].as_py())) if records else None,
            first_arrival=_seconds(read.arrival[0]) if records else None,
            last_arrival=_seconds(read.arrival[-1]) if records else None,
            next_shard_iterator=rest.next_shard_iterator,
            sub_sequence_number=columns.sub_sequence_number,
        )

    @staticmethod
    def _extra(name: str, columns: RecordColumns, rest: GetRecordsReply) -> pa.Array:
        rows, kind = len(columns.data), ARROW_TYPES[EXTRA_COLUMNS[name]]
        if name == "millisBehindLatest":
            return pa.repeat(pa.scalar(rest.millis_behind_latest, kind), rows)
        given = {
            "encryptionType": columns.encryption_type,
            "subSequenceNumber": columns.sub_sequence_number,
            "explicitHashKey": columns.explicit_hash_key,
        }[name]
        return pa.nulls(rows, kind) if given is None else given


def _seconds(arrival: pa.Scalar) -> float | None:
    return arrival.value / 1e6 if arrival.is_valid else None


def sequence_at(batch: pa.RecordBatch, row: int) -> SequenceNumber:
    """Return a row's sequence number: the carrier's, if it was aggregated. The batch has ``SCHEMA``."""
    return SequenceNumber(int(batch.column("sequenceNumber")[row].as_py()))


def rows_before(batch: pa.RecordBatch, first: SequenceNumber) -> int:
    return bisect_left(range(batch.num_rows), first, key=lambda row: sequence_at(batch, row))


def rows_up_to(batch: pa.RecordBatch, last: SequenceNumber) -> int:
    """Count the rows of a shard's batch up to ``last``, which several rows may have."""
    return bisect_right(range(batch.num_rows), last, key=lambda row: sequence_at(batch, row))


def user_sequence_at(batch: pa.RecordBatch, row: int) -> SequenceNumber:
    """Return a row's number, with its index if it was aggregated. The batch has ``HANDLED_SCHEMA``."""
    sub = batch.column("subSequenceNumber")[row].as_py()
    whole = sequence_at(batch, row)
    return whole if sub is None else SequenceNumber(whole.number, sub)


def batch_of_records(records: Sequence[Record], *, stream: str, shard_id: str) -> pa.RecordBatch:
    columns = columns_of(records, user_records=True)
    batch = _batch_of(columns, stream=stream, shard_id=shard_id)
    for name, column in (
        ("subSequenceNumber", columns.sub_sequence_number),
        ("explicitHashKey", columns.explicit_hash_key),
    ):
        batch = batch.append_column(HANDLED_SCHEMA.field(name), column)
    return batch


@functools.cache
def _no_rows(extra_columns: tuple[str, ...]) -> pa.RecordBatch:
    extra = [pa.field(name, ARROW_TYPES[EXTRA_COLUMNS[name]]) for name in extra_columns]
    return pa.RecordBatch.from_pylist([], schema=pa.schema([*SCHEMA, *extra]))


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
