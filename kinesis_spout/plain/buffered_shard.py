"""Fetches a shard's records ahead, so that asking for the next one never waits for the network."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.kinesis.read.read_settings import MAX_RECORDS
from kinesis_spout.kinesis.read.shard_reader import Room, ShardReader
from kinesis_spout.kinesis.retry_policy import Action, Reaction, reaction_to, read_again_at
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError, SpoutClosed
from kinesis_spout.model.record import Record, sizes_of
from kinesis_spout.ports import Page, ShardGetter
from shard_state import SequenceNumber


class BufferedShard(ShardReader[Page]):
    """Keeps one shard's next records at hand. Mutable; guarded by the door's lock, which its methods take.

    Fetching stops when the buffer is full, and starts again when half of it was consumed. It retries in the
    background, for ever, the errors that ``react`` wants retried; they show in ``last_error``. ``poll``
    raises any other error after the records fetched before it, and every later ``poll`` raises it, too.

    Args:
        getter: where the pages come from; this object owns it from now on.
        max_records: no page is fetched while so many are at hand. The last page exceeds it only if one
            Kinesis record held more user records than those of the page before.
        react: says what an error means; called under the lock, once for each error.
        worked: called for the first page, and for the first one after errors; under the lock.
        took: called for each page that says something; under the lock.
        came: called when ``poll`` may have something new: records, the shard's end, or an error; under the lock.
    """

    def __init__(
        self,
        getter: ShardGetter,
        prefetcher: Prefetcher,
        room: Room,
        *,
        lock: AbstractContextManager[Any],
        clock: Clock,
        periods: tuple[float, float] = (1.0, 1.0),
        max_records: int = MAX_RECORDS,
        react: Callable[[Exception], Reaction] = reaction_to,
        worked: Callable[[], None] = lambda: None,
        took: Callable[[Page], None] = lambda _: None,
        came: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(prefetcher, room, lock=lock, clock=clock, periods=periods)
        self._getter = getter
        self._max_records = max_records
        self._react = react
        self._worked = worked
        self._took = took
        self._came = came
        self._records: deque[tuple[Record, int]] = deque()
        """With the ``size_bytes`` of each."""
        self._bytes = 0
        self._records_in_one = 1
        """The most user records in one record of Kinesis, on the page before."""
        self._is_parked = False
        self._closed = False
        self._last_page: Page | None = None
        self._failure: Exception | None = None
        self.last_error: KinesisSpoutError | None = None
        """The retriable error that is being tried again; None once a try succeeded."""
        self.millis_behind_latest: int | None = None
        """The distance of the last page from the tip; None before the first."""
        self._tip_seen_at: float | None = None
        getter.when_ready(partial(prefetcher.hasten, self.fetch))
        self.resume()

    @property
    def ready_at(self) -> float:
        return self._getter.ready_at

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def poll(self) -> tuple[Record, int] | None:
        """Take the next record, and its ``size_bytes``; None if none is at hand now. Under the lock.

        Raises:
            SpoutClosed: after ``close``.
            DataLoss, ShardNotFound, StreamNotFound: see ``ShardGetter.read``; any error that ``react`` does
                not retry.
        """
        if not self._records:
            if self._closed:
                raise SpoutClosed("expected an open getter, got one that was closed; open the shard again")
            if self._failure is not None:
                raise self._failure
            return None
        _, size_bytes = polled = self._records.popleft()
        self._bytes -= size_bytes
        if self._is_parked and self._is_half_empty():
            self._is_parked = False
            self.resume()
        return polled

    def ahead(self, most: int) -> tuple[SequenceNumber, SequenceNumber] | None:
        """The next record and the last of the next ``most`` that are at hand; None if there is none."""
        with self._lock:
            if not self._records:
                return None
            last, _ = self._records[min(most, len(self._records)) - 1]
            return self._records[0][0].sequence, last.sequence

    @property
    def at_end(self) -> bool:
        """True if the closed shard's last page was fetched, and every record of it polled."""
        with self._lock:
            return self._last_page is not None and not self._records

    @property
    def tip_seen_at(self) -> float | None:
        """Epoch seconds when the last read that found only the tip began; None while records are at hand."""
        with self._lock:
            return None if self._records else self._tip_seen_at

    @property
    def failed(self) -> bool:
        """True if fetching ended with an error, which ``poll`` raises after the records before it."""
        return self._failure is not None

    @property
    def waits(self) -> bool:
        """True if ``poll`` returns None, and will until ``came`` is called. Under the lock."""
        return not (self._records or self._closed or self._failure is not None or self._last_page is not None)

    @property
    def has_records(self) -> bool:
        """True if records are at hand. Under the lock."""
        return bool(self._records)

    @property
    def buffered(self) -> tuple[int, int]:
        with self._lock:
            return len(self._records), self._bytes

    def close(self) -> None:
        """Fetch no more and forget what is at hand. May be called twice."""
        with self._lock:
            self._closed = True
            self._records.clear()
            self._bytes = 0
        self._getter.close()

    def _wanted(self) -> int:
        room = self._max_records - len(self._records)
        self._is_parked = not self._closed and (room <= 0 or not self._room.has_room(self))
        if self._closed or self._is_parked:
            return 0
        return min(MAX_RECORDS, max(1, room // self._records_in_one))

    async def _read(self, limit: int) -> Page:
        return await self._prefetcher.page(self._getter, limit)

    def _keep(self, page: Page, begun_at: float) -> float | None:
        if self._closed:
            return None
        if not page.says_nothing:
            if self.last_error is not None or self.millis_behind_latest is None:
                self._worked()
            self.last_error = None
            self.millis_behind_latest = page.millis_behind_latest
            self._took(page)
        sizes = sizes_of(page.records)
        self._records.extend(zip(page.records, sizes, strict=True))
        self._records_in_one = max(1, len(page.records) // (page.kinesis_records or MAX_RECORDS))
        self._bytes += sum(sizes)
        if page.records or page.at_end:
            self._came()
        if page.at_end:
            self._last_page = page
            return None
        has_more = not page.says_nothing and bool(page.records or page.millis_behind_latest)
        if not (has_more or page.says_nothing):
            seen_at = begun_at if page.pushed_at is None else page.pushed_at
            self._tip_seen_at = self._clock.time() - (self._clock.monotonic() - seen_at)
        return self._read_again_at(begun_at, is_empty=not has_more, has_more=has_more)

    def _failed(self, error: Exception) -> float | None:
        reaction = self._react(error)
        if reaction.action is not Action.RETRY or not isinstance(error, KinesisSpoutError):
            self._failure = error
            self._came()
            return None
        self.last_error = error
        return read_again_at(self._clock.monotonic(), self.ready_at)

    def _is_half_empty(self) -> bool:
        few = len(self._records) <= self._max_records // 2
        return few and self._bytes <= self._room.share_bytes // 2
