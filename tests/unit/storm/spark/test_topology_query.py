"""The handle of a topology has what those of the other doors have. Its spouts run in this process."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.spark.topology_query import RunningSpout, TopologyQuery
from tests.support.waiting import wait_until
from tests.unit.spark.driver.test_several_streams import World

if TYPE_CHECKING:
    from kinesis_spout.storm import Topology


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def topology_of(world: World, **names: str) -> TopologyQuery:
    """Give a handle on the queries of streams, by the ids of the spouts that they stand for."""
    world.create(*names.values())
    streams = world.start(list(names.values()))
    wait_until(lambda: set(streams.streams) == set(names.values()), "all streams are read")
    spouts = {spout: RunningSpout(streams.streams[name], dict) for spout, name in names.items()}
    return TopologyQuery(cast("Topology", None), "words", spouts)


def test_it_speaks_for_its_only_spout(world: World) -> None:
    query = topology_of(world, lines="orders")
    world.put("orders", "a", "b")
    world.until_handled("orders", "b")
    wait_until(lambda: query.counters.acked == 2, "both are finished")
    assert (query.failures, query.last_error, query.trouble, query.resume()) == ({}, None, None, False)
    assert (query.isActive, query.is_done) == (True, False)
    with pytest.raises(InvalidConfig, match="expected a timeout of more than 0 seconds, got 0"):
        query.awaitTermination(0)
    assert [shard.shard_id for shard in query.shards()] == [
        shard.shard_id for shard in query.spouts["lines"].shards()
    ]


def test_it_speaks_for_several_spouts_and_names_their_shards_after_them(world: World) -> None:
    query = topology_of(world, first="orders", second="returns")
    world.put("orders", "a")
    world.put("returns", "b", "c")
    wait_until(lambda: query.counters.acked == 3, "all are finished")
    shards = {shard.shard_id for shard in query.shards()}
    assert {shard.partition("/")[0] for shard in shards} == {"first", "second"}
    with pytest.raises(
        InvalidConfig, match=r"expected a shard as spout/shardId, of one of first, second, got 'x'"
    ):
        query.pause_shards("x")

    (of_second,) = (shard for shard in shards if shard.startswith("second/"))
    query.pause_shards(of_second)
    wait_until(lambda: query.paused_shards == {of_second}, "the shard is paused")
    assert query.paused_by_operator is not None
    assert query.resume_shards()
    wait_until(lambda: not query.paused_shards, "it goes on")
