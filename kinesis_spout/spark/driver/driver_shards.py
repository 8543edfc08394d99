"""The driver's part of the owned shards, and when it looks at each again.

``shard_reading`` decides who reads a shard. A page that the driver fetched waits here until a slice carries it
away. The driver asks for a small page only. If that comes back full, it drops the page, and executors read the
shard from the same record on: one driver reads for all shards, so what it reads of a backlog costs the most where
it takes the longest.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple, Self

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.limits.record_age import RecordAge
from kinesis_spout.kinesis.read.polled_getter import FRESH, Cursor
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.spark.driver.engine_settings import WORTH_A_JOB_BYTES, EngineSettings
from kinesis_spout.spark.driver.retry_data import RetryBuffer
from kinesis_spout.spark.driver.shard_reading import TRANSITIONS, ReadEvent, ReadState
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice, before_bound
from shard_state import ShardBound, SliceKind, SlicePlan

_FIRST_BYTES: Final = 100 * 1024
"""The driver reads so much of a shard, and sends it to a task, before it leaves the shard to the executors."""
_FEWEST_RECORDS: Final = 10


@dataclass(slots=True, kw_only=True)
class HeldPages:
    size_bytes: int = 0


class TipView(NamedTuple):
    """A view of a shard by its pages. Times are monotonic."""

    tip_seen_at: float = -1.0
    """When the driver last began a poll that found nothing new at the tip."""
    read_to: float = -inf
    """When the driver last began a poll that came up to the tip, whatever it found."""
    millis_behind_latest: int | None = None
    """As the last page said; None before the first."""
    empty_polls: int = 0
    """In a row."""
    record_bytes: float = 1024.0
    """The average size of the records of the last page that had any, as Kinesis counts records."""

    def after(self, page: Page, begun_at: float) -> Self:
        """The view after the page of a poll that began at that time."""
        if page.says_nothing:
            return self._replace(empty_polls=self.empty_polls + 1)
        tip_seen_at, read_to, record_bytes = self.tip_seen_at, self.read_to, self.record_bytes
        if page.millis_behind_latest == 0:
            # A record put while the poll was under way can have come too late for it.
            read_to = begun_at if page.pushed_at is None else page.pushed_at
            tip_seen_at = tip_seen_at if page.records else read_to
        if page.records:
            count = len(page.records) if page.kinesis_records is None else page.kinesis_records
            record_bytes = max(1.0, page.size_bytes / max(1, count))
        empty_polls = 0 if page.records else self.empty_polls + 1
        return type(self)(tip_seen_at, read_to, page.millis_behind_latest, empty_polls, record_bytes)


class ShardTimes(NamedTuple):
    """The monotonic times before which something must not happen to a shard."""

    poll_at: float = 0.0
    """The driver's next poll."""
    read_at: float = 0.0
    """The next read of an executor, for the shard's read limits."""
    out_at: float = 0.0
    """The next slice, of any kind: until then the shard is barred."""


