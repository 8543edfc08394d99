"""A query's progress in ZooKeeper, next to Spark's checkpoint: options ``checkpointApp``, ``zookeeper``.

It is for inspection (``kinesis-spout shards``), and for starting: a query without a Spark checkpoint begins
where the application ended, be that a query or a spout. Shards born since are read from their beginning,
whatever ``initialPosition`` says. ``published_stream`` defines what is stored, and who may write it.

**Which one wins.** Where Spark has a checkpoint, it wins (``progressFrom=spark``): ZooKeeper is only written,
on its own thread, and an unreachable ZooKeeper delays nothing. With ``progressFrom=zookeeper`` the stored
progress moves the query, once in each run, from where Spark would continue. So ``kinesis-spout checkpoints
reset`` moves a query, too.

**How far it can be behind.** Spark reports that a batch is done only by asking for the next one. And it stops
a query by ending the reader's process without notice. So what is published can lack the last batches: those
whose publication was under way, and the last one, if the query was stopped before it asked again. It never
has more than was processed. Beginning from it can repeat those batches, and loses nothing; with
``progressFrom=zookeeper`` they come again as *new* batches, so a sink that knows repeated batches by their
number does not notice. (A batch that Spark itself replays at the start is not read once more because of it.)
A run of ``Trigger.AvailableNow`` publishes everything before it ends, unless ZooKeeper takes longer than 5 s
to answer.

**One at a time.** An application's progress on a stream has one writer. Another living consumer or query
under the same name is an error that ends this one: at once where the progress is needed to begin, else when
it is found. A killed process stays registered until its session ends, so the query waits for that.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

from kinesis_spout.kinesis.retry_policy import persistently
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import InvalidConfig, StoreUnavailable
from kinesis_spout.settings.grammar.stream_names import name_of
from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.structured.offsets import QueryOffset, ShardOffset, StreamOffset
from kinesis_spout.structured.published.published_stream import Place, PublishedStream, restored
from kinesis_spout.structured.published.publisher import Publisher
from kinesis_spout.zookeeper import EmbeddedZooKeeper, ZooKeeperSettings
from shard_state import Checkpoint, Position

LEAVING_SECONDS: Final = 5.0
"""How long the last publication may take when a query ends."""
_LOOK_AGAIN_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


class ZooKeeperPlaces:
    """The places of one application. Mutable: starts the embedded server once, if the options ask for it."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._settings = settings
        self._opened = ExitStack()
        self._server: EmbeddedZooKeeper | None = None

    def open(self, stream: str) -> Place:
        """Connect to the place of a stream, given by its name or ARN.

        Raises:
            StoreUnavailable: no server answers.
            InvalidConfig, StoreError: the embedded server does not start, or ZooKeeper refuses us.
        """
        if self._server is None:
            self._server = self._settings.server(self._opened)
        return self._settings.connect(name_of(stream), self._server)

    def close(self) -> None:
        self._opened.close()


