"""A ZooKeeper in memory: the store and the coordinator of several processes, with faults on demand.

It keeps the same promises as the real one, by the same means: each shard's node has a version, acquiring raises
epoch and version in one step, and a write is conditional on the version that the owner's last write left.

    zookeeper = InMemoryZooKeeper()
    one, two = zookeeper.process("one"), zookeeper.process("two")
    start = StartPositions(default=Position.trim_horizon())
    one.store.open(created, start, [Shard(shard_id="shardId-000000000000")])
    checkpoint = one.coordinator.acquire("shardId-000000000000", fresh)
    zookeeper.expire("one")             # as if "one" had slept for longer than its session
"""

from kinesis_spout.testing.zookeeper.checkpoint_store import InMemoryCheckpointStore
from kinesis_spout.testing.zookeeper.coordinator import InMemoryCoordinator
from kinesis_spout.testing.zookeeper.group import InMemoryGroup
from kinesis_spout.testing.zookeeper.nodes import InMemoryNodes


class InMemoryProcess:
    """One process's store, coordinator and group."""

    def __init__(self, zookeeper: InMemoryNodes, member: str) -> None:
        self.group = InMemoryGroup(zookeeper, member)
        self.coordinator = InMemoryCoordinator(zookeeper, member)
        self.store = InMemoryCheckpointStore(zookeeper, self.coordinator)

    def close(self) -> None:
        """Leave."""
        self.group.close()
        self.coordinator.close()

    # -- for the nodes

    def lose(self, shard_id: str) -> None:
        """Learn that a shard is another's."""
        self.coordinator.lose(shard_id)

    def lose_all(self) -> None:
        """Learn that the session is over."""
        self.coordinator.lose_all()

    def changed(self) -> None:
        """Learn that something has changed."""
        self.group.changed()


class InMemoryZooKeeper(InMemoryNodes):
    """Mutable: the place of one application on one stream, shared by its processes. Thread-safe."""

    def process(self, member: str | None = None) -> InMemoryProcess:
        """Connect another process, whose name nobody else has: the third one is ``process-3`` unless named."""
        with self.lock:
            member = member or f"process-{len(self.sessions) + 1}"
            process = InMemoryProcess(self, member)
            self.sessions[member] = process
        return process
