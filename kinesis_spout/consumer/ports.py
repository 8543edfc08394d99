"""What a consumer talks to: the outside world (real by default, fakes in tests), and whoever reads its shards."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kinesis_spout.consumer.rates import DeliveryRate
from kinesis_spout.kinesis.shard_paces import ShardPaces
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.ports import CheckpointStore, Coordinator, DeadLetterSink, Group, ShardGetter, ShardLister
from shard_state import Position

OpenGetter = Callable[[str, Position], ShardGetter]
"""Opens a getter on a shard (by id) at a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside world of one consumer."""

    lister: ShardLister
    open_getter: OpenGetter
    """For a shard that is read on and on."""
    open_rereader: OpenGetter | None = None
    """For some records of a shard that were read before, on any thread; None: ``open_getter`` does."""
    store: CheckpointStore
    coordinator: Coordinator
    group: Group
    dead_letters: DeadLetterSink
    clock: Clock = field(default_factory=SystemClock)
    paces: ShardPaces = None  # type: ignore[assignment]  # made below: it needs the clock
    """Those that ``open_getter`` gives to its getters; as AWS allows, on ``clock``, unless given."""
    deliveries: DeliveryRate | None = None
    """How often records are delivered, of all streams of this process; None: of this one, as its settings say."""
    close: Callable[[], None] = lambda: None
    """Closes what was opened for this consumer, after the coordinator: session, embedded server."""

    def __post_init__(self) -> None:
        if not self.paces:
            object.__setattr__(self, "paces", ShardPaces(self.clock))


class Companion(Protocol):
    """Something that changes with the records that are finished, and is stored with the progress on them.

    Both are of the same moment, and are stored in one transaction: both or neither. It needs all shards of the
    application in one place. Whoever reads has the changes and the outcomes of their records taken in under one
    holding of the consumer's lock. Every method is called under that lock, and does no I/O.
    """

    @property
    def name(self) -> str:
        """What it is called in the store."""
        ...

    def load(self, stored: bytes | None) -> None:
        """Begin with what is stored; None where nothing is.

        Called after the first shard was acquired and before it is handed to whoever reads: at the start, and again
        after ``lost``.

        Raises:
            KinesisSpoutError: it cannot be read. That ends the consumer.
        """
        ...

    def attachment(self) -> bytes | None:
        """Give its present content to be stored; None if that is stored already. Called for each commit."""
        ...

    def committed(self, data: bytes) -> None:
        """Take in that content is stored which ``attachment`` gave; there may be newer one by now."""
        ...

    def lost(self) -> None:
        """Forget everything: no shard is owned any more, and another process may go on from what is stored."""
        ...


class OwnershipListener(Protocol):
    """Reads the shards that are owned; is told when that changes. Called by the housekeeper, under the lock."""

    def shards_acquired(self, shard_ids: Iterable[str]) -> None:
        """Begin to read."""
        ...

    def shards_lost(self, shard_ids: Iterable[str]) -> None:
        """Drop everything that was read of the shards."""
        ...

    def resumed(self) -> None:
        """Go on at once: an operator has ended a pause."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether nothing is read because of what is kept of records that are not finished."""
        ...
