"""One shard read forward, page by page, for any door.

A ``ShardReader`` asks a getter for a page when it is due and there is room, hands the page to its door, and
returns when to be called again. The getter knows whether Kinesis is polled or pushes. A ``Prefetcher`` has the
calls made; everything else is done under the door's lock, which is not held during a call.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, TypeVar

from kinesis_spout.kinesis.pace import idle_period
from kinesis_spout.kinesis.read.prefetcher import Prefetcher
from kinesis_spout.model.clock import Clock

PAGE_BYTES: Final = 10 * 1024 * 1024
"""AWS: the most bytes that one GetRecords returns."""

PageT = TypeVar("PageT")


class Room:
    """The room that the readers of one door share. Mutable; guarded by the door's lock.

    A shard is read while it holds less than its share: all have the same, at least ``least_share_bytes``. If
    the total held is known (``kept_bytes``), a page must fit in addition to that and to what the running
    reads may bring; a shard that holds nothing then always has its share. If not, a page may exceed the limit.
    """

    def __init__(
        self,
        max_bytes: Callable[[], int],
        kept_bytes: Callable[[], int] | None = None,
        *,
        least_share_bytes: int = 0,
    ) -> None:
        self._max_bytes = max_bytes
        self._kept_bytes = kept_bytes
        self._least_share_bytes = least_share_bytes
        self.sharers = 1
        self.under_way = 0
        self.is_gathering = False
        """The door has something to hand on, and waits only for the running reads to end."""
        self.parked: deque[ShardReader[Any]] = deque()
        """The readers that wait for room, in the order they came."""
        self.awaited: ShardReader[Any] | None = None
        """The one that all records at hand wait for. It may read a page although there is no room."""

    @property
    def share_bytes(self) -> int:
        return max(self._least_share_bytes, self._max_bytes() // max(1, self.sharers))

    def is_short(self) -> bool:
        """Return whether a reader waits for room that the end of the running reads will not make."""
        return any(not self.has_room(reader, under_way=0) for reader in self.parked)

    def read_awaited(self, reader: "ShardReader[Any] | None") -> None:
        """Read the shard that all records at hand wait for; None: there is none."""
        self.awaited = reader
        if reader is not None and reader in self.parked and self.has_room(reader):
            self.parked.remove(reader)
            reader.resume()

    def park(self, reader: "ShardReader[Any]") -> None:
        if reader not in self.parked:
            self.parked.append(reader)

    def read_ended(self) -> None:
        """Note the end of a read: what was reserved for it is free again."""
        self.under_way -= 1
        if self.parked:
            self.parked.popleft().resume()

    def resume_all(self) -> None:
        for _ in range(len(self.parked)):
            self.parked.popleft().resume()

    def has_room(self, reader: "ShardReader[Any]", *, under_way: int | None = None) -> bool:
        """Return whether a reader may read a page if so many reads are ``under_way``; None: as many as are."""
        held = reader.held_bytes
        if self._kept_bytes is None:
            return held < self.share_bytes
        if held == 0 and reader is self.awaited:
            return True
        reads = self.under_way if under_way is None else under_way
        free = self._max_bytes() - self._kept_bytes() - reads * PAGE_BYTES
        return free >= PAGE_BYTES and (held == 0 or held < self.share_bytes)


class ShardReader(ABC, Generic[PageT]):
    """Reads one shard for a door, which decides what is kept. Mutable; guarded by the door's lock.

    ``periods`` are the seconds between two reads of a shard at its tip: the shortest, and the longest after
    empty ones.
    """

    def __init__(
        self,
        prefetcher: Prefetcher,
        room: Room,
        *,
        lock: AbstractContextManager[Any],
        clock: Clock,
        periods: tuple[float, float],
    ) -> None:
        self._prefetcher = prefetcher
        self._room = room
        self._lock = lock
        self._clock = clock
        self._periods = periods
        self._empty_reads = 0
        self.reading_since: float | None = None
        """When the read under way began; monotonic."""

    async def fetch(self) -> float | None:
        """Read a page, if the door wants one now; see ``prefetcher.Fetch``."""
        with self._lock:
            try:
                limit = self._wanted()
            except Exception as error:  # noqa: BLE001 - not hidden: the door decides what it means
                return self._failed(error)
            if not limit:
                return None
            self._room.under_way += 1
            self.reading_since = begun_at = self._clock.monotonic()
        try:
            page = await self._read(limit)
        except Exception as error:  # noqa: BLE001 - as above
            with self._lock:
                self.reading_since = None
                self._room.read_ended()
                return self._failed(error)
        with self._lock:
            self.reading_since = None
            self._room.read_ended()
            try:
                return self._keep(page, begun_at)
            except Exception as error:  # noqa: BLE001 - as above
                return self._failed(error)

    def resume(self) -> None:
        self._prefetcher.submit(self.fetch, self.ready_at)

    @property
    @abstractmethod
    def ready_at(self) -> float:
        """The monotonic time from which the shard's limits allow a read."""

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """The bytes kept of the shard."""

    @abstractmethod
    def _wanted(self) -> int:
        """Return the next page's most records; 0: none now, and something will resume the reader."""

    @abstractmethod
    async def _read(self, limit: int) -> PageT:
        """Ask the getter. Not under the lock."""

    @abstractmethod
    def _keep(self, page: PageT, begun_at: float) -> float | None:
        """Keep the page of a read that began at ``begun_at``. Returns when to read again; see ``Fetch``."""

    @abstractmethod
    def _failed(self, error: Exception) -> float | None:
        """Decide what an error means. Returns when to read again; see ``Fetch``."""

    def _read_again_at(self, begun_at: float, *, is_empty: bool, has_more: bool) -> float:
        """Return when to read again after a page: no sooner than there may be something new."""
        self._empty_reads = self._empty_reads + 1 if is_empty else 0
        pause = 0.0 if has_more else idle_period(self._empty_reads, *self._periods)
        return max(self.ready_at, begun_at + pause)
