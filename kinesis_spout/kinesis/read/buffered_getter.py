"""A shard's pages fetched ahead, so that asking for the next record never waits for the network."""

import threading
from collections import deque
from collections.abc import Callable

from kinesis_spout.kinesis.pace import idle_period
from kinesis_spout.kinesis.patience import Action, Reaction, reaction_to, read_again_at
from kinesis_spout.kinesis.read.prefetcher import Prefetcher
from kinesis_spout.kinesis.read.read_settings import MAX_RECORDS
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import KinesisSpoutError, SpoutClosed
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, ShardGetter
from shard_state import SequenceNumber, Shard


class BufferedShardGetter:
    """Keeps one shard's next records at hand. Mutable; ``poll`` is one thread's, the fetching another's.

    Fetching goes on while the buffer has room, and starts again when half of it was consumed. What ``react``
    wants to be retried is tried again behind the scenes, for ever, visible in ``last_error`` and ``retries``. Any
    other error is raised by ``poll``, after the records fetched before it, and by every ``poll`` from then on.

    Args:
        getter: from where the pages come; it belongs to this object from now on.
        prefetcher: whose threads fetch them; shared by many shards.
        max_records: no page is fetched while so many are at hand. The last one may exceed it only if a record of
            Kinesis held more user records than those of the page before.
        max_bytes: no page is fetched while this much is at hand; the last one may exceed it.
        poll_seconds: how long to leave a shard alone that had nothing and is at its tip.
        idle_poll_seconds: how long at most, once nothing has come for some polls.
        clock: the one of getter and prefetcher.
        react: says what an error means; called on a fetching thread, once for each error.
        worked: told of the first page, and of the first one after errors; on a fetching thread.
        odd: told of every page with damaged aggregates or records from outside the shard; on a fetching thread.
    """

    def __init__(
        self,
        getter: ShardGetter,
        prefetcher: Prefetcher,
        *,
        max_records: int = 10_000,
        max_bytes: int = 16 * 1024 * 1024,
        poll_seconds: float = 1.0,
        idle_poll_seconds: float = 1.0,
        clock: Clock | None = None,
        react: Callable[[Exception], Reaction] = reaction_to,
        worked: Callable[[], None] = lambda: None,
        odd: Callable[[Page], None] = lambda _: None,
    ) -> None:
        self._getter = getter
        self._prefetcher = prefetcher
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._poll_seconds = poll_seconds
        self._idle_poll_seconds = idle_poll_seconds
        self._empty_polls = 0
        self._clock = clock or SystemClock()
        self._react = react
        self._worked = worked
        self._odd = odd
        self._lock = threading.Lock()
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._records_in_one = 1
        """How many user records a record of Kinesis held, on the page before."""
        self._parked = False
        self._closed = False
        self._last_page: Page | None = None
        self._failure: Exception | None = None
        self.last_error: KinesisSpoutError | None = None
        """The retriable error that is being tried again; None once a try succeeded."""
        self.retries = 0
        self.millis_behind_latest: int | None = None
        """Of the last page fetched; None before the first."""
        self._tip_seen_at: float | None = None
        getter.when_ready(self._came)
        prefetcher.submit(self._fetch, getter.ready_at)

    def poll(self) -> Record | None:
        """Give the next record, or None if none is at hand now. Never waits for the network.

        Raises:
            SpoutClosed: after ``close``.
            DataLoss, ShardNotFound, StreamNotFound: see ``ShardGetter.read``; whatever ``react`` does not retry.
        """
        with self._lock:
            if self._closed:
                raise SpoutClosed("expected an open getter, got one that was closed; open the shard again")
            if not self._records:
                if self._failure is not None:
                    raise self._failure
                return None
            record = self._records.popleft()
            self._bytes -= record.size_bytes
            resume = self._parked and self._is_half_empty()
            if resume:
                self._parked = False
        if resume:
            self._prefetcher.submit(self._fetch, self._getter.ready_at)
        return record

    def ahead(self, most: int) -> tuple[SequenceNumber, SequenceNumber] | None:
        """Name the next record and the last of the next ``most`` that are at hand; None if none is."""
        with self._lock:
            if not self._records:
                return None
            last = self._records[min(most, len(self._records)) - 1]
            return self._records[0].sequence, last.sequence

    @property
    def at_end(self) -> bool:
        """Whether the closed shard's last page was fetched, and every record of it polled."""
        with self._lock:
            return self._last_page is not None and not self._records

    @property
    def tip_seen_at(self) -> float | None:
        """When the last read began that found nothing at the tip, in seconds since the epoch.

        None before that, and while records are at hand.
        """
        with self._lock:
            return None if self._records else self._tip_seen_at

    @property
    def failed(self) -> bool:
        """Whether fetching ended with an error, which ``poll`` raises once the records before it are polled."""
        return self._failure is not None

    @property
    def child_shards(self) -> tuple[Shard, ...]:
        """The shards that continue this one; empty until its end was fetched."""
        last = self._last_page
        return () if last is None else last.child_shards

    @property
    def buffered(self) -> tuple[int, int]:
        """How many records, and how many bytes, are at hand."""
        with self._lock:
            return len(self._records), self._bytes

    def close(self) -> None:
        """Fetch no more and forget what is at hand. May be called twice."""
        with self._lock:
            self._closed = True
            self._records.clear()
            self._bytes = 0
        self._getter.close()

    def _came(self) -> None:
        """Fetch at once what was pushed. Called on any thread."""
        self._prefetcher.hasten(self._fetch)

    def _fetch(self) -> float | None:
        """Fetch a page, on a thread of the prefetcher. See ``prefetcher.Fetch``."""
        with self._lock:
            if self._closed:
                return None
            room = self._max_records - len(self._records)
            limit = min(MAX_RECORDS, max(1, room // self._records_in_one))
            if room <= 0 or self._bytes >= self._max_bytes:
                self._parked = True
                return None
        begun_at = self._clock.time()
        try:
            page = self._getter.read(limit)
        except Exception as error:  # noqa: BLE001 - not hidden: retried visibly, or raised by the next poll
            return self._failed(error)
        if not page.says_nothing and (self.last_error is not None or self.millis_behind_latest is None):
            self._worked()
        if page.damaged_aggregates or page.records_outside_shard:
            self._odd(page)
        return self._keep(page, begun_at)

    def _failed(self, error: Exception) -> float | None:
        reaction = self._react(error)
        if reaction.action is not Action.RETRY or not isinstance(error, KinesisSpoutError):
            self._failure = error
            return None
        self.last_error = error
        self.retries += 1
        return read_again_at(self._clock.monotonic(), self._getter.ready_at)

    def _keep(self, page: Page, begun_at: float) -> float | None:
        with self._lock:
            if self._closed:
                return None
            if not page.says_nothing:
                self.last_error = None
                self.millis_behind_latest = page.millis_behind_latest
            self._records.extend(page.records)
            self._records_in_one = max(1, len(page.records) // (page.kinesis_records or MAX_RECORDS))
            self._bytes += sum(record.size_bytes for record in page.records)
            if page.at_end:
                self._last_page = page
                return None
            if not page.says_nothing and not page.records and not page.millis_behind_latest:
                self._tip_seen_at = begun_at if page.pushed_at is None else self._wall_clock(page.pushed_at)
        return max(self._getter.ready_at, self._idle_until(page))

    def _idle_until(self, page: Page) -> float:
        if not page.says_nothing and (page.records or page.millis_behind_latest):
            self._empty_polls = 0
            return 0.0
        self._empty_polls += 1
        pause = idle_period(self._empty_polls, self._poll_seconds, self._idle_poll_seconds)
        return self._clock.monotonic() + pause

    def _wall_clock(self, monotonic: float) -> float:
        return self._clock.time() - (self._clock.monotonic() - monotonic)

    def _is_half_empty(self) -> bool:
        return len(self._records) <= self._max_records // 2 and self._bytes <= self._max_bytes // 2
