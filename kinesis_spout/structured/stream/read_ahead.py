"""The driver's side of a query: reads ahead of Spark, so that a batch's end is known before it is planned."""

import logging
import threading
from dataclasses import replace
from typing import Final

from kinesis_spout.kinesis import Prefetcher, ReadSettings
from kinesis_spout.kinesis.read.data_loss import lose
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.structured.offsets import QueryOffset, ShardOffset
from kinesis_spout.structured.pages.page_buffer import ShardKey, StoredPage
from kinesis_spout.structured.pages.page_channel import PageServerAddress
from kinesis_spout.structured.pages.page_server import PageServer, advertised_host
from kinesis_spout.structured.stream.fetched_shards import FetchedShards
from kinesis_spout.structured.stream.partitions import ShardRange
from kinesis_spout.structured.stream.planning import BatchLimits, MicroBatchPlan, patience_seconds, plan_batch
from kinesis_spout.structured.stream.query_log import QueryLog
from kinesis_spout.structured.stream.query_streams import QueryStreams
from kinesis_spout.structured.stream.source_progress import SourceProgress

_LONGEST_WAIT_SECONDS: Final = 1.0
"""A call waits for records for so long. Spark repeats it at once; waiting here saves 100 calls."""
_LOOK_EVERY_SECONDS: Final = 0.03
"""While records wait for others."""

_UNKNOWN_ROW_BYTES: Final = 1024
"""The assumed size of a record that is no longer buffered."""

_log = logging.getLogger(__name__)


