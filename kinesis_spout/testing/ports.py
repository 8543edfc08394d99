"""The ports of a process in memory: of one stream, or of several with the progress of one application on each.

clock = ManualClock()
streams = InMemoryStreams(clock=clock)
streams.create("orders").put(b"one")
spout = SteppedSpout(ports=streams.process(), stream=["orders", "refunds-*"], app="billing")
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from kinesis_spout.consumer.open_ports import read_settings
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.kinesis.pace import ApplicationBudget, Pacing, ShardPaces
from kinesis_spout.kinesis.read.continuity import Continuity
from kinesis_spout.kinesis.read.read_settings import DEFAULT, ReadSettings
from kinesis_spout.kinesis.read.user_records import page_as_set
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import (
    DataLoss,
    DeadLetterError,
    ExpiredIterator,
    InvalidIterator,
    KinesisError,
    StreamNotFound,
)
from kinesis_spout.model.record import DeadLetter, LetterId, LetterOutcome
from kinesis_spout.ports import DeadLetterSink, Page, ShardGetter, StreamSummary
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing.stream import InMemoryStream
from kinesis_spout.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper
from shard_state import Position, Shard


class InMemoryDeadLetterSink:
    """Keeps letters in ``letters``. Mutable. Passes the port's contract tests, apart from surviving a crash."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        """Everything that was written, marked or not, repeats included."""
        self.marks: dict[LetterId, LetterOutcome] = {}
        self.closed = False
        self.is_writable = True
        """The answer of ``check_writable``. Writes do not look at it: see ``fail_writes``."""
        self._failures_to_come = 0

    def fail_writes(self, count: int) -> None:
        """Let the next ``count`` writes raise, with nothing stored."""
        self._failures_to_come = count

    def check_writable(self) -> None:
        """Fail if ``is_writable`` is not set; see the port."""
        if not self.is_writable:
            raise DeadLetterError("expected to be able to write, got a refusal that the test asked for")

    def write(self, letters: Sequence[DeadLetter]) -> None:
        if self._failures_to_come:
            self._failures_to_come -= 1
            raise DeadLetterError("expected to write, got a failure that the test asked for")
        self.letters.extend(letters)

    def read(self, outcome: LetterOutcome | None = None) -> Iterable[DeadLetter]:
        return [letter for letter in self.letters if self.marks.get(letter.letter_id) is outcome]

    def mark(self, letter_ids: Collection[LetterId], outcome: LetterOutcome) -> None:
        self.marks |= {each: outcome.after(self.marks.get(each)) for each in letter_ids}

    def close(self) -> None:
        """Note that it was closed. May be called twice."""
        self.closed = True


class InMemoryShardLister:
    """A ``ShardLister`` of an ``InMemoryStream``."""

    def __init__(self, stream: InMemoryStream) -> None:
        self.stream = stream

    def summary(self) -> StreamSummary:
        return self.stream.summary()

    def list_shards(self) -> list[Shard]:
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
        self._continuity = Continuity(self._position)
        self._settings = settings
        self._iterator: str | None = None
        self._pacing = pacing or Pacing(ready_at=stream.clock.monotonic(), jitter=lambda: 0.0)
        self._last_page: Page | None = None
        self._seen_at = 0.0
        self.data_losses = 0

    @property
    def position(self) -> Position:
        return self._position.known_since(self._continuity.since)

    @property
    def ready_at(self) -> float:
        return self._pacing.ready_at

    def read(self, limit: int) -> Page:
        if not 1 <= limit <= 10_000:  # noqa: PLR2004 - the API's own limit
            raise ValueError(f"expected a limit of 1 to 10000 records, got {limit}")
        if self._last_page is not None:
            return self._last_page
        try:
            page, self._iterator = self._get(self._iterator or self._new_iterator(), limit)
        except (ExpiredIterator, InvalidIterator):
            page, self._iterator = self._get(self._new_iterator(), limit)
        fetched, losses = page.records, self.data_losses
        self._look_for_gap(page)
        page = replace(
            page,
            records=[each for each in fetched if self._start.includes(each.sequence)],
            data_losses=self.data_losses - losses,
            since=self._continuity.since,
        )
        hash_keys = self._stream.hash_keys(self._shard_id)
        page = page_as_set(page, self._settings, start=self._start, hash_keys=hash_keys)
        if fetched:
            self._position = self._start = Position.after(fetched[-1].sequence)
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
        self._seen_at = clock.time()
        try:
            page, following = self._stream.get_records(iterator, self._continuity.limit(limit))
        except KinesisError as error:
            if not isinstance(error, ExpiredIterator | InvalidIterator):
                self._pacing.failed(clock.monotonic(), error)
            raise
        self._pacing.succeeded(started, page.size_bytes)
        self._pacing.answered()
        return page, following

    def _new_iterator(self) -> str:
        try:
            return self._stream.shard_iterator(self._shard_id, self._continuity.begins(self._position))
        except DataLoss as error:
            self._lose(error)
            return self._stream.shard_iterator(self._shard_id, self._position)

    def _look_for_gap(self, page: Page) -> None:
        numbers = [record.sequence for record in page.records]
        arrivals = [record.arrival_timestamp for record in page.records]
        behind = page.millis_behind_latest / 1000
        if not self._continuity.is_met_by(next(iter(numbers), None)):
            try:
                if self._continuity.check(
                    next(iter(numbers), None),
                    next(iter(arrivals), None),
                    behind,
                    now=self._stream.clock.time(),
                    at_end=page.at_end,
                    retention_hours=lambda: self._stream.summary().retention_hours,
                ):
                    self._iterator = None
            except DataLoss as error:
                self._lose(error)
        self._continuity.has_read(next(reversed(arrivals), None), behind, seen_at=self._seen_at)

    def _lose(self, error: DataLoss) -> None:
        if self._settings.fail_on_data_loss:
            self._iterator = None
            raise DataLoss(f"cannot read {self._shard_id} from {self._position}: {error}") from error
        self.data_losses += 1
        self._continuity.is_given_up()
        self._position = Position.trim_horizon()


