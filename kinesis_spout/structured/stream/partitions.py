"""The input of a task: exact ranges of shards, from the reader's pages or, where they are gone, from Kinesis.

A range says which records the batch has, by the sequence numbers of the first and the last and by their
count. So every reading of it gives the same rows in the same order: by a repeated task, by a second action,
after a restart. All rows of an aggregated record share its sequence number; a range has all or none of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings
from kinesis_spout.kinesis.read.arrow import rows_before, sequence_at
from kinesis_spout.kinesis.read.data_loss import lose
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import ShardNotFound
from kinesis_spout.processes.executor_python import prepare_next_tasks
from kinesis_spout.structured.pages.page_buffer import PageSegment
from kinesis_spout.structured.pages.page_channel import PageServerAddress, fetch_segments
from kinesis_spout.structured.schema import arrow_schema
from kinesis_spout.structured.shard_interval import IntervalRead, ShardInterval
from shard_state import Position, SequenceNumber

_ROWS_PER_BATCH: Final = 2_000
_BYTES_PER_BATCH: Final = 1024 * 1024
"""Spark moves Arrow batches of about this size cheapest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRange:
    stream: str
    shard_id: str
    first: SequenceNumber
    last: SequenceNumber
    rows: int
    segments: tuple[PageSegment, ...] = ()
    """Their places in the reader's memory; empty unless it has all of them."""
    size_bytes: int = 0
    """Approximate."""


class ShardRanges(InputPartition):
    def __init__(
        self,
        ranges: Sequence[ShardRange],
        *,
        client: KinesisClientSettings,
        settings: ReadSettings,
        pages: PageServerAddress | None,
    ) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)
        self.client = client
        self.settings = settings
        self.pages = pages


def in_tasks(
    ranges: Sequence[ShardRange], *, bytes_per_task: int, shards_per_task: int | None
) -> list[list[ShardRange]]:
    """Divide ranges among tasks: few, because a Python task costs more than a shard, and of similar size.

    The tasks, one after the other, have the ranges in an order that depends only on which ranges there are.
    So a replay, which does not know their sizes, gives a batch's rows in the same order. A range goes to one
    task as a whole, which keeps its shard's order.
    """
    total = sum(shard.size_bytes for shard in ranges)
    count = max(1, min(len(ranges), -(-total // bytes_per_task)))
    tasks: list[list[ShardRange]] = [[] for _ in range(count)]
    before = 0
    for shard in sorted(ranges, key=lambda shard: (shard.stream, shard.shard_id)):
        # By a range's middle: so the tasks' borders are those between shards that are nearest to even ones.
        middle = before + shard.size_bytes / 2
        tasks[min(count - 1, int(count * middle / total)) if total else 0].append(shard)
        before += shard.size_bytes
    limit = shards_per_task or max(1, len(ranges))
    return [task[start : start + limit] for task in tasks for start in range(0, len(task), limit)]


def read_ranges(partition: ShardRanges) -> Iterator[pa.RecordBatch]:
    """Runs on an executor. Transient errors are retried without limit.

    Raises DataLoss if retention took some of it (``failOnDataLoss``); AccessDenied, StreamNotFound at once.
    """
    for shard in partition.ranges:
        yield from _Range(shard, partition).read()
    prepare_next_tasks()


class _Range:
    def __init__(self, shard: ShardRange, partition: ShardRanges) -> None:
        self._shard = shard
        self._partition = partition
        self._settings = partition.settings
        self._rows = 0
        """Handed out."""
        self._done: SequenceNumber | None = None
        """The last row's."""
        self._rows_of_done = 0
        """The handed-out rows that have that number."""

    def read(self) -> Iterator[pa.RecordBatch]:
        shard, pages = self._shard, self._partition.pages
        if shard.segments and pages is not None:
            schema = arrow_schema(self._settings.extra_columns)
            step = _rows_at_once(shard.size_bytes / shard.rows)
            for batch in fetch_segments(pages, shard.segments, schema, rows_at_once=step):
                yield from self._hand_out(batch)
        if self._rows < shard.rows:
            yield from self._from_kinesis()
        if self._rows != shard.rows:
            self._miss(f"found {self._rows}")

    def _hand_out(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        last = sequence_at(batch, batch.num_rows - 1)
        rows_of_last = batch.num_rows - rows_before(batch, last)
        self._rows_of_done = rows_of_last + (self._rows_of_done if last == self._done else 0)
        self._rows += batch.num_rows
        self._done = last
        yield from in_chunks(batch)

    def _from_kinesis(self) -> Iterator[pa.RecordBatch]:
        shard, clock = self._shard, SystemClock()
        interval = ShardInterval(
            stream=shard.stream,
            shard_id=shard.shard_id,
            # From the last record again: the pages possibly lacked some of its user records.
            start=Position.at(shard.first if self._done is None else self._done),
            end=Position.after(shard.last),
        )
        read = IntervalRead(interval, self._partition.client, self._settings, clock=clock)
        while not read.is_done and self._rows < shard.rows:
            clock.sleep(read.ready_at - clock.monotonic())
            try:
                rows = read.next_rows(at_most=shard.rows - self._rows)
            except ShardNotFound:
                return  # retention took all of it
            batch = None if rows is None else self._not_handed_out(rows)
            if batch:
                yield from self._hand_out(batch)

    def _not_handed_out(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the rows of the repeated record that the pages had already."""
        again = self._rows_of_done if batch.num_rows and sequence_at(batch, 0) == self._done else 0
        return batch.slice(again)

    def _miss(self, found: str) -> None:
        shard = self._shard
        text = (
            f"expected {shard.rows} records from {shard.first} to {shard.last} in shard {shard.shard_id!r} of "
            f"stream {shard.stream!r}, which a batch of this query has, {found}: retention took the others"
        )
        lose(text, fail=self._settings.fail_on_data_loss, so_that="the batch goes on without them")


def in_chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces that Spark moves cheaply; nothing is copied."""
    if batch.num_rows == 0:
        return
    step = _rows_at_once(batch.nbytes / batch.num_rows)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _rows_at_once(row_bytes: float) -> int:
    return max(1, min(_ROWS_PER_BATCH, int(_BYTES_PER_BATCH / max(1.0, row_bytes))))
