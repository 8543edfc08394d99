"""Deliveries whose pages are decoded straight into columns.

A row becomes a ``Record`` only where records must be checked one by one, or when it failed.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, overload

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.kinesis.read.arrow import batch_of_records, user_sequence_at
from kinesis_spout.model.columns import ARROW_TYPES, HANDLED_COLUMNS, RECORD_COLUMNS
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from kinesis_spout.spark.tasks.delivery import HandlerDelivery, SliceDelivery

if TYPE_CHECKING:
    from kinesis_spout.kinesis import PollingShardGetter


_NO_TIMES: Final = tuple(name for name in HANDLED_COLUMNS if name != "approximateArrivalTimestamp")
"""A time is read as a number: an object of Python needs the data of time zones, and a year of four digits."""


class ArrowRows(Sequence[Record]):
    """The records of a page, as columns of ``HANDLED_SCHEMA``. Makes a record when asked for one."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    @classmethod
    def of(cls, records: Sequence[Record]) -> "ArrowRows":
        """Give records of one shard, at least one, as rows; they can be rows already."""
        if isinstance(records, ArrowRows):
            return records
        return cls(batch_of_records(records, stream=records[0].stream, shard_id=records[0].shard_id))

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __iter__(self) -> Iterator[Record]:
        return records_of(self.batch)

    @overload
    def __getitem__(self, at: int) -> Record: ...

    @overload
    def __getitem__(self, at: slice) -> "ArrowRows": ...

    def __getitem__(self, at: "int | slice") -> "Record | ArrowRows":
        rows = range(len(self))[at]
        if isinstance(rows, int):
            return self._record(rows)
        if rows.step != 1:
            raise ValueError(f"expected consecutive rows, got a step of {rows.step}")
        return ArrowRows(self.batch.slice(rows.start, len(rows)))

    def arrival(self, row: int) -> float | None:
        arrived_at = self.batch.column("approximateArrivalTimestamp")[row]
        return arrived_at.value / 1e6 if arrived_at.is_valid else None

    def _record(self, row: int) -> Record:
        """Give what ``records_of`` would, for a part of the price of a batch of one row."""
        key, data, stream, shard_id, number, sub, hash_key = (
            self.batch.column(name)[row].as_py() for name in _NO_TIMES
        )
        return Record(data, number, key, self.arrival(row), None, stream, shard_id, 1, sub, hash_key)


class ColumnsDelivery(SliceDelivery):
    """Reads its pages as columns; its records are then ``ArrowRows``. Mutable."""

    extra_columns = tuple(name for name in HANDLED_COLUMNS if name not in RECORD_COLUMNS)

    def fetch(self, getter: "PollingShardGetter", limit: int) -> Page:
        page = getter.read_arrow(limit)
        return Page(
            records=ArrowRows(page.batch),
            size_bytes=page.size_bytes,
            millis_behind_latest=page.millis_behind_latest,
            at_end=page.at_end,
            child_shards=page.child_shards,
            kinesis_records=page.kinesis_records,
            damaged_aggregates=page.damaged_aggregates,
            records_outside_shard=page.records_outside_shard,
            data_losses=page.data_losses,
            since=page.since,
        )

    def before_bound(self, records: Sequence[Record]) -> Sequence[Record]:
        bound = self._plan.bound
        if bound is None or not isinstance(records, ArrowRows):
            return super().before_bound(records)
        batch = records.batch
        if bound.position.timestamp is None:
            rows = range(len(records))
            end = bisect_left(rows, 1, key=lambda row: bound.ends_before(user_sequence_at(batch, row), None))
        else:
            arrivals = batch.column("approximateArrivalTimestamp").cast(pa.int64())
            late = pc.greater_equal(arrivals, round(bound.position.timestamp * 1_000_000))
            end = pc.index(late, value=True).as_py()
        return records if end in (-1, len(records)) else records[:end]

    def arrival(self, records: Sequence[Record], at: int) -> float | None:
        return records.arrival(at) if isinstance(records, ArrowRows) else super().arrival(records, at)

    def oldest(self, records: Sequence[Record]) -> float | None:
        if not isinstance(records, ArrowRows):
            return super().oldest(records)
        arrivals = records.batch.column("approximateArrivalTimestamp").cast(pa.int64())
        oldest = pc.min(arrivals).as_py()
        return None if oldest is None else float(oldest) / 1_000_000


class ArrowDelivery(ColumnsDelivery, HandlerDelivery):
    """Hands an ``ArrowHandler`` the columns of a page as they were decoded. Mutable."""

    def deliver(self, records: Sequence[Record], until: float) -> int:
        if self._holes or self._attempts:
            # After a restart each is looked at, and keeps how often it was delivered.
            records = list(records)
        return super().deliver(records, until)


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """For a batch with ``RECORD_COLUMNS``, or all of ``HANDLED_COLUMNS``."""
    keys, data, streams, shards, sequences = (
        batch.column(name).to_pylist()
        for name in ("partitionKey", "data", "stream", "shardId", "sequenceNumber")
    )
    micros = batch.column("approximateArrivalTimestamp").cast(ARROW_TYPES["timestamp"]).cast(pa.int64())
    arrivals = [None if value is None else value / 1e6 for value in micros.to_pylist()]
    subs, hash_keys = (
        batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
        for name in ("subSequenceNumber", "explicitHashKey")
    )
    return map(
        Record, data, sequences, keys, arrivals, repeat(None), streams, shards, repeat(1), subs, hash_keys
    )
