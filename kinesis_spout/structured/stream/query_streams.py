"""The streams that a query reads now, and where it begins on each.

The streams that the options name must exist, or the query ends. Those that a pattern finds come and go:

* one that is found later is read from then on. If it is younger than the query, LATEST means its oldest
  record, because records can have been written before it was found, also while nothing ran. An older one
  begins at ``initialPosition``. The offset log carries when the query began (``began``);
* one that is deleted ends alone. Its records read before are handed out, then it leaves the offset, and the
  query looks for it again, as for new ones;
* one that is in the offset and was not listed at a start is asked for: only a stream that Kinesis does not
  know is left out, because its progress goes with its offset.
"""

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kinesis_spout.consumer.open_streams import OpenStreams
from kinesis_spout.kinesis import KinesisShardLister, Prefetcher
from kinesis_spout.kinesis.read.prefetcher import Blocking
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import StreamNotFound, StreamRecreated
from kinesis_spout.ports import is_same_creation
from kinesis_spout.settings.grammar.shard_positions import resolved_now
from kinesis_spout.settings.grammar.stream_names import is_pattern, is_younger
from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.structured.offsets import QueryOffset, StreamOffset
from kinesis_spout.structured.stream.stream_shards import StreamShards
from kinesis_spout.structured.streams_to_read import find_streams, streams_at_start
from shard_state import PositionType, Shard

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_log = logging.getLogger(__name__)


