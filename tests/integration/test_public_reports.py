"""Bugs that users reported of other software, played on ours. Each test names the reports and what went wrong.

Each test is one report: over real HTTP, with a real ZooKeeper, through the doors that users open.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from kinesis_spout import KinesisProducer
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.model.errors import InvalidRecord
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper, pytest.mark.endpoint]

FIRST = "shardId-000000000000"


@pytest.fixture
def settings(
    unkind: UnkindEndpoint, zookeeper_server: EmbeddedZooKeeper, fresh_root: str, tmp_path: Path
) -> dict[str, Any]:
    return {
        "app": "billing",
        "zookeeper": zookeeper_server.connect_string,
        "zookeeper_root": fresh_root,
        "initial_position": "trim_horizon",
        "commit_interval_seconds": 0.1,
        "shard_list_interval_seconds": 0.5,
        "dead_letters": str(tmp_path / "dead-letters"),
        "region": "us-east-1",
        "endpoint_url": unkind.url,
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }


class Reading:
    """A spout that acks all it gets, in order. Mutable."""

    def __init__(self, settings: dict[str, Any], stream: str, **others: Any) -> None:
        self.spout = RecordSpout(stream=stream, **(settings | others))
        self.got: list[bytes] = []

    def __enter__(self) -> Self:
        self.spout.open()
        return self

    def __exit__(self, *_error: object) -> None:
        self.spout.close()

    def until(self, condition: Callable[[], object], what: str) -> None:
        def step() -> object:
            while (emitted := self.spout.next_tuple()) is not None:
                self.got.append(emitted.values.data)
                self.spout.ack(emitted.message_id)
            return condition()

        wait_until(step, what, seconds=30)

    def until_got(self, count: int) -> list[bytes]:
        self.until(lambda: len(self.got) >= count, f"{count} records, got {len(self.got)}")
        return self.got


def split(unkind: UnkindEndpoint, stream: str, shard_id: str = FIRST) -> None:
    client = unkind.client()
    shards = {each["ShardId"]: each for each in client.list_shards(StreamName=stream)["Shards"]}
    keys = shards[shard_id]["HashKeyRange"]
    middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
    client.split_shard(StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=str(middle))


def names(numbers: range) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_a_shard_that_was_closed_before_the_first_start_is_read_first(
    unkind: UnkindEndpoint, settings: dict[str, Any]
) -> None:
    """It was never read.

    https://github.com/redpanda-data/connect/issues/2649
    """
    stream = unkind.create_stream()
    unkind.put(stream, *names(range(5)))
    split(unkind, stream)
    unkind.put(stream, *names(range(5, 10)))
    with Reading(settings, stream) as reading:
        assert reading.until_got(10) == names(range(10))


def test_a_closed_shard_is_not_asked_for_what_follows_its_last_number(
    unkind: UnkindEndpoint, settings: dict[str, Any]
) -> None:
    """The consumer stopped: "has reached max possible value for the shard"; ours ended with a data loss.

    https://github.com/spring-attic/spring-cloud-stream-binder-aws-kinesis/issues/148
    """
    stream = unkind.create_stream()
    unkind.put(stream, *names(range(3)))
    with Reading(settings, stream) as reading:
        reading.until_got(3)
    split(unkind, stream)
    unkind.put(stream, b"3")
    unkind.reset()
    with Reading(settings, stream) as reading:
        assert reading.until_got(1) == [b"3"]
    asked = [each["request"] for each in unkind.seen("GetShardIterator")]
    assert {each["ShardIteratorType"] for each in asked if each["ShardId"] == FIRST} == {"AT_SEQUENCE_NUMBER"}


def test_latest_is_read_although_this_machines_clock_is_ahead_of_the_service(
    unkind: UnkindEndpoint, settings: dict[str, Any]
) -> None:
    """LATEST became a time, which the service refused.

    https://github.com/qubole/kinesis-sql/issues/3
    https://github.com/awslabs/amazon-kinesis-connector-flink/issues/13
    """
    stream = unkind.create_stream()
    unkind.put(stream, b"before")
    unkind.set_clock(-2.0)
    with Reading(settings, stream, initial_position="latest") as reading:
        reading.until(lambda: unkind.calls["GetRecords"], "it reads")
        unkind.set_clock(0.0)
        unkind.put(stream, b"after")
        assert reading.until_got(1) == [b"after"]


def test_an_iterator_that_expires_while_a_handler_works_is_replaced_at_the_same_record(
    unkind: UnkindEndpoint, settings: dict[str, Any]
) -> None:
    """Records stopped for good.

    https://github.com/awslabs/amazon-kinesis-client/issues/829
    https://github.com/metarank/metarank/issues/1282
    """
    stream = unkind.create_stream()
    unkind.put(stream, *names(range(3)))
    with Reading(settings, stream) as reading:
        reading.until_got(3)
        unkind.switch_on(Behaviour.EXPIRED_ITERATORS, operations=["GetRecords"])
        reading.until(lambda: unkind.happened[Behaviour.EXPIRED_ITERATORS], "its iterator is expired")
        unkind.put(stream, *names(range(3, 6)))
        assert reading.until_got(6) == names(range(6))


def test_a_stream_of_more_shards_than_a_page_is_read_whole(
    unkind: UnkindEndpoint, settings: dict[str, Any]
) -> None:
    """The second page failed: "NextToken and StreamName cannot be provided together".

    https://github.com/harlow/kinesis-consumer/issues/109
    https://github.com/twitchscience/kinsumer/pull/53
    """
    stream = unkind.create_stream(shards=7)
    unkind.set_list_page(2)
    shards = [f"shardId-{number:012}" for number in range(7)]
    for number, shard_id in enumerate(shards):
        unkind.put(stream, b"%d" % number, shard_id=shard_id)
    with Reading(settings, stream) as reading:
        assert sorted(reading.until_got(7)) == names(range(7))
    listings = [each["request"] for each in unkind.seen("ListShards")]
    assert any("NextToken" in each for each in listings)
    assert not any("NextToken" in each and ("StreamName" in each or "StreamARN" in each) for each in listings)


def test_an_aggregate_whose_records_belong_to_no_shard_any_more_is_delivered(
    unkind: UnkindEndpoint, settings: dict[str, Any]
) -> None:
    """It ended the consumer.

    https://github.com/apache/flink/pull/20945
    """
    stream = unkind.create_stream(shards=2)
    other_half = str(2**127 + 1)
    unkind.put(
        stream,
        aggregate([UserRecord("a", b"one", other_half), UserRecord("b", b"two", other_half)]),
        shard_id=FIRST,
    )
    with Reading(settings, stream, initial_position="2020-01-01T00:00:00Z") as reading:
        assert reading.until_got(2) == [b"one", b"two"]


def test_a_subscription_that_is_answered_with_an_empty_document_is_asked_for_again_in_peace(
    unkind: UnkindEndpoint, settings: dict[str, Any]
) -> None:
    """The client subscribed without a rest.

    https://github.com/floci-io/floci/issues/562
    """
    stream = unkind.create_stream()
    unkind.switch_on(Behaviour.REPLY, operations=["SubscribeToShard"], body=b"{}", times=1)
    with Reading(settings, stream, consumer_mode="efo") as reading:
        reading.until(lambda: unkind.happened[Behaviour.REPLY], "it subscribes")
        unkind.put(stream, b"one")
        assert reading.until_got(1) == [b"one"]
    times = [each["time"] for each in unkind.seen("SubscribeToShard")]
    assert len(times) == 2
    assert times[1] - times[0] >= 0.5


def test_a_subscription_at_latest_to_an_idle_shard_gets_what_comes(
    unkind: UnkindEndpoint, settings: dict[str, Any]
) -> None:
    """It looped for ever.

    https://github.com/awslabs/spark-sql-kinesis-connector/pull/92
    """
    stream = unkind.create_stream()
    unkind.put(stream, b"before")
    unkind.set_subscriptions(lasts_seconds=0.5, again_after_seconds=0.0)
    with Reading(settings, stream, consumer_mode="efo", initial_position="latest") as reading:
        reading.until(lambda: len(unkind.seen("SubscribeToShard")) >= 2, "an empty subscription has ended")
        unkind.put(stream, b"after")
        assert reading.until_got(1) == [b"after"]


def test_a_put_of_which_a_part_is_refused_puts_the_rest_again_and_once(unkind: UnkindEndpoint) -> None:
    """It was taken for a success.

    https://github.com/vectordotdev/vector/issues/16954
    https://github.com/risingwavelabs/risingwave/pull/17983
    """
    stream = unkind.create_stream(shards=2)
    unkind.switch_on(Behaviour.PARTLY_REFUSED, operations=["PutRecords"], share=0.9, times=3)
    with producer(unkind, stream) as sending:
        tickets = [sending.put(b"%d" % number, f"key-{number}") for number in range(2_000)]
        sending.flush()
    assert {ticket.result(0).shard_id for ticket in tickets} <= {FIRST, "shardId-000000000001"}
    assert unkind.happened[Behaviour.PARTLY_REFUSED]
    assert sorted(put_into(unkind, stream), key=int) == names(range(2_000))


def test_records_of_a_key_stay_in_order_when_some_are_refused(unkind: UnkindEndpoint) -> None:
    """They landed behind later ones.

    https://github.com/redpanda-data/connect/issues/1641
    https://github.com/zendesk/maxwell/issues/817
    """
    stream = unkind.create_stream()
    unkind.switch_on(Behaviour.PARTLY_REFUSED, operations=["PutRecords"], share=0.3, times=3)
    with producer(unkind, stream, order="key") as sending:
        for number in range(1_000):
            sending.put(b"%d" % number, "key")
    assert unkind.happened[Behaviour.PARTLY_REFUSED]
    assert put_into(unkind, stream) == names(range(1_000))


def test_a_record_that_is_too_large_is_refused_alone(unkind: UnkindEndpoint) -> None:
    """It failed the others of its call.

    https://github.com/confluentinc/librdkafka/issues/488
    https://github.com/acquia/fifo2kinesis/issues/24
    """
    stream = unkind.create_stream()
    with producer(unkind, stream) as sending:
        small = [sending.put(b"1", "k")]
        with pytest.raises(InvalidRecord):
            sending.put(bytes(11 * 1024 * 1024), "k")
        small.append(sending.put(b"2", "k"))
        sending.flush()
        assert [ticket.result(0).shard_id for ticket in small] == [FIRST, FIRST]
    assert put_into(unkind, stream) == [b"1", b"2"]


def test_a_put_whose_answer_is_lost_is_made_again_and_never_reported_as_lost(unkind: UnkindEndpoint) -> None:
    """Records were lost, or 500 too many arrived.

    https://github.com/samcday/logstash-output-kinesis/issues/6
    https://github.com/awslabs/amazon-kinesis-producer/issues/17
    """
    stream = unkind.create_stream()
    unkind.switch_on(Behaviour.RESET, operations=["PutRecords"], times=1, sent=10)
    with producer(unkind, stream) as sending:
        ticket = sending.put(b"1", "k")
        sending.flush()
        assert ticket.result(0).shard_id == FIRST
    assert unkind.happened[Behaviour.RESET] == 1
    assert set(put_into(unkind, stream)) == {b"1"}


def producer(unkind: UnkindEndpoint, stream: str, **settings: Any) -> KinesisProducer:
    return KinesisProducer(
        stream,
        region="us-east-1",
        endpoint_url=unkind.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        aggregation=False,
        **settings,
    )


def put_into(unkind: UnkindEndpoint, stream: str) -> list[bytes]:
    return [base64.b64decode(record["Data"]) for shard in unkind.records(stream).values() for record in shard]
