"""Shell bolts on real Spark: their processes outlive the Python workers that speak with them."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kinesis_spout.storm import Topology, TopologyBuilder
from kinesis_spout.storm.running.program import SHELL_HOST
from tests.support.spark.micro_batch_world import MicroBatchWorld
from tests.support.storm.components import Split
from tests.support.storm.shell_topology import LogCounts, shell_bolt

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint]

SENTENCES = ["the cow jumped over the moon", "an apple a day", "the moon is an apple"] * 20
WORDS = Counter(word for sentence in SENTENCES for word in sentence.split())


def counting(spark: SparkSession, world: MicroBatchWorld) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", world.spout(scheme="text"), fields=["sentence"])
    builder.set_bolt("split", Split(), 2).shuffle_grouping("sentences")
    shell = shell_bolt("counts", fields=("word", "seen", "pid"))
    builder.set_bolt("count", shell, 2).fields_grouping("split", ["word"])
    builder.set_bolt("log", LogCounts(world.log), 2).shuffle_grouping("count")
    return builder.build("words", conf={SHELL_HOST: spark.sparkContext.applicationId})


def test_a_task_keeps_its_process_from_worker_to_worker(spark: SparkSession, world: MicroBatchWorld) -> None:
    with counting(spark, world).run(spark) as query:
        world.put(SENTENCES)
        query.processAllAvailable()
        workers = python_workers()
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        world.put(SENTENCES)
        query.processAllAvailable()

    seen = [delivery.payload.split() for delivery in world.log.deliveries()]
    assert Counter(word for word, _ in seen) == {word: 2 * count for word, count in WORDS.items()}
    # Each of two processes has counted all that came to its task, before and after.
    processes = Counter(delivery.shard_id for delivery in world.log.deliveries())
    assert len(processes) == 2
    for process, count in processes.items():
        numbers = [
            int(delivery.payload.split()[1])
            for delivery in world.log.deliveries()
            if delivery.shard_id == process
        ]
        assert sorted(numbers) == list(range(1, count + 1))


def python_workers() -> list[int]:
    """Give the Python workers of this process's Spark; tests that run beside it have workers of their own."""
    parents, daemons = {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line, status = (entry / "cmdline").read_bytes(), (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in line:
                daemons.add(int(entry.name))
    return [pid for pid in daemons if parents[pid] in daemons and os.getpid() in ancestors(parents, of=pid)]


def ancestors(parents: dict[int, int], *, of: int) -> Iterator[int]:
    while of in parents:
        of = parents[of]
        yield of


@pytest.mark.parametrize(
    ("how", "poisons"), [("dies_of_some", 1), ("dies_of_some", 6), ("dies_half_way_of_some", 6)]
)
def test_records_that_kill_the_process_of_a_shell_bolt_hurt_no_others(
    spark: SparkSession, world: MicroBatchWorld, how: str, poisons: int
) -> None:
    given = [f"word {number}" for number in range(120)]
    for number in range(poisons):
        given[7 + 19 * number] = f"poison {number}"
    builder = TopologyBuilder()
    builder.set_spout("words", world.spout(scheme="text", retry_limit=2), fields=["word"])
    builder.set_bolt("shell", shell_bolt(how), 2).shuffle_grouping("words")
    topology = builder.build("words", conf={SHELL_HOST: spark.sparkContext.applicationId})
    with topology.run(spark) as query:
        world.put(given)
        query.processAllAvailable()
        counters = query.counters
    assert {letter.data.decode() for letter in world.dead_letters()} == {
        word for word in given if word.startswith("poison")
    }
    assert counters.dead_lettered == poisons
    assert counters.acked == 120 - poisons
    assert counters.delivered <= 120 + 2 * poisons + 10, "the others were delivered once, but for a few"
