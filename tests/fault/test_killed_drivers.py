"""Drivers that are killed amid their work lose nothing (invariant 14), and attempts survive (invariant 4)."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.kinesis.endpoints import REPOSITORY
from tests.support.spark.micro_batch_driver import slow_and_failing
from tests.support.spark.micro_batch_world import MakeWorld, MicroBatchWorld, logging_handler
from tests.support.waiting import STARTING_SECONDS, wait_until

pytestmark = [pytest.mark.no_second_run, pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint]

LIVES = ("spark", "no-spark", "no-spark", "no-spark")
"""One with a JVM and its workers; the others start faster."""
RECORDS_PER_LIFE = 300


@contextmanager
def driver(world: MicroBatchWorld, folder: Path, kind: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A driver in a process group of its own, so that its JVM goes with it."""
    with (folder / "driver.log").open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.spark.micro_batch_driver",
                world.log.path,
                json.dumps(world.settings),
                kind,
            ],
            cwd=REPOSITORY,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)


@pytest.mark.timeout(1_200)
def test_nothing_is_lost_when_drivers_are_killed_at_random_moments(
    spark: SparkSession, make_world: MakeWorld, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    choice = random.Random(seed)
    world = make_world(shards=2)
    world.settings |= {
        "session_timeout_seconds": 4.0,
        "retry_limit": 3,
        "retry_backoff_seconds": 0.2,
        "max_batch_seconds": 0.3,
    }
    world.put(["poison"])
    expected = {"poison"}
    for life, kind in enumerate(LIVES):
        payloads = [f"life{life}-{number}" for number in range(RECORDS_PER_LIFE)]
        world.put(payloads)
        expected.update(payloads)
        enough = len(set(world.log.payloads())) + choice.randrange(1, RECORDS_PER_LIFE)
        with driver(world, tmp_path, kind) as process:
            wait_until(
                lambda: process.poll() is not None or len(set(world.log.payloads())) >= enough,  # noqa: B023
                f"{enough} records are handled (seed {seed})",
                seconds=STARTING_SECONDS,
            )
            assert process.poll() is None, (tmp_path / "driver.log").read_text()[-3_000:]

    query = world.spout().foreach_record(spark, logging_handler(world.log, slow_and_failing))
    with query:
        query.processAllAvailable()

    counts = world.log.counts()
    assert expected - counts.keys() == set(), f"lost, with seed {seed}"
    (letter,) = {letter.sequence_number: letter for letter in world.dead_letters()}.values()
    assert (letter.data, letter.attempts) == (b"poison", 4)
    attempts = world.log.attempts("poison")
    # One more delivery for each kill, at most: of that in flight nobody knows how it ended.
    assert len(attempts) <= 4 + len(LIVES)
    assert max(attempts) == 4
