"""The driver's own reading: polls of the shards that are at their tip.

Polls run in a ``Prefetcher``: the I/O thread takes in the pages under the consumer's lock and wakes the engine. A
shard that cannot be polled when its time has come is looked at again when a slice of it ends, or a little later.

Polls are *aligned*: all shards share one clock whose ticks are a little further apart than the read limits
require, and a shard that is polled less often keeps to every second tick, every fourth, and so on. So records
that were put into many shards at once are found at once, and go out in one Spark job.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final

from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.kinesis.pace import aligned_idle_period
from kinesis_spout.kinesis.read.polled_getter import FRESH, PollingShardGetter
from kinesis_spout.kinesis.read.prefetcher import READS_AT_ONCE
from kinesis_spout.kinesis.read.shard_reader import PAGE_BYTES, Room, ShardReader
from kinesis_spout.kinesis.retry_policy import Action
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.spark.driver.driver_shards import DriverShard, DriverShards
from kinesis_spout.spark.driver.shard_reading import ReadState

_LOOK_AGAIN_SECONDS: Final = 0.5
"""When to look again at a shard that could not be polled, if no event comes before."""
_BEHIND_MILLIS: Final = 5_000
"""If a page ends further behind the tip than this, executors should read."""

ALLOWANCE: Final = 0.1
"""The delay that lets a poll still meet the next tick, as a part of a tick."""


def tick_seconds(poll_seconds: float) -> float:
    """The time between ticks, for polls of one shard that must be ``poll_seconds`` apart."""
    return poll_seconds * (1 + ALLOWANCE)


def aligned(earliest: float, period: float) -> float:
    """The first tick after ``earliest`` among those that are ``period`` apart; monotonic times."""
    return (math.floor(earliest / period) + 1) * period


class TipPoller:
    """Guarded by the consumer's lock. ``call`` queues a function for the engine's thread."""

    def __init__(
        self,
        shards: DriverShards,
        *,
        call: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
    ) -> None:
        self.consumer = consumer = shards.consumer
        self.shards = shards.by_id
        self.settings = shards.settings
        self.call = call
        self.wake = wake
        self._held = shards.held
        # The last page can exceed three quarters of what the driver may hold.
        self.room = Room(lambda: shards.max_bytes() * 3 // 4 + PAGE_BYTES - 1, shards.kept_bytes)
        # More reads would wait for room, and be looked at twice.
        fitting = max(1, (shards.max_bytes() * 3 // 4 + PAGE_BYTES - 1) // PAGE_BYTES)
        self.polls = Prefetcher(most=min(READS_AT_ONCE, fitting), clock=consumer.ports.clock)
        self.is_stopped = False
        self._readers: dict[str, _TipReader] = {}
        self.arrived_at: float | None = None
        """When the first records came that no plan has looked at; monotonic. The engine resets it."""
        self.rests_until = -math.inf
        """Pushed records wait until then, to be read together; monotonic. The engine sets it."""

    @property
    def is_polling(self) -> bool:
        return self.room.under_way > 0 or self.polls.is_behind

    def look_again(self, shard_id: str) -> None:
        """Poll a shard when it is due: it is new, or a slice of it has ended."""
        shard = self.shards.get(shard_id)
        if shard is None:
            return
        reader = self._readers.get(shard_id)
        if reader is None or reader.shard is not shard:
            reader = self._readers[shard_id] = _TipReader(self, shard_id, shard)
        reader.resume()

    def forget(self, shard_id: str) -> None:
        reader = self._readers.pop(shard_id, None)
        if reader is not None:
            self.polls.withdraw(reader.fetch)

    def go_on(self) -> None:
        """Let the readers that wait for room look again, if there can be some."""
        if self.room.has_room(self.room.parked[0]) or self.drop_stuck_pages():
            self.room.resume_all()

    def drop_stuck_pages(self) -> bool:
        """Drop pages that cannot go out now, so that other shards are polled; True if there were any."""
        if not self._held.size_bytes:
            return False
        stuck = [
            shard
            for shard_id, shard in self.shards.items()
            if shard.records and not self.consumer.manager.may_carry(shard_id)
        ]
        for shard in stuck:
            shard.drop_page()
        return bool(stuck)

    def came(self, shard_id: str, shard: DriverShard) -> None:
        """Read what was pushed: at once, or when the rest is over and no slice of the shard is out."""
        if self.shards.get(shard_id) is not shard:
            return
        shard.news_came(max(self.consumer.now, self.rests_until))
        if shard.may_poll:
            self.look_again(shard_id)

    def reading_failed(self, shard_id: str, shard: DriverShard, error: Exception) -> float:
        """Decide what an error of reading means for its shard, wherever it was read. Returns seconds to wait."""
        consumer = self.consumer
        reaction = consumer.reading_failed(shard_id, error)
        if reaction.action is Action.END_SHARD:
            consumer.shard_trimmed(shard_id)
        elif reaction.action is Action.RETRY and isinstance(error, KinesisSpoutError):
            consumer.last_error = error
            shard.failed(error, again_at=consumer.now + reaction.wait_seconds)
        else:
            consumer.end_with(error)
        return reaction.wait_seconds

    def recovered(self, shard: DriverShard) -> None:
        if self.consumer.last_error is shard.error:
            self.consumer.last_error = None
        shard.recovered()

    def end_if_carried(self, shard_id: str, shard: DriverShard) -> None:
        """End a shard, for good or for this run, once its last page was carried away."""
        if shard.records:
            return
        if shard.reading is ReadState.ENDED:
            self.consumer.manager.end_read(shard_id)
        elif shard.reading is ReadState.AT_BOUND:
            self.consumer.manager.reach_bound(shard_id)

    def reading_since(self, shard_id: str) -> float | None:
        """When the poll of a shard that is under way began; monotonic. None: none is."""
        reader = self._readers.get(shard_id)
        return None if reader is None else reader.reading_since

    def stop(self) -> None:
        """Begin no more polls, and drop the pages of those under way."""
        self.is_stopped = True
        self.polls.stop()


class _TipReader(ShardReader[Page]):
    """Polls one shard while it is owned. Mutable; guarded by the consumer's lock."""

    def __init__(self, tip: TipPoller, shard_id: str, shard: DriverShard) -> None:
        consumer, settings = tip.consumer, tip.settings
        super().__init__(
            tip.polls,
            tip.room,
            lock=consumer.lock,
            clock=consumer.ports.clock,
            periods=(tick_seconds(settings.poll_seconds), settings.idle_poll_seconds),
        )
        self.shard = shard
        self._shard_id = shard_id
        self._tip = tip
        self._consumer = consumer
        self._settings = settings
        self._getter: ShardGetter | None = None
        """The getter of the read under way."""
        self._asked = 0
        """The number of records for which the read under way asks."""

    @property
    def ready_at(self) -> float:
        return self.shard.times.poll_at

    @property
    def held_bytes(self) -> int:
        return self.shard.size_bytes

    def _wanted(self) -> int:
        shard, now = self.shard, self._consumer.now
        self._getter = None
        if not self._is_owned:
            return 0
        due_at = shard.times.poll_at
        if not shard.may_poll or not self._consumer.manager.wants_page(self._shard_id):
            due_at = now + _LOOK_AGAIN_SECONDS
        if due_at > now:
            self._prefetcher.submit(self.fetch, due_at)
            return self._declined()
        if not self._room.has_room(self):
            self._tip.drop_stuck_pages()
        if not self._room.has_room(self):
            self._room.park(self)
            return self._declined()
        self._getter = shard.begin_poll(self._open)
        self._asked = self._settings.records_per_fetch
        if not self._reads_alone:
            self._asked = min(self._asked, shard.first_records)
        return self._asked

    @property
    def _reads_alone(self) -> bool:
        """Return whether executors would not read the shard, whatever its backlog."""
        return self._settings.driver_reads_all or self._consumer.manager.is_suspect(self._shard_id)

    def _declined(self) -> int:
        if self._tip.arrived_at is not None:
            self._tip.wake()  # the engine has possibly waited for this poll
        return 0

    def _open(self) -> ShardGetter:
        shard, state = self.shard, self._consumer.manager.shard(self._shard_id)
        assert state is not None
        getter = self._consumer.ports.open_getter(self._shard_id, state.position)
        getter.when_ready(partial(self._tip.call, partial(self._tip.came, self._shard_id, shard)))
        if isinstance(getter, PollingShardGetter) and not shard.records:
            getter.go_on(shard.cursor)  # Kinesis gives a shard five iterators a second, to all that read it.
        return getter

    async def _read(self, limit: int) -> Page:
        assert self._getter is not None
        return await self._prefetcher.page(self._getter, limit)

    def _keep(self, page: Page, begun_at: float) -> float | None:
        getter, shard, consumer = self._getter, self.shard, self._consumer
        assert getter is not None
        if shard.reading is not ReadState.POLLED or not self._is_owned:
            return self._again()
        self._getter = None  # an error from here on is not one of a read that was dropped meanwhile
        now, state = consumer.now, consumer.manager.shard(self._shard_id)
        bound = None if state is None else state.bound
        begun = consumer.ports.clock.time() - (now - (page.pushed_at or begun_at))
        held_nothing = not shard.records
        shard.take_in(page, begun_at, bound)
        if not page.says_nothing:
            consumer.read_errors.worked(self._shard_id)
            if shard.error is not None:
                self._tip.recovered(shard)
        is_first = bool(page.records) and self._tip.arrived_at is None
        if is_first:
            self._tip.arrived_at = now
        consumer.counters.bytes_read += page.size_bytes
        consumer.sharing.read_bytes[self._shard_id] += page.size_bytes
        reads_all = self._settings.driver_reads_all
        is_full = page.holds_at_least(self._asked)
        has_backlog = (is_full or page.millis_behind_latest > _BEHIND_MILLIS) and not page.at_end
        consumer.manager.page_fetched(self._shard_id, full=has_backlog and not reads_all)
        # Pushed records that did not fit are there already, so no push reports them.
        self._schedule_next(getter, now, has_more=reads_all and is_full)
        is_small = self._asked < self._settings.records_per_fetch
        if is_full and is_small and not (page.at_end or self._reads_alone):
            # Executors begin with these records.
            from_here = FRESH
            if held_nothing and isinstance(getter, PollingShardGetter):
                from_here = getter.cursor_before
            shard.drop_page(from_here)
            self._tip.wake()
            return shard.times.poll_at
        if not page.says_nothing:
            consumer.page_read(self._shard_id, page)
        self._tip.end_if_carried(self._shard_id, shard)
        if not (
            page.records or shard.records or page.at_end or page.says_nothing or page.millis_behind_latest
        ):
            consumer.manager.ends_at_tip(self._shard_id, begun)
        is_news = is_first or page.at_end or page.millis_behind_latest or bound is not None
        # While polls go on, further records change nothing for the engine: it is not woken a thousand times.
        is_gathered = self._tip.arrived_at is not None and (reads_all or not self._tip.is_polling)
        if is_news or is_gathered:
            self._tip.wake()
        return shard.times.poll_at

    def _schedule_next(self, getter: ShardGetter, now: float, *, has_more: bool) -> None:
        shard = self.shard
        if shard.has_news or has_more:
            poll_at = now if has_more else max(now, self._tip.rests_until)
        else:
            # A poll that began a little late must not cost the shard a tick: the getter waits for the read limits.
            earliest = getter.ready_at - ALLOWANCE * self._settings.poll_seconds
            period = aligned_idle_period(shard.view.empty_polls, *self._periods)
            poll_at = aligned(max(earliest, now), period)
        shard.schedule(poll_at=poll_at, read_at=getter.ready_at)

    def _failed(self, error: Exception) -> float | None:
        getter, shard = self._getter, self.shard
        if (getter is not None and shard.reading is not ReadState.POLLED) or not self._is_owned:
            return self._again()
        shard.poll_failed()
        ready_at = 0.0 if getter is None else getter.ready_at
        shard.schedule(poll_at=max(ready_at, self._consumer.now + self._settings.poll_seconds))
        self._tip.reading_failed(self._shard_id, shard, error)
        self._tip.wake()
        return shard.times.poll_at

    @property
    def _is_owned(self) -> bool:
        return self._tip.shards.get(self._shard_id) is self.shard and not self._tip.is_stopped

    def _again(self) -> float | None:
        """Poll again: the page just read follows on one that was dropped meanwhile."""
        self.shard.schedule(poll_at=self._consumer.now)
        self._tip.wake()
        return self.shard.times.poll_at if self._is_owned else None