class ReadAhead:
    """Mutable; one thread calls it. ``until``, in epoch seconds, bounds a query to what is available."""

    def __init__(
        self, options: StreamReadOptions, *, until: float | None = None, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._until = until
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._prefetcher = Prefetcher(most=options.fetch_threads, clock=self._clock)
        client = options.client.connect()
        self.streams = QueryStreams(
            options,
            client,
            prefetcher=self._prefetcher,
            changed=self._changed,
            is_bounded=until is not None,
            clock=self._clock,
        )
        self._fetched = FetchedShards(
            options,
            client=client,
            prefetcher=self._prefetcher,
            shards_of=lambda stream: self.streams.current[stream],
            changed=self._changed,
            until=until,
            clock=self._clock,
        )
        self._buffer = self._fetched.buffer
        self._server: PageServer | None = None
        self._is_without_server = False
        self._batches = 0
        self._last_batch_at = self._clock.monotonic()
        self._planned: MicroBatchPlan | None = None
        self._done_records = 0
        self._done_bytes = 0
        self._current: QueryOffset | None = None
        self._query_log = QueryLog(options.streams)

    def open(self) -> None:
        """List the shards. Raises what ``QueryStreams.open`` raises; the caller must then close this."""
        self.streams.open()
        with self._changed:
            self._query_log.started(self.streams.listed())

    def first_offset(self) -> QueryOffset:
        now, start = self._clock.time(), self._options.start
        self._query_log.resolved(start.default, start.default.resolved(now))
        with self._changed:
            return self.streams.first_offset()

    def advance(self, start: QueryOffset) -> QueryOffset:
        """Continue from ``start``, up to which everything is done: free it, and read what follows.

        Returns ``start`` with the shards that were born since, and the streams that came and went. Raises
        ``StreamRecreated`` where a stream is not the one that the offset was made for (``failOnDataLoss``).
        """
        with self._changed:
            for name in self.streams.leaving:
                if self._fetched.leave(name):
                    self.streams.leave(name)
            self._query_log.listed(self.streams.listed())
            self._query_log.advanced(
                start, is_short=self._fetched.room.is_short(), now=self._clock.monotonic()
            )
            current = self.streams.brought_up_to_date(start)
            readable = {
                (name, shard_id): stream.shards[shard_id]
                for name, stream in current.streams.items()
                for shard_id in stream.readable()
            }
            self._fetched.follow(readable)
            self._current = current
            self._count_done(start)
        return current

    def wait_for_batch(self, start: QueryOffset, limits: BatchLimits) -> QueryOffset | None:
        """Wait for records beyond ``start``, which ``advance`` returned; return the end of a batch of them.

        None: there is none now; for a query that ends with what is available: none will come. Raises what
        ended the reading of a shard or the listing of a stream.
        """
        deadline = self._clock.monotonic() + _LONGEST_WAIT_SECONDS
        with self._changed:
            while True:
                self._gather(limits)
                plan = None
                is_due = self._until is None and self._fetched.is_newer_than(start)
                if self._fetched.has_news or is_due:
                    # Once, when all is gathered: with many shards this takes most of the thread's time.
                    until = self._fetched.await_furthest_behind()
                    plan = plan_batch(
                        start,
                        self._buffer,
                        self._fetched.at_end(),
                        limits,
                        self._batches,
                        until=until,
                        since=self._fetched.since(),
                        is_due=is_due,
                    )
                now = self._clock.monotonic()
                if plan is not None and self._is_enough(plan, start, limits):
                    return self._chosen(plan, now)
                if self._until is not None:
                    if self._fetched.has_all_until:
                        return None
                    self._changed.wait(_LONGEST_WAIT_SECONDS)
                elif now < deadline:
                    self._changed.wait(deadline - now)
                else:
                    return None

    def _gather(self, limits: BatchLimits) -> None:
        fetched, begun = self._fetched, self._clock.monotonic()
        while True:
            self._raise_failure()
            left = 0.0
            if fetched.has_news:
                patience = patience_seconds(
                    limits,
                    rows=self._buffer.rows,
                    size_bytes=self._buffer.size_bytes,
                    room_bytes=self._options.max_buffered_bytes,
                    reads_under_way=fetched.room.under_way,
                    late_seconds=fetched.late_seconds(),
                )
                left = begun + patience - self._clock.monotonic()
            fetched.room.is_gathering = left > 0
            if left <= 0:
                return
            self._changed.wait(min(left, _LOOK_EVERY_SECONDS))

    def _chosen(self, plan: MicroBatchPlan, now: float) -> QueryOffset:
        self._batches += 1
        self._last_batch_at = now
        end = replace(plan.end, deaggregated=self._options.read.deaggregate)
        self._planned = replace(plan, end=end)
        return end

    def ranges(self, end: QueryOffset) -> list[ShardRange]:
        """Return the ranges of the batch that ends at ``end``, and where the reader has them."""
        with self._changed:
            # Pages here were read with the present options. A replayed batch can have been read with others.
            is_here = end.deaggregated == self._options.read.deaggregate
            self._lose_what_is_gone(end)
            return [
                self._range((name, shard_id), shard, is_here=is_here)
                for name, stream in end.streams.items()
                for shard_id, shard in stream.shards.items()
                if shard.read is not None and name in self.streams.current
            ]

    def settings_of(self, end: QueryOffset) -> ReadSettings:
        """Return the settings to read the batch that ends at ``end`` from Kinesis: as when it was planned."""
        return replace(self._options.read, deaggregate=end.deaggregated)

    def server_address(self) -> PageServerAddress | None:
        """None if the server cannot be started, which is tried once: executors then read Kinesis again."""
        if self._server is None and not self._is_without_server:
            host = self._options.page_host or advertised_host()
            try:
                self._server = PageServer(host, self._find)
            except OSError as error:
                self._is_without_server = True
                _log.warning(
                    "the reader's pages cannot be served at %s, so executors read Kinesis again (twice the read "
                    "traffic; set pageServerHost to an address of the driver's machine): %r",
                    host,
                    error,
                )
        return None if self._server is None else self._server.address

    def progress(self) -> SourceProgress:
        with self._changed:
            shards = [
                shard
                for stream in (self._current.streams.values() if self._current is not None else ())
                for shard in stream.shards.values()
            ]
            behind = self._fetched.behind()
            return SourceProgress(
                streams=tuple(self.streams.current),
                mode="polling" if self._options.read.fan_out_consumer is None else "efo",
                min_ms_behind_latest=min(behind, default=0),
                avg_ms_behind_latest=round(sum(behind) / len(behind)) if behind else 0,
                max_ms_behind_latest=max(behind, default=0),
                total_shards=len(shards),
                closed_shards=sum(shard.at_end for shard in shards),
                processed_records=self._done_records,
                processed_bytes=self._done_bytes,
                throttles=self._fetched.counters.throttles,
                buffered_bytes=self._buffer.size_bytes,
                aggregates=self._fetched.counters.aggregates,
                damaged_aggregates=self._fetched.counters.damaged_aggregates,
                records_outside_shard=self._fetched.counters.records_outside_shard,
                data_losses=self._fetched.counters.data_losses,
            )

    def close(self) -> None:
        with self._changed:
            self._query_log.stopped(self._totals())
            self._fetched.close()
        self._fetched.close_subscriptions()
        self._prefetcher.close()
        if self._server is not None:
            self._server.close()

    # Batches

    def _is_enough(self, plan: MicroBatchPlan, start: QueryOffset, limits: BatchLimits) -> bool:
        if limits.takes_all:
            return self._fetched.has_all_until or self._is_all_that_fits()
        if self._until is not None:
            return True
        wanted = self._options.min_records_per_trigger
        if wanted is None or plan.rows >= wanted or start.unlogged:
            return True
        if plan.is_full or plan.has_shard_end or self._fetched.room.is_short():
            return True  # more comes only after it
        waited = self._clock.monotonic() - self._last_batch_at
        return waited >= self._options.max_trigger_delay_seconds

    def _is_all_that_fits(self) -> bool:
        if not self._fetched.room.is_short():
            return False
        _log.warning(
            "trigger(once=True) takes one batch, and more is available than the reader keeps: the next query goes "
            "on behind it. Use trigger(availableNow=True), or a larger maxBufferedBytes"
        )
        return True

    def _raise_failure(self) -> None:
        self.streams.raise_failure()
        for stream, failure in self._fetched.failures():
            if not self.streams.ends(stream, failure):
                raise failure
        for stream in self.streams.leaving:
            self._fetched.leave(stream)

    def _lose_what_is_gone(self, end: QueryOffset) -> None:
        """Report what a replayed batch has of streams that were deleted since."""
        for name, stream in end.streams.items():
            rows = sum(shard.read.rows for shard in stream.shards.values() if shard.read is not None)
            if rows and name not in self.streams.current:
                lose(
                    f"expected the stream {name!r}, of which a batch that is repeated has {rows} records, found "
                    "none: it was deleted",
                    fail=self._options.read.fail_on_data_loss,
                    so_that="the batch goes on without them",
                )

    def _range(self, key: ShardKey, shard: ShardOffset, *, is_here: bool) -> ShardRange:
        assert shard.read is not None
        last = shard.position.sequence_number
        assert last is not None
        first = shard.read.first
        segments = tuple(self._buffer.segments(key, first, last)) if is_here else ()
        if sum(segment.rows for segment in segments) != shard.read.rows:
            segments = ()
        pages = [(self._buffer.page(segment.page), segment.rows) for segment in segments]
        weight = sum(page.row_bytes * rows for page, rows in pages if page is not None)
        return ShardRange(
            stream=key[0],
            shard_id=key[1],
            first=first,
            last=last,
            rows=shard.read.rows,
            segments=segments,
            size_bytes=round(weight) or shard.read.rows * _UNKNOWN_ROW_BYTES,
        )

    def _find(self, number: int) -> StoredPage | None:
        """Called on the server's threads."""
        with self._changed:
            return self._buffer.page(number)

    def _count_done(self, start: QueryOffset) -> None:
        plan = self._planned
        if plan is not None and plan.end == start:
            self._done_records += plan.rows
            self._done_bytes += plan.bytes
            self._planned = None
            self._query_log.done(plan.rows, self._totals(), self._clock.monotonic())

    def _totals(self) -> str:
        return f"{self._done_records} records, {self._done_bytes} bytes"
