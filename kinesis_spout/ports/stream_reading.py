"""Reads a stream: a lister of its shards, and a getter for each shard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kinesis_spout.model.record import Record
from shard_state import Position, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """Identifies a stream. The creation time distinguishes a re-created stream from the one it replaced."""

    name: str
    arn: str
    created: float
    """Seconds since the epoch."""
    retention_hours: int | None = None
    """The retention of a record; None if that is not known."""
    ignores_keys: bool = False
    """Kinesis places its records itself (record distribution strategy AUTO): those of one partition key are in
    any shard."""


def is_same_creation(one: float, other: float) -> bool:
    """Return whether two creation times, in seconds, are of the same stream.

    They come in seconds or in milliseconds. No stream is deleted and made again within a second.
    """
    return abs(one - other) <= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer of GetRecords, or what was pushed since the last; aggregated records are taken apart."""

    records: Sequence[Record]
    """In shard order; may be empty although more follows, and many more than the limit, which counts an
    aggregated record as one."""
    size_bytes: int
    """The size of the records' data and keys against the read limit."""
    millis_behind_latest: int
    """The distance of the end of this page from the tip. Some emulators always say 0."""
    at_end: bool
    """The shard is closed, and this is its last page: nothing ever follows."""
    child_shards: tuple[Shard, ...] = ()
    """On the last page of a closed shard: the shards that continue it."""
    kinesis_records: int | None = None
    """The number of records that these are to Kinesis; None: as many as ``records``."""
    damaged_aggregates: int = 0
    """The number of them that begin like an aggregated record and are damaged: they are returned unchanged."""
    records_outside_shard: int = 0
    """The number of user records outside the shard by their hash keys. They are returned here, and nowhere
    else."""

    def holds_at_least(self, limit: int) -> bool:
        """Return whether Kinesis returned as many records as requested: then there are more."""
        count = len(self.records) if self.kinesis_records is None else self.kinesis_records
        return count >= limit

    @property
    def kept_bytes(self) -> int:
        """The size of the records while they are kept: see ``Record.size_bytes``."""
        if self.kinesis_records is None:
            return self.size_bytes if self.records else 0
        return sum(record.size_bytes for record in self.records)

    data_losses: int = 0
    """1 if records before this page can have been trimmed unread; it was logged (``fail_on_data_loss`` is off)."""
    since: float | None = None
    """Nothing that follows this page arrived earlier, in seconds since the epoch; None: nobody knows."""
    says_nothing: bool = False
    """Nothing was pushed since the last page. It is empty, and repeats that page's distance from the tip."""
    pushed_at: float | None = None
    """When the last of it was pushed, at the latest; monotonic. None: it was requested now."""


class ShardLister(Protocol):
    """Lists the shards of a stream."""

    def summary(self) -> StreamSummary:
        """Describe the stream.

        Raises:
            StreamNotFound, AccessDenied: at once, with what to do.
            KinesisError: with ``retriable`` set, for what may pass.
        """
        ...

    def list_shards(self) -> list[Shard]:
        """List every shard that retention has left, open and closed, all pages."""
        ...


class ShardGetter(Protocol):
    """Reads one shard forward from a position. Not thread-safe."""

    @property
    def position(self) -> Position:
        """The beginning of the next page: after the last record fetched (of an aggregate: all), or the start."""
        ...

    @property
    def ready_at(self) -> float:
        """The monotonic time before which a read would exceed the shard's limits, or return nothing."""
        ...

    def read(self, limit: int) -> Page:
        """Fetch at most ``limit`` records (1 to 10,000), waiting for ``ready_at`` first.

        The limit counts the records of Kinesis. Aggregated ones are taken apart: ``Page.records`` are the
        user records inside, from the start position on if that lies in the middle of an aggregate. If Kinesis
        pushes records, a page is what came since the last read: often an empty one.

        Iterators are obtained, kept and renewed inside. A throttle moves ``ready_at`` and raises; every error
        keeps the place in the shard, so that the same call may simply be made again.

        Raises:
            Throttled, Unavailable, KeyUnavailable: retriable; ``ready_at`` says when.
            DataLoss: records can have been trimmed between the position and the oldest one left, or the position
                is outside the shard, and ``fail_on_data_loss`` is set.
            ShardNotFound, StreamNotFound, AccessDenied: not retriable.
        """
        ...

    def when_ready(self, call: Callable[[], None]) -> None:
        """Have ``call`` made, on any thread, when records, the end or an error came since the last read.

        A shard is thus read as soon as Kinesis pushes, and not when the next read is due. A getter that polls
        never makes the call, and a call says nothing about ``ready_at``. Called before the first read.
        """
        ...

    def close(self) -> None:
        """Release what is held; nothing is read afterwards. On any thread; may be called twice."""
        ...
