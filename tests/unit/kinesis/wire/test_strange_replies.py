"""Whatever answers in Kinesis' place ends no consumer, and decides about no record."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from kinesis_spout.kinesis import KinesisClientSettings, KinesisShardLister, PollingShardGetter
from kinesis_spout.kinesis.read.fan_out.subscribe_call import subscribe
from kinesis_spout.kinesis.retry_policy import Action, RetryPolicy, Work, reaction_to
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.kinesis.write.record_putter import PutCalls
from kinesis_spout.model.errors import AccessDenied, KinesisSpoutError, StreamNotFound
from kinesis_spout.testing import ManualClock
from shard_state import Position
from tests.unit.kinesis.wire.servers import JSON, Server, answer_of

BODIES: list[bytes] = [
    b"",
    b"<html><h1>not here</h1></html>",
    b"upstream connect error",
    b"null",
    b"503",
    b'"busy"',
    b"[]",
    b"{}",
    b"{",
    b"\xff\xfe",
    b'{"__type":null}',
    b'{"__type":5}',
    b'{"message":{}}',
    b'{"Error":[]}',
    b"[" * 10_000,
    b'{"Records":5,"Shards":5,"ShardIterator":5,"StreamDescriptionSummary":5}',
    b'{"Records":[5],"Shards":[5],"StreamDescriptionSummary":{"StreamName":"s"}}',
    b'{"Records":[{}],"Shards":[{}],"StreamDescriptionSummary":{}}',
    b'{"Records":[{"SequenceNumber":5}],"Shards":[{"ShardId":"s","HashKeyRange":{"StartingHashKey":"x"}}]}',
]
STATUSES = ["200 OK", "204 No", "302 Found", "403 No", "404 No", "503 No"]
TYPES = [JSON, "text/html"]


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    client: Any = KinesisClientSettings(
        region="us-east-1", endpoint_url=server.url, aws_access_key_id="a", aws_secret_access_key="b"
    ).create()
    client.get_records(ShardIterator="it", Limit=10)
    server.answers = [answer_of(b'{"Records":[{"SequenceNumber":"1"}]}')]
    client.put_records(StreamName="s", Records=[{"Data": b"x", "PartitionKey": "k"}])
    yield client
    client.close()


def lister(client: Any) -> KinesisShardLister:
    return KinesisShardLister(client, "s", deadline_seconds=0.0, clock=ManualClock())


def read(client: Any) -> None:
    getter = PollingShardGetter(
        client,
        stream="s",
        shard_id="shardId-0",
        position=Position.trim_horizon(),
        lister=lister(client),
        clock=ManualClock(),
    )
    getter.read(10)


def polled(client: Any) -> None:
    """Read with an iterator that was given before."""
    server_asked = client.get_shard_iterator
    client.get_shard_iterator = lambda **_: {"ShardIterator": "it"}
    try:
        read(client)
    finally:
        client.get_shard_iterator = server_asked


def subscribed(client: Any) -> None:
    pushed = subscribe(
        client,
        consumer_arn="arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1",
        shard_id="shardId-0",
        position=Position.trim_horizon(),
        call="SubscribeToShard",
    )
    pushed.close()


CALLS: dict[str, Callable[[Any], object]] = {
    "GetRecords": polled,
    "GetShardIterator": read,
    "ListShards": lambda client: lister(client).list_shards(),
    "DescribeStreamSummary": lambda client: lister(client).summary(),
    "PutRecords": lambda client: PutCalls(client, "s", RetryPolicy()).put([Entry("k", b"x")]),
    "SubscribeToShard": subscribed,
}


@pytest.mark.parametrize("operation", CALLS)
def test_what_is_no_answer_of_aws_is_asked_for_again(server: Server, client: Any, operation: str) -> None:
    for status, body, content_type in product(STATUSES, BODIES, TYPES):
        if operation == "SubscribeToShard" and status.startswith("200"):
            continue  # its body is read later
        answer = answer_of(body, status, content_type=content_type)
        server.answer_to = lambda _headers, answer=answer: answer  # type: ignore[misc]
        with pytest.raises(KinesisSpoutError) as caught:
            CALLS[operation](client)
        for work in Work:
            assert reaction_to(caught.value, work).action is Action.RETRY, (answer, caught.value)


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDeniedException", AccessDenied), ("ResourceNotFoundException", StreamNotFound)]
)
def test_what_aws_says_in_its_own_words_is_final(
    server: Server, client: Any, code: str, kind: type[KinesisSpoutError]
) -> None:
    server.answer_to = lambda _headers: answer_of(b'{"__type":"%b"}' % code.encode(), "400 Bad Request")

    with pytest.raises(kind):
        lister(client).list_shards()
