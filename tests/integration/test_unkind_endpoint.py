"""The plain door and the producer in front of the unkind endpoint: nothing is lost, and no reply comes twice."""

from contextlib import closing
from typing import Literal

import pytest

from kinesis_spout import KinesisProducer
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.kinesis.unkind.behaviours import EVENT, Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.kinesis.unkind.weather import producer_weather, reader_weather
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper, pytest.mark.endpoint]

FIRST = "shardId-000000000000"
RATE = 0.3
ROUNDS, COUNT = 5, 20


def put(unkind: UnkindEndpoint, stream: str, name: str) -> None:
    """Put some records, and wait until the producer knows of each."""
    with KinesisProducer(stream, client=unkind.settings().connect(), linger_seconds=0.01) as producer:
        tickets = [producer.put(f"{name}{number}".encode(), f"key-{number % 7}") for number in range(COUNT)]
        assert [ticket.exception(timeout=30) for ticket in tickets] == [None] * COUNT


@pytest.mark.parametrize("mode", ["polling", "efo"])
def test_every_record_comes_once_and_in_order_through_a_split_whatever_is_answered(
    mode: Literal["polling", "efo"],
    unkind: UnkindEndpoint,
    zookeeper_server: EmbeddedZooKeeper,
    fresh_root: str,
) -> None:
    stream = unkind.create_stream(shards=2)
    producer_weather(unkind, RATE, "puts", stream=stream)
    reader_weather(unkind, RATE, "reads", stream=stream)
    # Five seconds must pass before each other subscription to a shard.
    unkind.switch_on(Behaviour.CUT, operations=[EVENT], after=3, times=2, stream=stream)
    spout = RecordSpout(
        scheme="text",
        stream=stream,
        app="unkind",
        region="us-east-1",
        endpoint_url=unkind.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        zookeeper=zookeeper_server.connect_string,
        zookeeper_root=fresh_root,
        initial_position="trim_horizon",
        shard_list_interval_seconds=0.5,
        consumer_mode=mode,
    )
    seen: list[str] = []

    def has_all() -> bool:
        while (emitted := spout.next_tuple()) is not None:
            seen.append(emitted.message_id.partition("#")[0])
            spout.ack(emitted.message_id)
        return len(seen) >= len(on_stream(unkind, stream))

    with closing(spout):
        spout.open()
        for round_ in range(ROUNDS):
            put(unkind, stream, f"{round_}-")
            wait_until(has_all, f"the records of round {round_}")
            if round_ == 2:
                unkind.client().split_shard(
                    StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey=str(1 << 126)
                )

    assert sorted(seen) == sorted(on_stream(unkind, stream))
    by_shard: dict[str, list[int]] = {}
    for message_id in seen:
        shard_id, _, number = message_id.rpartition(":")
        by_shard.setdefault(shard_id, []).append(int(number))
    assert all(numbers == sorted(numbers) for numbers in by_shard.values())
    assert unkind.happened.total() >= 4


def on_stream(unkind: UnkindEndpoint, stream: str) -> list[str]:
    records = unkind.records(stream)
    return [f"{shard_id}:{each['SequenceNumber']}" for shard_id in records for each in records[shard_id]]
