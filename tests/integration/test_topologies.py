"""Topologies on real Spark, with the real ZooKeeper and a Kinesis endpoint."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kinesis_spout.storm import CombinerBolt, Topology, TopologyBuilder
from tests.support.spark.micro_batch_world import DeliveryLog, MakeWorld, MicroBatchWorld
from tests.support.storm.components import (
    CountWords,
    Hangs,
    LogProcesses,
    LogWords,
    Numbers,
    SlowNumbers,
    Split,
)
from tests.support.storm.failing_topology import counted as recount
from tests.support.storm.failing_topology import failing_word_count, sentences
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint]


def word_log(world: MicroBatchWorld, **settings: object) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", world.spout(scheme="text", **settings), fields=["sentence"])
    builder.set_bolt("split", Split(), 2).shuffle_grouping("sentences")
    builder.set_bolt("log", LogWords(world.log), 2).fields_grouping("split", ["word"])
    return builder.build("words")


@pytest.mark.no_second_run
def test_a_record_is_done_when_its_whole_tree_is(spark: SparkSession, world: MicroBatchWorld) -> None:
    world.put(
        [f"sentence {number}" for number in range(200)] + ["good poison", "unsplittable", "is forgotten"]
    )

    with word_log(world, retry_limit=1).run(spark) as query:
        query.processAllAvailable()
        counts = world.log.counts()
        components = query.components

    assert counts["sentence"] == 200
    assert counts["poison"] == counts["good"] == counts["forgotten"] == 2
    tasks_by_word = {(delivery.payload, delivery.attempt) for delivery in world.log.deliveries()}
    assert len(tasks_by_word) == len(counts), "a word came to two tasks"
    letters = {letter.data: letter for letter in world.dead_letters()}
    assert {data: letter.error for data, letter in letters.items()} == {
        b"good poison": "log: poisoned",
        b"unsplittable": "split: cannot be split",
        b"is forgotten": "log: neither acked nor failed by the end of the micro-batch",
    }
    assert components["split"].executed == 203 + 3
    assert (components["split"].failed, components["log"].failed, components["log"].timed_out) == (2, 2, 2)
    assert query.spouts["sentences"].counters.acked == 200
    assert list(components) == ["sentences", "split", "log"]
    spout = components["sentences"]
    assert (spout.emitted, spout.acked, spout.failed, spout.timed_out) == (206, 200, 4, 2)
    assert query.spouts["sentences"].counters.timed_out == 2
    assert spout.complete_latency_ms > components["split"].latency_ms > 0


@pytest.mark.no_second_run
def test_a_record_whose_words_travel_combined_with_those_of_others_fails_by_its_word(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    builder = TopologyBuilder()
    spout = world.spout(scheme="text", retry_limit=1)
    builder.set_spout("sentences", spout, fields=["sentence"])
    builder.set_bolt("split", Split(), 2).shuffle_grouping("sentences")
    builder.set_bolt("tally", CombinerBolt(["word"]), 2).shuffle_grouping("split")
    builder.set_bolt("log", LogWords(world.log), 2).fields_grouping("tally", ["word"])
    world.put([f"good {number}" for number in range(100)] + ["good poison", "unsplittable"])

    with builder.build("words").run(spark) as query:
        query.processAllAvailable()
        components = query.components

    letters = {letter.data: letter.error for letter in world.dead_letters()}
    assert letters == {b"good poison": "log: poisoned", b"unsplittable": "split: cannot be split"}
    assert query.spouts["sentences"].counters.acked == 100
    assert components["tally"].executed == 204, "each sentence of two words once, and the poisoned one twice"
    assert components["log"].executed < 204, "the same word of many sentences travels once"


def test_user_records_of_one_aggregate_are_acked_retried_and_given_up_one_by_one(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    world.put_aggregated(["first good", "unsplittable", "good poison", "last good"])

    with word_log(world, retry_limit=1).run(spark) as query:
        query.processAllAvailable()
        counters = query.spouts["sentences"].counters

    assert world.log.counts() == {"first": 1, "last": 1, "poison": 2, "good": 1 + 2 + 1}
    assert (counters.acked, counters.dead_lettered) == (2, 2)
    letters = {letter.data: letter.sequence_number for letter in world.dead_letters()}
    numbers = {data: number.partition(":") for data, number in letters.items()}
    assert {data: within for data, (_, _, within) in numbers.items()} == {
        b"unsplittable": "1",
        b"good poison": "2",
    }
    assert len({whole for whole, _, _ in numbers.values()}) == 1, "of one record of Kinesis"


def word_count(world: MicroBatchWorld, folder: Path, parallelism: int = 2, **settings: object) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", world.spout(scheme="text", **settings), fields=["sentence"])
    builder.set_bolt("split", Split(), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", CountWords(world.log), parallelism).fields_grouping("split", ["word"])
    return builder.build("word count", state=str(folder))


def counted(world: MicroBatchWorld, words: Iterable[str]) -> dict[str, int]:
    """Give the last count of each word that was written."""
    counts = dict(line.split("=") for line in world.log.payloads())
    return {word: int(counts[word]) for word in words}


@pytest.mark.no_second_run
def test_state_counts_a_record_once_however_often_it_fails_and_over_restarts(
    spark: SparkSession, world: MicroBatchWorld, tmp_path: Path
) -> None:
    world.put(["a b", "a poison b", "b c", "unsplittable a", "a lock b"])

    with word_count(world, tmp_path / "state", retry_limit=2).run(spark) as query:
        query.processAllAvailable()
    world.put(["a b c"])
    with word_count(world, tmp_path / "state", parallelism=3).run(spark) as query:
        query.processAllAvailable()

    assert counted(world, "abc") == {"a": 2, "b": 3, "c": 2}
    errors = {letter.data: letter.error for letter in world.dead_letters()}
    assert set(errors) == {b"a poison b", b"unsplittable a", b"a lock b"}
    assert errors[b"a lock b"].startswith(
        "count: expected a value of its state that can be pickled and unpickled, got lock for the key 'lock' ("
    )


@pytest.mark.no_second_run
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("half_rate", "sink_rate"), [(0.05, 0.05), (0.3, 0.0), (0.0, 0.3)])
def test_state_is_exact_and_goes_on_at_any_rate_of_failures_before_and_behind_it(
    spark: SparkSession, world: MicroBatchWorld, tmp_path: Path, half_rate: float, sink_rate: float
) -> None:
    put = sentences(150, words=4)
    world.put(put)
    settings = world.settings | {"retry_limit": 100, "retry_backoff_cap_seconds": 0.2}
    topology = failing_word_count(
        settings, half_rate=half_rate, sink_rate=sink_rate, state=str(tmp_path / "state")
    )

    with topology.run(spark) as query:
        query.processAllAvailable()
        assert query.spouts["sentences"].counters.acked == len(put)

    assert topology.read_state("count") == recount(put)
    assert world.dead_letters() == []


def test_a_spout_of_the_users_own_is_told_what_became_of_each_tuple(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers, log = Numbers(100), DeliveryLog(tmp_path / "log")
    builder = TopologyBuilder()
    builder.set_spout("numbers", numbers)
    builder.set_bolt("split", Split(), 2).shuffle_grouping("numbers")
    builder.set_bolt("log", LogWords(log), 2).fields_grouping("split", ["word"])

    with builder.build("numbers", max_spout_pending=30).run(spark) as query:
        query.processAllAvailable()
        assert query.isActive
        assert len(query.recentProgress) >= 4

    assert query.exception() is None
    assert numbers.calls == ["activate", "deactivate", "close"]
    assert sorted(number for number, _ in numbers.acked) == list(range(100))
    assert dict(numbers.failed) == {(7, 1): "log: poisoned", (9, 1): "split: cannot be split"}
    assert dict(numbers.late) == {(8, 1): "log: neither acked nor failed by the end of the micro-batch"}
    spout = query.components["numbers"]
    assert (spout.emitted, spout.acked, spout.failed, spout.timed_out) == (103, 100, 2, 1)
    assert spout.complete_latency_ms > 0


def test_a_bolt_that_never_returns_costs_one_job_and_only_its_record(
    spark: SparkSession, world: MicroBatchWorld
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("sentences", world.spout(scheme="text", retry_limit=0), fields=["sentence"])
    builder.set_bolt("split", Split(), 2).shuffle_grouping("sentences")
    builder.set_bolt("hangs", Hangs(world.log), 2).fields_grouping("split", ["word"])

    world.put(["good one"])
    with builder.build("hanging", message_timeout_seconds=8).run(spark) as query:
        query.processAllAvailable()  # The workers have begun: that takes longer on a busy machine than the rest.
        world.put(["good two", "a hang", "good three", "good four"], keys=["of one shard"])
        query.processAllAvailable()
        counters = query.spouts["sentences"].counters
        components = query.components

    [letter] = world.dead_letters()
    assert letter.data == b"a hang"
    assert letter.error == "hangs: timed out: the call had not returned after 10 s"
    assert letter.traceback is not None
    assert "time.sleep(60)" in letter.traceback
    assert world.log.counts() == {"good": 4, "one": 1, "two": 1, "three": 1, "four": 1, "a": 1, "hang": 1}
    assert (counters.acked, counters.timed_out, counters.batches_timed_out) == (4, 1, 0)
    assert (components["hangs"].acked, components["hangs"].timed_out) == (9, 1)


def test_tuples_of_a_spout_that_makes_one_each_tenth_of_a_second_flow_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers, log = SlowNumbers(), DeliveryLog(tmp_path / "log")
    builder = TopologyBuilder()
    builder.set_spout("numbers", numbers)
    builder.set_bolt("split", Split(), 2).shuffle_grouping("numbers")
    builder.set_bolt("log", LogWords(log), 2).fields_grouping("split", ["word"])

    with builder.build("slow").run(spark):
        wait_until(lambda: len(numbers.acked) >= 3, "the first ones are acked, long before 1,000 are there")
    assert numbers.emitted < 1_000


def test_a_bolt_that_is_rebalanced_works_at_one_shard_in_as_many_processes_as_it_has_tasks(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(shards=1)
    builder = TopologyBuilder()
    builder.set_spout("sentences", world.spout(scheme="text"), fields=["word"])
    builder.set_bolt("log", LogProcesses(world.log), 2).rebalance_grouping("sentences")
    world.put([f"w{number}" for number in range(200)])

    with builder.build("spread", partitions=2).run(spark) as query:
        query.processAllAvailable()

    logged = world.log.deliveries()
    assert len(logged) == 200
    by_task = Counter(each.attempt for each in logged)
    assert by_task == {2: 100, 3: 100}
    assert len({each.shard_id for each in logged}) >= 2
