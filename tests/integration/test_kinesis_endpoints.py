"""The adapters together, against endpoints that speak HTTP, and the credentials' way through STS."""

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.kinesis import (
    KinesisClientSettings,
    KinesisShardLister,
    PollingShardGetter,
    Prefetcher,
    ReadSettings,
)
from kinesis_spout.kinesis.aggregated_record import take_apart
from kinesis_spout.kinesis.calls import RAW_BODY
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.kinesis.write.hash_key_ranges import hash_key
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.kinesis.write.record_putter import RecordPutter
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import StreamNotFound, Unavailable
from kinesis_spout.producer import KinesisProducer, Ticket
from shard_state import Position
from tests.support.consumer.buffered_shard import buffered_shard
from tests.support.kinesis.endpoints import FILLS_CHILDREN, KEEPS_CLOSED, SHARD_END, KinesisEndpoint
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.model.record import Record

pytestmark = pytest.mark.endpoint

SHARD = "shardId-000000000000"


def _getter(client: "KinesisClient", stream: str, shard_id: str = SHARD, **others: Any) -> PollingShardGetter:
    return PollingShardGetter(
        client,
        stream=stream,
        shard_id=shard_id,
        lister=KinesisShardLister(client, stream),
        **{"position": Position.trim_horizon(), **others},
    )


def _put(client: "KinesisClient", stream: str, payloads: list[bytes]) -> None:
    records: Any = [{"Data": payload, "PartitionKey": str(index)} for index, payload in enumerate(payloads)]
    assert client.put_records(StreamName=stream, Records=records)["FailedRecordCount"] == 0


def test_pages_come_past_botocores_parser(kinesis_endpoint: KinesisEndpoint) -> None:
    client, stream = kinesis_endpoint.client(), kinesis_endpoint.create_stream()
    iterator = client.get_shard_iterator(StreamName=stream, ShardId=SHARD, ShardIteratorType="TRIM_HORIZON")

    reply: Any = client.get_records(ShardIterator=iterator["ShardIterator"])

    assert b'"Records"' in reply[RAW_BODY]


def test_large_and_small_records_arrive_whole_through_the_buffer(kinesis_endpoint: KinesisEndpoint) -> None:
    client, stream = kinesis_endpoint.client(), kinesis_endpoint.create_stream()
    payloads = [os.urandom(size) for size in [0, 1, 1000, 900_000, *[100] * 200]]
    _put(client, stream, payloads)
    polled: list[Record] = []

    with Prefetcher(most=1) as prefetcher:
        getter = buffered_shard(_getter(client, stream), prefetcher, max_records=50)

        def has_all() -> bool:
            while (emitted := getter.poll()) is not None:
                polled.append(emitted[0])
            return len(polled) == len(payloads)

        wait_until(has_all, f"{len(payloads)} records")
        getter.close()

    assert [record.data for record in polled] == payloads


def test_columns_hold_what_was_put(kinesis_endpoint: KinesisEndpoint) -> None:
    client, stream = kinesis_endpoint.client(), kinesis_endpoint.create_stream()
    _put(client, stream, [b"one", b"\x00\xff"])

    rows = _getter(client, stream).read_arrow(10).batch.to_pylist()

    assert [(row["partitionKey"], row["data"], row["stream"]) for row in rows] == [
        ("0", b"one", stream),
        ("1", b"\x00\xff", stream),
    ]
    assert all(row["approximateArrivalTimestamp"] is not None for row in rows)


def test_an_iterator_serves_the_next_process(kinesis_endpoint: KinesisEndpoint) -> None:
    client, stream = kinesis_endpoint.client(), kinesis_endpoint.create_stream()
    _put(client, stream, [b"one", b"two", b"three"])
    old = _getter(client, stream)
    old.read(1)
    asked: list[str] = []
    client.meta.events.register("before-call.kinesis.GetShardIterator", lambda **_: asked.append("again"))

    new = _getter(
        client,
        stream,
        position=old.position,
        cursor=old.cursor,
    )

    assert [record.data for record in new.read(10).records] == [b"two", b"three"]
    assert asked == []


