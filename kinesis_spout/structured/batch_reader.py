"""The batch read of ``format("kinesis")``: streams between two positions, planned once, each record once.

Planning decides everything that could differ between two readings: LATEST becomes the time at which the data
was asked for, and the shards are listed after that. So a repeated task and a second action on the DataFrame
give the same rows, while retention keeps them (``shard_interval`` has the rules).

Rows are in the order of their shard. Across shards there is no order, not even of parents before children.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kinesis_spout.kinesis import KinesisClientSettings, KinesisShardLister, ReadSettings
from kinesis_spout.kinesis.read.data_loss import lose
from kinesis_spout.kinesis.retry_policy import persistently
from kinesis_spout.model.clock import Clock, SystemClock, moment
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.executor_python import prepare_next_tasks
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.settings.grammar.shard_positions import EndPositions, resolved_now
from kinesis_spout.settings.source_options import BatchReadOptions
from kinesis_spout.settings.table.spelling import as_option, said_as_options
from kinesis_spout.structured.shard_interval import IntervalRead, ShardInterval
from kinesis_spout.structured.stream.partitions import in_chunks
from kinesis_spout.structured.streams_to_read import streams_at_start
from shard_state import Shard, StartPositions

T = TypeVar("T")

SHARDS_PER_TASK: Final = 8
"""By default. AWS gives 2 MiB/s of a shard, and one Python task takes in about eight times that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The beginning and end of a read, and its shards. Can be pickled."""

    start: StartPositions
    end: EndPositions
    """Never LATEST."""
    listed: Mapping[str, frozenset[str]]
    """The shards of each stream that tasks were made for."""

    def interval(self, stream: str, shard_id: str) -> ShardInterval:
        start, end = self.start.of_shard(shard_id), self.end.of_shard(shard_id)
        return ShardInterval(stream=stream, shard_id=shard_id, start=start, end=end)

    def intervals(self) -> list[ShardInterval]:
        every = (
            self.interval(stream, shard_id) for stream in self.listed for shard_id in self.listed[stream]
        )
        ordered = sorted(every, key=lambda interval: (interval.stream, interval.shard_id))
        return [interval for interval in ordered if not interval.is_empty]

    def unlisted(self, parent: ShardInterval, children: tuple[Shard, ...]) -> list[ShardInterval]:
        """The children without a task, which the reader of ``parent`` reads.

        A listing can lag behind a reshard, but the last page of a parent does not. One parent's reader reads
        a merged child: the first of those that surely come to their shard's end, or past the read's.
        """
        intervals = []
        for child in children:
            if child.shard_id in self.listed[parent.stream]:
                continue
            sure = [each for each in child.parents if self.end.of_shard(each).sequence_number is None]
            if parent.shard_id == min(sure or child.parents):
                intervals.append(self.interval(parent.stream, child.shard_id))
        return intervals


class ShardIntervals(InputPartition):
    def __init__(
        self,
        intervals: list[ShardInterval],
        *,
        plan: ReadPlan,
        client: KinesisClientSettings,
        settings: ReadSettings,
    ) -> None:
        super().__init__(tuple(intervals))
        self.intervals = tuple(intervals)
        self.plan = plan
        self.client = client
        self.settings = settings


class KinesisBatchReader(DataSourceReader):
    """Reads streams once. Only its options and the time travel to the executors.

    ``now`` is what LATEST means, in seconds since the epoch; by default, the time of this call. PySpark 4.0
    makes a reader for every action: with the time of ``load`` all read the same.
    """

    def __init__(self, options: BatchReadOptions, *, now: float | None = None) -> None:
        self._options = options
        self._now = SystemClock().time() if now is None else now

    @said_as_options()
    def partitions(self) -> list[InputPartition]:
        """List the shards and divide them among tasks, on the driver. Retries transient errors without limit.

        Raises:
            InvalidConfig: the end is in the future, or a sequence number is given for several shards.
            DataLoss: a start is behind retention, or a named shard does not exist (``failOnDataLoss``).
            StreamNotFound, AccessDenied: at once, also if patterns find nothing.
        """
        print_log_lines(spell=as_option)
        options = self._options
        plan = self._plan()
        intervals = plan.intervals()
        self._check_retention(intervals)
        settings = options.read.for_one_of(len(intervals))
        # One task at least: some versions of Spark fail with none.
        count = max(1, -(-len(intervals) // (options.shards_per_task or SHARDS_PER_TASK)))
        return [
            ShardIntervals(intervals[task::count], plan=plan, client=options.client, settings=settings)
            for task in range(count)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ShardIntervals)
        print_log_lines(spell=as_option)
        with said_as_options():
            yield from read_intervals(partition, SystemClock())

    def _plan(self) -> ReadPlan:
        options = self._options
        end = resolved_now(options.end, self._now, "option endingPosition")
        client = options.client.connect()
        # A stream that a pattern finds later has nothing that arrived before the end of this read.
        streams = streams_at_start(options.streams, client, SystemClock())
        listers = {stream: KinesisShardLister(client, stream) for stream in streams}
        listed = {
            stream: frozenset(shard.shard_id for shard in _begun(lister.list_shards, stream))
            for stream, lister in listers.items()
        }
        plan = ReadPlan(start=options.start, end=end, listed=listed)
        self._check_shards(plan)
        return plan

    def _check_shards(self, plan: ReadPlan) -> None:
        shards = sum(len(ids) for ids in plan.listed.values())
        for option, position in (
            ("startingPosition", plan.start.default),
            ("endingPosition", plan.end.default),
        ):
            if position.sequence_number is not None and shards != 1:
                raise InvalidConfig(
                    f"option {option}: a sequence number is of one shard, and {shards} are to be read: expected "
                    f'JSON that names it, {{"shardId-…": {{"iteratorType": "{position.type.value}", …}}}}'
                )
        missing = (plan.start.shards.keys() | plan.end.shards.keys()).difference(*plan.listed.values())
        if missing:
            self._lose(
                f"expected the shards that startingPosition and endingPosition name among the {shards} that the "
                f"stream lists, but {', '.join(sorted(missing))} is not there: retention trimmed it, or it never "
                "existed",
                "the others are read",
            )

    def _check_retention(self, intervals: list[ShardInterval]) -> None:
        """Compare start times with retention: Kinesis itself silently begins at the oldest record."""
        oldest: dict[str, float] = {}
        for interval in intervals:
            if interval.start.timestamp is not None:
                oldest[interval.stream] = min(
                    interval.start.timestamp, oldest.get(interval.stream, interval.start.timestamp)
                )
        for stream, start in oldest.items():
            lister = KinesisShardLister(self._options.client.connect(), stream)
            summary = _begun(lister.summary, stream)
            hours = summary.retention_hours
            horizon = -inf if hours is None else self._now - hours * 3600
            if max(start, summary.created) < horizon:
                self._lose(
                    f"startingPosition {moment(start)} is behind the retention of stream {stream!r}, {hours} "
                    f"hours: what arrived before {moment(horizon)} is gone",
                    "what is left is read; a start at trim_horizon asks for no more",
                )

    def _lose(self, text: str, so_that: str) -> None:
        lose(text, fail=self._options.read.fail_on_data_loss, so_that=so_that)


def read_intervals(partition: ShardIntervals, clock: Clock) -> Iterator[pa.RecordBatch]:
    """Read page by page, each shard as soon as its rate allows; holds one page. Raises like ``next_rows``."""

    def begin(interval: ShardInterval) -> IntervalRead:
        return IntervalRead(interval, partition.client, partition.settings, clock=clock)

    reads = [begin(interval) for interval in partition.intervals]
    while reads:
        read = min(reads, key=lambda each: each.ready_at)
        clock.sleep(read.ready_at - clock.monotonic())
        rows = read.next_rows()
        if rows is not None:
            yield from in_chunks(rows)
        if read.is_done:
            reads.remove(read)
            reads.extend(begin(found) for found in partition.plan.unlisted(read.interval, read.children))
    prepare_next_tasks()


def _begun(call: Callable[[], T], stream: str) -> T:
    return persistently(call, f"the beginning of a read of {stream}", SystemClock())
