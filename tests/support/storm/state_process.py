"""A process that counts records in keyed state, and commits it with its progress, until it is killed.

Arguments: where ZooKeeper is, its root, a member's name, the address of the state, how many tasks. Record number n
is of customer n modulo 7; so the counts say how many records there were, whoever counted them.

Its first line names its session, so that nobody need wait for the end of that: see ``end_session``.
"""

import itertools
import sys

from kinesis_spout.ports import Attachment, CheckpointWrite
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.key_values import task_of
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.partition import StatePartition
from kinesis_spout.storm.state.versions import KeyedState
from kinesis_spout.zookeeper import Paths, ZooKeeperBackend, ZooKeeperSession
from shard_state import SHARD_START, Checkpoint, Position, SequenceNumber
from tests.support.core.shards import everywhere, shards_named
from tests.support.zookeeper.server import SESSION_TIMEOUT_SECONDS

SHARD = "shardId-000000000000"
START = Position.trim_horizon()
TOPOLOGY, BOLT = "counts", "count"
CUSTOMERS, BATCH = 7, 10


def backend_of(hosts: str, root: str, member: str) -> ZooKeeperBackend:
    paths = Paths(root=root, app="billing", stream="orders")
    return ZooKeeperBackend(
        ZooKeeperSession(hosts, session_timeout_seconds=SESSION_TIMEOUT_SECONDS), paths, member=member
    )


def handled(checkpoint: Checkpoint) -> int:
    """How many records are finished; the sequence number of the first is 1."""
    return 0 if checkpoint.base == SHARD_START else checkpoint.base.number


def counted(files: StateFiles, manifest: StateManifest) -> dict[int, int]:
    """Read the whole state as a worker does that knows nothing."""
    found: dict[int, int] = {}
    for index in range(manifest.components[BOLT].parallelism):
        partition = StatePartition(files, manifest.place(BOLT, index))
        partition.load(manifest.files(BOLT, index))
        found |= dict(partition.state.items())
    return found


def count(partition: StatePartition, manifest: StateManifest, index: int, first: int) -> StateUpdate | None:
    parallelism = manifest.components[BOLT].parallelism
    partition.load(manifest.files(BOLT, index))
    for number in range(first, first + BATCH):
        customer = number % CUSTOMERS
        if task_of(customer, parallelism) == index:
            partition.state.put(customer, partition.state.get(customer, 0) + 1)
    return partition.end_batch()


def main(hosts: str, root: str, member: str, address: str, parallelism: int) -> None:
    backend = backend_of(hosts, root, member)
    backend.store.open(1.0, everywhere(START), shards_named(SHARD))
    session_id, password = backend.session.client.client_id
    _say(f"{session_id} {password.hex()}")
    backend.coordinator.join()
    checkpoint = backend.coordinator.acquire(SHARD, Checkpoint(start=START, parents=()), fences=True)
    assert checkpoint is not None, "it is fenced"
    files = StateFiles(address)
    state = KeyedState(TOPOLOGY, address, {BOLT: parallelism})
    state.load(backend.store.attached(TOPOLOGY))
    manifest = state.begin()
    assert manifest is not None
    parts = [StatePartition(files, manifest.place(BOLT, index)) for index in range(parallelism)]
    for first in itertools.count(handled(checkpoint) + 1, BATCH):
        manifest = state.begin()
        assert manifest is not None
        updates = [count(part, manifest, index, first) for index, part in enumerate(parts)]
        state.settled(manifest, [update for update in updates if update is not None])
        progress = Checkpoint(start=START, base=SequenceNumber(first + BATCH - 1), epoch=checkpoint.epoch)
        data = state.attachment()
        assert data is not None
        result = backend.store.commit(
            [CheckpointWrite(shard_id=SHARD, checkpoint=progress)], Attachment(name=TOPOLOGY, data=data)
        )
        assert result.attached, "it is fenced"
        state.committed(data)
        _say("committed")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    hosts_, root_, member_, address_, tasks = sys.argv[1:]
    main(hosts_, root_, member_, address_, int(tasks))
