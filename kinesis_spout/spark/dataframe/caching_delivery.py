"""The delivery of a slice to a DataFrame: its rows are kept as columns, provisionally all acked.

Pages are decoded straight into columns. A row becomes a ``Record`` only where records must be checked one by
one: after a restart, while stored holes or attempts can concern them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.kinesis.read.arrow import batch_of_records, user_sequence_at
from kinesis_spout.model.columns import HANDLED_COLUMNS, RECORD_COLUMNS
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from kinesis_spout.spark.rows import records_of
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from shard_state import SequenceNumber, SlicePlan

if TYPE_CHECKING:
    from kinesis_spout.kinesis import PollingShardGetter


class ArrowRows(Sequence[Record]):
    """The records of a page, as columns of ``HANDLED_SCHEMA``. Makes a record when asked for one."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

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
            return next(records_of(self.batch.slice(rows, 1)))
        if rows.step != 1:
            raise ValueError(f"expected consecutive rows, got a step of {rows.step}")
        return ArrowRows(self.batch.slice(rows.start, len(rows)))


@dataclass(frozen=True, slots=True)
class Run:
    """Kept rows of a slice that were read one after the other, with nothing passed over in between."""

    row: int
    """The first one's number among the slice's kept rows."""
    index: int
    """Its number among the records read in the slice."""
    previous: SequenceNumber | None
    """The record read before it; None for the first of the slice."""


class CachingDelivery(SliceDelivery):
    """Acks every record of a slice, and keeps it as a row. Mutable.

    The user can fail every row: so there are, and are fetched, no more rows than failures can be kept.
    """

    extra_columns = tuple(name for name in HANDLED_COLUMNS if name not in RECORD_COLUMNS)

    def __init__(self, plan: SlicePlan, settings: DeliverySettings) -> None:
        super().__init__(plan, settings)
        self._most_rows = plan.max_failures if plan.room is None else plan.room
        # On its way to the one row of a probe it passes over all others.
        self._most_fetched = plan.limit if plan.deliveries is not None else min(plan.limit, self._most_rows)
        self._fetched = 0
        self.batches: list[pa.RecordBatch] = []
        self.runs: list[Run] = []

    @property
    def attempts(self) -> dict[SequenceNumber, int]:
        """How often records were delivered before; those that never were are missing."""
        return self._attempts

    @property
    def room(self) -> bool:
        return super().room and self.delivered < self._most_rows

    def fetch(self, getter: "PollingShardGetter", limit: int) -> Page:
        page = getter.read_arrow(min(limit, self._still_to_fetch))
        self._fetched += page.batch.num_rows
        return Page(
            records=ArrowRows(page.batch),
            size_bytes=page.size_bytes,
            millis_behind_latest=page.millis_behind_latest,
            at_end=page.at_end,
            child_shards=page.child_shards,
            kinesis_records=page.kinesis_records,
            damaged_aggregates=page.damaged_aggregates,
            records_outside_shard=page.records_outside_shard,
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

    def oldest(self, records: Sequence[Record]) -> float | None:
        if not isinstance(records, ArrowRows):
            return super().oldest(records)
        arrivals = records.batch.column("approximateArrivalTimestamp").cast(pa.int64())
        oldest = pc.min(arrivals).as_py()
        return None if oldest is None else float(oldest) / 1_000_000

    def wants_more_than(self, page: Page) -> bool:
        del page
        return self._still_to_fetch > 0

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        del until
        rows = _rows(run[: self._most_rows - self.delivered])
        latest = self.runs[-1] if self.runs else None
        if latest is None or self.count - latest.index != self.delivered - latest.row:
            self.runs.append(Run(self.delivered, self.count, self.last))
        self.batches.append(rows.batch)
        self.delivered += len(rows)
        self.count += len(rows)
        self.last = user_sequence_at(rows.batch, len(rows) - 1)
        return len(rows)

    @property
    def _still_to_fetch(self) -> int:
        return self._most_fetched - self._fetched


def _rows(run: Sequence[Record]) -> ArrowRows:
    if isinstance(run, ArrowRows):
        return run
    return ArrowRows(batch_of_records(run, stream=run[0].stream, shard_id=run[0].shard_id))
