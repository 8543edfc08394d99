"""Everything a consumer talks to, in one value: real by default, fakes in tests."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.ports import CheckpointStore, Coordinator, DeadLetterSink, ShardGetter, ShardLister
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
    dead_letters: DeadLetterSink
    clock: Clock = field(default_factory=SystemClock)
    close: Callable[[], None] = lambda: None
    """Closes what was opened for this consumer, after the coordinator: session, embedded server."""
