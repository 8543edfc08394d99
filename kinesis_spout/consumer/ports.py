"""The surroundings of a consumer: the outside world (fakes in tests), and the reader of its shards."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from kinesis_spout.consumer.limits.delivery_rate import DeliveryRate
from kinesis_spout.kinesis.pace import ShardPaces
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import InvalidConfig, refuse_other_kind
from kinesis_spout.ports import CheckpointStore, Coordinator, DeadLetterSink, Group, ShardGetter, ShardLister
from kinesis_spout.settings import SpoutConfig
from shard_state import Position

LONGEST_TURN_SECONDS: Final = 1.0
"""A reader with a loop of its own waits at most for so long before it turns again."""

OpenGetter = Callable[[str, Position], ShardGetter]
"""Opens a getter on a shard (by id) at a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside world of a consumer of one stream; ``dataclasses.replace(ports, store=...)`` replaces a part."""

    lister: ShardLister
    open_getter: OpenGetter
    """For a shard that is read continuously."""
    open_rereader: OpenGetter | None = None
    """For some records of a shard that were read before, on any thread; None: ``open_getter`` does."""
    store: CheckpointStore
    coordinator: Coordinator
    group: Group
    dead_letters: DeadLetterSink
    clock: Clock = field(default_factory=SystemClock)
    paces: ShardPaces = None  # type: ignore[assignment]  # made below: it needs the clock
    """Those that ``open_getter`` gives to its getters; by default AWS's limits, on ``clock``."""
    deliveries: DeliveryRate | None = None
    """The rate for all streams of this process; None: this stream's own, from its settings."""
    close: Callable[[], None] = lambda: None
    """Closes what was opened for this consumer, after the coordinator: session, embedded server."""

    def __post_init__(self) -> None:
        if not self.paces:
            object.__setattr__(self, "paces", ShardPaces(self.clock))

    def close_all(self) -> None:
        """Close everything, if no consumer has taken it over."""
        self.group.close()
        self.coordinator.close()
        self.dead_letters.close()
        self.close()


class StreamsPorts(Protocol):
    """The outside world of a spout: opens the ports of each stream and holds what they share. Thread-safe."""

    @property
    def clock(self) -> Clock: ...

    def names(self, config: SpoutConfig) -> list[str]:
        """Name every stream of the account and region of these settings, on all pages.

        Raises:
            KinesisError: with ``retriable`` set if it is transient.
        """
        ...

    def begun(self) -> tuple[float | None, frozenset[str]]:
        """Return when the application first began, and the names of the streams on which it has begun.

        The time is in seconds since the epoch, by the store's clock; None: it never began.
        """
        ...

    def open(self, config: SpoutConfig) -> Ports:
        """Open the ports of one stream. Closing them leaves shared ones open.

        Raises:
            InvalidConfig: no region.
            KinesisSpoutError: see ``open_ports``.
        """
        ...

    def close(self) -> None:
        """Close what is shared, after all that was opened. May be called twice."""
        ...


class GivenPorts:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._is_taken_over = False
        self.clock = ports.clock

    def names(self, config: SpoutConfig) -> list[str]:
        del config
        return []

    def begun(self) -> tuple[float | None, frozenset[str]]:
        return None, frozenset()

    def open(self, config: SpoutConfig) -> Ports:
        del config
        self._is_taken_over = True
        return self._ports

    def close(self) -> None:
        if not self._is_taken_over:
            self._ports.close_all()


def given_ports(ports: Ports | StreamsPorts, config: SpoutConfig) -> StreamsPorts:
    """Raises InvalidConfig if ``ports`` are of one stream, and several are to be read."""
    if not isinstance(ports, Ports):
        refuse_other_kind("ports", "Ports, as open_ports(config) opens them", ports, "open", "names", "clock")
        return ports
    if config.is_several:
        raise InvalidConfig(f"expected ports of several streams for stream={config.stream!r}, got Ports")
    return GivenPorts(ports)


class Companion(Protocol):
    """Content that changes with the records that are finished, and is stored with their progress.

    Content and progress are of the same moment, and are stored in one transaction: both or neither. It needs
    all shards of the application in one place. The reader applies changes and the outcomes of their records
    under one holding of the consumer's lock. Every method is called under that lock, and does no I/O.
    """

    @property
    def name(self) -> str: ...

    def load(self, stored: bytes | None) -> None:
        """Begin with what is stored; None where nothing is.

        Called after the first shard was acquired and before the reader gets it: at the start, and again after
        ``lost``.

        Raises:
            KinesisSpoutError: it cannot be read. That ends the consumer.
        """
        ...

    def attachment(self) -> bytes | None:
        """Return the present content to be stored; None if it is stored already. Called for each commit."""
        ...

    def committed(self, data: bytes) -> None:
        """Take in that ``data``, from ``attachment``, is stored; the content can be newer by now."""
        ...

    def lost(self) -> None:
        """Forget everything: no shard is owned any more; another process can continue from what is stored."""
        ...


class ShardReading(NamedTuple):
    """The state of the reading of one owned shard."""

    lag_millis: int | None
    """The distance to the tip, as its last page said; None before the first."""
    has_records: bool
    """True if records of it were read and are not finished, or not handed out."""
    since: float | None
    """When the read began that is under way; monotonic, None: none is."""
    busy_until: float | None = None
    """Until when a full micro-batch that has a slice of it may last; monotonic, None: it is in no full one."""


class OwnershipListener(Protocol):
    """Reads the owned shards. The housekeeper calls it when they change, under the lock."""

    def shards_acquired(self, shard_ids: Iterable[str]) -> None:
        """Begin to read."""
        ...

    def shards_lost(self, shard_ids: Iterable[str]) -> None:
        """Drop everything that was read of the shards."""
        ...

    def resumed(self) -> None:
        """An operator has ended a pause: continue at once."""
        ...

    @property
    def readings(self) -> Mapping[str, ShardReading]:
        """The state of the reading of each shard that this reads; those that executors read included."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Bytes kept of records that are not finished, or that were read ahead."""
        ...

    @property
    def turned_at(self) -> float | None:
        """When its loop turned last, by the clock; None if it has none of its own."""
        ...

    @property
    def is_full(self) -> bool:
        """True if reading has stopped because unfinished records use all the memory that is theirs."""
        ...