class QueryStreams(OpenStreams[str, StreamShards]):
    """The shards of each stream that is read, by its name or ARN.

    Mutable; guarded by ``changed``, which the caller holds, but for the methods that do I/O. A stream that is gone
    stays open until all that was read of it is done.
    """

    def __init__(
        self,
        options: StreamReadOptions,
        client: "KinesisClient",
        *,
        prefetcher: Prefetcher,
        changed: threading.Condition,
        is_bounded: bool,
        clock: Clock,
    ) -> None:
        super().__init__(lock=changed, look_seconds=options.stream_list_interval_seconds)
        self._options = options
        self._client = client
        self._prefetcher = prefetcher
        self._changed = changed
        self._is_bounded = is_bounded
        self._clock = clock
        self._named = frozenset(part for part in options.streams if not is_pattern(part))
        self._has_patterns = len(self._named) < len(options.streams)
        self._began: float | None = None
        self._begun: dict[str, tuple[StreamOffset, bool]] = {}
        """The beginnings of streams that no offset has yet; True if LATEST was resolved for one."""
        self._failure: Exception | None = None

    def listed(self) -> dict[str, list[Shard]]:
        return {name: list(stream.listed.values()) for name, stream in self.current.items()}

    # With I/O, so not under the lock

    def open(self) -> None:
        """Transient errors are retried without limit. Raises StreamNotFound, AccessDenied at once."""
        for name in streams_at_start(self._options.streams, self._client, self._clock):
            self._open(name)
        if self._has_patterns and not self._is_bounded:
            self._prefetcher.submit(Blocking(self._look_again), self._next_look())

    def rejoin(self, offset: QueryOffset) -> None:
        """Open the streams of an offset that are not read, unless they are known to be gone."""
        with self._changed:
            missing = [name for name in offset.streams if name not in self.current and name not in self.gone]
        for name in missing:
            self._open(name)

    def _open(self, name: str) -> None:
        shards = self._unopened(name)
        try:
            shards.load()
        except StreamNotFound as error:
            if name in self._named:
                raise
            with self._changed:
                self._say_gone(name, error)
            return
        self._join(name, shards)

    def _look_again(self) -> float | None:
        try:
            self.open_new()
        except Exception as error:  # noqa: BLE001 - not hidden: the reader raises it
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            return None
        return self._next_look()

    def _find(self) -> Mapping[str, str]:
        return {name: name for name in find_streams(self._options.streams, self._client, self._clock)}

    def _open_late(self, found: str) -> StreamShards:
        shards = self._unopened(found)
        shards.load_once()
        return shards

    def _joined(self, _name: str, made: StreamShards) -> None:
        if not self._is_bounded:
            period = self._options.shard_list_seconds
            self._prefetcher.submit(Blocking(made.refresh), self._clock.monotonic() + period)

    def _unopened(self, name: str) -> StreamShards:
        return StreamShards(
            name,
            KinesisShardLister(self._client, name),
            changed=self._changed,
            period_seconds=self._options.shard_list_seconds,
            clock=self._clock,
        )

    def _next_look(self) -> float:
        return self._clock.monotonic() + self._look_seconds

    # Under the lock

    def first_offset(self) -> QueryOffset:
        """The offset of a query's very first start: LATEST resolved to now (invariant 9)."""
        now, start = self._clock.time(), self._options.start
        if self._has_patterns and self._began is None:
            self._began = now
        return QueryOffset(
            streams={name: stream.first_offset(start, now) for name, stream in self.current.items()},
            unlogged=resolved_now(start, now, "option initialPosition") != start,
            began=self._began,
        )

    def brought_up_to_date(self, start: QueryOffset) -> QueryOffset:
        """Add the streams and shards that are new since; leave out those that are gone."""
        if self._has_patterns and self._began is None:
            # A query whose options named all its streams so far begins to find streams now.
            self._began = self._clock.time() if start.began is None else start.began
        streams: dict[str, StreamOffset] = {}
        # A stream that is left out must be logged before it can come back, LATEST before anything is read.
        unlogged = start.unlogged or not start.streams.keys() <= self.current.keys()
        for name, shards in self.current.items():
            known = start.streams.get(name)
            if known is None:
                streams[name], is_resolved = self._beginning(name, shards)
                unlogged = unlogged or is_resolved
            else:
                self._begun.pop(name, None)
                streams[name] = self._with_new_shards(name, shards, known)
        return QueryOffset(streams=streams, unlogged=unlogged, began=self._began)

    def _beginning(self, name: str, shards: StreamShards) -> tuple[StreamOffset, bool]:
        if name not in self._begun:
            now, start = self._clock.time(), self._options.start
            is_from_its_oldest = (
                name not in self._named
                and start.default.type is PositionType.LATEST
                and self._began is not None
                and is_younger(shards.created, self._began)
            )
            if is_from_its_oldest:
                self._begun[name] = shards.anew(), False
            else:
                is_resolved = resolved_now(start, now, "option initialPosition") != start
                self._begun[name] = shards.first_offset(start, now), is_resolved
        offset, is_resolved = self._begun[name]
        return shards.brought_up_to_date(offset), is_resolved

    def _with_new_shards(self, name: str, shards: StreamShards, known: StreamOffset) -> StreamOffset:
        if is_same_creation(known.created, shards.created):
            return shards.brought_up_to_date(known)
        text = (
            f"the query's checkpoint was made for a stream {name!r} created at {known.created}, but the stream "
            f"of this name was created at {shards.created}: it was deleted and made again, or is one of "
            "another region or account"
        )
        if self._options.read.fail_on_data_loss:
            raise StreamRecreated(
                f"{text}. Use a new checkpointLocation, or set failOnDataLoss to false to read the new stream "
                "from its beginning"
            )
        _log.warning("%s; reading the new one from its beginning because failOnDataLoss is false", text)
        return shards.anew()

    def raise_failure(self) -> None:
        """Raise what ended the listing of streams or shards; not for a stream that is gone."""
        if self._failure is not None:
            raise self._failure
        for name, stream in self.current.items():
            if stream.failure is not None and not self.ends(name, stream.failure):
                raise stream.failure

    def ends(self, name: str, error: Exception) -> bool:
        """End a stream if an error ends it alone. Returns whether it does."""
        if name in self._named or not isinstance(error, StreamNotFound):
            return False
        if name not in self.gone:
            self._say_gone(name, error)
        return True

    @property
    def leaving(self) -> frozenset[str]:
        """The streams that are gone, with records not yet handed out."""
        return frozenset(self.current.keys() & self.gone.keys())

    def leave(self, name: str) -> None:
        """Stop reading a stream that is gone and completely done."""
        self._left(name)
        self._begun.pop(name, None)
