"""The pages that the driver-side reader has fetched, until their batch is done.

Per shard they are consecutive, in order. A batch takes a run of rows from the front; rows are addressed by
page number and index in the page, so that a batch limit can cut a page without copying it.

An aggregated record has a row for each user record. These rows are consecutive in one page, and share one
sequence number.

A row's *arrival* is the latest ``approximateArrivalTimestamp`` of its page up to it, in microseconds since
the epoch: Kinesis does not promise that it grows, and a shard's order must stay.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.kinesis.read.arrow import rows_before, rows_up_to, sequence_at
from shard_state import SequenceNumber

ROW_OVERHEAD_BYTES: Final = 200
"""The approximate size of a row without its data and key."""

ShardKey = tuple[str, str]
"""Stream (as the options name it) and shard id."""


class PageSegment(NamedTuple):
    page: int
    offset: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    number: int
    batch: pa.RecordBatch
    rows: int
    first: SequenceNumber
    last: SequenceNumber
    size_bytes: int
    arrivals: npt.NDArray[np.int64]
    """The arrivals of its rows; never decreasing."""

    @property
    def row_bytes(self) -> float:
        return self.size_bytes / self.rows

    def sequence(self, row: int) -> SequenceNumber:
        """The rows of one aggregated record share it."""
        return sequence_at(self.batch, row)

    def rows_up_to(self, last: SequenceNumber) -> int:
        return rows_up_to(self.batch, last)

    def rows_before(self, first: SequenceNumber) -> int:
        return rows_before(self.batch, first)

    def whole_records(self, rows: int) -> int:
        """Count those of the first ``rows`` rows up to the last that ends a record of Kinesis."""
        if rows in {0, self.rows} or self.sequence(rows) != self.sequence(rows - 1):
            return rows
        return self.rows_before(self.sequence(rows))

    def rows_arrived_by(self, moment: int) -> int:
        """Count the rows from the beginning that arrived at ``moment`` or before."""
        if self.arrivals[-1] <= moment:
            return self.rows
        return int(np.searchsorted(self.arrivals, moment, side="right"))


class PageBuffer:
    """Fetched pages by shard. Mutable; not thread-safe: the reader's lock guards it."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._pages: dict[int, StoredPage] = {}
        self._by_shard: dict[ShardKey, deque[StoredPage]] = {}
        self._bytes_by_shard: dict[ShardKey, int] = {}
        self.size_bytes = 0
        self.rows = 0

    def append(self, shard: ShardKey, batch: pa.RecordBatch, data_bytes: int) -> None:
        page = StoredPage(
            number=next(self._numbers),
            batch=batch,
            rows=batch.num_rows,
            first=sequence_at(batch, 0),
            last=sequence_at(batch, batch.num_rows - 1),
            size_bytes=data_bytes + batch.num_rows * ROW_OVERHEAD_BYTES,
            arrivals=_arrivals(batch),
        )
        self._pages[page.number] = page
        self._by_shard.setdefault(shard, deque()).append(page)
        self._bytes_by_shard[shard] = self._bytes_by_shard.get(shard, 0) + page.size_bytes
        self.size_bytes += page.size_bytes
        self.rows += page.rows

    def page(self, number: int) -> StoredPage | None:
        return self._pages.get(number)

    def bytes_of(self, shard: ShardKey) -> int:
        return self._bytes_by_shard.get(shard, 0)

    def after(self, shard: ShardKey, last: SequenceNumber | None) -> Iterator[tuple[StoredPage, int]]:
        """Yield a shard's pages beyond ``last`` (None: all), each with its first row that counts."""
        for page in self._by_shard.get(shard, ()):
            if last is None or page.first > last:
                yield page, 0
            elif page.last > last:
                yield page, page.rows_up_to(last)

    def segments(self, shard: ShardKey, first: SequenceNumber, last: SequenceNumber) -> list[PageSegment]:
        """The available rows from ``first`` to ``last``, both included."""
        found: list[PageSegment] = []
        for page in self._by_shard.get(shard, ()):
            if page.last < first or page.first > last:
                continue
            start = 0 if page.first >= first else page.rows_before(first)
            end = page.rows if page.last <= last else page.rows_up_to(last)
            found.append(PageSegment(page.number, start, end - start))
        return found

    def free(self, shard: ShardKey, last: SequenceNumber) -> None:
        pages = self._by_shard.get(shard)
        while pages and pages[0].last <= last:
            self._drop(shard, pages.popleft())

    def drop_shard(self, shard: ShardKey) -> None:
        for page in self._by_shard.pop(shard, ()):
            self._drop(shard, page)
        self._bytes_by_shard.pop(shard, None)

    def oldest_arrival(self, shard: ShardKey, last: SequenceNumber | None) -> int | None:
        """When the first row beyond ``last`` (None: the first of all) arrived; None if there is none."""
        for page, row in self.after(shard, last):
            return int(page.arrivals[row])
        return None

    def _drop(self, shard: ShardKey, page: StoredPage) -> None:
        del self._pages[page.number]
        self._bytes_by_shard[shard] -= page.size_bytes
        self.size_bytes -= page.size_bytes
        self.rows -= page.rows


def _arrivals(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    # A record without a time counts as arrived with the one before it.
    known = pc.fill_null(batch.column("approximateArrivalTimestamp").cast(pa.int64()), 0)
    return np.maximum.accumulate(known.to_numpy(zero_copy_only=False))