def in_memory_ports(
    stream: InMemoryStream,
    zookeeper: InMemoryZooKeeper,
    dead_letters: DeadLetterSink | None = None,
    *,
    settings: ReadSettings = DEFAULT,
    paces: ShardPaces | None = None,
) -> Ports:
    """Give a new process's ports: to this stream, on its clock, and to this ZooKeeper.

    Args:
        stream: to read.
        zookeeper: where progress is kept. Ports to the same one are those of one application.
        dead_letters: a sink in memory unless given.
        settings: how shards are read.
        paces: how fast shards are read; None: as AWS allows.
    """
    process = zookeeper.process()
    paces = paces or ShardPaces(stream.clock, jitter=lambda: 0.0)

    def open_getter(shard_id: str, position: Position) -> ShardGetter:
        return InMemoryShardGetter(
            stream,
            shard_id,
            position,
            settings=settings,
            pacing=paces.of(shard_id),
        )

    return Ports(
        lister=InMemoryShardLister(stream),
        open_getter=open_getter,
        store=process.store,
        coordinator=process.coordinator,
        group=process.group,
        dead_letters=InMemoryDeadLetterSink() if dead_letters is None else dead_letters,
        clock=stream.clock,
        paces=paces,
        close=paces.close,
    )


class InMemoryStreams:
    """The streams of an account, and what one application has stored of each. Mutable.

    Args:
        clock: of all streams that are made.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.streams: dict[str, InMemoryStream] = {}
        self.progress: dict[str, InMemoryZooKeeper] = {}
        """The progress on each stream; an application of one stream may go on from it."""
        self.dead_letters: dict[str, InMemoryDeadLetterSink] = {}
        self.began: float | None = None
        """When the application first began on any of them."""
        self.listed = 0
        """The number of listings."""

    def create(self, name: str, *, shards: int = 1) -> InMemoryStream:
        """Make a stream. One of that name that was deleted stays deleted; its progress stays."""
        stream = self.streams[name] = InMemoryStream(name, shards=shards, clock=self.clock)
        self.progress.setdefault(name, InMemoryZooKeeper())
        self.dead_letters.setdefault(name, InMemoryDeadLetterSink())
        return stream

    def process(self) -> "InMemoryStreamsPorts":
        """Connect another process."""
        return InMemoryStreamsPorts(self)


class InMemoryStreamsPorts:
    """The ``StreamsPorts`` of one process on an ``InMemoryStreams``."""

    def __init__(self, world: InMemoryStreams) -> None:
        self._world = world
        self._budget: ApplicationBudget | None = None
        """The budget of all streams, as the first one's settings say."""
        self.clock = world.clock

    def names(self, config: SpoutConfig) -> list[str]:
        del config
        self._world.listed += 1
        return [name for name, stream in self._world.streams.items() if not stream.is_deleted]

    def begun(self) -> tuple[float | None, frozenset[str]]:
        world = self._world
        begun = {name for name, zookeeper in world.progress.items() if zookeeper.begun is not None}
        if begun and world.began is None:
            world.began = self.clock.time()
        return world.began, frozenset(begun)

    def open(self, config: SpoutConfig) -> Ports:
        world, name = self._world, config.stream_name
        if name not in world.streams:
            raise StreamNotFound(f"expected a stream {name!r}, found none (in memory)")
        if self._budget is None:
            self._budget = ApplicationBudget(config.max_total_fetch_bytes_per_second)
        return in_memory_ports(
            world.streams[name],
            world.progress[name],
            world.dead_letters[name],
            settings=read_settings(config),
            paces=ShardPaces(self.clock, budget=self._budget, jitter=lambda: 0.0),
        )

    def close(self) -> None:
        """Nothing to close."""
