"""A record kills the worker of a long task where Spark repeats tasks: the next attempt tells what was done."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kinesis.endpoints import REPOSITORY
from tests.support.spark.long_task_driver import KILLER
from tests.support.spark.micro_batch_world import MakeWorld
from tests.support.waiting import STARTING_SECONDS, wait_until

pytestmark = [pytest.mark.no_second_run, pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint]


@pytest.mark.timeout(600)
def test_the_next_attempt_of_a_long_task_blames_the_record_that_ended_the_first(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(shards=1)
    settings = world.settings | {"retry_limit": 2}
    command = [sys.executable, "-m", "tests.support.spark.long_task_driver"]
    with (
        (tmp_path / "driver.log").open("w") as log,
        subprocess.Popen(
            [*command, world.log.path, json.dumps(settings)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as driver,
    ):
        try:
            ordinary = [f"r{number}" for number in range(20)]
            for payload in [*ordinary, KILLER]:
                world.put([payload])
                wait_until(
                    lambda: payload in world.log.payloads(),  # noqa: B023
                    f"{payload} is handled; see {log.name}",
                    seconds=STARTING_SECONDS,
                )
            wait_until(world.dead_letters, "it is given up", seconds=STARTING_SECONDS)
            more = [f"s{number}" for number in range(20)]
            world.put(more)
            output, _ = driver.communicate(b"", timeout=STARTING_SECONDS)
        finally:
            driver.kill()

    handed = json.loads(output.splitlines()[-1])
    assert max(count for count, _ in handed) > 5, "they were not handed over"
    assert [failed for _, failed in handed] == [False] * len(handed), "the next attempt went on with the job"
    (letter,) = world.dead_letters()
    assert (letter.data, letter.attempts) == (KILLER.encode(), 3)
    assert world.log.attempts(KILLER) == [1, 2, 3]
    counts = world.log.counts()
    del counts[KILLER]
    assert counts == dict.fromkeys([*ordinary, *more], 1)
