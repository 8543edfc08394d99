"""A Kinesis endpoint, the real ZooKeeper and real Spark, for the tests of the micro-batch doors.

Handlers run in Spark's Python workers: what they were given they write to a file that the tests read.
"""

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.kinesis.endpoints import KinesisEndpoint, _kinesis_local_package

Handle = Callable[[Record], None]


@dataclass(frozen=True, kw_only=True)
class Delivery:
    payload: str
    attempt: int
    shard_id: str


class DeliveryLog:
    """A file of deliveries; handlers in any process append to it. Can be pickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def add(self, payload: str, attempt: int, shard_id: str) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            # One write: lines of several workers do not mix.
            os.write(file, f"{payload}\t{attempt}\t{shard_id}\n".encode())
        finally:
            os.close(file)

    def deliveries(self) -> list[Delivery]:
        if not Path(self.path).exists():
            return []
        lines = (line.split("\t") for line in Path(self.path).read_text().splitlines())
        return [
            Delivery(payload=payload, attempt=int(attempt), shard_id=shard_id)
            for payload, attempt, shard_id in lines
        ]

    def payloads(self) -> list[str]:
        return [delivery.payload for delivery in self.deliveries()]

    def attempts(self, payload: str) -> list[int]:
        return [each.attempt for each in self.deliveries() if each.payload == payload]

    def counts(self) -> Counter[str]:
        return Counter(self.payloads())


def logging_handler(log: DeliveryLog, act: Callable[[str, int], None] | None = None) -> Handle:
    """Give a handler that logs each delivery and then acts on (payload, attempt)."""

    def handle(record: Record) -> None:
        log.add(record.data.decode(), record.attempt, record.shard_id)
        if act is not None:
            act(record.data.decode(), record.attempt)

    return handle


class MicroBatchWorld:
    """One stream, one application, one place for dead letters. Mutable."""

    def __init__(
        self, endpoint: KinesisEndpoint, server: EmbeddedZooKeeper, folder: Path, shards: int
    ) -> None:
        self.endpoint = endpoint
        self.stream = endpoint.create_stream(shards=shards)
        self.log = DeliveryLog(folder / "deliveries")
        self.dead_letters_folder = folder / "dead"
        self.settings: dict[str, Any] = {
            "stream": self.stream,
            "app": f"app-{uuid.uuid4().hex[:8]}",
            "endpoint_url": endpoint.settings.endpoint_url,
            "region": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "zookeeper": server.connect_string,
            "session_timeout_seconds": 20.0,  # one that a busy machine loses would deliver records again
            "dead_letters": str(self.dead_letters_folder),
            "initial_position": "trim_horizon",
            "retry_backoff_seconds": 0.05,
            "max_spared_seconds": 0,
            "retry_jitter": 0.0,
            "commit_interval_seconds": 0.1,
            "idle_poll_interval_seconds": 0.2,
            "shard_list_interval_seconds": 1.0,
        }

    def spout(self, **settings: Any) -> KinesisSpout:
        return KinesisSpout(**{**self.settings, **settings})

    def put(self, payloads: Iterable[str], keys: Sequence[str] = ()) -> None:
        """Put records, each under its own payload as key unless keys are given, which take turns."""
        client = self.endpoint.client()
        entries: list[Any] = [
            {"Data": payload.encode(), "PartitionKey": keys[at % len(keys)] if keys else payload}
            for at, payload in enumerate(payloads)
        ]
        for start in range(0, len(entries), 500):
            reply = client.put_records(StreamName=self.stream, Records=entries[start : start + 500])
            assert reply.get("FailedRecordCount", 0) == 0, reply

    def put_aggregated(self, payloads: Sequence[str]) -> None:
        """Put one aggregated record, each of whose user records has its payload as its key."""
        data = aggregate(UserRecord(payload, payload.encode()) for payload in payloads)
        self.endpoint.client().put_record(StreamName=self.stream, Data=data, PartitionKey=payloads[0])

    def dead_letters(self) -> list[DeadLetter]:
        sink = open_sink(str(self.dead_letters_folder))
        try:
            return list(sink.read())
        finally:
            sink.close()


MakeWorld = Callable[..., MicroBatchWorld]


@pytest.fixture
def make_world(
    request: pytest.FixtureRequest, zookeeper_server: EmbeddedZooKeeper, tmp_path: Path
) -> MakeWorld:
    """Give a function that makes the world of a test, on the best endpoint there is.

    Ten thousand records take kinesis-mock half a minute and moto a second: such tests say ``many_records``.
    """
    best = "kinesis_local" if shutil.which("node") and _kinesis_local_package() else "moto_server"

    def make(*, shards: int = 2, many_records: bool = False) -> MicroBatchWorld:
        endpoint: KinesisEndpoint = request.getfixturevalue("moto_server" if many_records else best)
        return MicroBatchWorld(endpoint, zookeeper_server, tmp_path, shards)

    return make


@pytest.fixture
def world(make_world: MakeWorld) -> MicroBatchWorld:
    return make_world()
