"""The driver's side of a query: reads ahead of Spark, so that a batch's end is known before it is planned."""

import logging
import threading
from collections.abc import Sequence
from typing import Final

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.errors import StreamRecreated
from kinesis_spout.kinesis import KinesisShardLister, PollingShardGetter, Prefetcher
from kinesis_spout.structured.offsets import QueryOffset, ShardOffset, StreamOffset
from kinesis_spout.structured.options import StreamReadOptions
from kinesis_spout.structured.page_buffer import PageBuffer, ShardKey, StoredPage
from kinesis_spout.structured.page_channel import PageServerAddress
from kinesis_spout.structured.page_server import PageServer, advertised_host
from kinesis_spout.structured.partitions import ShardRange
from kinesis_spout.structured.planning import BatchLimits, BatchPlan, plan_batch, read_up_to
from kinesis_spout.structured.progress import SourceProgress
from kinesis_spout.structured.shard_fetch import FetchCounters, FetchRoom, ShardFetch
from kinesis_spout.structured.stream_shards import KnownShards, StreamShards
from shard_state import SequenceNumber, Shard

_LONGEST_WAIT_SECONDS: Final = 1.0
"""How long a call waits for records. Spark asks again at once; waiting here keeps it from asking 100 times."""
_GATHER_SECONDS: Final = 0.03
"""How long the first records of a batch wait for those that other shards are being asked for."""

_UNKNOWN_ROW_BYTES: Final = 1024
"""What a record is taken to weigh that is not here any more."""

_log = logging.getLogger(__name__)


