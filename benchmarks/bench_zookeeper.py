"""One commit round through ``kinesis_spout.zookeeper``, against the embedded server, on the same machine.

The reference sets the same bytes node by node, waiting for each. *Raw* is what kazoo alone needs for one
transaction of the same operations: the difference to the commit is ours (encoding, fences, books).

A shard *with holes* has finished records beyond its first unfinished one: of every few records one failed once and
waits for its retry. What it stores grows with them.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from figures import Figure, best_wall_seconds, cpu_seconds

from kinesis_spout.ports import CheckpointWrite
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession
from shard_state import Checkpoint, Position, SequenceNumber, Shard, StartPositions

_WARM_UP_ROUNDS = 40
"""The server's JVM is slow at first; a spout commits every second for months."""
_HOLES: Final = 200
_BASE: Final = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
_STEP: Final = 1 << 80
"""From record to record of a shard, about; the numbers of Kinesis are sparse."""


def figures(*, quick: bool) -> Iterator[Figure]:
    counts = [1, 100] if quick else [1, 100, 1_000]
    with tempfile.TemporaryDirectory() as directory, EmbeddedZooKeeper(Path(directory)) as server:
        for count in counts:
            yield from _commit_rounds(server, count, repeats=10 if quick else 25)
        yield from _commits_with_holes(server, counts[-1], repeats=2 if quick else 3)


@contextmanager
def _owned_shards(
    server: EmbeddedZooKeeper, stream: str, count: int
) -> Iterator[tuple[ZooKeeperBackend, dict[str, Checkpoint]]]:
    """Own the shards of a stream while the block runs."""
    session = ZooKeeperSession(server.connect_string)
    with ZooKeeperBackend(session, Paths(app="benchmark", stream=stream)) as backend:
        shard_ids = [f"shardId-{number:012}" for number in range(count)]
        start = Position.at_timestamp(1_700_000_000.0)
        backend.store.open(
            1_700_000_000.0,
            StartPositions(default=start),
            [Shard(shard_id=shard_id) for shard_id in shard_ids],
        )
        backend.coordinator.join()
        yield backend, {shard_id: _acquired(backend, shard_id, start) for shard_id in shard_ids}


def _commits_with_holes(server: EmbeddedZooKeeper, count: int, repeats: int) -> Iterator[Figure]:
    with _owned_shards(server, f"holes-{count}", count) as (backend, owned):
        costs: dict[int, tuple[int, float, float]] = {}
        for holes in (0, _HOLES):
            writes = _writes(owned, holes)
            stored = sum(len(write.checkpoint.encode()) for write in writes)
            commit = _commit(backend, writes)
            wall = best_wall_seconds(commit, repeats=repeats)
            costs[holes] = stored, wall, cpu_seconds(commit, repeats=repeats)
    what = f"commit of {count:,} shards with {_HOLES} holes each"
    parts = (("stored", "MB", 1e-6), ("wall", "s", 1.0), ("client CPU", "s CPU", 1.0))
    for at, (part, unit, scale) in enumerate(parts):
        yield Figure(
            what=f"{what}, {part}",
            value=costs[_HOLES][at] * scale,
            unit=unit,
            note=f"{costs[0][at] * scale:.2g} {unit} without holes",
        )


def _commit_rounds(server: EmbeddedZooKeeper, count: int, repeats: int) -> Iterator[Figure]:
    with _owned_shards(server, f"shards-{count}", count) as (backend, owned):
        commit = _commit(backend, _writes(owned))
        one_by_one = _one_by_one(backend, owned)
        for _ in range(_WARM_UP_ROUNDS):
            commit()
        wall = best_wall_seconds(commit, repeats=repeats)
        cpu = cpu_seconds(commit, repeats=repeats)
        raw_wall, raw_cpu = _raw(backend, owned, repeats)
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


def _commit(backend: ZooKeeperBackend, writes: list[CheckpointWrite]) -> Callable[[], None]:
    def commit() -> None:
        assert len(backend.store.commit(writes).committed) == len(writes)

    return commit


def _writes(owned: dict[str, Checkpoint], holes: int = 0) -> list[CheckpointWrite]:
    """Say what is stored of each shard. The record before each hole has failed once and is unfinished."""
    base, *numbers = [SequenceNumber(_BASE + at * _STEP) for at in range(2 * holes + 1)]
    failed, finished = numbers[::2], numbers[1::2]
    return [
        CheckpointWrite(
            shard_id=shard_id,
            checkpoint=Checkpoint(
                start=checkpoint.start,
                base=base,
                holes=tuple(zip(failed, finished, strict=True)),
                anchor=failed[0] if failed else None,
                attempts=tuple((sequence, 1) for sequence in failed),
                epoch=checkpoint.epoch,
                app_instance="host-1234-abcdef12",
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


def _raw(backend: ZooKeeperBackend, owned: dict[str, Checkpoint], repeats: int) -> tuple[float, float]:
    """Send the operations of a commit with kazoo alone, to nodes that nobody else uses."""
    paths = backend.paths
    client: Any = backend.session.client
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
