"""After a kill of its only consumer, an embedded ZooKeeper shows a command that the consumer is dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from shard_state import Checkpoint, Position

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper]

SHARD_ID = "shardId-000000000000"

CONSUMER = f"""
import sys, time
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession
from shard_state import Checkpoint, Position, Shard, StartPositions

start = Position.trim_horizon()
server = EmbeddedZooKeeper(sys.argv[1]).start()
session = ZooKeeperSession(server, session_timeout_seconds=2)
backend = ZooKeeperBackend(session, Paths(app="billing", stream="orders"))
backend.store.open(1.0, StartPositions(default=start), [Shard(shard_id="{SHARD_ID}")])
backend.coordinator.join()
backend.coordinator.acquire("{SHARD_ID}", Checkpoint(start=start))
print("owns it", flush=True)
time.sleep(600)
"""


def test_the_progress_of_a_killed_consumer_can_be_reset_by_the_first_command(tmp_path: Path) -> None:
    consumer = subprocess.Popen(
        [sys.executable, "-c", CONSUMER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert consumer.stdout is not None
    with consumer:
        assert consumer.stdout.readline() == "owns it\n"
        os.kill(consumer.pid, signal.SIGKILL)
    config = SpoutConfig.of(
        stream="orders", app="billing", zookeeper=f"embedded:{tmp_path}", session_timeout_seconds=2
    )
    with World().progress(config) as progress:
        assert progress.coordinator.members() == []
        assert progress.store.owners() == {}
        progress.store.reset({SHARD_ID: Checkpoint(start=Position.trim_horizon())})
        assert progress.applications() == [("billing", "orders")]
