"""Reads one shard ahead of Spark, page by page, within what the buffer has room for."""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow.compute as pc

from kinesis_spout.kinesis import ArrowPage, FanOutShardGetter, PollingShardGetter, ReadSettings
from kinesis_spout.kinesis.pace import idle_period
from kinesis_spout.kinesis.patience import (
    OUTAGE_SECONDS,
    Action,
    Work,
    reaction_to,
    read_again_at,
    tried_again,
)
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.settings.grammar.shard_positions import MARGIN_SECONDS
from kinesis_spout.structured.data_loss import lose
from kinesis_spout.structured.pages.page_buffer import PageBuffer, ShardKey
from shard_state import Position, Shard

PAGE_BYTES: Final = 10 * 1024 * 1024
"""AWS: the most that one GetRecords gives. So much is set aside for every read under way."""

_LIVE_SECONDS: Final = 1.0
"""A shard no further behind its tip is read as it is written: fresh records of the others do not wait for it."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class FetchCounters:
    """What the fetchers of a query did so far. Mutable; guarded by the reader's lock."""

    records: int = 0
    bytes: int = 0
    throttles: int = 0
    data_losses: int = 0
    aggregates: int = 0
    damaged_aggregates: int = 0
    records_outside_shard: int = 0


@dataclass(slots=True, kw_only=True)
class FetchRoom:
    """How much may be fetched ahead. Mutable; guarded by the reader's lock."""

    buffer: PageBuffer
    max_bytes: int
    resume: "Callable[[ShardFetcher], None]"
    """Has a fetcher that waited for room go on."""
    under_way: int = 0
    """Reads."""
    parked: "deque[ShardFetcher]" = field(default_factory=deque)
    """The fetchers that wait for room, in the order they came."""
    sharers: int = 0
    """How many shards share the room."""
    is_gathering: bool = False
    """The reader has records for a batch, and waits only for the reads under way to end."""
    awaited: ShardKey | None = None
    """The shard that all records at hand wait for. It may read a page although there is no room."""

    def has_room(self, shard: ShardKey) -> bool:
        """Tell whether a page of the shard may be read now: there is room, and it has no more than its share."""
        return self._has_room(shard, self.under_way)

    def read_awaited(self, shard: ShardKey | None) -> None:
        """Have a shard read that all records at hand wait for; None: there is none."""
        self.awaited = shard
        for fetcher in self.parked:
            if fetcher.shard == shard and self.has_room(shard):
                self.parked.remove(fetcher)
                self.resume(fetcher)
                return

    def is_short(self) -> bool:
        """Tell whether somebody waits for room that only a batch makes, however the reads under way end."""
        return any(not self._has_room(fetcher.shard, 0) for fetcher in self.parked)

    def _has_room(self, shard: ShardKey, under_way: int) -> bool:
        free = self.max_bytes - self.buffer.size_bytes - under_way * PAGE_BYTES
        share = self.max_bytes // max(1, self.sharers)
        held = self.buffer.bytes_of(shard)
        if held == 0 and shard == self.awaited:
            return True
        return free >= PAGE_BYTES and (held == 0 or held < share)

    def read_ended(self) -> None:
        """Note that a read is over: what was set aside for it is free again."""
        self.under_way -= 1
        if self.parked:
            self.resume(self.parked.popleft())

    def resume_all(self) -> None:
        """Have everybody look whether there is room now."""
        for _ in range(len(self.parked)):
            self.resume(self.parked.popleft())


