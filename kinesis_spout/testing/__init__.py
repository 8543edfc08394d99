"""Fakes that keep the ports' contracts, for the tests of this package and of its users."""

from kinesis_spout.testing.clock import ManualClock
from kinesis_spout.testing.dead_letters import InMemoryDeadLetterSink
from kinesis_spout.testing.shards import InMemoryShardGetter, InMemoryShardLister
from kinesis_spout.testing.store import (
    InMemoryCheckpointStore,
    InMemoryCoordinator,
    InMemoryProcess,
    InMemoryZooKeeper,
    StoreFault,
)
from kinesis_spout.testing.stream import InMemoryStream

__all__ = [
    "InMemoryCheckpointStore",
    "InMemoryCoordinator",
    "InMemoryDeadLetterSink",
    "InMemoryProcess",
    "InMemoryShardGetter",
    "InMemoryShardLister",
    "InMemoryStream",
    "InMemoryZooKeeper",
    "ManualClock",
    "StoreFault",
]