@pytest.mark.no_second_run
def test_a_walk_over_a_split_and_a_merge_meets_every_record_once(kinesis_endpoint: KinesisEndpoint) -> None:
    kinesis_endpoint.needs(SHARD_END, KEEPS_CLOSED, FILLS_CHILDREN)
    client, stream = kinesis_endpoint.client(), kinesis_endpoint.create_stream()
    _put(client, stream, [b"before %d" % number for number in range(20)])
    client.split_shard(StreamName=stream, ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
    kinesis_endpoint.wait_active(stream)
    _put(client, stream, [b"between %d" % number for number in range(20)])
    client.merge_shards(
        StreamName=stream,
        ShardToMerge="shardId-000000000001",
        AdjacentShardToMerge="shardId-000000000002",
    )
    kinesis_endpoint.wait_active(stream)
    _put(client, stream, [b"after %d" % number for number in range(20)])

    met: list[bytes] = []
    ended: set[str] = set()
    waiting = {SHARD}
    while waiting:
        shard_id = waiting.pop()
        getter = _getter(client, stream, shard_id)
        while True:
            page = getter.read(10_000)
            met.extend(record.data for record in page.records)
            if page.at_end:
                ended.add(shard_id)
                waiting |= {child.shard_id for child in page.child_shards if ended.issuperset(child.parents)}
                break
            if not page.records:
                break  # the tip of the open shard

    assert sorted(met) == sorted(
        b"%s %d" % (when, number) for when in (b"before", b"between", b"after") for number in range(20)
    )
    assert len(ended) == 3


@pytest.mark.no_second_run
def test_aggregates_that_a_split_and_a_merge_overtake_lose_no_record(
    kinesis_endpoint: KinesisEndpoint,
) -> None:
    kinesis_endpoint.needs(SHARD_END, KEEPS_CLOSED, FILLS_CHILDREN)
    client, stream = kinesis_endpoint.client(), kinesis_endpoint.create_stream()
    putter = RecordPutter(
        client,
        stream,
        aggregate_bytes=51_200,
        retry_policy=CallRetryPolicy(deadline_seconds=30, clock=SystemClock()),
    )

    def add(first: int, last: int) -> None:
        for number in range(first, last):
            putter.add(Entry(f"key-{number}", str(number).encode(), row=number))

    add(0, 100)
    client.split_shard(StreamName=stream, ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
    kinesis_endpoint.wait_active(stream)
    putter.put()  # closes what was packed for the parent
    putter.put()
    add(100, 200)
    client.merge_shards(
        StreamName=stream,
        ShardToMerge="shardId-000000000001",
        AdjacentShardToMerge="shardId-000000000002",
    )
    kinesis_endpoint.wait_active(stream)
    add(200, 300)
    while putter.waiting:
        putter.put()

    seen: list[int] = []
    for shard in KinesisShardLister(client, stream).list_shards():
        getter = _getter(client, stream, shard.shard_id, settings=ReadSettings(deaggregate=False))
        while records := (page := getter.read(10_000)).records:
            first, last = shard.hash_range
            for parts in (take_apart(bytes(record.data)) or () for record in records):
                if all(first <= hash_key(part.partition_key) <= last for part in parts):  # as the KCL
                    seen += [int(part.data) for part in parts]
            if page.at_end:
                break
    assert sorted(seen) == list(range(300))
    assert putter.counts.taken == 300
    assert 300 < putter.counts.sent <= 500


@pytest.mark.no_second_run
@pytest.mark.parametrize("aggregation", [False, True])
def test_a_producer_says_of_each_record_where_it_is_to_threads_and_to_asyncio(
    kinesis_endpoint: KinesisEndpoint, *, aggregation: bool
) -> None:
    client, stream = kinesis_endpoint.client(), kinesis_endpoint.create_stream()

    async def put_the_rest(producer: KinesisProducer) -> list[Ticket]:
        tickets = [await producer.put_async(b"async %d" % number, f"k-{number}") for number in range(50)]
        for ticket in tickets:
            assert (await ticket).shard_id == SHARD
        return tickets

    # One call at a time: moto may give records of two calls at once one number.
    with KinesisProducer(
        stream, client=client, aggregation=aggregation, linger_seconds=0.01, max_concurrent_calls=1
    ) as producer:
        tickets = [producer.put(b"thread %d" % number, f"k-{number}") for number in range(600)]
        tickets += asyncio.run(put_the_rest(producer))
        places = {ticket.result(60).message_id: ticket.data for ticket in tickets}
    assert producer.counts().sent == len(places) == 650

    getter, found = _getter(client, stream, SHARD), dict[str, bytes]()
    while records := getter.read(10_000).records:
        found |= {record.message_id: bytes(record.data) for record in records}
    assert found == places


def test_a_missing_stream_is_named_with_its_endpoint(kinesis_endpoint: KinesisEndpoint) -> None:
    client = kinesis_endpoint.client()

    with pytest.raises(StreamNotFound) as caught:
        KinesisShardLister(client, "no-such-stream").summary()

    for part in ("no-such-stream", "us-east-1", client.meta.endpoint_url):
        assert part in str(caught.value)


def test_nobody_at_the_endpoint_is_retriable() -> None:
    client = KinesisClientSettings(
        region="us-east-1",
        endpoint_url="http://127.0.0.1:1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    ).connect()

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        KinesisShardLister(client, "s", deadline_seconds=0.1).list_shards()


def test_a_role_is_assumed_and_its_credentials_sign(moto_in_process: KinesisEndpoint) -> None:
    stream = moto_in_process.create_stream()
    settings = KinesisClientSettings(
        region="us-east-1",
        aws_access_key_id="AKIASOURCE",
        aws_secret_access_key="secret",
        role_arn="arn:aws:iam::123456789012:role/reader",
        role_external_id="agreed",
    )
    client = settings.connect()
    signatures: list[str] = []
    client.meta.events.register(
        "before-send.kinesis",
        lambda request, **_event: signatures.append(str(request.headers["Authorization"])),
    )

    assert KinesisShardLister(client, stream).summary().name == stream
    assert signatures
    assert all("Credential=ASIA" in signature for signature in signatures)
