"""GetRecords without most of botocore, against a server that keeps its connections."""

import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import ClientError, ParamValidationError

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import RAW_BODY, translated
from kinesis_spout.model.errors import Unavailable
from tests.support.kinesis.own_certificate import own_certificate
from tests.unit.kinesis.wire.servers import (
    CHUNKED,
    CUT_OFF,
    EMPTY,
    SILENCE,
    Server,
    answer_of,
)


@pytest.fixture
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client; the parameter, if there is one, says how many seconds it waits for an answer."""
    settings = KinesisClientSettings(
        region="us-east-1",
        endpoint_url=server.url,
        aws_access_key_id="AKIAFIRST",
        aws_secret_access_key="hush",
        aws_session_token="token",
        read_timeout_seconds=getattr(request, "param", 60.0),
    )
    client = settings.create()
    yield client
    client.close()


def call(client: Any) -> bytes:
    with translated("GetRecords"):
        body: bytes = client.get_records(ShardIterator="it", Limit=10)[RAW_BODY]
    return body


def test_calls_are_what_botocore_makes_of_them(
    server: Server, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: Any = boto3.client(
        "kinesis",
        region_name="us-east-1",
        endpoint_url=server.url,
        aws_access_key_id="AKIAFIRST",
        aws_secret_access_key="hush",
        aws_session_token="token",
    )
    plain.get_records(ShardIterator="it", Limit=10)
    assert [call(client) for _ in range(3)] == [EMPTY] * 3

    (first, headers, body), *others = server.requests
    changing = {"amz-sdk-invocation-id", "amz-sdk-request", "authorization", "user-agent", "x-amz-date"}
    of_botocore = {name: value for name, value in headers.items() if name not in changing}
    for line, later, same in others:
        assert line == first
        assert json.loads(same) == json.loads(body)
        of_ours = {name: value for name, value in later.items() if name not in changing}
        assert of_ours | {"content-length": ""} == of_botocore | {"content-length": ""}
        assert later["authorization"] == signature_of_botocore(server, later, same, monkeypatch)
    assert server.connections == 2, "botocore's, and ours"
    plain.close()


def signature_of_botocore(
    server: Server, headers: dict[str, str], body: bytes, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return what botocore's signer makes of a request at the time that it names."""
    now = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: now)
    signed = {name: headers[name] for name in ("host", "content-type", "x-amz-target")}
    request = AWSRequest("POST", server.url, headers=signed, data=body)
    credentials = ReadOnlyCredentials("AKIAFIRST", "hush", "token")
    botocore.auth.SigV4Auth(credentials, "kinesis", "us-east-1").add_auth(request)
    return str(request.headers["Authorization"])


def test_another_iterator_is_asked_with_another_signature(server: Server, client: Any) -> None:
    for name in ("a", "b", "c"):
        client.get_records(ShardIterator=name, Limit=10)

    assert [json.loads(body)["ShardIterator"] for _, _, body in server.requests] == ["a", "b", "c"]
    assert len({headers["authorization"] for _, headers, _ in server.requests}) == 3


def test_an_error_is_the_one_that_botocore_makes_of_the_answer(server: Server, client: Any) -> None:
    refused = answer_of(b'{"__type":"ExpiredIteratorException","message":"old"}', "400 Bad Request")
    server.answers = [refused, answer_of(EMPTY), refused, answer_of(EMPTY)]
    errors = []
    for _ in range(2):
        with pytest.raises(ClientError) as raised:
            call_untranslated(client)
        errors.append(raised.value)
        assert call(client) == EMPTY

    assert [type(error) for error in errors] == [client.exceptions.ExpiredIteratorException] * 2
    assert errors[0].response["Error"] == {"Message": "old", "Code": "ExpiredIteratorException"}
    assert errors[0].response["ResponseMetadata"]["RequestId"] == "r-1"
    assert len(server.requests) == 4, "an answer that is there is not asked for again"


def call_untranslated(client: Any) -> None:
    client.get_records(ShardIterator="it", Limit=10)


@pytest.mark.parametrize(("client", "answer"), [(4.0, SILENCE), (60.0, CUT_OFF)], indirect=["client"])
def test_a_connection_that_breaks_costs_one_call(server: Server, client: Any, answer: bytes) -> None:
    call(client)
    server.answers = [answer]

    with pytest.raises(Unavailable):
        call(client)

    assert call(client) == EMPTY
    assert len(server.requests) == 3


def test_an_answer_in_chunks_is_read_over_the_kept_connection(server: Server, client: Any) -> None:
    server.answers = [CHUNKED] * 9

    assert [call(client) for _ in range(4)] == [EMPTY] * 4
    assert (len(server.requests), server.connections) == (4, 1)


def test_what_the_server_closes_is_not_used_again(server: Server, client: Any) -> None:
    call(client)
    server.answers = [answer_of(EMPTY, more="Connection: close\r\n")]

    assert [call(client) for _ in range(4)] == [EMPTY] * 4
    assert server.connections == 2, "the one that was closed, and the next"


def test_what_a_reply_says_of_its_format_is_not_believed(server: Server, client: Any) -> None:
    server.answers = [
        answer_of(b"no JSON", content_type="text/plain"),
        answer_of(EMPTY, "206 Partial Content"),
    ]

    assert call(client) == b"no JSON"
    assert RAW_BODY not in client.get_records(ShardIterator="it", Limit=10)


def test_arguments_that_botocore_would_refuse_are_refused(server: Server, client: Any) -> None:
    with pytest.raises(ParamValidationError, match="ShardIterator"):
        client.get_records(ShardIterater="it", Limit=10)
    assert client.get_records(ShardIterator="it")[RAW_BODY] == EMPTY
    assert [json.loads(body) for _, _, body in server.requests] == [{"ShardIterator": "it"}]


def test_over_tls_all_calls_use_a_connection_whose_certificate_was_verified(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = own_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    settings = KinesisClientSettings(
        region="us-east-1",
        endpoint_url=server.url.replace("http:", "https:"),
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    strangers = settings.create()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(chain))
    client = settings.create()

    assert [call(client) for _ in range(3)] == [EMPTY] * 3
    assert len(server.requests) == 3
    for _ in range(3):
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            call(strangers)
    assert len(server.requests) == 3
    client.close()
    strangers.close()
