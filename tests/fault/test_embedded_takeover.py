"""Two consumers on one embedded ZooKeeper: when one is killed the other takes over, in the time promised."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.kinesis.endpoints import REPOSITORY, KinesisEndpoint
from tests.support.waiting import wait_until
from tests.support.zookeeper.server import java_processes

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper, pytest.mark.endpoint]

SESSION_TIMEOUT_SECONDS = 4.0
PROMISED_SECONDS = SESSION_TIMEOUT_SECONDS + 5.0
"""The session's life at the server, and a few seconds to notice, to start a server, and to read."""
STARTS = 10
"""A busy machine is no fault: a take-over may take longer by the time that so many starts of a consumer take."""


class Consumer:
    """A process of its own, that leads no group of processes: it can be killed alone."""

    def __init__(self, settings: dict[str, Any], output: Path) -> None:
        self._output = output
        with output.open("wb") as file, output.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.consumer.record_driver", json.dumps(settings)],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=log,
            )
        assert self.process.stdin is not None
        self._input = self.process.stdin
        self.takes_over_within = PROMISED_SECONDS

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def records(self) -> set[str]:
        return {line.removeprefix("record ") for line in self.lines() if line.startswith("record ")}

    def wait(self, condition: Callable[[], bool], what: str, *, seconds: float = 240.0) -> None:
        wait_until(lambda: self.process.poll() is not None or condition(), what, seconds=seconds)
        assert self.process.poll() is None, self._output.with_suffix(".log").read_text()[-3_000:]

    def end(self) -> int:
        self._input.close()
        return self.process.wait(timeout=240)

    def close(self) -> None:
        self.process.kill()
        self._input.close()
        self.process.wait()


class World:
    """Mutable. A stream, a data directory, and the consumers that share them."""

    def __init__(self, endpoint: KinesisEndpoint, folder: Path, cleanup: ExitStack) -> None:
        self.endpoint = endpoint
        self.zookeeper = folder / "zookeeper"
        self._folder = folder
        self._cleanup = cleanup
        self._stream = endpoint.create_stream()
        self._put = 0

    def consumer(self, name: str) -> Consumer:
        settings = {
            "stream": self._stream,
            "app": "billing",
            "zookeeper": f"embedded:{self.zookeeper}",
            "session_timeout_seconds": SESSION_TIMEOUT_SECONDS,
            "initial_position": "trim_horizon",
            "commit_interval_seconds": 0.2,
            "region": self.endpoint.settings.region,
            "endpoint_url": self.endpoint.settings.endpoint_url,
            "aws_access_key_id": self.endpoint.settings.aws_access_key_id,
            "aws_secret_access_key": self.endpoint.settings.aws_secret_access_key,
            "dead_letters": str(self._folder / "dead-letters"),
        }
        consumer = Consumer(settings, self._folder / name)
        self._cleanup.callback(consumer.close)
        begun = time.monotonic()
        consumer.wait(lambda: "ready" in consumer.lines(), "the consumer is ready")
        consumer.takes_over_within += STARTS * (time.monotonic() - begun)
        return consumer

    def put(self, count: int) -> set[str]:
        """Put records, and name all that were put so far."""
        numbers = range(self._put, self._put + count)
        self._put += count
        reply = self.endpoint.client().put_records(
            StreamName=self._stream,
            Records=[{"Data": str(number).encode(), "PartitionKey": "key"} for number in numbers],
        )
        assert reply["FailedRecordCount"] == 0
        return {str(number) for number in range(self._put)}


@pytest.fixture
def world(moto_server: KinesisEndpoint, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as cleanup:
        yield World(moto_server, tmp_path, cleanup)


def kill_starter(starter: Consumer, world: World) -> None:
    del world
    starter.process.kill()


def kill_starter_and_server(starter: Consumer, world: World) -> None:
    """As when a container or a unit of systemd is killed: all that it started goes at once."""
    guard = json.loads((world.zookeeper / "server.json").read_text())["pid"]
    os.killpg(guard, signal.SIGKILL)
    starter.process.kill()


@pytest.mark.parametrize("kill", [kill_starter, kill_starter_and_server])
def test_a_stand_by_takes_over_when_the_one_that_started_the_server_is_killed(
    world: World, kill: Callable[[Consumer, World], None]
) -> None:
    world.put(50)
    starter = world.consumer("starter")
    starter.wait(lambda: len(starter.records()) == 50, "the first records")
    stand_by = world.consumer("stand-by")
    everything = world.put(50)
    starter.wait(lambda: len(starter.records()) > 60, "more records")
    assert len(java_processes(world.zookeeper)) == 1
    kill(starter, world)
    killed_at = time.monotonic()
    everything = world.put(50)

    def complete() -> bool:
        return starter.records() | stand_by.records() >= everything

    stand_by.wait(complete, "the stand-by has read the rest", seconds=stand_by.takes_over_within)
    print(f"taken over after {time.monotonic() - killed_at:.1f} s")  # noqa: T201 - shown with -s
    assert stand_by.end() == 0
    wait_until(lambda: not java_processes(world.zookeeper), "no Java process is left")


def test_a_consumer_that_was_only_suspended_wakes_up_beside_the_one_that_took_over(world: World) -> None:
    world.put(10)
    starter = world.consumer("starter")
    starter.wait(lambda: len(starter.records()) == 10, "the first records")
    stand_by = world.consumer("stand-by")
    os.kill(starter.process.pid, signal.SIGSTOP)
    everything = world.put(10)
    stand_by.wait(
        lambda: starter.records() | stand_by.records() >= everything,
        "taken over",
        seconds=stand_by.takes_over_within,
    )
    os.kill(starter.process.pid, signal.SIGCONT)
    # What it had in hand it may finish; what it stores is refused.
    everything = world.put(10)
    stand_by.wait(lambda: starter.records() | stand_by.records() >= everything, "the rest")
    assert stand_by.end() == 0
    everything = world.put(10)
    starter.wait(lambda: starter.records() | stand_by.records() >= everything, "taken back")
    assert starter.end() == 0
    wait_until(lambda: not java_processes(world.zookeeper), "no Java process is left")
