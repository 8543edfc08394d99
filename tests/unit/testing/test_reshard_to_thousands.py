"""One shard that becomes many, by a chain of splits: nothing lost, parents first, no shard looked at too often."""

from collections import Counter

import pytest

from kinesis_spout.testing import (
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)
from shard_state import Shard

pytestmark = pytest.mark.no_second_run

_SHARDS = 128


def _split_up(stream: InMemoryStream, shards: int) -> int:
    """Put a record into every shard and split it, generation by generation; tells how many were put."""
    put = 0
    while len(leaves := [shard for shard in stream.list_shards() if not shard.closed]) < shards:
        for leaf in leaves:
            put += 1
            # Keyless records take turns: some shards have none, some several, as in life.
            stream.put(str(put).encode())
            stream.split(leaf.shard_id)
    for _ in range(shards):
        put += 1
        stream.put(str(put).encode())
    return put


def test_a_reshard_from_one_shard_to_many_loses_nothing_and_gives_parents_before_children() -> None:
    clock = ManualClock()
    stream = InMemoryStream("orders", clock=clock)
    put = _split_up(stream, _SHARDS)
    parents = {shard.shard_id: shard.parents for shard in stream.list_shards()}
    open_shards = [shard.shard_id for shard in stream.list_shards() if not shard.closed]
    ports = in_memory_ports(stream, InMemoryZooKeeper())
    lists: Counter[str] = Counter()
    list_shards = ports.lister.list_shards

    def counted() -> list[Shard]:
        lists["calls"] += 1
        return list_shards()

    ports.lister.list_shards = counted  # type: ignore[method-assign]
    handed_out: list[tuple[str, bytes]] = []
    with SteppedSpout(
        ports=ports, stream="orders", app="billing", initial_position="trim_horizon"
    ).open() as spout:
        while len(handed_out) < put:
            emitted = spout.next_tuple()
            if emitted is None:
                clock.advance(0.1)
                continue
            record = spout.record(emitted.message_id)
            assert record is not None
            handed_out.append((record.shard_id, record.data))
            spout.ack(emitted.message_id)

    assert sorted(int(data) for _, data in handed_out) == list(range(1, put + 1))
    last_at = {shard_id: at for at, (shard_id, _) in enumerate(handed_out)}
    for at, (shard_id, _) in enumerate(handed_out):
        assert all(last_at.get(parent, -1) < at for parent in parents[shard_id])
    assert len(open_shards) == _SHARDS
    # A list for each wave of ends, not for each shard that ends.
    assert lists["calls"] < _SHARDS
