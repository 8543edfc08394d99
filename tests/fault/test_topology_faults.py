"""Topologies whose workers, drivers and sessions are killed: nothing is lost, and every count is exact.

Each test proves that its fault happened.
"""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from kinesis_spout.storm import Topology
from kinesis_spout.storm.state.key_values import task_of
from kinesis_spout.storm.state.versions import KeyedState
from tests.support.kinesis.endpoints import REPOSITORY
from tests.support.spark.cluster import APPLICATION_SETTINGS, SparkWorker, spark_cluster
from tests.support.spark.micro_batch_world import MicroBatchWorld
from tests.support.storm.faulty_topology import (
    ACKER,
    COUNT,
    COUNTING_TASKS,
    GATE,
    SPLIT,
    Faults,
    faulty_word_count,
    recount,
)
from tests.support.storm.shipped_tallies import Tally, make_archive, tallies
from tests.support.storm.topology_driver import CONTRADICTED, Job
from tests.support.waiting import STARTING_SECONDS, wait_until
from tests.support.zookeeper.proxy import ZooKeeperProxy

pytestmark = [
    pytest.mark.no_second_run,
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.endpoint,
    pytest.mark.timeout(900),
]

NEVER = 3_600.0


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(folder=tmp_path)


def topology(
    world: MicroBatchWorld, faults: Faults, *, ackers: int | None = None, **settings: Any
) -> Topology:
    return faulty_word_count(faults, world.log, world.settings | settings, ackers=ackers)


def counts(world: MicroBatchWorld, faults: Faults) -> dict[str, int]:
    """Read the counts that are stored."""
    return topology(world, faults).read_state("count")


def sentences(count: int, *extra: str) -> list[str]:
    return [f"one more {number % 7} a a" for number in range(count)] + list(extra)


def logged_at_least(world: MicroBatchWorld, words: Mapping[str, int]) -> bool:
    """Tell whether the bolt without state was given each word at least so often."""
    logged = world.log.counts()
    return all(logged[word] >= times for word, times in words.items())


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, seconds=STARTING_SECONDS, every_seconds=0.1)


# Workers


@pytest.mark.parametrize("stage", [SPLIT, COUNT, ACKER])
def test_a_worker_killed_in_a_stage_loses_no_word_and_counts_none_twice(
    spark: SparkSession, world: MicroBatchWorld, faults: Faults, stage: str
) -> None:
    put = sentences(60, f"a {stage} b")
    world.put(put)

    ackers = 2 if stage == ACKER else None
    with topology(world, faults, retry_limit=5, ackers=ackers).run(spark) as query:
        query.processAllAvailable()
        # Any worker may be the acker: it takes some micro-batches until one is that was told to die.
        for _ in range(30):
            if faults.happened(stage):
                break
            more = sentences(4, f"a {stage} b")
            world.put(more)
            put += more
            query.processAllAvailable()

    until(lambda: is_gone(faults.victim(stage)), "the worker is gone")
    assert world.dead_letters() == []
    assert counts(world, faults) == recount(put)
    assert logged_at_least(world, recount(put))


# Drivers


