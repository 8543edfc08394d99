"""Records that are not handed out, on real Spark: those that are too old, and those an operator holds back."""

from datetime import timedelta

import pytest
from moto.kinesis.models import kinesis_backends
from pyspark.sql import SparkSession

from tests.support.spark.micro_batch_world import MakeWorld, MicroBatchWorld, logging_handler
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint]

ACCOUNT = "123456789012"  # of everybody who asks moto
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
HASH_KEYS = {FIRST: "1", SECOND: str(2**127 + 1)}


@pytest.fixture
def world(make_world: MakeWorld) -> MicroBatchWorld:
    """Give one whose records lie in this process: their arrivals can be dated back."""
    return make_world(many_records=True)


def date_back(world: MicroBatchWorld, hours: float) -> None:
    """Have everything that is in the stream have arrived earlier."""
    stream = kinesis_backends[ACCOUNT]["us-east-1"].streams[world.stream]
    for shard in stream.shards.values():
        for record in shard.records.values():
            record.created_at -= 3600 * hours
            record.created_at_datetime -= timedelta(hours=hours)


def put(world: MicroBatchWorld, shard_id: str, *payloads: str) -> None:
    for payload in payloads:
        world.endpoint.client().put_record(
            StreamName=world.stream,
            Data=payload.encode(),
            PartitionKey=payload,
            ExplicitHashKey=HASH_KEYS[shard_id],
        )


def test_records_that_are_too_old_are_buried_and_newer_ones_are_handled(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    old, fresh = [f"old{number}" for number in range(20)], [f"fresh{number}" for number in range(10)]
    world.put(old)
    date_back(world, hours=2)
    world.put(fresh)

    spout = world.spout(maximum_record_age_seconds=3600.0)
    with spout.foreach_record(spark, logging_handler(world.log)) as query:
        query.processAllAvailable()
        counters = query.counters

    assert sorted(world.log.payloads()) == sorted(fresh)
    assert (counters.acked, counters.expired, counters.dead_lettered) == (10, 20, 20)
    letters = world.dead_letters()
    assert sorted(letter.data.decode() for letter in letters) == sorted(old)
    assert {(letter.reason, letter.attempts) for letter in letters} == {("expired", 0)}


def test_a_paused_shard_and_a_paused_application_are_handed_out_when_they_are_resumed(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    def came(*payloads: str) -> bool:
        return set(payloads) <= set(world.log.payloads())

    put(world, FIRST, "a1")
    put(world, SECOND, "b1")
    with world.spout().foreach_record(spark, logging_handler(world.log)) as query:
        wait_until(lambda: came("a1", "b1"), "both shards are read")

        query.pause_shards(FIRST)
        wait_until(lambda: query.paused_shards == {FIRST}, "the shard is paused")
        put(world, FIRST, "a2")
        put(world, SECOND, "b2", "b3")
        wait_until(lambda: came("b2", "b3"), "the other shard is read on")
        assert not came("a2")
        assert query.resume_shards(FIRST)
        wait_until(lambda: came("a2"), "the shard goes on")

        query.pause_shards()
        wait_until(lambda: query.paused_shards == {FIRST, SECOND}, "the application is paused")
        put(world, FIRST, "a3")
        put(world, SECOND, "b4")
        wait_until(lambda: query.status["message"].startswith("Paused by an operator"), "the query says so")
        assert not came("a3")
        assert not came("b4")
        assert query.resume_shards()
        query.processAllAvailable()

    assert world.log.counts() == dict.fromkeys(["a1", "a2", "a3", "b1", "b2", "b3", "b4"], 1)
    assert world.dead_letters() == []
