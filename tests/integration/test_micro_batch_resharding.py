"""Splits and merges under load: nothing is lost, and children come after their parents (invariant 7)."""

import pytest
from pyspark.sql import SparkSession

from kinesis_spout.kinesis import KinesisShardLister
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from shard_state import ShardPhase
from tests.support.kinesis.endpoints import FILLS_CHILDREN, KEEPS_CLOSED, SHARD_END, KinesisEndpoint
from tests.support.spark.micro_batch_world import MicroBatchWorld, logging_handler

pytestmark = [pytest.mark.no_second_run, pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint]

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


@pytest.fixture
def world(
    kinesis_local: KinesisEndpoint,
    zookeeper_server: EmbeddedZooKeeper,
    tmp_path_factory: pytest.TempPathFactory,
) -> MicroBatchWorld:
    kinesis_local.needs(SHARD_END, KEEPS_CLOSED, FILLS_CHILDREN)
    return MicroBatchWorld(kinesis_local, zookeeper_server, tmp_path_factory.mktemp("reshard"), 2)


def split(world: MicroBatchWorld, shard_id: str) -> None:
    client = world.endpoint.client()
    listed = {shard.shard_id: shard for shard in KinesisShardLister(client, world.stream).list_shards()}
    first, last = listed[shard_id].hash_range
    client.split_shard(
        StreamName=world.stream, ShardToSplit=shard_id, NewStartingHashKey=str((first + last + 1) // 2)
    )
    world.endpoint.wait_active(world.stream)


def merge(world: MicroBatchWorld, shard_id: str, adjacent_shard_id: str) -> None:
    world.endpoint.client().merge_shards(
        StreamName=world.stream, ShardToMerge=shard_id, AdjacentShardToMerge=adjacent_shard_id
    )
    world.endpoint.wait_active(world.stream)


def test_nothing_is_lost_when_shards_split_and_merge_under_load(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    def act(payload: str, attempt: int) -> None:
        if payload.endswith("7") and attempt == 1:
            raise ValueError("once")

    payloads: list[str] = []

    def put(stage: str) -> None:
        mine = [f"{stage}-{number}" for number in range(100)]
        world.put(mine)
        payloads.extend(mine)

    put("before")
    with world.spout().foreach_record(spark, logging_handler(world.log, act)) as query:
        put("running")
        split(world, FIRST)
        put("after the split")
        merge(world, "shardId-000000000003", SECOND)
        put("after the merge")
        query.processAllAvailable()
        phases = {shard.shard_id: shard.phase for shard in query.shards()}

    counts = world.log.counts()
    assert set(counts) == set(payloads)
    assert all(count == 1 + text.endswith("7") for text, count in counts.items())
    assert phases[FIRST] is phases[SECOND] is phases["shardId-000000000003"] is ShardPhase.OVER
    order = [delivery.shard_id for delivery in world.log.deliveries()]
    for parent, child in [
        (FIRST, "shardId-000000000002"),
        (FIRST, "shardId-000000000003"),
        (SECOND, "shardId-000000000004"),
        ("shardId-000000000003", "shardId-000000000004"),
    ]:
        if parent in order and child in order:
            last_of_parent = len(order) - 1 - order[::-1].index(parent)
            assert last_of_parent < order.index(child), f"{child} before the end of {parent}"
    assert {FIRST, SECOND, "shardId-000000000004"} <= set(order)
