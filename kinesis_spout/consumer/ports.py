"""What a consumer talks to: the outside world (real by default, fakes in tests), and whoever reads its shards."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.coordination import Coordinator, Group
from kinesis_spout.ports import CheckpointStore, DeadLetterSink, ShardGetter, ShardLister
from shard_state import Position

OpenGetter = Callable[[str, Position], ShardGetter]
"""Opens a getter on a shard (by id) at a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside world of one consumer."""

    lister: ShardLister
    open_getter: OpenGetter
    store: CheckpointStore
    coordinator: Coordinator
    group: Group
    dead_letters: DeadLetterSink
    clock: Clock = field(default_factory=SystemClock)
    close: Callable[[], None] = lambda: None
    """Closes what was opened for this consumer, after the coordinator: session, embedded server."""


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