class PublishedProgress:
    """Mutable; its methods are called by one thread.

    ``open_place`` connects to the place of a stream; it is called again if it raised ``StoreUnavailable``.
    """

    def __init__(
        self,
        open_place: Callable[[str], Place],
        *,
        app: str,
        zookeeper_wins: bool = False,
        clock: Clock | None = None,
        close_places: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_place = open_place
        self._app = app
        self._zookeeper_wins = zookeeper_wins
        self._clock = clock or SystemClock()
        self._close_places = close_places
        self._io = threading.Lock()
        """Held during I/O with ZooKeeper: by the caller at the start, then by the publisher."""
        self._streams: dict[str, PublishedStream] = {}
        self._publisher = Publisher(self._write, self._clock)
        self._is_closed = False
        self._began_at: QueryOffset | None = None
        self._replayed_from: QueryOffset | None = None
        self._is_going_on = False

    @classmethod
    def of(cls, options: StreamReadOptions) -> "PublishedProgress | None":
        """None if not asked for. Connects to nothing yet. Raises InvalidConfig: two streams have one name."""
        if options.published_in is None:
            return None
        places = ZooKeeperPlaces(options.published_in)
        if len({name_of(stream) for stream in options.streams}) < len(options.streams):
            raise InvalidConfig(
                f"option checkpointApp: expected streams of different names, got {', '.join(options.streams)}; "
                "progress is kept by name: read them in queries of their own, each with its checkpointApp"
            )
        return cls(
            places.open,
            app=options.published_in.app,
            zookeeper_wins=options.progress_from == "zookeeper",
            close_places=places.close,
        )

    def start(self, first: QueryOffset) -> QueryOffset:
        """Where a query without a Spark checkpoint begins: the same for the whole run.

        ``first`` is where it would begin by its options, with every listed shard. It applies to streams on
        which the application has not begun; the first publication begins it there.

        Raises:
            StoreUnavailable: no server answers. After the first answer, transient errors are retried without
                limit.
            ConsumerAlive: another consumer or query is at work under this name.
            StreamRecreated, CheckpointUnreadable, StoreError: see ``PublishedStream``.
        """
        if self._began_at is None:
            with self._io:
                for name in first.streams:
                    self._stream(name)
            stored = self._stored(first)
            self._began_at = QueryOffset(
                streams={
                    name: restored(stream, stored[name], _from_its_beginning) if stored[name] else stream
                    for name, stream in first.streams.items()
                },
                unlogged=first.unlogged and not all(stored.values()),
            )
        return self._began_at

    def replays(self, start: QueryOffset) -> None:
        """Note that Spark replays the batch that begins at ``start``; ignored once ``moved`` was called."""
        if not self._is_going_on:
            self._replayed_from = start

    def moved(self, start: QueryOffset, listed: Callable[[], QueryOffset]) -> QueryOffset | None:
        """Where a query continues instead of ``start``, where Spark would; None: at ``start``.

        The result is the end of an empty batch, so that Spark's log has the move before anything is read:
        read at once, the end could be the very one where Spark stands, and Spark would see nothing new.
        ``listed`` gives an offset with every listed shard, for the parents of shards new to Spark. Raises
        like ``start``.
        """
        is_first, self._is_going_on = not self._is_going_on, True
        if not is_first or not self._zookeeper_wins:
            return None
        stored = self._stored(start)
        going_on = self._going_on(start, stored, listed())
        stays = all(
            stream.shards == {id_: shard.without_read() for id_, shard in start.streams[name].shards.items()}
            for name, stream in going_on.streams.items()
        )
        return None if stays else going_on

    def publish(self, done: QueryOffset) -> None:
        """Store, on the publisher's thread, that everything up to ``done`` is processed. Does no I/O.

        Of several that wait only the newest is stored. Ignored after ``finish`` or ``close``. Raises what
        ended the publishing (see ``start``); a lost connection does not.
        """
        self._publisher.publish(done)

    def finish(self) -> None:
        """Close, for a query that has reached its end. Raises as ``publish`` does."""
        self.close()
        self._publisher.check()

    def close(self) -> None:
        """Publish what waits, for up to ``LEAVING_SECONDS``; then leave. May be called twice."""
        if self._is_closed:
            return
        if not self._publisher.leave(LEAVING_SECONDS):
            _log.warning(
                "checkpointApp %s: the last progress was not published within %g s; what begins from what is "
                "there repeats some batches",
                self._app,
                LEAVING_SECONDS,
            )
        self._is_closed = True
        for stream in list(self._streams.values()):
            stream.close()
        self._close_places()

    def _stored(self, offset: QueryOffset) -> dict[str, Mapping[str, Checkpoint]]:
        """Read the stored progress of every stream, once no other process works on it."""
        work = "the look at the stored progress"
        while not persistently(partial(self._entered, offset.streams), work, self._clock):
            self._clock.sleep(_LOOK_AGAIN_SECONDS)
        return {
            name: persistently(partial(self._stored_of, name, stream), work, self._clock)
            for name, stream in offset.streams.items()
        }

    def _entered(self, names: Collection[str]) -> bool:
        with self._io:
            entered = [self._stream(name).enter() for name in names]
        return all(entered)

    def _stored_of(self, name: str, stream: StreamOffset) -> Mapping[str, Checkpoint]:
        with self._io:
            return self._stream(name).stored(stream)

    def _going_on(
        self, start: QueryOffset, stored: Mapping[str, Mapping[str, Checkpoint]], listed: QueryOffset
    ) -> QueryOffset:
        streams = {}
        for name, stream in start.streams.items():
            parents = listed.streams[name].shards
            known = {shard_id: parents[shard_id] for shard_id in stored[name] if shard_id in parents}
            streams[name] = restored(
                StreamOffset(created=stream.created, shards={**known, **stream.shards}),
                stored[name],
                ShardOffset.without_read,
            )
            if self._replayed_from is not None:
                streams[name] = _with_replayed(streams[name], self._replayed_from.streams[name], stream)
        return QueryOffset(streams=streams)

    def _write(self, done: QueryOffset) -> bool:
        with self._io:
            written = [self._stream(name).write(stream) for name, stream in done.streams.items()]
        return all(written)

    def _stream(self, name: str) -> PublishedStream:
        if name not in self._streams:
            what = f"checkpointApp {self._app!r} on stream {name!r}"
            stream = PublishedStream(self._open_place(name), what, self._clock)
            if self._is_closed:  # while it was opened, which takes long if no server answers
                stream.close()
                raise StoreUnavailable(f"{what} was closed by this process")
            self._streams[name] = stream
        return self._streams[name]


def _from_its_beginning(shard: ShardOffset) -> ShardOffset:
    """The start of a shard that was born after the application began (invariant 7)."""
    return ShardOffset(position=Position.trim_horizon(), parents=shard.parents)


def _with_replayed(offset: StreamOffset, batch_start: StreamOffset, batch_end: StreamOffset) -> StreamOffset:
    beginning = ShardOffset(position=Position.trim_horizon())

    def replayed(shard_id: str, shard: ShardOffset) -> ShardOffset:
        end = batch_end.shards.get(shard_id)
        start = batch_start.shards.get(shard_id, beginning)
        if end is None or (shard.position, shard.at_end) != (start.position, start.at_end):
            return shard
        return end.without_read()

    return StreamOffset(
        created=offset.created,
        shards={shard_id: replayed(shard_id, shard) for shard_id, shard in offset.shards.items()},
    )
