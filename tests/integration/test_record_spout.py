"""The plain-Python door on a real Kinesis endpoint and a real ZooKeeper."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.consumer.open_ports import open_ports
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.model.errors import InvalidConfig, StoreUnavailable
from kinesis_spout.model.handler import Reject
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from kinesis_spout.zookeeper import backend as zookeeper_settings
from tests.support.kinesis.endpoints import SHARD_END, KinesisEndpoint
from tests.support.waiting import wait_until
from tests.support.zookeeper.server import java_processes

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper, pytest.mark.endpoint]

RECORDS = 2_000
REJECTED = frozenset(str(number) for number in range(0, RECORDS, 100))


class Run:
    """One application that consumes one stream, restarted now and then."""

    def __init__(self, endpoint: KinesisEndpoint, settings: dict[str, Any], seed: int) -> None:
        self.endpoint = endpoint
        self.settings = settings
        self.stream: str = settings["stream"]
        self.acked: list[str] = []
        self.deliveries: Counter[str] = Counter()
        self.put = 0
        self._random = random.Random(seed)

    def put_until(self, count: int) -> None:
        client = self.endpoint.client()
        while self.put < count:
            upper = min(count, self.put + 500)
            reply = client.put_records(
                StreamName=self.stream,
                Records=[
                    {"Data": str(number).encode(), "PartitionKey": f"key-{number}"}
                    for number in range(self.put, upper)
                ],
            )
            assert reply["FailedRecordCount"] == 0
            self.put = upper

    def consume(self, until: Callable[[], bool]) -> None:
        """Ack, fail at random, reject what must be, until the condition holds; then close."""
        with RecordSpout(scheme="text", **self.settings).open() as spout:

            def step() -> bool:
                while (emitted := spout.next_tuple()) is not None:
                    self.deliveries[emitted.values] += 1
                    if emitted.values in REJECTED:
                        assert spout.fail(emitted.message_id, Reject("a round number"))
                    elif self._random.random() < 0.2:
                        assert spout.fail(emitted.message_id, "bad luck")
                    else:
                        assert spout.ack(emitted.message_id)
                        self.acked.append(emitted.values)
                    if until():
                        return True
                return until()

            wait_until(step, "the records")
            wait_until(lambda: spout.last_error is None, "what failed for a moment to work again")

    def letters(self) -> list[DeadLetter]:
        return list(open_sink(self.settings["dead_letters"]).read())

    def is_complete(self) -> bool:
        """Whether every record put so far has ended. Rejects and exhausted ones show in the dead letters."""
        return len(self.acked) + len(self.letters()) >= self.put

    def check(self) -> None:
        """Every record ended in exactly one way, and was delivered no more often than allowed."""
        dead = {letter.data.decode(): letter for letter in self.letters()}
        expected = {str(number) for number in range(self.put)}
        assert len(self.acked) == len(set(self.acked)), "a record was acked twice"
        assert set(self.acked).isdisjoint(dead)
        assert set(self.acked) | dead.keys() == expected
        assert dead.keys() >= REJECTED
        assert all(dead[data].attempts == 1 and dead[data].reason == "rejected" for data in REJECTED)
        others = [letter for data, letter in dead.items() if data not in REJECTED]
        assert all((letter.attempts, letter.reason) == (4, "exhausted") for letter in others)
        assert max(self.deliveries.values()) <= 4


@pytest.fixture
def settings(zookeeper_server: EmbeddedZooKeeper, fresh_root: str, tmp_path: Path) -> dict[str, Any]:
    return {
        "app": "billing",
        "zookeeper": zookeeper_server.connect_string,
        "zookeeper_root": fresh_root,
        "session_timeout_seconds": 20.0,  # one that a busy machine loses would deliver records again
        "initial_position": "trim_horizon",
        "retry_backoff_seconds": 0.05,
        "max_spared_seconds": 0,  # so that deliveries can be counted
        "commit_interval_seconds": 0.1,
        "shard_list_interval_seconds": 0.5,
        "dead_letters": str(tmp_path / "dead-letters"),
    }


def begin(endpoint: KinesisEndpoint, settings: dict[str, Any]) -> Run:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    reached: dict[str, Any] = {
        "stream": endpoint.create_stream(shards=3),
        "region": endpoint.settings.region,
        "endpoint_url": endpoint.settings.endpoint_url,
        "aws_access_key_id": endpoint.settings.aws_access_key_id,
        "aws_secret_access_key": endpoint.settings.aws_secret_access_key,
    }
    return Run(endpoint, settings | reached, seed)


def test_over_random_failures_and_a_restart_every_record_ends_once(
    moto_server: KinesisEndpoint, settings: dict[str, Any]
) -> None:
    run = begin(moto_server, settings)
    run.put_until(RECORDS // 2)
    run.consume(lambda: len(run.acked) >= RECORDS // 4)
    run.put_until(RECORDS)
    run.consume(run.is_complete)
    run.check()


def test_over_a_split_and_a_merge_meanwhile_every_record_ends_once(
    kinesis_local: KinesisEndpoint, settings: dict[str, Any]
) -> None:
    kinesis_local.needs(SHARD_END)
    client = kinesis_local.client()
    run = begin(kinesis_local, settings)
    run.put_until(RECORDS // 4)
    run.consume(lambda: len(run.acked) >= RECORDS // 8)

    shards = client.list_shards(StreamName=run.stream)["Shards"]
    first, last = (int(shards[0]["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
    client.split_shard(
        StreamName=run.stream,
        ShardToSplit=shards[0]["ShardId"],
        NewStartingHashKey=str((first + last) // 2),
    )
    kinesis_local.wait_active(run.stream)
    run.put_until(RECORDS // 2)
    client.merge_shards(
        StreamName=run.stream,
        ShardToMerge=shards[1]["ShardId"],
        AdjacentShardToMerge=shards[2]["ShardId"],
    )
    kinesis_local.wait_active(run.stream)
    run.put_until(RECORDS)
    run.consume(run.is_complete)
    run.check()


def test_spouts_that_name_one_directory_share_its_embedded_server_until_the_last_closes(
    moto_server: KinesisEndpoint, settings: dict[str, Any], tmp_path: Path
) -> None:
    embedded = {"zookeeper": f"embedded:{tmp_path / 'zookeeper'}"}
    run, other = begin(moto_server, settings | embedded), begin(moto_server, settings | embedded)
    first = RecordSpout(**run.settings).open()
    with RecordSpout(scheme="text", **other.settings).open() as second:
        first.close()
        other.put_until(1)
        for message_id, _ in second:
            assert second.ack(message_id)
            break
        wait_until(lambda: second.counters.commits > 0, "a commit to the server that the first one started")
        assert len(java_processes(tmp_path / "zookeeper")) == 1
    assert java_processes(tmp_path / "zookeeper") == []


def test_a_step_that_fails_closes_what_was_opened_before_it(
    moto_server: KinesisEndpoint, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("refused by the test")

    monkeypatch.setattr(zookeeper_settings, "ZooKeeperBackend", refuse)
    run = begin(moto_server, settings | {"zookeeper": f"embedded:{tmp_path / 'zookeeper'}"})
    spout = RecordSpout(**run.settings)
    with pytest.raises(StoreUnavailable, match="refused by the test"):
        spout.activate()
    assert java_processes(tmp_path / "zookeeper") == []


def test_closing_the_ports_twice_is_harmless(moto_server: KinesisEndpoint, settings: dict[str, Any]) -> None:
    ports = open_ports(RecordSpout(**begin(moto_server, settings).settings).config)
    ports.close()
    ports.close()


def test_a_name_that_zookeeper_cannot_take_is_refused_before_anything_is_opened(
    moto_server: KinesisEndpoint, settings: dict[str, Any]
) -> None:
    run = begin(moto_server, settings | {"zookeeper_root": "zookeeper"})
    with pytest.raises(InvalidConfig, match="zookeeper"):
        RecordSpout(**run.settings)