class DriverShard:
    """The driver's side of one owned shard. Mutable, by its own methods only; guarded by the consumer's lock.

    ``held`` is shared with the driver's other shards: the sum of their ``size_bytes``.
    """

    def __init__(self, epoch: int, held: HeldPages | None = None) -> None:
        self.epoch = epoch
        self.reading = ReadState.TIP
        self.getter: ShardGetter | None = None
        """Open while the driver polls the shard; closed (None) while executors read it."""
        self.records: deque[Record] = deque()
        """Fetched and not yet carried away."""
        self.size_bytes = 0
        """The size of these."""
        self.has_news = False
        """Kinesis has pushed something since the last poll began."""
        self.view = TipView()
        self.times = ShardTimes()
        self.cursor = FRESH
        """Executors continue here, or the driver once nothing waits in ``records``: at the shard's position."""
        self.error: KinesisSpoutError | None = None
        """The last error that is being retried."""
        self._held = held or HeldPages()

    @property
    def may_poll(self) -> bool:
        """Return whether the driver may poll. Pushed records may join those that wait, unless these are many."""
        if self.reading is not ReadState.TIP:
            return False
        return not self.records or (self.has_news and self.size_bytes < WORTH_A_JOB_BYTES)

    @property
    def first_records(self) -> int:
        """The number of records that tell the driver that executors should read the shard from here on."""
        return max(_FEWEST_RECORDS, int(_FIRST_BYTES / self.view.record_bytes))

    def all_goes_out(self, works: Iterable[WorkSlice]) -> bool:
        """Return whether nothing more waits here, nor behind it, once these slices have gone out."""
        carried = sum(len(work.records) for work in works if work.plan.kind is SliceKind.CARRIED)
        return self.reading is not ReadState.ENDED and len(self.records) <= carried

    def schedule(
        self, *, poll_at: float | None = None, read_at: float | None = None, out_at: float | None = None
    ) -> None:
        """Set the times that are given; monotonic."""
        times = self.times
        self.times = ShardTimes(
            times.poll_at if poll_at is None else poll_at,
            times.read_at if read_at is None else read_at,
            times.out_at if out_at is None else out_at,
        )

    # The driver polls

    def news_came(self, poll_at: float) -> None:
        """Note that Kinesis has pushed something, to be read at ``poll_at`` at the latest."""
        self.has_news = True
        self.schedule(poll_at=min(self.times.poll_at, poll_at))

    def begin_poll(self, open_getter: Callable[[], ShardGetter]) -> ShardGetter:
        """Begin a poll. Returns the getter to ask; ``open_getter`` opens one at ``cursor``, and may raise."""
        self._on(ReadEvent.POLL)
        self.has_news = False
        if self.getter is None:
            self.getter = open_getter()
            # From here on the driver reads; the executors' last iterator would lead back.
            self.cursor = FRESH
        return self.getter

    def take_in(self, page: Page, begun_at: float, bound: ShardBound | None = None) -> None:
        """Keep the page of the poll under way, which began at that time, up to ``bound``."""
        self.view = self.view.after(page, begun_at)
        if page.says_nothing:
            self._on(ReadEvent.PAGE)
            return
        wanted = page.records if bound is None else before_bound(page.records, bound)
        if wanted:
            self.records.extend(wanted)
            is_plain = page.kinesis_records is None
            self._hold(page.size_bytes if is_plain else sum(each.size_bytes for each in wanted))
        if len(wanted) < len(page.records):
            self._on(ReadEvent.BOUND)
        else:
            self._on(ReadEvent.LAST_PAGE if page.at_end else ReadEvent.PAGE)

    def poll_failed(self) -> None:
        self._on(ReadEvent.FAIL)

    def drop_page(self, cursor: Cursor = FRESH) -> None:
        """Forget what no slice has carried away: it is read again, from ``cursor`` on."""
        self.records.clear()
        self._hold(-self.size_bytes)
        self._on(ReadEvent.DROP)
        self.view = self.view._replace(read_to=-inf)
        self._close_getter()
        self.cursor = cursor

    # Executors read

    def slice_goes_out(self) -> None:
        """Leave the shard to a slice that reads it from ``cursor`` on."""
        self._close_getter()
        self._on(ReadEvent.SLICE)

    def slice_read(self, result: WorkResult, ready_at: float) -> None:
        """Go on where a slice has read to, not before ``ready_at``; keep what it fetched and did not handle."""
        self._on(ReadEvent.SLICE_ENDS if result.outcome.at_end else ReadEvent.SLICE_OVER)
        self.cursor = result.cursor
        self.schedule(poll_at=ready_at, read_at=ready_at)
        if result.millis_behind_latest is not None:
            self.view = self.view._replace(millis_behind_latest=result.millis_behind_latest)
        self.records.extend(result.left)
        self._hold(sum(record.size_bytes for record in result.left))

    def slice_over(self) -> None:
        """Note that a slice that read, if one was out, is not out any more."""
        self._on(ReadEvent.SLICE_OVER)

    # Slices carry what waits

    def carried(self, limit: int) -> tuple[Record, ...]:
        """The first records, for a slice; they stay until ``settled``."""
        return tuple(self.records[at] for at in range(min(limit, len(self.records))))

    def settled(self, count: int) -> None:
        for _ in range(count):
            self._hold(-self.records.popleft().size_bytes)
        if not self.records:
            self._hold(-self.size_bytes)

    # Errors

    def failed(self, error: KinesisSpoutError, again_at: float = 0.0) -> None:
        """Note an error that is retried: nothing is read before ``again_at``."""
        self.error = error
        self.schedule(poll_at=max(self.times.poll_at, again_at), read_at=max(self.times.read_at, again_at))

    def recovered(self) -> None:
        self.error = None

    def _on(self, event: ReadEvent) -> None:
        self.reading = TRANSITIONS[self.reading, event]

    def _close_getter(self) -> None:
        if self.getter is not None:
            self.getter.close()
            self.getter = None

    def _hold(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._held.size_bytes += size_bytes


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

    def work(self, plan: SlicePlan) -> WorkSlice:
        """Return what travels to the executors for a slice of a shard that is still owned."""
        consumer, shard, age = self.consumer, self.by_id[plan.shard_id], None
        if not consumer.manager.blame.is_troubled:  # Otherwise nothing is given up now.
            age = RecordAge.of(consumer.config, consumer.ports.clock.time())
        if plan.kind is SliceKind.READ:
            shard.slice_goes_out()
            state = consumer.manager.shard(plan.shard_id)
            hash_keys = None if state is None else HashKeys.to_check(state.shard)
            cursor = self._paced(shard.cursor, plan.shard_id)
            return WorkSlice(plan=plan, age=age, cursor=cursor, hash_keys=hash_keys)
        if plan.kind is SliceKind.CARRIED:
            return WorkSlice(plan=plan, age=age, records=shard.carried(plan.limit))
        kept = (self.retry_data.get(plan.shard_id, retry.sequence) for retry in plan.retries)
        return WorkSlice(plan=plan, age=age, records=tuple(record for record in kept if record is not None))

    def _paced(self, cursor: Cursor, shard_id: str) -> Cursor:
        """Set how fast executors read on, and how long they wait until all reads so far are paid for."""
        paces = self.consumer.ports.paces
        return replace(
            cursor,
            wait_seconds=paces.wait_seconds(shard_id),
            pace=paces.elsewhere,
            throttled_to=paces.of(shard_id).throttled_to,
        )