class Driver:
    """A driver in a process group of its own, so that its JVM goes with it. Mutable."""

    def __init__(self, job: Job, log: Path) -> None:
        self.job = job
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.support.storm.topology_driver",
                    msgspec.json.encode(job).decode(),
                ],
                cwd=REPOSITORY,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what the driver does."""
        until(lambda: condition() or self.process.poll() is not None, f"{what}; see {self._log}")
        assert condition(), f"the driver ended before {what}:\n{self.said()[-5_000:]}"

    def said(self) -> str:
        """Read its log."""
        return self._log.read_text()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=60)

    @property
    def was_killed(self) -> bool:
        return self.process.returncode == -signal.SIGKILL


@contextmanager
def driver(
    world: MicroBatchWorld,
    faults: Faults,
    *,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    archive: str | None = None,
    tallies: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Driver]:
    spout = world.settings | {"session_timeout_seconds": 4.0} | settings
    job = Job(
        folder=str(faults.folder),
        log=world.log.path,
        master=master,
        spout=spout,
        conf=dict(conf or {}),
        archive=archive,
        tallies=dict(tallies or {}),
    )
    running = Driver(job, faults.folder / "driver.log")
    try:
        yield running
    finally:
        running.kill()


def state_files(faults: Faults, index: int) -> list[Path]:
    return list(faults.folder.glob(f"state/*/*/count/{COUNTING_TASKS}/{index}/*"))


def gated(put: list[str]) -> tuple[list[str], int]:
    """Add a sentence that waits at the gate; give the task that counts all the same, too."""
    at_gate = task_of(GATE, COUNTING_TASKS)
    assert any(task_of(word, COUNTING_TASKS) != at_gate for word in recount(put))
    return [*put, GATE], 1 - at_gate


def finish(spark: SparkSession, world: MicroBatchWorld, faults: Faults, put: list[str]) -> None:
    """Have another driver go on, and check all counts."""
    faults.open_gate()
    with topology(world, faults).run(spark) as query:
        query.processAllAvailable()
    assert counts(world, faults) == recount(put)
    assert logged_at_least(world, recount(put))
    assert world.dead_letters() == []


def test_a_driver_killed_after_a_part_of_the_state_was_written_counts_nothing_twice(
    spark: SparkSession, world: MicroBatchWorld, faults: Faults
) -> None:
    put, other = gated(sentences(40))
    world.put(put)

    with driver(world, faults) as running:
        running.until(
            lambda: faults.happened("gate-reached") and bool(state_files(faults, other)),
            "one task waits, and the other one has written its state",
        )
        running.kill()

    assert running.was_killed
    assert state_files(faults, 1 - other) == []
    assert counts(world, faults) == {}
    finish(spark, world, faults, put)


def test_a_driver_killed_between_the_end_of_a_job_and_its_commit_counts_nothing_twice(
    spark: SparkSession, world: MicroBatchWorld, faults: Faults
) -> None:
    put = sentences(40)
    world.put(put)

    with driver(world, faults, commit_interval_seconds=NEVER) as running:
        running.until(lambda: running.job.acked() == len(put), "every sentence is acked")
        running.kill()

    assert running.was_killed
    assert state_files(faults, 0)
    assert state_files(faults, 1)
    assert counts(world, faults) == {}
    finish(spark, world, faults, put)


def test_a_driver_killed_while_its_commit_is_on_its_way_counts_nothing_twice(
    spark: SparkSession, world: MicroBatchWorld, faults: Faults
) -> None:
    put, _ = gated(sentences(40))
    world.put(put)

    with ZooKeeperProxy(world.settings["zookeeper"]) as proxy:
        with driver(world, faults, zookeeper=proxy.connect_string) as running:
            running.until(lambda: faults.happened("gate-reached"), "a task waits")
            proxy.before_next_transaction(running.kill)
            faults.open_gate()
            until(lambda: running.process.poll() is not None, "the driver was killed amid its commit")

        assert running.was_killed
        # The proxy has sent it on: it is the commit of all, by a driver that never knew.
        until(lambda: counts(world, faults) == recount(put), "the commit took effect")
    more = sentences(5)
    world.put(more)
    finish(spark, world, faults, put + more)


def test_another_driver_that_stands_by_goes_on_from_the_state_of_the_killed_one(
    spark: SparkSession, world: MicroBatchWorld, faults: Faults
) -> None:
    put = sentences(40)
    world.put(put)

    with driver(world, faults, mode="standby") as running:
        running.until(lambda: counts(world, faults) == recount(put), "all of this is counted and stored")
        with topology(world, faults, mode="standby").run(spark) as query:
            (spout,) = query.spouts.values()
            more, _ = gated(sentences(40))
            world.put(more)
            running.until(lambda: faults.happened("gate-reached"), "a task waits")
            assert not any(shard.epoch for shard in spout.shards())
            assert GATE not in counts(world, faults), "what waits is not stored"
            running.kill()
            faults.open_gate()
            until(lambda: any(shard.epoch for shard in spout.shards()), "the one that stood by has shards")
            query.processAllAvailable()
            assert spout.counters.acked == len(more)

    assert running.was_killed
    assert counts(world, faults) == recount(put + more)


# The session


def test_a_lost_session_reloads_the_state_and_counts_nothing_twice(
    spark: SparkSession, world: MicroBatchWorld, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[bytes | None] = []
    load = KeyedState.load

    def watched(state: KeyedState, stored: bytes | None) -> None:
        loaded.append(stored)
        load(state, stored)

    monkeypatch.setattr(KeyedState, "load", watched)
    put = sentences(40)
    world.put(put)
    with ZooKeeperProxy(world.settings["zookeeper"]) as proxy:
        cut: dict[str, Any] = {"zookeeper": proxy.connect_string, "session_timeout_seconds": 3.0}
        with topology(world, faults, **cut).run(spark) as query:
            query.processAllAvailable()
            until(lambda: counts(world, faults) == recount(put), "all of this is stored")
            more, _ = gated(sentences(40))
            world.put(more)
            until(lambda: faults.happened("gate-reached"), "a task waits")
            (spout,) = query.spouts.values()
            proxy.close_door()
            until(lambda: not any(shard.epoch for shard in spout.shards()), "the session is lost")
            faults.open_gate()
            proxy.open_door()
            until(lambda: len(loaded) > 1, "the state is loaded again")
            query.processAllAvailable()

    assert loaded[0] is None
    assert loaded[1] is not None
    assert counts(world, faults) == recount(put + more)
    assert world.dead_letters() == []


# Executors and machines


@pytest.mark.second_environment
def test_a_cluster_that_loses_an_executor_and_a_machine_counts_exactly_what_it_should(
    spark: SparkSession, world: MicroBatchWorld, faults: Faults
) -> None:
    """State counts through all of it; a shell bolt's process until its machine is lost, whoever it serves."""
    del spark  # no part of this; but it is started before the cluster makes the machine busy
    world.settings |= {"shards_per_task": 1, "retry_limit": 5}
    with spark_cluster(faults.folder) as cluster:
        workers = [cluster.add_worker(), cluster.add_worker()]
        conf, shipped = _shipped(faults.folder)
        conf |= {**APPLICATION_SETTINGS, "spark.locality.wait": "0"}
        with driver(world, faults, master=cluster.master, conf=conf, **shipped) as running:
            running.until(lambda: all(worker.executors() for worker in workers), "both have executors")
            put = _tally_across_machines(world, faults, running)
            _check_tallies(faults, workers, put)
            put += _lose_the_executor_of_a_half_read_task(world, faults, running, workers)
            put += _lose_the_machine_of_a_process(world, faults, running, workers)
            running.job.end.touch()
            until(lambda: running.process.poll() is not None, "the driver has finished")
            assert running.process.returncode == 0

    assert counts(world, faults) == recount(put)
    assert logged_at_least(world, recount(put))
    assert world.dead_letters() == []


