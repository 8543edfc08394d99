"""Windowed bolts on real Spark, with the real ZooKeeper and a Kinesis endpoint."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kinesis_spout.topology import Count, Seconds, Topology, TopologyBuilder
from tests.micro_batch_world import MicroBatchWorld
from tests.topology_components import LogWindows, TimedKeys

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint]


def windows(world: MicroBatchWorld, folder: Path, parallelism: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", world.spout(scheme="text", retry_limit=1), fields=["sentence"])
    builder.set_bolt("keys", TimedKeys(), 2).shuffle_grouping("lines")
    for name, length in (("sixes", Count(6)), ("tens", Seconds(10))):
        bolt = LogWindows(world.log, length)
        builder.set_bolt(name, bolt, parallelism).fields_grouping("keys", ["key"])
    return builder.build("windows", state=str(folder))


def logged(world: MicroBatchWorld, kind: str) -> set[str]:
    """Give the windows that were executed; each perhaps several times, as micro-batches were run again."""
    return {delivery.payload for delivery in world.log.deliveries() if delivery.shard_id == kind}


def test_a_window_goes_on_after_a_restart_and_has_nothing_of_a_record_that_failed(
    spark: SparkSession, world: MicroBatchWorld, tmp_path: Path
) -> None:
    world.put(["a 1", "b 5", "a 2", "a nan", "a 11", "a 12"], keys=["one key, so that they keep their order"])

    with windows(world, tmp_path / "state", parallelism=2).run(spark) as query:
        query.processAllAvailable()
    assert logged(world, "Seconds") == {"a: 1 2"}
    assert logged(world, "Count") == set()
    world.put(["a 13", "a 21", "b 31"], keys=["one key, so that they keep their order"])
    with windows(world, tmp_path / "state", parallelism=3).run(spark) as query:
        query.processAllAvailable()

    assert logged(world, "Seconds") == {"a: 1 2", "a: 11 12 13", "b: 5"}
    assert logged(world, "Count") == {"a: 1 2 11 12 13 21"}
    [letter] = world.dead_letters()
    assert letter.data == b"a nan"
    assert letter.error.startswith("tens: ")
    assert "expected time_of to give seconds since the epoch, a finite number, got nan" in letter.error
