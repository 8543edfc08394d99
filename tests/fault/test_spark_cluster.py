"""Every door on a cluster whose executors, machines and driver are killed: nothing is lost, nothing given up."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.support.kinesis.endpoints import REPOSITORY
from tests.support.spark.cluster import APPLICATION_SETTINGS, SparkWorker, spark_cluster
from tests.support.spark.cluster_driver import DOORS, Job
from tests.support.spark.micro_batch_world import MakeWorld, MicroBatchWorld
from tests.support.spark.structured_queries import source_options
from tests.support.waiting import STARTING_SECONDS, wait_until

pytestmark = [
    pytest.mark.second_environment,
    pytest.mark.no_second_run,
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.endpoint,
]

RECORDS_AT_ONCE = 20
ENOUGH = 5
"""An executor that has handled so many records of each door works for all of them."""
ADDED_ON_DEMAND = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


class Application:
    """All doors on one stream, over the lives of their driver. Mutable; one driver at a time."""

    def __init__(self, world: MicroBatchWorld, folder: Path, master: str) -> None:
        options = source_options(world.endpoint, streamName=world.stream)
        self.job = Job(
            folder=str(folder),
            master=master,
            conf=dict(APPLICATION_SETTINGS),
            spout={name: value for name, value in world.settings.items() if name != "app"},
            options=options | {"shardsPerTask": "1"},
        )
        self.payloads: list[str] = []
        """What was put on the stream."""
        self._world = world
        self._log = folder / "driver.log"
        self._executors: set[str] = set()

    @contextmanager
    def driver(self, conf: Mapping[str, str]) -> Iterator[None]:
        """Run a driver, which is killed with its JVM in the end."""
        job = msgspec.structs.replace(self.job, conf={**self.job.conf, **conf})
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.support.spark.cluster_driver",
                    msgspec.json.encode(job).decode(),
                ],
                cwd=REPOSITORY,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=60)

    def uses_new_executor_on(self, worker: SparkWorker) -> None:
        """Wait until every door works on an executor of a machine, not one that was waited for before.

        They have something to do all the time.
        """
        found: set[str] = set()

        def is_used() -> bool:
            visits = {door: self.job.visits(door) for door in DOORS}
            if any(len({visit.payload for visit in each}) == len(self.payloads) for each in visits.values()):
                self.put_more()
            handled = [Counter(visit.executor for visit in each) for each in visits.values()]
            found.update(
                executor
                for executor in handled[0].keys() - self._executors
                if executor.startswith(f"{worker.work}/")
                and all(each[executor] >= ENOUGH for each in handled)
            )
            return bool(found)

        self._wait_until(is_used, f"a new executor works on {worker.host}")
        self._executors |= found

    def ends(self) -> None:
        """Have the driver finish what is on the stream."""
        self.job.end.touch()
        self._wait_until(lambda: self._process.poll() == 0, "it has finished")

    def put_more(self) -> None:
        first = len(self.payloads)
        more = [str(number) for number in range(first, first + RECORDS_AT_ONCE)]
        self._world.put(more)
        self.payloads += more

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(
            lambda: condition() or self._process.poll() is not None,
            f"{what}; see {self._log}",
            seconds=STARTING_SECONDS,
            every_seconds=0.2,
        )
        assert condition(), f"the driver ended before {what}:\n{self._log.read_text()[-5_000:]}"


@pytest.mark.timeout(1_200)
def test_no_door_loses_a_record_when_executors_a_machine_and_the_driver_are_killed(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(shards=2)
    world.settings |= {"session_timeout_seconds": 6.0, "retry_limit": 2, "max_batch_seconds": 0.3}
    with spark_cluster(tmp_path) as cluster:
        application = Application(world, tmp_path, cluster.master)
        first = cluster.add_worker()
        with application.driver({}):
            application.uses_new_executor_on(first)
            application.put_more()
        with application.driver(ADDED_ON_DEMAND):
            application.uses_new_executor_on(first)
            second = cluster.add_worker()
            application.uses_new_executor_on(second)
            application.put_more()
            first.kill()
            [executor] = second.executors()
            os.kill(executor, signal.SIGKILL)
            application.uses_new_executor_on(second)
            application.ends()

    job, payloads = application.job, application.payloads
    for door in DOORS:
        assert set(payloads) - {visit.payload for visit in job.visits(door)} == set(), f"lost by {door}"
    sunk = [line.split("\t")[0] for line in job.sunk.read_text().splitlines()]
    assert sorted(sunk) == sorted(payloads), "the sink has not each record once"
    assert world.dead_letters() == []
