"""Several streams in memory, with the progress of one application on each, for tests of what reads several.

clock = ManualClock()
streams = InMemoryStreams(clock=clock)
streams.create("orders").put(b"one")
spout = SteppedSpout(ports=streams.process(), stream=["orders", "refunds-*"], app="billing")
"""

from kinesis_spout.consumer.open_ports import read_settings
from kinesis_spout.consumer.ports import History, Ports
from kinesis_spout.kinesis.pace import ApplicationBudget
from kinesis_spout.kinesis.shard_paces import ShardPaces
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import StreamNotFound
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing.dead_letters import InMemoryDeadLetterSink
from kinesis_spout.testing.stepped_spout import in_memory_ports
from kinesis_spout.testing.stream import InMemoryStream
from kinesis_spout.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper


class InMemoryStreams:
    """The streams of an account, and what one application has stored of each. Mutable.

    Args:
        clock: of all streams that are made.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.streams: dict[str, InMemoryStream] = {}
        self.progress: dict[str, InMemoryZooKeeper] = {}
        """Of each stream; an application of one stream may go on from it."""
        self.dead_letters: dict[str, InMemoryDeadLetterSink] = {}
        self.began: float | None = None
        """When the application first began on any of them."""
        self.listed = 0
        """How often the streams were listed."""

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
        """Of all streams, as the first one's settings say."""
        self.clock = world.clock

    def names(self, config: SpoutConfig) -> list[str]:
        """Name the streams that are not deleted; see the port."""
        del config
        self._world.listed += 1
        return [name for name, stream in self._world.streams.items() if not stream.is_deleted]

    def history(self) -> History:
        """Say on which streams the application has begun; see the port."""
        world = self._world
        begun = {name for name, zookeeper in world.progress.items() if zookeeper.begun is not None}
        if begun and world.began is None:
            world.began = self.clock.time()
        return History(began=world.began, streams=frozenset(begun))

    def open(self, config: SpoutConfig) -> Ports:
        """Open the ports of one stream; see the port."""
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