class ReadAhead:
    """Reads the shards of a query's streams into memory. Mutable; used by one thread, its own threads beside it.

    Args:
        options: of the query.
        until: for a query that ends with what is available: seconds since the epoch, else None.
    """

    def __init__(
        self, options: StreamReadOptions, *, until: float | None = None, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._until = until
        self._clock = clock or SystemClock()
        self._client = options.client.connect()
        self._changed = threading.Condition()
        self._buffer = PageBuffer()
        self._room = FetchRoom(buffer=self._buffer, max_bytes=options.max_buffered_bytes, resume=self._submit)
        self._counters = FetchCounters()
        self._prefetcher = Prefetcher(threads=options.fetch_threads, clock=self._clock)
        self._listers = {name: KinesisShardLister(self._client, name) for name in options.streams}
        self._streams = {
            name: StreamShards(
                name,
                lister,
                changed=self._changed,
                period_seconds=options.shard_list_seconds,
                clock=self._clock,
            )
            for name, lister in self._listers.items()
        }
        self._fetches: dict[ShardKey, ShardFetch] = {}
        self._freed: dict[ShardKey, SequenceNumber] = {}
        self._server: PageServer | None = None
        self._is_without_server = False
        self._batches = 0
        self._last_batch_at = self._clock.monotonic()
        self._planned: BatchPlan | None = None
        self._done_records = 0
        self._done_bytes = 0
        self._current: QueryOffset | None = None

    def open(self) -> None:
        """Find out which shards there are. Raises what ``StreamShards.load`` raises; then it is to be closed."""
        for stream in self._streams.values():
            stream.load()
            if self._until is None:
                period = self._options.shard_list_seconds
                self._prefetcher.submit(stream.refresh, self._clock.monotonic() + period)

    def first_offset(self) -> QueryOffset:
        """Give the offset of a query's very first start: LATEST resolved to now (invariant 9)."""
        now, start = self._clock.time(), self._options.start
        with self._changed:
            return QueryOffset(
                streams={name: stream.first_offset(start, now) for name, stream in self._streams.items()},
                unlogged=start.resolved(now) != start,
            )

    def advance(self, start: QueryOffset) -> QueryOffset:
        """Go on from ``start``, up to which everything is done: free it, and read what follows.

        Returns:
            ``start``, with the shards that were born since.

        Raises:
            StreamRecreated: a stream is not the one that the offset was made for (``failOnDataLoss``).
        """
        with self._changed:
            current = QueryOffset(
                streams={name: self._brought_up_to_date(name, start) for name in self._streams},
                unlogged=start.unlogged,
            )
            readable = {
                (name, shard_id): stream.shards[shard_id]
                for name, stream in current.streams.items()
                for shard_id in stream.readable()
            }
            for key in self._fetches.keys() - readable.keys():
                self._close(key)
            for key, shard in readable.items():
                self._go_on(key, shard)
            self._room.fetches = len(self._fetches)
            self._room.resume_all()
            self._current = current
            self._count_done(start)
        return current

    def wait_for_batch(self, start: QueryOffset, limits: BatchLimits) -> QueryOffset | None:
        """Wait for records beyond ``start``, which ``advance`` gave, and plan a batch of them.

        Returns:
            The end of the batch. None if there is none now; for a query that ends with what is available: if
            there is none any more.

        Raises:
            What ended the reading of a shard or the listing of a stream.
        """
        deadline = self._clock.monotonic() + _LONGEST_WAIT_SECONDS
        gather_until: float | None = None
        with self._changed:
            while True:
                self._raise_failure()
                ended = {key: fetch.at_end for key, fetch in self._fetches.items()}
                plan = plan_batch(start, self._buffer, ended, limits, self._batches)
                now = self._clock.monotonic()
                if plan is not None and (self._is_enough(plan, start) or self._until is not None):
                    if gather_until is None:
                        gather_until = now + _GATHER_SECONDS
                    self._room.is_gathering = now < gather_until and self._room.under_way > 0
                    if not self._room.is_gathering:
                        return self._chosen(plan, now)
                    self._changed.wait(gather_until - now)
                elif self._until is not None:
                    if all(fetch.at_end or fetch.is_through for fetch in self._fetches.values()):
                        return None
                    self._changed.wait(_LONGEST_WAIT_SECONDS)
                elif now < deadline:
                    self._changed.wait(deadline - now)
                else:
                    return None

    def _chosen(self, plan: BatchPlan, now: float) -> QueryOffset:
        self._batches += 1
        self._last_batch_at = now
        self._planned = plan
        return plan.end

    def ranges(self, end: QueryOffset) -> list[ShardRange]:
        """Say what the batch that ends at ``end`` reads, and where the reader has it."""
        with self._changed:
            return [
                self._range((name, shard_id), shard)
                for name, stream in end.streams.items()
                for shard_id, shard in stream.shards.items()
                if shard.read is not None
            ]

    def server_address(self) -> PageServerAddress | None:
        """Say where executors get the pages; the server is started when it is first needed.

        Returns:
            None if it cannot be started, which is tried once: executors then read Kinesis again.
        """
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
        """Say how far the reading is. Without I/O."""
        with self._changed:
            shards = [
                shard
                for stream in (self._current.streams.values() if self._current is not None else ())
                for shard in stream.shards.values()
            ]
            behind = [
                fetch.millis_behind_latest
                for fetch in self._fetches.values()
                if fetch.millis_behind_latest is not None
            ]
            return SourceProgress(
                streams=self._options.streams,
                mode="polling",
                min_ms_behind_latest=min(behind, default=0),
                avg_ms_behind_latest=round(sum(behind) / len(behind)) if behind else 0,
                max_ms_behind_latest=max(behind, default=0),
                total_shards=len(shards),
                closed_shards=sum(shard.drained for shard in shards),
                processed_records=self._done_records,
                processed_bytes=self._done_bytes,
                throttles=self._counters.throttles,
                buffered_bytes=self._buffer.size_bytes,
            )

    def close(self) -> None:
        """End the threads. May be called twice."""
        with self._changed:
            for key in list(self._fetches):
                self._close(key)
        self._prefetcher.close()
        if self._server is not None:
            self._server.close()

    # Shards

    def _brought_up_to_date(self, name: str, start: QueryOffset) -> StreamOffset:
        stream, offset = self._streams[name], start.streams[name]
        if stream.is_same(offset):
            return stream.brought_up_to_date(offset)
        summary = stream.summary
        text = (
            f"the query's checkpoint was made for a stream {name!r} created at {offset.created}, but the stream "
            f"of this name was created at {summary.created if summary else None}: it was deleted and made again"
        )
        if self._options.fail_on_data_loss:
            raise StreamRecreated(
                f"{text}. Use a new checkpointLocation, or set failOnDataLoss to false to read the new stream "
                "from its beginning"
            )
        _log.warning("%s; reading the new one from its beginning because failOnDataLoss is false", text)
        return stream.anew()

    def _go_on(self, key: ShardKey, shard: ShardOffset) -> None:
        """Free what is done of a shard; start to read it where that is not done, or done from another place."""
        last = read_up_to(shard.position)
        freed = self._freed.get(key)
        if key in self._fetches and freed is not None and (last is None or last < freed):
            self._close(key)  # back to what is not here any more
        if key not in self._fetches:
            self._fetches[key] = self._open(key, shard)
            self._submit(self._fetches[key])
        if last is not None:
            self._buffer.free(key, last)
            self._freed[key] = last

    def _open(self, key: ShardKey, shard: ShardOffset) -> ShardFetch:
        stream, shard_id = key
        options = self._options
        getter = PollingShardGetter(
            self._client,
            stream=stream,
            shard_id=shard_id,
            position=shard.position,
            lister=KnownShards(self._listers[stream], self._streams[stream]),
            fail_on_data_loss=options.fail_on_data_loss,
            extra_columns=options.extra_columns,
            clock=self._clock,
        )
        return ShardFetch(
            key,
            getter,
            room=self._room,
            changed=self._changed,
            counters=self._counters,
            records_per_fetch=options.max_records_per_fetch,
            bytes_per_second=options.max_fetch_bytes_per_second,
            periods=(options.fetch_period_seconds, options.idle_fetch_period_seconds),
            until=self._until,
            fail_on_data_loss=options.fail_on_data_loss,
            clock=self._clock,
            found_children=self._found_children,
        )

    def _submit(self, fetch: ShardFetch) -> None:
        self._prefetcher.submit(fetch.fetch, fetch.getter.ready_at)

    def _found_children(self, stream: str, children: Sequence[Shard]) -> None:
        if self._until is None:  # what was born after the query began is left to the next one
            self._streams[stream].found(children)

    def _close(self, key: ShardKey) -> None:
        self._fetches.pop(key).close()
        self._buffer.drop_shard(key)
        self._freed.pop(key, None)

    # Batches

    def _is_enough(self, plan: BatchPlan, start: QueryOffset) -> bool:
        wanted = self._options.min_records_per_trigger
        if wanted is None or plan.rows >= wanted or start.unlogged:
            return True
        if plan.is_full or plan.drains or self._room.is_short():
            return True  # more comes only after it
        waited = self._clock.monotonic() - self._last_batch_at
        return waited >= self._options.max_trigger_delay_seconds

    def _raise_failure(self) -> None:
        failures = [stream.failure for stream in self._streams.values()]
        failures += [fetch.failure for fetch in self._fetches.values()]
        for failure in failures:
            if failure is not None:
                raise failure

    def _range(self, key: ShardKey, shard: ShardOffset) -> ShardRange:
        assert shard.read is not None
        last = shard.position.sequence_number
        assert last is not None
        first = shard.read.first
        segments = tuple(self._buffer.segments(key, first, last))
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
        """Give a page; called on the server's threads."""
        with self._changed:
            return self._buffer.page(number)

    def _count_done(self, start: QueryOffset) -> None:
        plan = self._planned
        if plan is not None and plan.end == start:
            self._done_records += plan.rows
            self._done_bytes += plan.bytes
            self._planned = None
