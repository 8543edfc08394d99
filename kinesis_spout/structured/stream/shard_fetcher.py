"""Reads one shard ahead of Spark, page by page, within the room of the buffer."""

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow.compute as pc

from kinesis_spout.kinesis import ArrowPage, FanOutShardGetter, PollingShardGetter, Prefetcher, ReadSettings
from kinesis_spout.kinesis.read.data_loss import lose_shard
from kinesis_spout.kinesis.read.shard_reader import Room, ShardReader
from kinesis_spout.kinesis.retry_policy import (
    OUTAGE_SECONDS,
    Action,
    Told,
    Work,
    reaction_to,
    read_again_at,
    tried_again,
)
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import DataLoss, KinesisSpoutError
from kinesis_spout.settings.grammar.shard_positions import MARGIN_SECONDS
from kinesis_spout.structured.pages.page_buffer import PageBuffer, ShardKey
from shard_state import Position, Shard

_LIVE_SECONDS: Final = 1.0
"""A shard no further behind counts as read live: fresh records of others do not wait for it."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class FetchCounters:
    """Counts over all fetchers of a query. Mutable; guarded by the reader's lock."""

    throttles: int = 0
    aggregates: int = 0
    damaged_aggregates: int = 0
    records_outside_shard: int = 0
    data_losses: int = 0


