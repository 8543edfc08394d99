"""The delivery of a slice to a DataFrame: its rows are kept as columns, provisionally all acked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.kinesis.read.arrow import user_sequence_at
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from kinesis_spout.spark.tasks.arrow_delivery import ArrowRows, ColumnsDelivery
from kinesis_spout.spark.tasks.delivery import DeliverySettings
from shard_state import SequenceNumber, SlicePlan

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_spout.kinesis import PollingShardGetter


@dataclass(frozen=True, slots=True)
class Run:
    """Kept rows of a slice that were read one after the other, with nothing passed over in between."""

    row: int
    """The first one's number among the slice's kept rows."""
    index: int
    """Its number among the records read in the slice."""
    previous: SequenceNumber | None
    """The record read before it; None for the first of the slice."""


class CachingDelivery(ColumnsDelivery):
    """Acks every record of a slice, and keeps it as a row. Mutable.

    The user can fail every row: so there are, and are fetched, no more rows than failures can be kept.
    """

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
        page = super().fetch(getter, min(limit, self._still_to_fetch))
        self._fetched += len(page.records)
        return page

    def wants_more_than(self, page: Page) -> bool:
        del page
        return self._still_to_fetch > 0

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        del until
        rows = ArrowRows.of(run[: self._most_rows - self.delivered])
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