class ShardFetcher:
    """Reads one shard forward. Mutable; its state is guarded by ``changed``, on which it tells what is new.

    Args:
        shard: which.
        getter: where it stands.
        room: shared with the other shards.
        changed: the reader's lock and signal.
        counters: shared with the other shards.
        settings: how it is read.
        idle_period_seconds: between two reads of a shard at its tip, while no records come.
        until: for a query that ends with what is available: seconds since the epoch. What arrived later is not
            read, roughly; None reads on for ever.
        position: where the getter stands.
    """

    def __init__(
        self,
        shard: ShardKey,
        getter: PollingShardGetter | FanOutShardGetter,
        *,
        room: FetchRoom,
        changed: threading.Condition,
        counters: FetchCounters,
        settings: ReadSettings,
        idle_period_seconds: float,
        until: float | None,
        clock: Clock,
        found_children: Callable[[str, tuple[Shard, ...]], None],
        position: Position,
    ) -> None:
        self.shard = shard
        self.getter = getter
        self._room = room
        self._changed = changed
        self._counters = counters
        self._settings = settings
        self._periods = settings.fetch_period_seconds, idle_period_seconds
        self._until = until
        self._clock = clock
        self._found_children = found_children
        self._empty_reads = 0
        self._throttles_seen = 0
        self._losses_seen = 0
        self._closed = False
        self.at_end = False
        """The closed shard's end was read."""
        self.has_all_until = False
        """Everything up to ``until`` was read, or there will be nothing more."""
        self.millis_behind_latest: int | None = None
        self.failure: Exception | None = None
        """What reading ended with; nothing more comes."""
        self.read_until = -math.inf if position.timestamp is None else position.timestamp
        """What arrived later may be unread: seconds since the epoch."""
        self._is_behind = self._clock.time() - self.read_until > _LIVE_SECONDS
        self._failing_since: float | None = None
        self._is_given_up = False
        """It could not be read for so long that the others go on."""

    @property
    def is_waited_for(self) -> bool:
        """Whether records of other shards that arrived after ``read_until`` wait until this one is read further.

        So it is while more is known to be waiting in it, but for a shard that could not be read for a minute.
        """
        if self.at_end or self.has_all_until or not self._is_behind:
            return False
        return not self._is_given_up

    def leave(self) -> None:
        """Read no more, because the stream is gone; what was read stays."""
        self.has_all_until, self.failure = True, None

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        self.getter.close()

    def fetch(self) -> float | None:
        """Read a page; runs on a thread of the prefetcher. See ``prefetcher.Fetch``."""
        with self._changed:
            if self._closed or self.at_end or self.has_all_until:
                return None
            if not self._room.has_room(self.shard):
                self._room.parked.append(self)
                return None
            self._room.under_way += 1
        started = self._clock.monotonic()
        try:
            page = self.getter.read_arrow(self._settings.max_records_per_fetch)
        except KinesisSpoutError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - not hidden: the reader raises it
            self._ended_with(error)
            return None
        with self._changed:
            self._room.read_ended()
            try:
                return self._keep(page, started)
            except Exception as error:  # noqa: BLE001 - not hidden: the reader raises it
                self.failure = error
                self._changed.notify_all()
                return None

    def _keep(self, page: ArrowPage, started: float) -> float | None:
        """Keep a page, and say when to read the next one. The lock is held."""
        rows = page.batch.num_rows
        if self._closed:
            return None
        self._count()
        if rows:
            self._room.buffer.append(self.shard, page.batch, page.size_bytes)
            self._counters.records += rows
            self._counters.bytes += page.size_bytes
        self._counters.aggregates += page.aggregates
        self._counters.damaged_aggregates += page.damaged_aggregates
        self._counters.records_outside_shard += page.records_outside_shard
        self._empty_reads = 0 if rows else self._empty_reads + 1
        if page.says_nothing:
            if self._room.is_gathering and not self._room.under_way:
                self._changed.notify_all()
            return max(self.getter.ready_at, started + self._period())
        self.millis_behind_latest = page.millis_behind_latest
        self._note_reached(page)
        self.at_end = page.at_end
        self.has_all_until = not page.at_end and self._until is not None and _reaches(page, self._until)
        if page.at_end:
            self._found_children(self.shard[0], page.child_shards)
        news = rows or page.at_end or self.has_all_until
        if not self._room.under_way if self._room.is_gathering else news:
            self._changed.notify_all()
        if page.at_end or self.has_all_until:
            return None
        # No sooner than there may be something new.
        behind = page.millis_behind_latest > 0
        return max(self.getter.ready_at, started + (0.0 if behind else self._period()))

    def _note_reached(self, page: ArrowPage) -> None:
        behind_seconds = page.millis_behind_latest / 1000
        # A full page has more behind it, also where the endpoint does not say so.
        is_full = page.kinesis_records >= self._settings.max_records_per_fetch
        self._is_behind = is_full or behind_seconds > _LIVE_SECONDS
        self._failing_since = None
        self._is_given_up = False
        newest = _newest_arrival(page)
        if newest is not None:
            self.read_until = max(self.read_until, newest)
        elif page.kinesis_records == 0:
            # Nothing is there until so long before now, as far as the two clocks agree.
            self.read_until = max(self.read_until, self._clock.time() - behind_seconds)

    def _period(self) -> float:
        return idle_period(self._empty_reads, *self._periods)

    def _failed(self, error: KinesisSpoutError) -> float | None:
        reaction = reaction_to(error, Work.QUERY)
        if reaction.action is Action.END_SHARD and not self._settings.fail_on_data_loss:
            lose(str(error), fail=False)
            with self._changed:
                self._room.read_ended()
                self._counters.data_losses += 1
                self.at_end = True
                self._changed.notify_all()
            return None
        if reaction.action is not Action.RETRY:
            self._ended_with(error)
            return None
        tried_again(error)
        with self._changed:
            self._room.read_ended()
            self._count()
            self._note_failure()
        return read_again_at(self._clock.monotonic(), self.getter.ready_at)

    def _note_failure(self) -> None:
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since >= OUTAGE_SECONDS and not self._is_given_up:
            self._is_given_up = True
            _log.warning(
                "%s could not be read for %g s: the other shards wait for it no longer. Its records come late, "
                "and a watermark may drop them",
                self.shard[1],
                OUTAGE_SECONDS,
            )

    def _ended_with(self, error: Exception) -> None:
        with self._changed:
            self._room.read_ended()
            self.failure = error
            self._changed.notify_all()

    def _count(self) -> None:
        self._counters.throttles += self.getter.throttles - self._throttles_seen
        self._counters.data_losses += self.getter.data_losses - self._losses_seen
        self._throttles_seen, self._losses_seen = self.getter.throttles, self.getter.data_losses


def _reaches(page: ArrowPage, until: float) -> bool:
    """Tell whether nothing that arrived before ``until`` follows the page.

    Arrival times and this clock are only nearly right, so at the tip (of which some emulators speak too early)
    a record that came later has to be seen, or nothing at all; away from it, one that came clearly later.
    """
    if page.kinesis_records == 0:
        return page.millis_behind_latest == 0
    arrival = _newest_arrival(page)
    if arrival is None:
        return False
    margin = 0.0 if page.millis_behind_latest == 0 else MARGIN_SECONDS
    return arrival > until + margin


def _newest_arrival(page: ArrowPage) -> float | None:
    """Tell when the newest record arrived, in seconds since the epoch; None if no record says it."""
    newest = pc.max(page.batch.column("approximateArrivalTimestamp")).as_py()
    return None if newest is None else float(newest.timestamp())
