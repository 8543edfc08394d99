"""The unkind endpoint does what the documents and its table say, counts it, and is kind otherwise."""

import base64
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.kinesis.unkind.behaviours import EVENT, Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint

FIRST = "shardId-000000000000"


@pytest.fixture(scope="module")
def plain(unkind_endpoint: UnkindEndpoint) -> Iterator[Any]:
    """Give boto3's own client: what it makes of answers is not ours."""
    client = boto3.client(
        "kinesis",
        region_name="us-east-1",
        endpoint_url=unkind_endpoint.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=2),
    )
    yield client
    client.close()


@pytest.fixture
def stream(unkind: UnkindEndpoint) -> str:
    return unkind.create_stream()


def iterator(plain: Any, stream: str, kind: str = "TRIM_HORIZON", shard_id: str = FIRST, **more: Any) -> str:
    reply = plain.get_shard_iterator(StreamName=stream, ShardId=shard_id, ShardIteratorType=kind, **more)
    return str(reply["ShardIterator"])


def data(reply: Any) -> list[bytes]:
    return [record["Data"] for record in reply["Records"]]


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def get_records(unkind: UnkindEndpoint, asked: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", unkind.port, timeout=20)
    try:
        headers = {"X-Amz-Target": "Kinesis_20131202.GetRecords"}
        connection.request("POST", "/", json.dumps({"ShardIterator": asked}), headers)
        reply = connection.getresponse()
        return reply.status, dict(reply.headers), reply.read()
    finally:
        connection.close()


def test_what_is_put_is_read_in_order_and_a_split_ends_the_parent(unkind: UnkindEndpoint, plain: Any) -> None:
    stream = unkind.create_stream()
    plain.put_records(StreamName=stream, Records=[{"Data": b"%d" % n, "PartitionKey": "k"} for n in range(3)])
    middle = str(1 << 127)
    plain.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey=middle)
    plain.put_record(StreamName=stream, Data=b"4", PartitionKey="k")

    first = plain.get_records(ShardIterator=iterator(plain, stream), Limit=2)
    last = plain.get_records(ShardIterator=first["NextShardIterator"])

    assert data(first) + data(last) == [b"0", b"1", b"2"]
    assert first["NextShardIterator"]
    assert "NextShardIterator" not in last
    children = [child["ShardId"] for child in last["ChildShards"]]
    assert [child["ParentShards"] for child in last["ChildShards"]] == [[FIRST], [FIRST]]
    in_children = [
        plain.get_records(ShardIterator=iterator(plain, stream, shard_id=each)) for each in children
    ]
    assert sorted(map(data, in_children)) == [[], [b"4"]]
    listed = {each["ShardId"]: each for each in plain.list_shards(StreamName=stream)["Shards"]}
    assert "EndingSequenceNumber" in listed[FIRST]["SequenceNumberRange"]
    with pytest.raises(ClientError) as refused:
        iterator(
            plain,
            stream,
            "AFTER_SEQUENCE_NUMBER",
            children[0],
            StartingSequenceNumber=first["Records"][0]["SequenceNumber"],
        )
    assert code_of(refused) == "InvalidArgumentException"


def test_an_iterator_of_a_trimmed_number_is_given_and_reads_from_the_oldest(
    unkind: UnkindEndpoint, plain: Any, stream: str
) -> None:
    numbers = unkind.put(stream, b"one", b"two", b"three")
    assert unkind.trim(stream, FIRST, numbers[2]) == 2
    asked = iterator(plain, stream, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[0])
    assert data(plain.get_records(ShardIterator=asked)) == [b"three"]


def test_a_shard_that_retention_removed_is_not_listed_and_not_found(
    unkind: UnkindEndpoint, plain: Any
) -> None:
    stream = unkind.create_stream(shards=2)
    unkind.forget_shard(stream, FIRST)
    assert [each["ShardId"] for each in plain.list_shards(StreamName=stream)["Shards"]] == [
        "shardId-000000000001"
    ]
    with pytest.raises(ClientError) as refused:
        iterator(plain, stream)
    assert code_of(refused) == "ResourceNotFoundException"


