"""A consumer that was stopped for longer than its session hands out nothing of what another one has taken over."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper]

CONSUMER = """
import sys, time
from dataclasses import replace
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.testing import InMemoryDeadLetterSink, InMemoryShardGetter, InMemoryShardLister
from kinesis_spout.testing import InMemoryStream
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.zookeeper import Paths, ZooKeeperBackend, ZooKeeperSession

class Lister(InMemoryShardLister):
    def summary(self):  # the same stream in each process
        return replace(super().summary(), created=1.0)

stream = InMemoryStream("orders", clock=SystemClock())
for number in range(50_000):
    stream.put(str(number).encode(), "key")
backend = ZooKeeperBackend(
    ZooKeeperSession(sys.argv[1], session_timeout_seconds=8), Paths(app="billing", stream="orders")
)
ports = Ports(
    lister=Lister(stream),
    open_getter=lambda shard_id, position: InMemoryShardGetter(stream, shard_id, position),
    store=backend.store,
    coordinator=backend.coordinator,
    group=backend.group,
    dead_letters=InMemoryDeadLetterSink(),
    close=backend.close,
)
with RecordSpout(ports=ports, stream="orders", app="billing", initial_position="trim_horizon") as spout:
    for message_id, record in spout.open():
        print(record.data.decode(), flush=True)
        time.sleep(0.002)
        spout.ack(message_id)
"""


class Consumer:
    """A process, and what it has handed out. Mutable."""

    def __init__(self, zookeeper: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, zookeeper], stdout=subprocess.PIPE, text=True
        )
        self.handed_out: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.handed_out.extend(line.strip() for line in self.process.stdout)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def consuming(zookeeper: str) -> Iterator[Consumer]:
    consumer = Consumer(zookeeper)
    try:
        yield consumer
    finally:
        consumer.close()


def test_a_woken_consumer_hands_out_nothing_before_zookeeper_has_answered(
    zookeeper_server: EmbeddedZooKeeper,
) -> None:
    address = zookeeper_server.connect_string
    with consuming(address) as stopped:
        wait_until(lambda: len(stopped.handed_out) >= 200, "the first consumer works")
        os.kill(stopped.process.pid, signal.SIGSTOP)
        with consuming(address) as other:
            wait_until(lambda: len(other.handed_out) >= 200, "the other one has taken over")
            before = len(stopped.handed_out)  # only now: what it had printed was on its way to us
            os.kill(stopped.process.pid, signal.SIGCONT)
            until = len(other.handed_out) + 500
            wait_until(lambda: len(other.handed_out) >= until, "the first one had time to go on")
            after = len(stopped.handed_out)
            # The one in its hands, and one that was on its way to us.
            assert after - before <= 2
