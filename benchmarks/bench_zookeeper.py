"""One commit round through ``kinesis_spout.zookeeper``, against the embedded server, on the same machine.

The reference sets the same bytes node by node, waiting for each. *Raw* is what kazoo alone needs for one
transaction of the same operations: the difference to the commit is ours (encoding, fences, books).
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from figures import Figure, best_wall_seconds, cpu_seconds

from kinesis_spout.ports import CheckpointWrite
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession
from shard_state import Checkpoint, Position, SequenceNumber, Shard

_WARM_UP_ROUNDS = 40
"""The server's JVM is slow at first; a spout commits every second for months."""


def figures(*, quick: bool) -> Iterator[Figure]:
    counts = [1, 100] if quick else [1, 100, 1_000]
    with tempfile.TemporaryDirectory() as directory, EmbeddedZooKeeper(Path(directory)) as server:
        for count in counts:
            yield from _commit_rounds(server, count, repeats=10 if quick else 25)


def _commit_rounds(server: EmbeddedZooKeeper, count: int, repeats: int) -> Iterator[Figure]:
    paths = Paths(app="benchmark", stream=f"shards-{count}")
    session = ZooKeeperSession(server.connect_string)
    with ZooKeeperBackend(session, paths) as backend:
        shard_ids = [f"shardId-{number:012}" for number in range(count)]
        start = Position.at_timestamp(1_700_000_000.0)
        backend.store.open(1_700_000_000.0, start, [Shard(shard_id=shard_id) for shard_id in shard_ids])
        backend.coordinator.join()
        owned = {shard_id: _acquired(backend, shard_id, start) for shard_id in shard_ids}
        commit = _commit(backend, owned)
        one_by_one = _one_by_one(backend, owned)
        for _ in range(_WARM_UP_ROUNDS):
            commit()
        wall = best_wall_seconds(commit, repeats=repeats)
        cpu = cpu_seconds(commit, repeats=repeats)
        raw_wall, raw_cpu = _raw(session, paths, owned, repeats)
        # Behind the store's back: its versions are wrong from here on, so this comes last.
        slow_wall = best_wall_seconds(one_by_one, repeats=3)
        slow_cpu = cpu_seconds(one_by_one, repeats=3)
        shards = f"{count:,} dirty shard{'s' * (count > 1)}"
        yield Figure(
            what=f"commit of {shards}, wall",
            value=wall * 1e3,
            unit="ms",
            reference="set one by one",
            ratio=slow_wall / wall,
        )
        yield Figure(
            what=f"commit of {shards}, client CPU",
            value=cpu * 1e3,
            unit="ms CPU",
            reference="set one by one",
            ratio=slow_cpu / cpu,
        )
        yield Figure(
            what=f"raw kazoo transaction, {shards}, wall",
            value=raw_wall * 1e3,
            unit="ms",
            reference="commit",
            ratio=wall / raw_wall,
        )
        yield Figure(
            what=f"raw kazoo transaction, {shards}, client CPU",
            value=raw_cpu * 1e3,
            unit="ms CPU",
            reference="commit",
            ratio=cpu / raw_cpu,
        )


def _acquired(backend: ZooKeeperBackend, shard_id: str, start: Position) -> Checkpoint:
    checkpoint = backend.coordinator.acquire(shard_id, Checkpoint(start=start))
    assert checkpoint is not None
    return checkpoint


def _commit(backend: ZooKeeperBackend, owned: dict[str, Checkpoint]) -> Callable[[], None]:
    writes = _writes(owned)

    def commit() -> None:
        assert len(backend.store.commit(writes).committed) == len(writes)

    return commit


def _writes(owned: dict[str, Checkpoint]) -> list[CheckpointWrite]:
    base = SequenceNumber(49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898)
    return [
        CheckpointWrite(
            shard_id=shard_id,
            checkpoint=Checkpoint(
                start=checkpoint.start, base=base, epoch=checkpoint.epoch, app_instance="host-1234-abcdef12"
            ),
        )
        for shard_id, checkpoint in owned.items()
    ]


def _one_by_one(backend: ZooKeeperBackend, owned: dict[str, Checkpoint]) -> Callable[[], None]:
    client, paths = backend.session.client, backend.paths
    stored = [(paths.shard(write.shard_id), write.checkpoint.encode()) for write in _writes(owned)]

    def set_all() -> None:
        for path, encoded in stored:
            client.set(path, encoded)

    return set_all


def _raw(
    session: ZooKeeperSession, paths: Paths, owned: dict[str, Checkpoint], repeats: int
) -> tuple[float, float]:
    """Send the operations of a commit with kazoo alone, to nodes that nobody else uses."""
    client: Any = session.client
    stored = [(write.shard_id, write.checkpoint.encode()) for write in _writes(owned)]
    place = f"{paths.base}/raw"
    for shard_id, encoded in stored:
        client.create(f"{place}/{shard_id}", encoded, makepath=True)

    def transact() -> None:
        transaction = client.transaction()
        for shard_id, encoded in stored:
            transaction.check(paths.owner(shard_id), 0)
            transaction.set_data(f"{place}/{shard_id}", encoded)
        transaction.commit()

    return best_wall_seconds(transact, repeats=repeats), cpu_seconds(transact, repeats=repeats)
