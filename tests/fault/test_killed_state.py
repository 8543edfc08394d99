"""A process killed anywhere between the files of keyed state and the commit: both are of one moment."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.manifest import StateManifest
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.core.shards import everywhere, shards_named
from tests.support.storm.state_process import CUSTOMERS, SHARD, START, TOPOLOGY, backend_of, counted, handled
from tests.support.zookeeper.server import end_session

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper]

KILLS = 8
SEED = 11


def test_the_state_counts_each_finished_record_once_whenever_its_process_is_killed(
    zookeeper_server: EmbeddedZooKeeper, fresh_root: str, tmp_path: Path
) -> None:
    draws = random.Random(SEED)
    finished = 0
    for number in range(KILLS):
        commits = draws.randrange(1, 6)
        arguments = [zookeeper_server.connect_string, fresh_root, f"counts-{number}", str(tmp_path)]
        parallelism = str(draws.choice([2, 3]))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.storm.state_process", *arguments, parallelism],
            stdout=subprocess.PIPE,
        )
        with process:
            assert process.stdout is not None
            session_id, password = process.stdout.readline().split()
            for _ in range(commits):
                assert process.stdout.readline() == b"committed\n"
            # Not waiting for a condition: it is to die at any moment of its next micro-batches.
            time.sleep(draws.random() * 0.05)
            process.kill()
        # The next one begins when the session of this one is over.
        end_session(zookeeper_server, (int(session_id), bytes.fromhex(password.decode())))
        now_finished, counts = seen(zookeeper_server, fresh_root, tmp_path)
        assert now_finished > finished, "it goes on from where the one before was killed"
        assert counts == {
            customer: sum(record % CUSTOMERS == customer for record in range(1, now_finished + 1))
            for customer in range(CUSTOMERS)
        }
        finished = now_finished


def seen(server: EmbeddedZooKeeper, root: str, address: Path) -> tuple[int, dict[int, int]]:
    with backend_of(server.connect_string, root, "witness") as backend:
        backend.store.open(1.0, everywhere(START), shards_named(SHARD))
        stored = backend.store.attached(TOPOLOGY)
        assert stored is not None
        finished = handled(backend.store.load()[SHARD])
        return finished, counted(StateFiles(str(address)), StateManifest.decode(stored))