class ShardFetcher(ShardReader[ArrowPage]):
    """Mutable; guarded by ``changed``, which it notifies. ``until`` (epoch seconds) is a rough bound."""

    def __init__(
        self,
        shard: ShardKey,
        getter: PollingShardGetter | FanOutShardGetter,
        *,
        buffer: PageBuffer,
        prefetcher: Prefetcher,
        room: Room,
        changed: threading.Condition,
        counters: FetchCounters,
        settings: ReadSettings,
        periods: tuple[float, float],
        until: float | None,
        clock: Clock,
        found_children: Callable[[str, tuple[Shard, ...]], None],
        position: Position,
    ) -> None:
        super().__init__(prefetcher, room, lock=changed, clock=clock, periods=periods)
        self.shard = shard
        self._getter = getter
        self._buffer = buffer
        self._changed = changed
        self._counters = counters
        self._settings = settings
        self._until = until
        self._found_children = found_children
        self._throttles_seen = 0
        self._closed = False
        self.at_end = False
        """The closed shard's end was read."""
        self.has_all_until = False
        """Everything up to ``until`` was read, or nothing more will come."""
        self.millis_behind_latest: int | None = None
        self.failure: Exception | None = None
        """The error that ended reading; nothing more comes."""
        self.read_until = -math.inf if position.timestamp is None else position.timestamp
        """Later arrivals can be unread: seconds since the epoch."""
        self.since = position.since
        """When nothing had arrived yet of what follows the pages that were read; None: nobody knows."""
        self._is_behind = self._clock.time() - self.read_until > _LIVE_SECONDS
        self._failing_since: float | None = None
        self._told = Told(clock)
        self._is_given_up = False
        """Unreadable for so long that the others continue without it."""
        getter.when_ready(partial(prefetcher.hasten, self.fetch))

    @property
    def ready_at(self) -> float:
        return self._getter.ready_at

    @property
    def held_bytes(self) -> int:
        return self._buffer.bytes_of(self.shard)

    @property
    def is_waited_for(self) -> bool:
        """True if later arrivals of other shards wait for this one; not if it was unreadable for a minute."""
        if self.at_end or self.has_all_until or not self._is_behind:
            return False
        return not self._is_given_up

    def leave(self) -> None:
        self.has_all_until, self.failure = True, None

    def close(self) -> None:
        self._closed = True
        self._getter.close()

    def _wanted(self) -> int:
        if self._closed or self.at_end or self.has_all_until:
            return 0
        if not self._room.has_room(self):
            self._room.park(self)
            return 0
        return self._settings.max_records_per_fetch

    async def _read(self, limit: int) -> ArrowPage:
        return await self._getter.reading_arrow(limit)

    def _keep(self, page: ArrowPage, begun_at: float) -> float | None:
        rows = page.batch.num_rows
        if self._closed:
            return None
        self._count()
        if rows:
            self._buffer.append(self.shard, page.batch, page.size_bytes)
        self._counters.aggregates += page.aggregates
        self._counters.damaged_aggregates += page.damaged_aggregates
        self._counters.records_outside_shard += page.records_outside_shard
        self._counters.data_losses += page.data_losses
        self.since = page.since
        if not page.says_nothing:
            self.millis_behind_latest = page.millis_behind_latest
            self._note_reached(page)
            self.at_end = page.at_end
            self.has_all_until = not page.at_end and self._until is not None and _reaches(page, self._until)
            if page.at_end:
                self._found_children(self.shard[0], page.child_shards)
        has_ended = self.at_end or self.has_all_until
        if not self._room.under_way if self._room.is_gathering else rows or has_ended:
            self._changed.notify_all()
        if has_ended:
            return None
        has_more = page.millis_behind_latest > 0 and not page.says_nothing
        return self._read_again_at(begun_at, is_empty=not rows, has_more=has_more)

    def _note_reached(self, page: ArrowPage) -> None:
        behind_seconds = page.millis_behind_latest / 1000
        # A full page has more behind it, even if the endpoint does not say so.
        is_full = page.kinesis_records >= self._settings.max_records_per_fetch
        self._is_behind = is_full or behind_seconds > _LIVE_SECONDS
        self._failing_since = None
        self._told = Told(self._clock)
        self._is_given_up = False
        newest = _newest_arrival(page)
        if newest is not None:
            self.read_until = max(self.read_until, newest)
        elif page.kinesis_records == 0:
            # Everything that arrived earlier than that was read, if the two clocks agree.
            self.read_until = max(self.read_until, self._clock.time() - behind_seconds)

    def _failed(self, error: Exception) -> float | None:
        reaction = reaction_to(error, Work.QUERY)
        if reaction.action is Action.RETRY and isinstance(error, KinesisSpoutError):
            tried_again(error, self._told)
            self._count()
            self._note_failure()
            return read_again_at(self._clock.monotonic(), self.ready_at)
        if reaction.action is Action.END_SHARD and isinstance(error, KinesisSpoutError):
            self._is_gone(error)
        else:
            self.failure = error
        self._changed.notify_all()
        return None

    def _is_gone(self, error: KinesisSpoutError) -> None:
        try:
            self._counters.data_losses += lose_shard(
                *self.shard,
                self._getter.position,
                now=self._clock.time(),
                fail=self._settings.fail_on_data_loss,
                cause=error,
            )
        except DataLoss as loss:
            self.failure = loss
        else:
            self.at_end = True

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

    def _count(self) -> None:
        self._counters.throttles += self._getter.throttles - self._throttles_seen
        self._throttles_seen = self._getter.throttles


def _reaches(page: ArrowPage, until: float) -> bool:
    """Tell whether nothing that arrived before ``until`` follows the page.

    Arrival times and this clock are only roughly right. At the tip, which some emulators report too early,
    the page must have a record that came later, or nothing at all; elsewhere, one that came clearly later.
    """
    if page.kinesis_records == 0:
        return page.millis_behind_latest == 0
    arrival = _newest_arrival(page)
    if arrival is None:
        return False
    margin = 0.0 if page.millis_behind_latest == 0 else MARGIN_SECONDS
    return arrival > until + margin


def _newest_arrival(page: ArrowPage) -> float | None:
    """When the newest record arrived, in seconds since the epoch; None if no record has a time."""
    if not page.batch.num_rows:
        return None
    newest = pc.max(page.batch.column("approximateArrivalTimestamp")).as_py()
    return None if newest is None else float(newest.timestamp())
