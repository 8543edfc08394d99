"""For the tests of this package and of its users: ``run`` for a handler, and fakes that keep the ports' contracts.

``run`` is enough for most; ``SteppedSpout`` is the plain-Python door on the fakes; begin reading there.
"""

from kinesis_spout.testing.clock import ManualClock
from kinesis_spout.testing.ports import (
    InMemoryDeadLetterSink,
    InMemoryShardGetter,
    InMemoryShardLister,
    InMemoryStreams,
    in_memory_ports,
)
from kinesis_spout.testing.producer import InMemorySpool, InMemorySpoolFolder, SteppedProducer
from kinesis_spout.testing.run import Delivery, Ending, Outcome, Outcomes, run
from kinesis_spout.testing.stepped_spout import SteppedSpout
from kinesis_spout.testing.stream import InMemoryStream
from kinesis_spout.testing.zookeeper.checkpoint_store import InMemoryCheckpointStore
from kinesis_spout.testing.zookeeper.coordinator import InMemoryCoordinator
from kinesis_spout.testing.zookeeper.election import InMemoryElection, InMemoryOffice
from kinesis_spout.testing.zookeeper.in_memory_zookeeper import InMemoryProcess, InMemoryZooKeeper
from kinesis_spout.testing.zookeeper.nodes import StoreFault

__all__ = [
    "Delivery",
    "Ending",
    "InMemoryCheckpointStore",
    "InMemoryCoordinator",
    "InMemoryDeadLetterSink",
    "InMemoryElection",
    "InMemoryOffice",
    "InMemoryProcess",
    "InMemoryShardGetter",
    "InMemoryShardLister",
    "InMemorySpool",
    "InMemorySpoolFolder",
    "InMemoryStream",
    "InMemoryStreams",
    "InMemoryZooKeeper",
    "ManualClock",
    "Outcome",
    "Outcomes",
    "SteppedProducer",
    "SteppedSpout",
    "StoreFault",
    "in_memory_ports",
    "run",
]
