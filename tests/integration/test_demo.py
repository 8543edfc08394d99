"""The demo as a user runs it, with fewer records."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from examples.demo.consumers.settings import ConsumerSettings
from examples.demo.processes.endpoint import free_ports
from examples.demo.processes.page import Page
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.endpoint, pytest.mark.zookeeper, pytest.mark.timeout(1_200)]

DEMO = [sys.executable, "-m", "examples.demo"]
SECONDS = 360


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp_path)}


@pytest.fixture
def no_demo_left(tmp_path: Path) -> Callable[[], bool]:
    """Tells whether neither a file nor a process of the demo is left."""

    def nothing_left() -> bool:
        processes = subprocess.run(["ps", "-axo", "args"], capture_output=True, text=True, check=True)
        return str(tmp_path) not in processes.stdout and not list(tmp_path.glob("kinesis-spout-demo-*"))

    return nothing_left


@pytest.mark.no_second_run
def test_no_record_is_lost_over_retries_dead_letters_resharding_a_second_consumer_and_a_kill(
    environment: dict[str, str], no_demo_left: Callable[[], bool]
) -> None:
    done = subprocess.run(
        [*DEMO, "--records", "1500", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["unfinished"] is None
    assert summary["produced"] == 1500
    assert summary["lost"] == 0
    assert summary["acked"] + summary["dead_lettered"] == 1500
    assert summary["dead_lettered"] > 0
    assert summary["recovered"] > 0
    assert summary["retries"] > summary["recovered"]
    assert len(summary["kills"]) == 1
    (kill,) = summary["kills"]
    assert summary["second"]["share_seconds"] > 0
    assert kill["taken_over_seconds"] > 0
    assert kill["resumed_seconds"] > 0
    assert kill["again"]["share_seconds"] > 0
    assert kill["repeated"] <= summary["duplicates"]
    # moto's server never ends a closed shard, so the demo does not reshard there.
    resharded = 0 if summary["engine"] == "moto's server" else 1
    assert (summary["splits"], summary["merges"]) == (resharded, resharded)
    assert "killed the consumer" in done.stderr
    assert "the second consumer shares" in done.stderr
    assert "went on with the dead one's shards" in done.stderr
    assert "resumed" in done.stderr
    # PySpark's daemon is in a group of its own, and ends when it finds the JVM gone.
    wait_until(no_demo_left, "everything of the demo is gone")


def test_what_is_not_finished_by_the_time_out_is_exit_code_1_and_is_kept_for_a_look(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*DEMO, "--records", "500", "--timeout", "5"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Not finished: by the time-out" in done.stdout
    (kept,) = tmp_path.glob("kinesis-spout-demo-*")
    assert str(kept) in done.stdout.replace("\n", "")
    assert (kept / "consumer-1.log").is_file()


def test_terminated_half_way_it_leaves_nothing_behind(
    environment: dict[str, str], no_demo_left: Callable[[], bool]
) -> None:
    demo = subprocess.Popen(
        [*DEMO, "--records", "500"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    deadline = time.monotonic() + SECONDS
    for line in demo.stdout:
        assert time.monotonic() < deadline
        if "starting the consumer" in line:
            break
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=240)
    assert demo.returncode == 128 + signal.SIGTERM
    wait_until(no_demo_left, "everything of the demo is gone")


def test_without_java_it_says_in_one_line_what_to_do(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO,
        env={**environment, "JAVA_HOME": str(tmp_path / "no-java")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no java in JAVA_HOME=")
    assert "Install it" in line


def test_an_endpoint_that_does_not_answer_is_named(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [*DEMO, "--endpoint-url", "http://127.0.0.1:9"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 3
    assert "error: CreateStream at http://127.0.0.1:9 failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_of_the_demo_is_served_and_ends_with_it(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper, moto_server: KinesisEndpoint
) -> None:
    settings = ConsumerSettings(
        endpoint_url=str(moto_server.settings.endpoint_url),
        region=str(moto_server.settings.region),
        stream=moto_server.create_stream(),
        zookeeper=zookeeper_server.connect_string,
        directory=str(tmp_path),
        run=0,
        seed=1,
    )
    (port,) = free_ports(1)
    keys = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
    with Page(port, settings, keys) as page:

        def is_served() -> bool:
            page.check()
            try:
                with urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                    return settings.stream in answer.read().decode()
            except HTTPError as error:  # nothing has begun here, but other applications of this ZooKeeper
                return settings.stream in error.read().decode()
            except OSError:
                return False

        wait_until(is_served, "the page", every_seconds=0.2)
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}/", timeout=30)