def _shipped(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Ship the files of shell bolts in every way; give what Spark is to know of it, and what the driver is."""
    archives = {name: folder / f"{name}.zip" for name in ("given", "named", "file", "late")}
    for place in archives.values():
        make_archive(place)
    conf = {
        "spark.archives": f"{archives['given']},{archives['named']}#resources",
        "spark.files": str(archives["file"]),
    }
    bolts = {"given": "given.zip", "named": "resources", "file": "file.zip", "late": "added"}
    return conf, {"archive": f"{archives['late']}#added", "tallies": bolts}


def _tally_across_machines(world: MicroBatchWorld, faults: Faults, running: Driver) -> list[str]:
    """Have sentences counted, until processes of each bolt have served the other machine, too."""
    put: list[str] = []
    served: set[str] = set()

    def all_are_acked() -> bool:
        return running.job.acked() == len(put)

    while len(served) < len(running.job.tallies):
        more = sentences(7)
        world.put(more)
        put += more
        running.until(all_are_acked, "every sentence is acked")
        served = {tally.bolt for tally in tallies(faults.folder) if tally.machine != tally.served}
        assert len(put) < 1_000, f"no process served another machine: {served}"
    return put


def _check_tallies(faults: Faults, workers: list[SparkWorker], put: list[str]) -> None:
    by_bolt: dict[str, dict[str, list[Tally]]] = defaultdict(lambda: defaultdict(list))
    for tally in tallies(faults.folder):
        by_bolt[tally.bolt][tally.word].append(tally)
        [home] = [worker for worker in workers if worker.host == tally.machine]
        assert tally.folder.startswith(f"{home.work}/")
    for of_word in by_bolt.values():
        assert {word: len(seen) for word, seen in of_word.items()} == recount(put)
        for seen in of_word.values():
            assert sorted(tally.times for tally in seen) == list(range(1, len(seen) + 1))
            assert len({tally.pid for tally in seen}) == 1


def _lose_the_executor_of_a_half_read_task(
    world: MicroBatchWorld, faults: Faults, running: Driver, workers: list[SparkWorker]
) -> list[str]:
    """Kill it after a task of another one took in what it had made, and before the other tasks did.

    Spark runs a part of the job again, which does not count beside the first.
    """
    put, other = gated(sentences(40))
    written, begun = len(state_files(faults, other)), len(faults.notes(f"count-{other}-begins"))
    world.put(put)
    running.until(
        lambda: faults.happened("gate-reached") and len(state_files(faults, other)) > written,
        "one task waits, and the other one has ended",
    )
    lost = _worker_of(workers, faults.where("gate-reached"))
    begins = faults.notes(f"count-{other}-begins")[begun:]
    assert not any(_worker_of(workers, place) is lost for place in begins)
    [executor] = lost.executors()
    os.kill(executor, signal.SIGKILL)
    until(lambda: is_gone(executor), "the executor is gone")
    faults.open_gate()
    running.until(lambda: bool(faults.notes(CONTRADICTED)), "the two runs were told apart")
    return put


def _lose_the_machine_of_a_process(
    world: MicroBatchWorld, faults: Faults, running: Driver, workers: list[SparkWorker]
) -> list[str]:
    """Lose it amid its work; the driver says that its processes start anew on the other one."""
    put = sentences(40)
    before = len(tallies(faults.folder))
    world.put(put)
    running.until(lambda: len(tallies(faults.folder)) > before, "they are being counted")
    home = tallies(faults.folder)[-1].machine
    [lost] = [worker for worker in workers if worker.host == home]
    [left] = [worker for worker in workers if worker is not lost]
    lost.kill()
    more = sentences(14)
    world.put(more)
    anew = f"a new process starts on {left.host}"
    running.until(lambda: anew in running.said(), "the processes start anew")
    return put + more


def _worker_of(workers: list[SparkWorker], place: str) -> SparkWorker:
    [found] = [worker for worker in workers if place.startswith(f"{worker.work}/")]
    return found
