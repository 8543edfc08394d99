"""The lister and the getter of a stream in memory."""

from collections.abc import Callable
from dataclasses import replace

from kinesis_spout.kinesis.read.pacing import Pacing
from kinesis_spout.kinesis.read.read_settings import DEFAULT, ReadSettings
from kinesis_spout.kinesis.read.user_records import page_as_set
from kinesis_spout.model.errors import DataLoss, ExpiredIterator, InvalidIterator, KinesisError
from kinesis_spout.ports import Page, StreamSummary
from kinesis_spout.testing.stream import InMemoryStream
from shard_state import Position, Shard


class InMemoryShardLister:
    """A ``ShardLister`` of an ``InMemoryStream``."""

    def __init__(self, stream: InMemoryStream) -> None:
        self.stream = stream

    def summary(self) -> StreamSummary:
        """Describe the stream; see the port."""
        return self.stream.summary()

    def list_shards(self) -> list[Shard]:
        """List the shards; see the port."""
        return self.stream.list_shards()


class InMemoryShardGetter:
    """A ``ShardGetter`` of an ``InMemoryStream``, on the stream's clock, paced as a real one.

    Args:
        stream: to read from.
        shard_id: the shard.
        position: where to begin. LATEST is pinned here and now to the clock's time.
        settings: how it is read.
        pacing: see ``PollingShardGetter``.
    """

    def __init__(
        self,
        stream: InMemoryStream,
        shard_id: str,
        position: Position,
        *,
        settings: ReadSettings = DEFAULT,
        pacing: Pacing | None = None,
    ) -> None:
        self._stream = stream
        self._shard_id = shard_id
        self._position = position.resolved(stream.clock.time())
        self._start = self._position
        """No record from before it is given, whatever is read."""
        self._settings = settings
        self._iterator: str | None = None
        self._pacing = pacing or Pacing(ready_at=stream.clock.monotonic(), jitter=lambda: 0.0)
        self._last_page: Page | None = None
        self.data_losses = 0

    @property
    def position(self) -> Position:
        """From where the next page comes."""
        return self._position

    @property
    def ready_at(self) -> float:
        """The clock's monotonic time before which a read would exceed the limits."""
        return self._pacing.ready_at

    def read(self, limit: int) -> Page:
        """Fetch the next page; see the port."""
        if not 1 <= limit <= 10_000:  # noqa: PLR2004 - the API's own limit
            raise ValueError(f"expected a limit of 1 to 10000 records, got {limit}")
        if self._last_page is not None:
            return self._last_page
        try:
            page, self._iterator = self._get(self._iterator or self._new_iterator(), limit)
        except (ExpiredIterator, InvalidIterator):
            page, self._iterator = self._get(self._new_iterator(), limit)
        fetched = page.records
        page = replace(page, records=[each for each in fetched if self._start.includes(each.sequence)])
        hash_keys = self._stream.hash_keys(self._shard_id)
        page = page_as_set(page, self._settings, start=self._start, hash_keys=hash_keys)
        if fetched:
            self._position = Position.after(fetched[-1].sequence)
        if page.at_end:
            self._last_page = Page(
                records=(), size_bytes=0, millis_behind_latest=0, at_end=True, child_shards=page.child_shards
            )
        return page

    def when_ready(self, call: Callable[[], None]) -> None:
        """Do nothing: it is polled; see the port."""

    def close(self) -> None:
        """Do nothing; see the port."""

    def _get(self, iterator: str, limit: int) -> tuple[Page, str | None]:
        clock = self._stream.clock
        started = self._pacing.await_turn(clock)
        try:
            page, following = self._stream.get_records(iterator, limit)
        except KinesisError as error:
            if not isinstance(error, ExpiredIterator | InvalidIterator):
                self._pacing.failed(clock.monotonic(), error)
            raise
        self._pacing.succeeded(started, page.size_bytes)
        return page, following

    def _new_iterator(self) -> str:
        try:
            return self._stream.shard_iterator(self._shard_id, self._position)
        except DataLoss:
            if self._settings.fail_on_data_loss:
                raise
            self.data_losses += 1
            self._position = Position.trim_horizon()
            return self._stream.shard_iterator(self._shard_id, self._position)
