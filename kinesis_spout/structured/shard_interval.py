"""One shard between two positions: which of its records a task reads, and when no more of them can come.

**Which records.** A sequence number cuts the shard there. A time is compared with every record, to the
microsecond: ``start <= arrival < end``. So of two reads, one of which ends where the other starts, each
record is in exactly one; and a second read of an interval gives the same records.

**When it is done.** Arrival times increase only roughly along a shard, and two clocks agree only roughly;
``MARGIN_SECONDS`` is the assumed maximum of both errors. Reading begins that long before a start time, and an
interval that ends at a time is read until the first of these:

* the end of the closed shard;
* a page of which *every* record arrived more than the margin after the end;
* the tip of the shard (an empty page that is not behind), seen by a read that was begun more than the margin
  after the end: what arrives from then on is not in the interval.

An interval that ends at a sequence number is over with the record there, with the first one past it, or at
the end of the shard. If the tip comes first, the record is not in the shard, which is a data loss.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.kinesis import ArrowPage, KinesisClientSettings, ReadSettings, ShardGetters
from kinesis_spout.kinesis.read.arrow import rows_before, rows_up_to, sequence_at
from kinesis_spout.kinesis.read.data_loss import lose, lose_shard
from kinesis_spout.kinesis.retry_policy import Action, Told, Work, reaction_to, read_again_at, tried_again
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisError, KinesisSpoutError
from kinesis_spout.settings.grammar.shard_positions import MARGIN_SECONDS, rank
from shard_state import Position, Shard
from shard_state.position import PositionType


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInterval:
    stream: str
    shard_id: str
    start: Position
    """Not LATEST."""
    end: Position
    """A time, or a sequence number."""

    @property
    def is_empty(self) -> bool:
        start, end = self.start, self.end
        if start.timestamp is not None and end.timestamp is not None:
            return end.timestamp <= start.timestamp
        if start.sequence_number is not None and end.sequence_number is not None:
            return rank(end) <= rank(start)
        return False

    @property
    def first_position(self) -> Position:
        """The position at which reading begins: nothing of the interval comes before it."""
        if self.start.timestamp is None:
            return self.start
        earlier = self.start.timestamp - MARGIN_SECONDS
        return Position.at_timestamp(earlier) if earlier > 0 else Position.trim_horizon()

    def part_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the interval. Raises KinesisError if a row lacks an arrival time that is needed."""
        if self.end.sequence_number is not None:
            batch = batch.slice(0, _rows_before(self.end, batch))
        since, until = self.start.timestamp, self.end.timestamp
        if batch.num_rows == 0 or (since is None and until is None):
            return batch
        arrivals = self._arrivals(batch)
        inside = pa.repeat(pa.scalar(value=True), batch.num_rows)
        if since is not None:
            inside = pc.and_(inside, pc.greater_equal(arrivals, _microseconds(since)))
        if until is not None:
            inside = pc.and_(inside, pc.less(arrivals, _microseconds(until)))
        return batch if pc.all(inside).as_py() else batch.filter(inside)

    def is_behind(self, batch: pa.RecordBatch) -> bool:
        """Tell whether a page's rows show that nothing of the interval follows."""
        if batch.num_rows == 0:
            return False
        if self.end.sequence_number is not None:
            return sequence_at(batch, batch.num_rows - 1) >= self.end.sequence_number
        assert self.end.timestamp is not None
        first_arrival: int = pc.min(self._arrivals(batch)).as_py()
        return first_arrival > _microseconds(self.end.timestamp + MARGIN_SECONDS)

    def _arrivals(self, batch: pa.RecordBatch) -> pa.Array:
        arrivals = batch.column("approximateArrivalTimestamp")
        if arrivals.null_count:
            row = pc.index(pc.is_null(arrivals), value=True).as_py()
            raise KinesisError(
                f"expected an arrival time with every record of shard {self.shard_id!r} of stream "
                f"{self.stream!r}, got none with {sequence_at(batch, row)}, so it is neither in a range of times "
                "nor outside; give sequence numbers as startingPosition and endingPosition"
            )
        return arrivals.cast(pa.int64())

    def __str__(self) -> str:
        return f"shard {self.shard_id!r} of stream {self.stream!r} from {self.start} to {self.end}"


class IntervalRead:
    """Reads an interval, page by page. Mutable, needs no closing. ``clock`` dates and paces the reads."""

    def __init__(
        self, interval: ShardInterval, client: KinesisClientSettings, settings: ReadSettings, *, clock: Clock
    ) -> None:
        self.interval = interval
        self._settings = settings
        self._clock = clock
        self._told = Told(clock)
        getters = ShardGetters(client.connect(), interval.stream, settings, clock=clock)
        self._getter = getters.polled(interval.shard_id, interval.first_position)
        last = interval.end.timestamp
        self._tip_counts_from = (clock.time() if last is None else last) + MARGIN_SECONDS
        self.ready_at = self._getter.ready_at
        """The clock's monotonic time of the next read; the caller of ``next_rows`` waits for it."""
        self.is_done = False
        """Everything was read."""
        self.children: tuple[Shard, ...] = ()
        """The shards that continue this one, if its end was read."""

    def next_rows(self, at_most: int | None = None) -> pa.RecordBatch | None:
        """Read a page and return its rows in the interval; None if this read gave no page.

        ``at_most`` bounds the records that are asked for.

        Transient errors are logged; the next call tries again.

        Raises:
            DataLoss: retention took records, or the record at the end does not exist, and
                ``fail_on_data_loss`` is set.
            StreamNotFound, AccessDenied: at once.
        """
        begun = self._clock.time()
        try:
            most = self._settings.max_records_per_fetch
            page = self._getter.read_arrow(most if at_most is None else min(most, at_most))
        except KinesisSpoutError as error:
            self._failed(error)
            return None
        self.ready_at = self._getter.ready_at
        self._look_for_end(page, begun)
        return self.interval.part_of(page.batch)

    def _look_for_end(self, page: ArrowPage, begun: float) -> None:
        if page.at_end:
            self.is_done = True
            self.children = page.child_shards
        elif self.interval.is_behind(page.batch):
            self.is_done = True
        elif page.kinesis_records == 0 and page.millis_behind_latest == 0:
            if begun > self._tip_counts_from:
                self.is_done = True
                self._check_end_at_tip()
            else:
                # The tip proves nothing this early: read again just after it does.
                wait = self._tip_counts_from - begun + 0.001
                self.ready_at = max(self.ready_at, self._clock.monotonic() + wait)

    def _check_end_at_tip(self) -> None:
        if self.interval.end.sequence_number is not None:
            lose(
                f"expected the end of {self.interval}, but the shard has neither that record nor a later one: "
                "retention took it, or it is not of this shard",
                fail=self._settings.fail_on_data_loss,
                so_that="the records before it are read",
            )

    def _failed(self, error: KinesisSpoutError) -> None:
        if reaction_to(error, Work.QUERY).action is Action.END_SHARD:
            self.is_done = True
            lose_shard(
                self.interval.stream,
                self.interval.shard_id,
                self._getter.position,
                now=self._clock.time(),
                fail=self._settings.fail_on_data_loss,
                cause=error,
            )
            return
        tried_again(error, self._told)
        self.ready_at = read_again_at(self._clock.monotonic(), self._getter.ready_at)


def _rows_before(end: Position, batch: pa.RecordBatch) -> int:
    """Count the rows before a sequence number; rows are in that order."""
    assert end.sequence_number is not None
    inclusive = end.type is PositionType.AFTER_SEQUENCE_NUMBER
    count = rows_up_to if inclusive else rows_before
    return count(batch, end.sequence_number)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
