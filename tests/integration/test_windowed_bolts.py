"""Windowed bolts on real Spark, with the real ZooKeeper and a Kinesis endpoint."""

import math
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kinesis_spout.storm import Count, Seconds, Topology, TopologyBuilder
from tests.support.spark.micro_batch_world import MicroBatchWorld
from tests.support.storm.components import (
    EmitsOnTicks,
    EmitsWindows,
    Ledger,
    LogsSomeTimes,
    LogWindows,
    TimedKeys,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint]


def windows(world: MicroBatchWorld, folder: Path, parallelism: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", world.spout(scheme="text", retry_limit=1), fields=["sentence"])
    builder.set_bolt("keys", TimedKeys(), 2).shuffle_grouping("lines")
    for name, length, tick_seconds in (("sixes", Count(6), None), ("tens", Seconds(10), math.inf)):
        bolt = LogWindows(world.log, length, tick_seconds=tick_seconds)
        builder.set_bolt(name, bolt, parallelism).fields_grouping("keys", ["key"])
    return builder.build("windows", state=str(folder))


def logged(world: MicroBatchWorld, kind: str) -> set[str]:
    """Give the windows that were executed; each perhaps several times, as micro-batches were run again."""
    return {delivery.payload for delivery in world.log.deliveries() if delivery.shard_id == kind}


@pytest.mark.no_second_run
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


def test_windows_of_an_idle_stream_are_closed_by_the_wall_clock_and_those_that_a_restart_finds_open(
    spark: SparkSession, world: MicroBatchWorld, tmp_path: Path
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", world.spout(scheme="text"), fields=["sentence"])
    builder.set_bolt("keys", TimedKeys(), 2).shuffle_grouping("lines")
    bolt = LogWindows(world.log, Seconds(1), tick_seconds=1)
    builder.set_bolt("seconds", bolt, 2).fields_grouping("keys", ["key"])
    topology = builder.build("ticking", state=str(tmp_path / "state"))
    now = round(time.time())
    world.put([f"a {now}"])

    # A slow machine may stop so late that a window has been executed before.
    for ahead_seconds in (10, 40, 160):
        with topology.run(spark) as query:
            wait_until(lambda: logged(world, "Seconds"), "the window is executed without another record")
            executed = len(logged(world, "Seconds"))
            now = round(time.time())
            world.put([f"b {now + ahead_seconds}"])
            query.processAllAvailable()
        if len(logged(world, "Seconds")) == executed:
            break
    assert len(logged(world, "Seconds")) == executed
    with topology.run(spark) as query:
        wait_until(lambda: len(logged(world, "Seconds")) == executed + 1, "it is, after a restart")
        wait_until(lambda: topology.read_state("seconds") == {}, "nothing of them is left")

    assert {window[0] for window in logged(world, "Seconds")} == {"a", "b"}
    assert not any(each["numInputRows"] for each in query.recentProgress), "no record came"
    assert query.components["seconds"].executed == 0


@pytest.mark.no_second_run
@pytest.mark.parametrize(
    # What each guarantee promises of windows and ticks, at any rate of failures, is tests/model's.
    "guarantee",
    ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.second_environment)],
)
def test_what_windows_and_ticks_emit_reaches_a_sink_that_fails_two_calls_of_five(
    spark: SparkSession, world: MicroBatchWorld, tmp_path: Path, guarantee: str
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", world.spout(scheme="text", retry_limit=1), fields=["sentence"])
    builder.set_bolt("keys", TimedKeys(), 2).shuffle_grouping("lines")
    ledgers = []
    for name, bolt in (("pairs", EmitsWindows(world.log, Count(2))), ("flushed", EmitsOnTicks())):
        builder.set_bolt(name, bolt, 2).fields_grouping("keys", ["key"])
        ledgers.append(f"{name} ledger")
        builder.set_bolt(ledgers[-1], Ledger(), 2).fields_grouping(name, ["key"])
        builder.set_bolt(f"{name} sink", LogsSomeTimes(world.log), 2).fields_grouping(ledgers[-1], ["key"])
    topology = builder.build("results", state=str(tmp_path / "state"), state_guarantee=guarantee)
    lines = [f"k{number % 10} {number}" for number in range(40)]
    world.put(lines)

    def counts(name: str) -> list[int]:
        return [count for of_key in topology.read_state(name).values() for count in of_key.values()]

    def reached(name: str) -> set[str]:
        return {time for window in logged(world, name) for time in window.partition(": ")[2].split()}

    def is_done() -> bool:
        return all(len(counts(name)) == len(reached(name)) == len(lines) for name in ledgers)

    with topology.run(spark) as query:
        wait_until(is_done, "all have reached their sinks, and are stored")
        assert query.spouts["lines"].counters.acked == len(lines)

    assert world.dead_letters() == []
    assert all(logged(world, f"{name} failed") for name in ledgers), "the sinks did fail"
    if guarantee == "exactly_once":
        assert {count for name in ledgers for count in counts(name)} == {1}
