"""The shards that a query reads ahead: one fetcher each, from where the query stands, into one buffer."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import random
from typing import TYPE_CHECKING, Final

from kinesis_spout.kinesis import Prefetcher, ShardGetters
from kinesis_spout.kinesis.pace import ByteBudget, Pacing
from kinesis_spout.kinesis.read.shard_reader import Room
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.model.clock import Clock
from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.structured.offsets import QueryOffset, ShardOffset
from kinesis_spout.structured.pages.page_buffer import PageBuffer, ShardKey
from kinesis_spout.structured.stream.planning import EVERYTHING, read_up_to
from kinesis_spout.structured.stream.shard_fetcher import FetchCounters, ShardFetcher
from kinesis_spout.structured.stream.stream_shards import StreamShards
from shard_state import SequenceNumber, Shard

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


_LOG_SINCE_SECONDS: Final = 6 * 3600.0
"""A quarter of the shortest retention."""


class FetchedShards:
    """Mutable; guarded by ``changed``, which the caller holds. ``until`` (epoch seconds) bounds a query."""

    def __init__(
        self,
        options: StreamReadOptions,
        *,
        client: "KinesisClient",
        prefetcher: Prefetcher,
        shards_of: Callable[[str], StreamShards],
        changed: threading.Condition,
        until: float | None,
        clock: Clock,
    ) -> None:
        self._options = options
        self._client = client
        self._prefetcher = prefetcher
        self._shards_of = shards_of
        self._changed = changed
        self._until = until
        self._clock = clock
        self.buffer = PageBuffer()
        self.counters = FetchCounters()
        self.room = Room(lambda: options.max_buffered_bytes, lambda: self.buffer.size_bytes)
        self._budget = ByteBudget(options.read.max_total_fetch_bytes_per_second)
        self._fetchers: dict[ShardKey, ShardFetcher] = {}
        self._freed: dict[ShardKey, SequenceNumber] = {}
        self._getters: dict[str, ShardGetters] = {}
        """By stream."""
        self._left: list[ShardGetters] = []
        """Those of streams that are gone."""

    def follow(self, readable: Mapping[ShardKey, ShardOffset]) -> None:
        """Read these shards and no others, each from where it stands; free what is before that."""
        for key in self._fetchers.keys() - readable.keys():
            self._close(key)
        for key, shard in readable.items():
            self._go_on(key, shard)
        self.room.sharers = len(self._fetchers)
        self.room.resume_all()

    @property
    def has_news(self) -> bool:
        # Done pages were freed, so whatever is in the buffer is new.
        return self.buffer.size_bytes > 0 or any(fetcher.at_end for fetcher in self._fetchers.values())

    @property
    def has_all_until(self) -> bool:
        return all(fetcher.at_end or fetcher.has_all_until for fetcher in self._fetchers.values())

    def at_end(self) -> dict[ShardKey, bool]:
        """The shards that are read; True where the buffer has everything up to the shard's end."""
        return {key: fetcher.at_end for key, fetcher in self._fetchers.items()}

    def since(self) -> dict[ShardKey, float | None]:
        """Return, by shard, when nothing had arrived yet of what the fetcher has not read (epoch seconds)."""
        return {key: fetcher.since for key, fetcher in self._fetchers.items()}

    def is_newer_than(self, start: QueryOffset) -> bool:
        """Tell whether Spark should log an idle shard's ``since``, without records, before its log is too old."""
        for (name, shard_id), fetcher in self._fetchers.items():
            logged = start.streams[name].shards[shard_id].position.since
            if logged is not None and (fetcher.since or logged) > logged + _LOG_SINCE_SECONDS:
                return True
        return False

    def behind(self) -> list[int]:
        """Milliseconds by shard: the last read's lag or the oldest unfinished record's age, the larger."""
        now = self._clock.time()
        behind: list[int] = []
        for key, fetcher in self._fetchers.items():
            if fetcher.millis_behind_latest is None:
                continue
            oldest = self.buffer.oldest_arrival(key, self._freed.get(key))
            age_millis = 0 if oldest is None else round(now * 1000 - oldest / 1000)
            behind.append(max(fetcher.millis_behind_latest, age_millis))
        return behind

    def await_furthest_behind(self) -> int:
        """Up to which arrival records may be handed out, in microseconds since the epoch.

        Later ones wait, because another shard can have unread ones that arrived earlier (invariant 18). That
        shard is read even without room.
        """
        behind = [fetcher for fetcher in self._fetchers.values() if fetcher.is_waited_for]
        furthest = min(behind, key=lambda fetcher: fetcher.read_until, default=None)
        self.room.read_awaited(furthest)
        if furthest is None:
            return EVERYTHING
        if math.isinf(furthest.read_until):
            return 0
        return round((furthest.read_until + self._options.max_arrival_skew_seconds) * 1_000_000)

    def late_seconds(self) -> float:
        """Return by how much the buffered records are late at least; 0 if waiting for more of them is useless."""
        if any(fetcher.at_end for fetcher in self._fetchers.values()):
            return 0.0  # children wait for the batch
        parked = set(self.room.parked)
        reading = {key: fetcher for key, fetcher in self._fetchers.items() if not fetcher.has_all_until}
        if not any(fetcher.millis_behind_latest and fetcher not in parked for fetcher in reading.values()):
            return 0.0  # a shard with more waits for room
        late = (
            fetcher.millis_behind_latest or 0 for key, fetcher in reading.items() if self.buffer.bytes_of(key)
        )
        return min(late, default=0) / 1000

    def failures(self) -> Iterator[tuple[str, Exception]]:
        return ((key[0], each.failure) for key, each in self._fetchers.items() if each.failure is not None)

    def leave(self, stream: str) -> bool:
        """Stop reading a stream that is gone; what was read stays. True if all of that is done."""
        keys = [key for key in self._fetchers if key[0] == stream]
        for key in keys:
            self._fetchers[key].leave()
        if stream in self._getters:
            self._left.append(self._getters.pop(stream))
        return not any(self.buffer.bytes_of(key) for key in keys)

    def close(self) -> None:
        for key in list(self._fetchers):
            self._close(key)

    def close_subscriptions(self) -> None:
        """End the threads that read subscriptions. Not under the lock: one can be about to report records."""
        for getters in (*self._getters.values(), *self._left):
            getters.close()

    def _go_on(self, key: ShardKey, shard: ShardOffset) -> None:
        """Free what is done of a shard; start its fetcher, or restart it to go back."""
        last = read_up_to(shard.position)
        freed = self._freed.get(key)
        if key in self._fetchers and freed is not None and (last is None or last < freed):
            self._close(key)  # back to what is not here any more
        if key not in self._fetchers:
            self._fetchers[key] = self._open(key, shard)
            self._fetchers[key].resume()
        if last is not None:
            self.buffer.free(key, last)
            self._freed[key] = last

    def _open(self, key: ShardKey, shard: ShardOffset) -> ShardFetcher:
        stream, shard_id = key
        options = self._options
        listed = self._shards_of(stream).listed.get(shard_id)
        getter = self._getters_of(stream).open(
            shard_id,
            shard.position,
            hash_keys=None if listed is None else HashKeys.to_check(listed),
            pacing=Pacing(
                ready_at=self._clock.monotonic(), jitter=random, pace=options.read.pace, budget=self._budget
            ),
        )
        return ShardFetcher(
            key,
            getter,
            buffer=self.buffer,
            prefetcher=self._prefetcher,
            room=self.room,
            changed=self._changed,
            counters=self.counters,
            settings=options.read,
            periods=(options.read.fetch_period_seconds, options.idle_fetch_period_seconds),
            until=self._until,
            clock=self._clock,
            found_children=self._found_children,
            position=shard.position,
        )

    def _getters_of(self, stream: str) -> ShardGetters:
        if stream not in self._getters:
            self._getters[stream] = ShardGetters(
                self._client,
                stream,
                self._options.read,
                lister=self._shards_of(stream),
                clock=self._clock,
            )
        return self._getters[stream]

    def _found_children(self, stream: str, children: Sequence[Shard]) -> None:
        if self._until is None:  # what was born after the query began is left to the next one
            self._shards_of(stream).found(children)

    def _close(self, key: ShardKey) -> None:
        self._fetchers.pop(key).close()
        self.buffer.drop_shard(key)
        self._freed.pop(key, None)
