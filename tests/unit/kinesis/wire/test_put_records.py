"""PutRecords without most of botocore, against a server that keeps its connections."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import translated
from kinesis_spout.model.errors import Unavailable
from tests.unit.kinesis.wire.servers import CUT_OFF, Server, answer_of

REPLY = {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1", "ShardId": "shardId-0"}]}
GOOD = answer_of(json.dumps(REPLY).encode())
RECORDS = [
    {"Data": bytes(range(256)), "PartitionKey": 'a "key" of Zoë 📮\n'},
    {"Data": b"", "PartitionKey": "b", "ExplicitHashKey": str(2**128 - 1)},
]
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    client = KinesisClientSettings(
        region="us-east-1", endpoint_url=server.url, aws_access_key_id="a", aws_secret_access_key="hush"
    ).create()
    yield client
    client.close()


def put(client: Any, records: list[dict[str, Any]] = RECORDS, **stream: str) -> dict[str, Any]:
    reply: dict[str, Any] = client.put_records(Records=records, **(stream or {"StreamName": "orders"}))
    return {name: member for name, member in reply.items() if name != "ResponseMetadata"}


def sent_by(server: Server) -> list[dict[str, Any]]:
    return [json.loads(body) for _, _, body in server.requests]


def test_calls_say_what_they_say_through_botocore(server: Server, client: Any) -> None:
    server.answers = [GOOD] * 3
    plain: Any = boto3.client(
        "kinesis",
        region_name="us-east-1",
        endpoint_url=server.url,
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )

    assert [put(each) for each in (plain, client, client)] == [REPLY] * 3

    first, *others = sent_by(server)
    assert others == [first, first]
    assert [base64.b64decode(each["Data"]) for each in first["Records"]] == [each["Data"] for each in RECORDS]
    assert server.connections == 2, "botocore's, and ours"
    plain.close()


def test_each_stream_is_named_as_the_caller_names_it(server: Server, client: Any) -> None:
    server.answers = [GOOD] * 4
    put(client)
    put(client, StreamARN=ARN)
    put(client, StreamARN=ARN)
    put(client)

    assert [each.get("StreamARN") for each in sent_by(server)] == [None, ARN, ARN, None]


def test_an_error_is_the_one_that_botocore_makes_of_the_answer(server: Server, client: Any) -> None:
    refused = answer_of(b'{"__type":"ResourceNotFoundException","message":"none"}', "400 Bad Request")
    server.answers = [GOOD, refused]
    put(client)

    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        put(client)
    assert len(server.requests) == 2, "an answer that is there is not asked for again"


@pytest.mark.parametrize("odd", [answer_of(b"[]"), answer_of(b"no JSON at all")])
def test_a_good_answer_that_says_nothing_is_an_empty_one(server: Server, client: Any, odd: bytes) -> None:
    server.answers = [GOOD, odd]
    put(client)

    assert put(client) == {}


def test_a_connection_that_breaks_costs_one_call(server: Server, client: Any) -> None:
    server.answers = [GOOD, CUT_OFF, GOOD]
    put(client)

    with pytest.raises(Unavailable), translated("PutRecords"):
        put(client)
    assert put(client) == REPLY


def test_text_for_data_is_made_bytes_as_botocore_does(server: Server, client: Any) -> None:
    server.answers = [GOOD] * 2
    put(client)
    put(client, [{"Data": "text", "PartitionKey": "k"}])

    assert base64.b64decode(sent_by(server)[1]["Records"][0]["Data"]) == b"text"