def test_listings_come_in_pages_whose_tokens_are_taken_without_a_name_only(
    unkind: UnkindEndpoint, plain: Any
) -> None:
    stream = unkind.create_stream(shards=5)
    unkind.set_list_page(2)
    first = plain.list_shards(StreamName=stream)
    assert len(first["Shards"]) == 2
    with pytest.raises(ClientError) as refused:
        plain.list_shards(StreamName=stream, NextToken=first["NextToken"])
    assert code_of(refused) == "InvalidArgumentException"
    unkind.switch_on(Behaviour.EXPIRED_TOKENS, times=1)
    with pytest.raises(ClientError) as expired:
        plain.list_shards(NextToken=first["NextToken"])
    assert code_of(expired) == "ExpiredNextTokenException"
    assert len(plain.list_shards(NextToken=first["NextToken"])["Shards"]) == 2


def test_a_stream_made_again_or_elsewhere_is_another(unkind: UnkindEndpoint, plain: Any, stream: str) -> None:
    old = iterator(plain, stream)
    plain.delete_stream(StreamName=stream)
    unkind.create_stream(name=stream)
    unkind.create_stream(name=stream, region="eu-west-1", shards=3)
    with pytest.raises(ClientError) as refused:
        plain.get_records(ShardIterator=old)
    assert code_of(refused) == "ResourceNotFoundException"
    assert len(plain.list_shards(StreamName=stream)["Shards"]) == 1


def test_a_stream_that_takes_time_is_creating_and_then_updating(unkind: UnkindEndpoint, plain: Any) -> None:
    stream = unkind.create_stream(busy_seconds=100)
    with pytest.raises(ClientError) as refused:
        plain.list_shards(StreamName=stream)
    assert code_of(refused) == "ResourceInUseException"

    def status() -> str:
        summary = plain.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        return str(summary["StreamStatus"])

    assert status() == "CREATING"
    unkind.set_clock(101)
    assert status() == "ACTIVE"
    unkind.set_clock(0)


def test_limits_are_those_of_aws(unkind: UnkindEndpoint, plain: Any, stream: str) -> None:
    asked = iterator(plain, stream)
    unkind.switch_on(Behaviour.LIMITS)
    refused = 0
    for _ in range(8):
        try:
            plain.get_records(ShardIterator=asked)
        except ClientError as error:
            refused += error.response["Error"]["Code"] == "ProvisionedThroughputExceededException"
    records = [{"Data": b"x" * 500_000, "PartitionKey": "k"} for _ in range(5)]
    failed = plain.put_records(StreamName=stream, Records=records)["FailedRecordCount"]
    assert refused >= 2
    assert failed >= 1
    assert unkind.happened == {Behaviour.LIMITS: refused + failed}


def test_records_are_refused_in_part(unkind: UnkindEndpoint, plain: Any, stream: str) -> None:
    unkind.switch_on(Behaviour.PARTLY_REFUSED, share=0.9, times=1)
    records = [{"Data": b"%d" % n, "PartitionKey": "k"} for n in range(500)]
    reply = plain.put_records(StreamName=stream, Records=records)
    assert reply["FailedRecordCount"] == sum("ErrorCode" in each for each in reply["Records"]) == 450
    kept = [base64.b64decode(each["Data"]) for each in unkind.records(stream)[FIRST]]
    assert kept == [b"%d" % n for n, each in enumerate(reply["Records"]) if "ErrorCode" not in each]


@pytest.mark.parametrize(
    ("behaviour", "what"),
    [
        (Behaviour.EMPTY_PAGES, {"Records": [], "MillisBehindLatest": 86_400_000}),
        (Behaviour.FEWER_RECORDS, {"Records": 2}),
        (Behaviour.NO_NEXT_ITERATOR, {"Records": 4, "NextShardIterator": None, "ChildShards": None}),
    ],
)
def test_pages_are_not_as_expected_and_nothing_is_lost(
    unkind: UnkindEndpoint, plain: Any, stream: str, behaviour: Behaviour, what: dict[str, Any]
) -> None:
    unkind.put(stream, b"a", b"b", b"c", b"d")
    asked = iterator(plain, stream)
    unkind.switch_on(behaviour, times=1)
    reply = plain.get_records(ShardIterator=asked)
    for name, value in what.items():
        found = reply.get(name)
        assert (len(found) if isinstance(value, int) and isinstance(found, list) else found) == value
    rest = plain.get_records(ShardIterator=reply.get("NextShardIterator", asked))
    assert {*data(reply), *data(rest)} == {b"a", b"b", b"c", b"d"}
    assert unkind.happened == {behaviour: 1}


