"""The next batch: how long it waits, and what of the fetched pages it takes, within its limits.

Decided before the batch runs and only from its arguments. A batch takes the oldest arrivals first, over all
shards (invariant 18): otherwise a shard with few records would run ahead of one with many, and a watermark
would follow it and drop the other's unread records. Shards take turns with records of the same millisecond:
each round divides what is left of the limits among the shards that have something left.

Limits count user records. A batch ends between records of Kinesis: an aggregated record is taken whole or not
at all. If the very first one exceeds the limits, it is a batch alone.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kinesis_spout.structured.offsets import QueryOffset, ReadRange, ShardOffset, StreamOffset
from kinesis_spout.structured.pages.page_buffer import PageBuffer, ShardKey
from shard_state import Position, SequenceNumber

_MOMENT_SECONDS: Final = 0.03
_LATE_SHARE: Final = 0.1
_LATE_RECORDS_WAIT_SECONDS: Final = 1.0

_MILLISECOND: Final = 1_000
"""In microseconds, the unit of arrivals. Kinesis resolves milliseconds."""
EVERYTHING: Final = 1 << 62
"""After every arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """None: as much as there is. A batch has one record of Kinesis at least."""

    rows: int | None = None
    bytes: int | None = None
    takes_all: bool = False
    """It waits for all that is available: no batch follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchPlan:
    end: QueryOffset
    rows: int
    bytes: int
    is_full: bool
    """Waiting would not make it larger: the limits leave some of what is at hand to the next one."""
    has_shard_end: bool
    """It has the end of a shard, whose children wait for this batch."""


def patience_seconds(
    limits: BatchLimits,
    *,
    rows: int,
    size_bytes: int,
    room_bytes: int,
    reads_under_way: int,
    late_seconds: float,
) -> float:
    """Return for how long records that could be a batch wait for others that could join it.

    They wait a moment for the reads under way. If they are late (by ``late_seconds`` at least), they wait
    longer, because a micro-batch costs nearly the same whatever is in it, and being late by another tenth
    does not matter. Nothing waits beyond the limits, or beyond half of the room: the rest is for what is read
    meanwhile.
    """
    moment = _MOMENT_SECONDS if reads_under_way else 0.0
    most_bytes = room_bytes / 2 if limits.bytes is None else min(limits.bytes, room_bytes / 2)
    if size_bytes >= most_bytes or (limits.rows is not None and rows >= limits.rows):
        return moment
    return max(moment, min(_LATE_RECORDS_WAIT_SECONDS, _LATE_SHARE * late_seconds))


def plan_batch(
    start: QueryOffset,
    buffer: PageBuffer,
    at_end: Mapping[ShardKey, bool],
    limits: BatchLimits,
    first: int = 0,
    *,
    until: int = EVERYTHING,
    since: Mapping[ShardKey, float | None] | None = None,
    is_due: bool = False,
) -> MicroBatchPlan | None:
    """Plan the batch that follows ``start``; None if there is nothing new, unless one ``is_due`` all the same.

    ``since`` says when nothing had arrived yet of what follows all that the buffer has.

    ``at_end`` names the readable shards, True where the buffer has everything up to the shard's end. ``first``
    rotates, so that small batches do not always serve the same shard. Records that arrived after ``until`` (epoch
    microseconds) wait, because earlier ones can be unread.
    """
    keys = sorted(at_end)
    turn = first % len(keys) if keys else 0
    takes = {
        (name, shard_id): _Take(
            buffer, (name, shard_id), read_up_to(start.streams[name].shards[shard_id].position)
        )
        for name, shard_id in keys[turn:] + keys[:turn]
    }
    left = _take_oldest(list(takes.values()), limits, until)
    ended = {key for key, take in takes.items() if at_end[key] and take.is_all_taken}
    rows = sum(take.rows for take in takes.values())
    if not (rows or ended or is_due):
        return None
    streams = {
        name: StreamOffset(
            created=stream.created,
            shards={
                shard_id: _entry(
                    shard,
                    takes.get((name, shard_id)),
                    at_end=(name, shard_id) in ended,
                    since=None if since is None else since.get((name, shard_id)),
                )
                for shard_id, shard in stream.shards.items()
            },
        )
        for name, stream in start.streams.items()
    }
    return MicroBatchPlan(
        end=QueryOffset(streams=streams, began=start.began),
        rows=rows,
        bytes=round(sum(take.bytes for take in takes.values())),
        is_full=left,
        has_shard_end=bool(ended),
    )


def read_up_to(position: Position) -> SequenceNumber | None:
    """The last record before a position, if the position names one."""
    number = position.sequence_number
    if number is None:
        return None
    # AT means that the record itself is still to come.
    return number if position == Position.after(number) else SequenceNumber(number.number - 1)


def _entry(shard: ShardOffset, take: "_Take | None", *, at_end: bool, since: float | None) -> ShardOffset:
    if take is None or not take.is_all_taken:
        since = shard.position.since
    if take is None or take.first is None or take.last is None:
        kept = shard.without_read()
        return ShardOffset(
            position=kept.position.known_since(since), at_end=kept.at_end or at_end, parents=kept.parents
        )
    return ShardOffset(
        position=Position.after(take.last).known_since(since),
        at_end=at_end,
        parents=shard.parents,
        read=ReadRange(first=take.first, rows=take.rows),
    )


def _take_oldest(takes: list["_Take"], limits: BatchLimits, until: int) -> bool:
    """Take what arrived first, up to ``until``; True if the limits left some of that."""
    rows = math.inf if limits.rows is None else limits.rows
    size = math.inf if limits.bytes is None else limits.bytes
    cut = _latest_that_fits(takes, rows, size, until)
    for take in takes:
        take.until = cut
        taken, weight = take.more(math.inf, math.inf)
        rows, size = rows - taken, size - weight
    if cut < until:
        for take in takes:
            take.until = min(until, cut + _MILLISECOND)
        _share_out(takes, rows, size)
        for take in takes:
            take.until = until
    return any(not take.is_empty for take in takes)


def _latest_that_fits(takes: Sequence["_Take"], rows: float, size: float, until: int) -> int:
    """The latest moment, to a millisecond, such that everything that arrived by then is within the limits."""

    def fits(moment: int) -> bool:
        weights = [take.arrived_by(moment) for take in takes]
        return sum(of for of, _ in weights) <= rows and sum(of for _, of in weights) <= size

    if (math.isinf(rows) and math.isinf(size)) or fits(until):
        return until
    arrivals = [take.next_arrival for take in takes if take.next_arrival is not None]
    steps = (min(until, max(take.last_arrival for take in takes)) - min(arrivals)) // _MILLISECOND + 2
    before = min(arrivals) - _MILLISECOND
    # The first of the milliseconds after the oldest record by which too much has arrived.
    return before + _MILLISECOND * (
        bisect_left(range(steps), True, key=lambda step: not fits(before + _MILLISECOND * step)) - 1
    )


def _share_out(takes: Sequence["_Take"], rows: float, size: float) -> None:
    hungry = [take for take in takes if not take.is_empty]
    if not hungry:
        return
    divisor = len(hungry)
    while hungry and rows >= 1:
        before = rows
        row_share, size_share = max(1.0, rows / divisor), size / divisor
        for take in hungry:
            taken, weight = take.more(min(rows, row_share), min(size, size_share))
            rows, size = rows - taken, size - weight
        hungry = [take for take in hungry if not take.is_empty]
        if rows == before and divisor == 1:
            break  # no shard's next record fits
        # A share too small for one record is useless: then the first that fit get what is left.
        divisor = 1 if rows == before else max(1, len(hungry))
    if all(take.rows == 0 for take in takes):
        hungry[0].next_record()


class _Take:
    """The part of one shard's pages that one batch takes. Mutable."""

    def __init__(self, buffer: PageBuffer, shard: ShardKey, after: SequenceNumber | None) -> None:
        self._pages = list(buffer.after(shard, after))
        self._at = 0
        self._row = self._pages[0][1] if self._pages else 0
        self.until = EVERYTHING
        """Later arrivals are not taken."""
        self.first: SequenceNumber | None = None
        self.last: SequenceNumber | None = None
        self.rows = 0
        self.bytes = 0.0

    @property
    def is_all_taken(self) -> bool:
        return self._at == len(self._pages)

    @property
    def next_arrival(self) -> int | None:
        return None if self.is_all_taken else int(self._pages[self._at][0].arrivals[self._row])

    @property
    def last_arrival(self) -> int:
        return max((int(page.arrivals[-1]) for page, _ in self._pages), default=0)

    @property
    def is_empty(self) -> bool:
        return self.next_arrival is None or self.next_arrival > self.until

    def arrived_by(self, moment: int) -> tuple[int, float]:
        """Count the rows and their bytes before the first one that arrived after ``moment``."""
        rows, weight = 0, 0.0
        for page, start in self._pages:
            arrived = page.rows_arrived_by(moment)
            rows += max(0, arrived - start)
            weight += max(0, arrived - start) * page.row_bytes
            if arrived < page.rows:
                break
        return rows, weight

    def more(self, rows: float, size: float) -> tuple[int, float]:
        """Take up to ``rows`` rows and ``size`` bytes, whole records of Kinesis. Returns what was taken."""
        taken, weight = 0, 0.0
        while not self.is_all_taken and taken < rows:
            page = self._pages[self._at][0]
            row = self._row
            fitting = math.inf if math.isinf(size) else (size - weight) // page.row_bytes
            count = int(min(page.rows_arrived_by(self.until) - row, rows - taken, fitting))
            count = page.whole_records(row + count) - row if count > 0 else 0
            if count < 1:
                break
            self._take(count)
            taken += count
            weight += count * page.row_bytes
        return taken, weight

    def next_record(self) -> None:
        """Take the next record of Kinesis, whatever its size. There is one."""
        page = self._pages[self._at][0]
        self._take(page.rows_up_to(page.sequence(self._row)) - self._row)

    def _take(self, rows: int) -> None:
        page = self._pages[self._at][0]
        if self.first is None:
            self.first = page.sequence(self._row)
        self._row += rows
        self.last = page.last if self._row == page.rows else page.sequence(self._row - 1)
        if self._row == page.rows:
            self._at += 1
            self._row = 0
        self.rows += rows
        self.bytes += rows * page.row_bytes
