"""What the driver itself holds of the owned shards, and when it looks at each again.

At its tip a shard is polled by the driver: a cheap call every poll period, no Spark job while nothing comes.
A fetched page waits here until a slice carries it away. The driver asks for a small page only. If that comes back
full, it drops the page, and executors read the shard from the same record on: one driver reads for all shards, so
what it reads of a backlog costs the most where it takes the longest.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.kinesis.read.polled_getter import Cursor
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.spark.driver.engine_settings import WORTH_A_JOB_BYTES, EngineSettings
from kinesis_spout.spark.driver.retry_data import RetryBuffer
from kinesis_spout.spark.tasks.work import WorkSlice, before_bound
from shard_state import ShardBound, SliceKind, SlicePlan

_FIRST_BYTES: Final = 100 * 1024
"""So much of a shard the driver reads, and sends to a task, before it leaves the shard to the executors."""
_FEWEST_RECORDS: Final = 10


@dataclass(slots=True, kw_only=True)
class HeldPages:
    size_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class DriverShard:
    """The driver's side of one owned shard. Mutable; guarded by the consumer's lock."""

    epoch: int
    held: HeldPages = field(default_factory=HeldPages)
    """Shared with the driver's other shards: the sum of their ``size_bytes``."""
    getter: ShardGetter | None = None
    """Open while the driver polls the shard; closed (None) while executors read it."""
    records: deque[Record] = field(default_factory=deque)
    """Fetched and not yet carried away."""
    size_bytes: int = 0
    at_end: bool = False
    """The last page of the closed shard is among ``records``, or was carried away."""
    at_bound: bool = False
    """The record after ``records`` ends the shard for this run."""
    fetching_since: float | None = None
    """When the poll under way began; monotonic."""
    next_poll_at: float = 0.0
    """Monotonic."""
    has_news: bool = False
    """Kinesis has pushed something since the last read began."""
    empty_polls: int = 0
    tip_seen_at: float = -1.0
    """When the driver last began a poll that found nothing new at the tip; monotonic."""
    read_to: float = -inf
    """When the driver last began a poll that came up to the tip, whatever it found; monotonic."""
    millis_behind_latest: int | None = None
    """As its last page said; None before the first."""
    record_bytes: float = 1024.0
    """The average size of the records of its last page that had any, as Kinesis counts records."""
    cursor: Cursor = field(default_factory=Cursor)
    """Where executors continue, or the driver once nothing waits in ``records``: at the shard's position."""
    read_at: float = 0.0
    """The monotonic time before which executors should not read, for the shard's read limits."""
    barred_until: float = 0.0
    """The monotonic time before which nothing of the shard goes out."""
    error: KinesisSpoutError | None = None
    """The last error that is being retried."""

    @property
    def may_read(self) -> bool:
        """Whether the driver may read on. Pushed records may join those that wait, unless these are many."""
        if self.fetching_since is not None or self.at_end or self.at_bound:
            return False
        return not self.records or (self.has_news and self.size_bytes < WORTH_A_JOB_BYTES)

    @property
    def first_records(self) -> int:
        """How many records tell the driver that executors should read the shard from here on."""
        return max(_FEWEST_RECORDS, int(_FIRST_BYTES / self.record_bytes))

    def take_in(self, page: Page, bound: ShardBound | None = None) -> None:
        """Keep the page that the poll under way has fetched, up to ``bound``."""
        assert self.fetching_since is not None
        begun, self.fetching_since = self.fetching_since, None
        if page.says_nothing:
            self.empty_polls += 1
            return
        wanted = page.records if bound is None else before_bound(page.records, bound)
        self.records.extend(wanted)
        if page.records:
            count = len(page.records) if page.kinesis_records is None else page.kinesis_records
            self.record_bytes = max(1.0, page.size_bytes / max(1, count))
        if wanted:
            is_plain = page.kinesis_records is None
            self._hold(page.size_bytes if is_plain else sum(each.size_bytes for each in wanted))
        self.at_bound = len(wanted) < len(page.records)
        self.at_end = page.at_end and not self.at_bound
        self.millis_behind_latest = page.millis_behind_latest
        self.empty_polls = 0 if page.records else self.empty_polls + 1
        if page.millis_behind_latest == 0:
            # What was put while the poll was under way can have come too late for it.
            self.read_to = begun if page.pushed_at is None else page.pushed_at
            if not page.records:
                self.tip_seen_at = self.read_to

    def all_goes_out(self, works: Iterable[WorkSlice]) -> bool:
        """Whether nothing more waits here, nor behind it, once these slices have gone out."""
        carried = sum(len(work.records) for work in works if work.plan.kind is SliceKind.CARRIED)
        return not self.at_end and len(self.records) <= carried

    def take_left(self, records: Sequence[Record]) -> None:
        """Keep what executors fetched and did not handle: a slice carries it, then they read on."""
        self.records.extend(records)
        self._hold(sum(record.size_bytes for record in records))

    def drop_page(self) -> None:
        """Forget what no slice has carried away; the next poll begins there again."""
        self.records.clear()
        self._hold(-self.size_bytes)
        self.at_end = self.at_bound = False
        self.read_to = -inf
        self.close_getter()
        self.cursor = Cursor()

    def close_getter(self) -> None:
        if self.getter is not None:
            self.getter.close()
            self.getter = None

    def carried(self, limit: int) -> tuple[Record, ...]:
        """The first records, for a slice; they stay until ``settled``."""
        return tuple(self.records[at] for at in range(min(limit, len(self.records))))

    def settled(self, count: int) -> None:
        for _ in range(count):
            self._hold(-self.records.popleft().size_bytes)
        if not self.records:
            self._hold(-self.size_bytes)

    def _hold(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self.held.size_bytes += size_bytes


class DriverShards:
    """A stream's owned shards, and what the driver keeps of them. Mutable; guarded by the consumer's lock."""

    def __init__(self, consumer: Consumer, settings: EngineSettings) -> None:
        self.consumer = consumer
        self.settings = settings
        self.by_id: dict[str, DriverShard] = {}
        self.held = HeldPages()
        self.retry_data = RetryBuffer(lambda: self.max_bytes() // 2)

    def of(self, plan: SlicePlan) -> DriverShard | None:
        """None if the shard was lost since the slice was planned, even if it was acquired again."""
        shard = self.by_id.get(plan.shard_id)
        return None if shard is None or shard.epoch != plan.epoch else shard

    def max_bytes(self) -> int:
        return self.settings.max_buffered_bytes // self.consumer.sharers

    def kept_bytes(self) -> int:
        return self.consumer.letters.size_bytes + self.retry_data.size_bytes + self.held.size_bytes
