"""One shard read forward, page by page: what every door does with its shards.

A ``ShardReader`` asks a getter for a page when it is due and there is room, hands the page to its door, and says
when it is to be asked again. Whether Kinesis is polled or pushes is the getter's matter. The calls are made on the
threads of a ``Prefetcher``; everything else is done under the door's lock.
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
"""AWS: the most that one GetRecords gives."""

PageT = TypeVar("PageT")


class Room:
    """How much the readers of one door may keep. Mutable; guarded by the door's lock.

    A shard is read while it holds less than its share: all have the same, and no less than ``least_share_bytes``.
    Where it is known what all hold together (``kept_bytes``), a page must fit beside that and what the reads under
    way may bring; a shard that holds nothing then always has its share. Where it is not, a page may go beyond.
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
        """How many shards there are."""
        self.under_way = 0
        """Reads."""
        self.is_gathering = False
        """The door has something to hand on, and waits only for the reads under way to end."""
        self.parked: deque[ShardReader[Any]] = deque()
        """The readers that wait for room, in the order they came."""
        self.awaited: ShardReader[Any] | None = None
        """The one that all records at hand wait for. It may read a page although there is no room."""

    @property
    def max_bytes(self) -> int:
        return self._max_bytes()

    @property
    def share_bytes(self) -> int:
        """What each shard may hold before it is read no more."""
        return max(self._least_share_bytes, self._max_bytes() // max(1, self.sharers))

    def has_room(self, reader: "ShardReader[Any]") -> bool:
        return self._has_room(reader, self.under_way)

    def is_short(self) -> bool:
        """Tell whether a reader waits for room that the end of the reads under way will not make."""
        return any(not self._has_room(reader, 0) for reader in self.parked)

    def read_awaited(self, reader: "ShardReader[Any] | None") -> None:
        """Have a shard read that all records at hand wait for; None: there is none."""
        self.awaited = reader
        if reader is not None and reader in self.parked and self.has_room(reader):
            self.parked.remove(reader)
            reader.resume()

    def park(self, reader: "ShardReader[Any]") -> None:
        if reader not in self.parked:
            self.parked.append(reader)

    def read_ended(self) -> None:
        """Note that a read is over: what was set aside for it is free again."""
        self.under_way -= 1
        if self.parked:
            self.parked.popleft().resume()

    def resume_all(self) -> None:
        for _ in range(len(self.parked)):
            self.parked.popleft().resume()

    def _has_room(self, reader: "ShardReader[Any]", under_way: int) -> bool:
        held = reader.held_bytes
        if self._kept_bytes is None:
            return held < self.share_bytes
        if held == 0 and reader is self.awaited:
            return True
        free = self._max_bytes() - self._kept_bytes() - under_way * PAGE_BYTES
        return free >= PAGE_BYTES and (held == 0 or held < self.share_bytes)


class ShardReader(ABC, Generic[PageT]):
    """Reads one shard for a door, which says what is kept. Mutable; guarded by the door's lock.

    ``periods`` are the seconds between two reads of a shard at its tip: while records come, and at most, while
    none come.
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

    def fetch(self) -> float | None:
        """Read a page, if the door wants one now; see ``prefetcher.Fetch``. Runs on a thread of the prefetcher."""
        with self._lock:
            try:
                limit = self._wanted()
            except Exception as error:  # noqa: BLE001 - not hidden: the door decides what it means
                return self._failed(error)
            if not limit:
                return None
            self._room.under_way += 1
        begun_at = self._clock.monotonic()
        try:
            page = self._read(limit)
        except Exception as error:  # noqa: BLE001 - as above
            with self._lock:
                self._room.read_ended()
                return self._failed(error)
        with self._lock:
            self._room.read_ended()
            try:
                return self._keep(page, begun_at)
            except Exception as error:  # noqa: BLE001 - as above
                return self._failed(error)

    def resume(self) -> None:
        """Go on: there may be room, or something to read."""
        self._prefetcher.submit(self.fetch, self.ready_at)

    @property
    @abstractmethod
    def ready_at(self) -> float:
        """When the shard may be read next, by its limits; monotonic."""

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """What is kept of the shard."""

    @abstractmethod
    def _wanted(self) -> int:
        """Say how many records the next page may have; 0: none now, and something will have the reader go on."""

    @abstractmethod
    def _read(self, limit: int) -> PageT:
        """Ask the getter. Not under the lock."""

    @abstractmethod
    def _keep(self, page: PageT, begun_at: float) -> float | None:
        """Keep what a read that began at ``begun_at`` has brought. Gives when to read again; see ``Fetch``."""

    @abstractmethod
    def _failed(self, error: Exception) -> float | None:
        """Decide what an error means. Gives when to read again; see ``Fetch``."""

    def _read_again_at(self, begun_at: float, *, is_empty: bool, has_more: bool) -> float:
        """Say when to read again after a page: no sooner than there may be something new."""
        self._empty_reads = self._empty_reads + 1 if is_empty else 0
        pause = 0.0 if has_more else idle_period(self._empty_reads, *self._periods)
        return max(self.ready_at, begun_at + pause)
