"""The demo of topologies as a user runs it, with fewer sentences."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.endpoint, pytest.mark.zookeeper, pytest.mark.timeout(900)]

DEMO = [sys.executable, "-m", "examples.demo_topology"]
SECONDS = 420


def demo(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*DEMO, *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def runs_in(folder: Path) -> bool:
    processes = subprocess.run(["ps", "-axo", "args"], capture_output=True, text=True, check=True)
    return str(folder) in processes.stdout


def test_every_count_is_exact_over_failures_dead_letters_a_killed_worker_and_a_killed_driver(
    tmp_path: Path,
) -> None:
    done = demo(tmp_path, "--sentences", "800", "--json")

    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["wrong"] == {}
    assert outcome["missing"] == []
    assert outcome["counted"] == outcome["recounted"]
    assert outcome["kill"]["unfinished"] > 0
    assert outcome["kill"]["committed_words"] < sum(outcome["counted"].values())
    assert "killed a Python worker" in done.stderr
    assert "killed the driver" in done.stderr
    # PySpark's daemon is in a group of its own, and ends when it finds the JVM gone.
    wait_until(lambda: not runs_in(tmp_path), "every process of the demo is gone")
    assert not list(tmp_path.glob("kinesis-spout-demo-*"))


def test_what_is_not_finished_by_the_time_out_is_exit_code_1_and_is_kept_for_a_look(tmp_path: Path) -> None:
    done = demo(tmp_path, "--sentences", "250", "--timeout", "5")

    assert done.returncode == 1, done.stderr
    assert "before the time-out" in done.stderr
    (kept,) = tmp_path.glob("kinesis-spout-demo-*")
    assert str(kept) in done.stderr.replace("\n", "")
    assert (kept / "consumer-1.log").is_file()