def test_the_page_of_another_shard_comes_and_behind_the_right_one(unkind: UnkindEndpoint, plain: Any) -> None:
    stream = unkind.create_stream(shards=2)
    other = "shardId-000000000001"
    unkind.put(stream, b"mine", shard_id=FIRST)
    unkind.put(stream, b"theirs", shard_id=other)
    plain.get_records(ShardIterator=iterator(plain, stream, shard_id=other))
    asked = iterator(plain, stream)
    unkind.switch_on(Behaviour.PAGE_OF_OTHERS, shard_id=FIRST, times=1)
    assert data(plain.get_records(ShardIterator=asked)) == [b"theirs"]
    unkind.switch_on(Behaviour.SURPLUS, shard_id=FIRST, times=1)
    with socket.create_connection(("127.0.0.1", unkind.port), 20) as raw:
        body = json.dumps({"ShardIterator": asked}).encode()
        raw.sendall(
            b"POST / HTTP/1.1\r\nX-Amz-Target: Kinesis.GetRecords\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        raw.shutdown(socket.SHUT_WR)
        whole = raw.makefile("rb").read()
    first, second = (
        json.loads(each.partition(b"\r\n\r\n")[2]) for each in whole.split(b"HTTP/1.1 200 OK\r\n")[1:]
    )
    assert [base64.b64decode(each["Records"][0]["Data"]) for each in (first, second)] == [b"mine", b"theirs"]


def test_a_rate_is_drawn_from_the_seed_and_what_happened_is_counted(
    unkind: UnkindEndpoint, plain: Any, stream: str
) -> None:
    asked = iterator(plain, stream)

    def drawn(seed: str) -> list[int]:
        unkind.reset()
        unkind.switch_on(Behaviour.HTML, operations=["GetRecords"], rate=0.3, seed=seed, status=403)
        statuses = [get_records(unkind, asked)[0] for _ in range(50)]
        assert unkind.happened == {Behaviour.HTML: statuses.count(403)}
        return statuses

    assert drawn("1") == drawn("1") != drawn("2")
    assert 3 < drawn("3").count(403) < 30


def test_a_moment_is_the_call_after_so_many(unkind: UnkindEndpoint, plain: Any, stream: str) -> None:
    asked = iterator(plain, stream)
    unkind.switch_on(
        Behaviour.ERROR, operations=["GetRecords"], after=2, times=1, code="AccessDeniedException"
    )
    assert [get_records(unkind, asked)[0] for _ in range(5)] == [200, 200, 400, 200, 200]


def test_iterators_given_out_before_have_expired_and_later_ones_have_not(
    unkind: UnkindEndpoint, plain: Any, stream: str
) -> None:
    old = iterator(plain, stream)
    unkind.switch_on(Behaviour.EXPIRED_ITERATORS)
    with pytest.raises(ClientError) as expired:
        plain.get_records(ShardIterator=old)
    assert code_of(expired) == "ExpiredIteratorException"
    plain.get_records(ShardIterator=iterator(plain, stream))


def test_answers_come_cut_off_reset_slowly_or_too_long(
    unkind: UnkindEndpoint, plain: Any, stream: str
) -> None:
    unkind.put(stream, b"x" * 1000)
    asked = iterator(plain, stream)
    for behaviour, error in (
        (Behaviour.CUT, http.client.IncompleteRead),
        (Behaviour.OVERSIZED, http.client.IncompleteRead),
        (Behaviour.RESET, ConnectionError),
    ):
        unkind.switch_on(behaviour, times=1)
        with pytest.raises(error):
            get_records(unkind, asked)
    unkind.switch_on(Behaviour.SLOW, times=1, seconds=0.05, parts=5)
    begun = time.monotonic()
    status, _, body = get_records(unkind, asked)
    assert (status, len(json.loads(body)["Records"])) == (200, 1)
    assert time.monotonic() - begun >= 0.05
    assert unkind.happened.total() == 4


def test_what_stands_between_answers_what_it_likes(unkind: UnkindEndpoint, plain: Any, stream: str) -> None:
    asked = iterator(plain, stream)
    unkind.switch_on(
        Behaviour.REPLY, times=1, status=503, body=b"\xff\x00", content_type="application/x-amz-cbor-1.1"
    )
    status, headers, body = get_records(unkind, asked)
    assert (status, headers["Content-Type"], body) == (503, "application/x-amz-cbor-1.1", b"\xff\x00")
    unkind.switch_on(Behaviour.REDIRECT, times=1, location="http://127.0.0.1:1/")
    status, headers, _ = get_records(unkind, asked)
    assert (status, headers["Location"]) == (307, "http://127.0.0.1:1/")


def test_a_put_whose_answer_was_lost_has_taken_effect(
    unkind: UnkindEndpoint, plain: Any, stream: str
) -> None:
    records = [{"Data": b"x", "PartitionKey": "k"}]
    unkind.switch_on(Behaviour.HTML, operations=["PutRecords"], times=1, takes_effect=True)
    with pytest.raises(ClientError):
        plain.put_records(StreamName=stream, Records=records)
    unkind.switch_on(Behaviour.HTML, operations=["PutRecords"], times=1)
    with pytest.raises(ClientError):
        plain.put_records(StreamName=stream, Records=records)
    assert (len(unkind.records(stream)[FIRST]), unkind.records_lost) == (1, 1)


def test_a_clock_that_is_off_and_keys_that_are_not_good_are_refused(
    unkind: UnkindEndpoint, plain: Any, stream: str
) -> None:
    for ahead in (1000, -1000):
        unkind.set_clock(ahead)
        with pytest.raises(ClientError) as refused:
            iterator(plain, stream)
        assert code_of(refused) == "InvalidSignatureException"
    unkind.set_clock(0)
    unkind.accept({"other": ""})
    with pytest.raises(ClientError) as unknown:
        iterator(plain, stream)
    assert code_of(unknown) == "UnrecognizedClientException"
    unkind.accept({"test": "a token"})
    with pytest.raises(ClientError) as expired:
        iterator(plain, stream)
    assert code_of(expired) == "ExpiredTokenException"


@pytest.fixture
def pushed(plain: Any, stream: str, opened: ExitStack) -> Iterator[Any]:
    registered = plain.register_stream_consumer(StreamARN=arn(plain, stream), ConsumerName="app")["Consumer"]
    assert registered["ConsumerStatus"] == "CREATING"

    def subscribe(number: str | None = None) -> Any:
        start = {"Type": "TRIM_HORIZON"}
        if number is not None:
            start = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
        plain.describe_stream_consumer(ConsumerARN=registered["ConsumerARN"])
        reply = plain.subscribe_to_shard(
            ConsumerARN=registered["ConsumerARN"], ShardId=FIRST, StartingPosition=start
        )
        opened.callback(reply["EventStream"].close)
        return iter(reply["EventStream"])

    yield subscribe
    plain.deregister_stream_consumer(ConsumerARN=registered["ConsumerARN"])


def arn(plain: Any, stream: str) -> str:
    return str(plain.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"])


def test_events_are_pushed_go_on_after_their_continuation_and_end_with_the_shard(
    unkind: UnkindEndpoint, plain: Any, stream: str, pushed: Any
) -> None:
    events = pushed()
    unkind.put(stream, b"one", b"two")
    event = next(each for each in (each["SubscribeToShardEvent"] for each in events) if each["Records"])
    assert data(event) == [b"one", b"two"]
    unkind.put(stream, b"three")
    plain.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey=str(1 << 127))
    rest = [each["SubscribeToShardEvent"] for each in pushed(event["ContinuationSequenceNumber"])]
    assert [payload for each in rest for payload in data(each)] == [b"three"]
    assert len(rest[-1]["ChildShards"]) == 2


def test_events_meet_behaviours_of_their_own(unkind: UnkindEndpoint, pushed: Any) -> None:
    unkind.switch_on(Behaviour.ENDED, operations=[EVENT], after=2, times=1)
    assert len(list(pushed())) == 2
    unkind.switch_on(Behaviour.ERROR, operations=[EVENT], times=1, code="InternalFailureException")
    with pytest.raises(ClientError, match="InternalFailureException"):
        list(pushed())
    events = pushed()
    next(events)
    assert unkind.take_over() == 1
    with pytest.raises(ClientError, match="ResourceInUseException"):
        list(events)
