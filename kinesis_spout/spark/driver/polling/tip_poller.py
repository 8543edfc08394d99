"""The driver's own reading: polls of the shards that are at their tip.

Polls run on a pool of threads; what comes of them is handed to the engine's thread, as calls for it to make.
The ``PollSchedule`` says which shard is next; a shard that cannot be polled when its time has come is looked at
again when a slice of it ends, or a little later.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.kinesis.patience import Action
from kinesis_spout.kinesis.read.getter import Cursor
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.spark.driver.engine_settings import WORTH_A_JOB_BYTES, EngineSettings
from kinesis_spout.spark.driver.polling.driver_shard import DriverShard, HeldPages
from kinesis_spout.spark.driver.polling.poll_schedule import ALLOWANCE, PollSchedule, aligned, tick_seconds

_FETCH_THREADS: Final = 16
_LOOK_AGAIN_SECONDS: Final = 0.5
"""When a shard that could not be polled is looked at again, if nothing happens to it before."""
_PAGE_BYTES: Final = 10 * 1024 * 1024
"""AWS: the most that one GetRecords gives. So much is set aside for every poll under way."""
_BEHIND_MILLIS: Final = 5_000
"""A page that ends further behind the tip than this says that executors should read."""


class TipPoller:
    """Reads pages for the engine. Its methods are called on the engine's thread, under the lock.

    Args:
        consumer: whose shards are polled.
        shards: what the driver has read of each owned shard; the engine adds and removes them.
        held: what these hold together.
        settings: periods and limits.
        call: has a function called on the engine's thread.
    """

    def __init__(
        self,
        consumer: Consumer,
        shards: Mapping[str, DriverShard],
        held: HeldPages,
        settings: EngineSettings,
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        self._consumer = consumer
        self._manager = consumer.manager
        self._shards = shards
        self._held = held
        self._settings = settings
        self._call = call
        self._tick_seconds = tick_seconds(settings.poll_seconds)
        self._schedule = PollSchedule()
        self._under_way = 0
        self._fetchers = ThreadPoolExecutor(_FETCH_THREADS, "kinesis-spout-fetch")
        self.arrived_at: float | None = None
        """When the first records came that no plan has looked at; monotonic. The engine takes it back."""
        self.rests_until = -math.inf
        """What is pushed before stays where it is, and is read together then; monotonic. The engine says so."""

    @property
    def is_polling(self) -> bool:
        """Whether polls are under way, which may bring more."""
        return self._under_way > 0

    def look_again(self, shard_id: str) -> None:
        """Poll a shard when it says so: it is new, or a slice of it has ended."""
        shard = self._shards.get(shard_id)
        if shard is not None:
            self._schedule.put(shard_id, shard.next_poll_at, self._tick_seconds)

    def forget(self, shard_id: str) -> None:
        """Poll a shard no more: it is somebody else's."""
        self._schedule.remove(shard_id)

    def start_fetches(self, now: float, waiting_bytes: int) -> float | None:
        """Poll the shards whose time has come, unless the driver holds too much. Returns when the next is due.

        Args:
            now: the time.
            waiting_bytes: what the driver holds for retries and dead letters.
        """
        if self._under_way > _FETCH_THREADS:
            return None  # The threads have enough to do; the end of a poll leads here again.
        due_at = self._schedule.next_at()
        if due_at is None or due_at > now:
            return due_at
        buffered = waiting_bytes + self._held.size_bytes
        share = self._settings.max_buffered_bytes // self._consumer.sharers
        room = share * 3 // 4 - buffered - self._under_way * _PAGE_BYTES
        while self._under_way < 2 * _FETCH_THREADS:
            shard_id = self._schedule.take(now)
            if shard_id is None:
                return self._schedule.next_at()
            shard = self._shards[shard_id]
            if not _may_read(shard) or not self._manager.wants_page(shard_id):
                self._schedule.put(shard_id, now + _LOOK_AGAIN_SECONDS, self._tick_seconds)
            elif shard.next_poll_at > now:
                self.look_again(shard_id)
            else:
                if room <= 0:
                    room += self._drop_stuck_pages()
                if room <= 0:
                    self.look_again(shard_id)
                    return None
                self._start_fetch(shard_id, now)
                room -= _PAGE_BYTES
        return None

    def _drop_stuck_pages(self) -> int:
        """Drop the pages that cannot go out now, so that other shards are polled; they are fetched again.

        Returns how many bytes that freed.
        """
        freed = 0
        for shard_id, shard in self._shards.items():
            if shard.records and not self._manager.may_carry(shard_id):
                freed += shard.size_bytes
                shard.drop_page()
        return freed

    def _start_fetch(self, shard_id: str, now: float) -> None:
        shard, state = self._shards[shard_id], self._manager.shard(shard_id)
        assert state is not None
        if shard.getter is None:
            shard.getter = self._consumer.ports.open_getter(shard_id, state.position)
            shard.getter.when_ready(partial(self._call, partial(self._came, shard_id, shard)))
            # From here on the driver reads on; the executors' last iterator would lead back.
            shard.cursor = Cursor()
        shard.fetching_since = now
        shard.has_news = False
        self._under_way += 1
        self._fetchers.submit(self._fetch, shard_id, shard, shard.getter)

    def _came(self, shard_id: str, shard: DriverShard) -> None:
        """Read what was pushed: at once, or when the rest is over and no slice of the shard is out any more."""
        if self._shards.get(shard_id) is not shard:
            return
        shard.has_news = True
        shard.next_poll_at = min(shard.next_poll_at, max(self._consumer.now, self.rests_until))
        if _may_read(shard):
            self.look_again(shard_id)

    def reading_failed(self, shard_id: str, shard: DriverShard, error: Exception) -> float:
        """Decide what an error of reading means for its shard, wherever it was read. Gives how long that waits."""
        consumer = self._consumer
        reaction = consumer.reading_failed(shard_id, error)
        if reaction.action is Action.END_SHARD:
            self.trimmed(shard_id)
        elif reaction.action is Action.RETRY and isinstance(error, KinesisSpoutError):
            consumer.last_error = shard.error = error
            again_at = consumer.now + reaction.wait_seconds
            shard.next_poll_at = max(shard.next_poll_at, again_at)
            shard.read_at = max(shard.read_at, again_at)
        else:
            consumer.end_with(error)
        return reaction.wait_seconds

    def recovered(self, shard: DriverShard) -> None:
        """Note that a shard works again."""
        if shard.error is not None and self._consumer.last_error is shard.error:
            self._consumer.last_error = None
        shard.error = None

    def trimmed(self, shard_id: str) -> None:
        """End a shard that retention took away."""
        self._consumer.shard_trimmed(shard_id)

    def end_if_carried(self, shard_id: str, shard: DriverShard) -> None:
        """End a shard, for good or for this run, once its last page was carried away."""
        if shard.at_end and not shard.records:
            self._manager.end_read(shard_id)
        elif shard.at_bound and not shard.records:
            self._manager.reach_bound(shard_id)

    def close(self) -> None:
        """Wait for the polls under way and end the threads."""
        self._fetchers.shutdown(cancel_futures=True)

    def _fetch(self, shard_id: str, shard: DriverShard, getter: ShardGetter) -> None:
        """Runs on a fetching thread."""
        try:
            page = getter.read(self._settings.records_per_fetch)
        except Exception as error:  # noqa: BLE001 - sorted out on the engine's thread
            failure = error
            self._call(lambda: self._fetch_failed(shard_id, shard, getter, failure))
        else:
            self._call(lambda: self._fetched(shard_id, shard, getter, page))

    def _ended(self, shard_id: str, shard: DriverShard, getter: ShardGetter) -> bool:
        """Note that a fetch has ended; False if what it brought follows on nothing any more."""
        self._under_way -= 1
        if self._shards.get(shard_id) is not shard:
            return False
        if shard.getter is not getter:  # the page before it was dropped
            shard.fetching_since = None
            shard.next_poll_at = self._consumer.now
            self.look_again(shard_id)
            return False
        return True

    def _fetched(self, shard_id: str, shard: DriverShard, getter: ShardGetter, page: Page) -> None:
        if not self._ended(shard_id, shard, getter):
            return
        now, state = self._consumer.now, self._manager.shard(shard_id)
        seen_at = page.pushed_at or shard.fetching_since or now
        begun_at = self._consumer.ports.clock.time() - (now - seen_at)
        shard.take_in(page, None if state is None else state.bound)
        if not page.says_nothing:
            self._consumer.read_errors.worked(shard_id)
            self.recovered(shard)
        if page.records and self.arrived_at is None:
            self.arrived_at = now
        self._consumer.counters.bytes_read += page.size_bytes
        self._consumer.counters.damaged_aggregates += page.damaged_aggregates
        self._consumer.counters.records_outside_shard += page.records_outside_shard
        self._consumer.sharing.read_bytes[shard_id] += page.size_bytes
        full = (
            page.holds_at_least(self._settings.records_per_fetch)
            or page.millis_behind_latest > _BEHIND_MILLIS
        )
        full &= not page.at_end and not self._settings.driver_reads_all
        self._manager.page_fetched(shard_id, full=full)
        period = shard.poll_period(self._tick_seconds, self._settings.idle_poll_seconds)
        # A poll that began a little late must not cost the shard a tick: the getter waits for the read limits.
        earliest = getter.ready_at - ALLOWANCE * self._settings.poll_seconds
        # What was pushed and did not fit is there already, so nobody says that it has come.
        has_more = self._settings.driver_reads_all and page.holds_at_least(self._settings.records_per_fetch)
        if shard.has_news or has_more:
            shard.next_poll_at = now if has_more else max(now, self.rests_until)
        else:
            shard.next_poll_at = aligned(max(earliest, now), period)
        shard.read_at = getter.ready_at
        self._schedule.put(shard_id, shard.next_poll_at, period)
        self.end_if_carried(shard_id, shard)
        if not (
            page.records or shard.records or page.at_end or page.says_nothing or page.millis_behind_latest
        ):
            self._manager.ends_at_tip(shard_id, begun_at)

    def _fetch_failed(self, shard_id: str, shard: DriverShard, getter: ShardGetter, error: Exception) -> None:
        if not self._ended(shard_id, shard, getter):
            return
        shard.fetching_since = None
        shard.next_poll_at = max(getter.ready_at, self._consumer.now + self._settings.poll_seconds)
        self.reading_failed(shard_id, shard, error)
        self.look_again(shard_id)


def _may_read(shard: DriverShard) -> bool:
    return shard.is_idle or shard.reads_on(WORTH_A_JOB_BYTES)
