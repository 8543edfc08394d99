"""GetRecords that asks for CBOR, of endpoints that answer it and of some that refuse."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import CBOR, CONTENT_TYPE, RAW_BODY
from kinesis_spout.kinesis.read.cbor import decode
from kinesis_spout.kinesis.wire.cbor import encoded
from tests.unit.kinesis.wire.servers import EMPTY, HANGS_UP, End, Server, answer_of

ARGUMENTS: dict[str, Any] = {"ShardIterator": "it", "Limit": 10}
PAGE = encoded({"MillisBehindLatest": 7})
IN_CBOR = answer_of(PAGE, content_type=CBOR)
THROTTLED = {"__type": "ProvisionedThroughputExceededException", "message": "slowly"}
REFUSED = answer_of(b"<html>", "500 Internal Server Error", content_type="text/html")
BUSY = answer_of(b"<html>", "503 Service Unavailable", content_type="text/html")


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    client = KinesisClientSettings(
        region="us-east-1",
        endpoint_url=server.url,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        wire_format="cbor",
    ).create()
    client.get_records(**ARGUMENTS)  # botocore's, from which the place is learnt
    yield client
    client.close()


def types_asked_for(server: Server) -> list[str]:
    return [
        headers["content-type"].removeprefix("application/x-amz-") for _, headers, _ in server.requests[1:]
    ]


def test_requests_and_answers_are_in_cbor(server: Server, client: Any) -> None:
    server.answers = [IN_CBOR] * 2

    replies = [client.get_records(**ARGUMENTS) for _ in range(2)]

    assert [(reply[RAW_BODY], reply[CONTENT_TYPE]) for reply in replies] == [(PAGE, CBOR)] * 2
    assert [decode(body) for _, _, body in server.requests[1:]] == [ARGUMENTS] * 2
    assert types_asked_for(server) == ["cbor-1.1"] * 2
    assert server.requests[1][1]["accept"] == CBOR


def test_an_endpoint_that_refuses_is_asked_for_json_from_then_on(
    server: Server, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [REFUSED]

    with caplog.at_level(logging.WARNING):
        replies = [client.get_records(**ARGUMENTS) for _ in range(3)]

    assert [reply[RAW_BODY] for reply in replies] == [EMPTY] * 3
    assert types_asked_for(server) == ["cbor-1.1", "json-1.1", "json-1.1", "json-1.1"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{server.url}/ refuses CBOR, so this process asks it for JSON"
    ]


def test_an_error_in_cbor_is_the_one_that_botocore_names(server: Server, client: Any) -> None:
    server.answers = [answer_of(encoded(THROTTLED), "400 Bad Request", content_type=CBOR)]

    with pytest.raises(client.exceptions.ProvisionedThroughputExceededException) as raised:
        client.get_records(**ARGUMENTS)

    assert raised.value.response["Error"] == {
        "Message": "slowly",
        "Code": "ProvisionedThroughputExceededException",
    }
    assert types_asked_for(server) == ["cbor-1.1"], "a throttle is not paid with a second call"


def test_an_outage_does_not_decide_that_an_endpoint_refuses(server: Server, client: Any) -> None:
    server.answers = [REFUSED, REFUSED, IN_CBOR, REFUSED, IN_CBOR]

    for _ in range(2):
        with pytest.raises(ClientError):
            client.get_records(**ARGUMENTS)
        assert client.get_records(**ARGUMENTS)[CONTENT_TYPE] == CBOR

    assert types_asked_for(server) == ["cbor-1.1", "json-1.1", *["cbor-1.1"] * 3]


@pytest.mark.parametrize(
    "status", ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout", "429 Too Many Requests"]
)
def test_a_busy_server_at_the_first_try_does_not_decide_that_an_endpoint_refuses(
    server: Server, client: Any, status: str
) -> None:
    server.answers = [answer_of(b"<html>", status, content_type="text/html"), IN_CBOR]

    with pytest.raises(ClientError):
        client.get_records(**ARGUMENTS)

    assert client.get_records(**ARGUMENTS)[CONTENT_TYPE] == CBOR
    assert types_asked_for(server) == ["cbor-1.1"] * 2


def test_an_endpoint_that_answers_every_request_in_cbor_as_a_busy_server_is_asked_for_json(
    server: Server, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [BUSY] * 5

    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            with pytest.raises(ClientError):
                client.get_records(**ARGUMENTS)
        replies = [client.get_records(**ARGUMENTS) for _ in range(2)]

    assert [reply[RAW_BODY] for reply in replies] == [EMPTY] * 2
    assert types_asked_for(server) == [*["cbor-1.1"] * 5, "json-1.1", "json-1.1"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{server.url}/ refuses CBOR, so this process asks it for JSON"
    ]


def test_a_server_that_is_busy_in_json_as_well_does_not_refuse_cbor(server: Server, client: Any) -> None:
    server.answers = [*[BUSY] * 7, IN_CBOR]

    for _ in range(6):
        with pytest.raises(ClientError):
            client.get_records(**ARGUMENTS)

    assert client.get_records(**ARGUMENTS)[CONTENT_TYPE] == CBOR
    assert types_asked_for(server) == [*["cbor-1.1"] * 5, "json-1.1", *["cbor-1.1"] * 2]


def test_calls_without_an_answer_are_not_made_again_in_json(server: Server, client: Any) -> None:
    server.ends = End.CLOSED
    server.answers = [HANGS_UP] * 14

    for _ in range(7):
        with pytest.raises(BotoCoreError):
            client.get_records(**ARGUMENTS)

    assert set(types_asked_for(server)) == {"cbor-1.1"}


def test_what_another_call_has_learnt_of_an_endpoint_holds_after_json_was_tried(
    server: Server, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def answer_to(headers: dict[str, str]) -> bytes:
        if headers["content-type"] == CBOR:
            return IN_CBOR
        server.answer_to = lambda _headers: IN_CBOR
        client.get_records(**ARGUMENTS)  # a call beside the one in JSON, which is answered first
        return answer_of(EMPTY)

    server.answers, server.answer_to = [BUSY] * 5, answer_to

    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            with pytest.raises(ClientError):
                client.get_records(**ARGUMENTS)
        client.get_records(**ARGUMENTS)

    client.get_records(**ARGUMENTS)
    assert types_asked_for(server) == [*["cbor-1.1"] * 5, "json-1.1", *["cbor-1.1"] * 2]
    assert not caplog.records


def test_busy_answers_do_not_count_once_an_endpoint_has_answered_in_cbor(server: Server, client: Any) -> None:
    server.answers = [IN_CBOR, *[BUSY] * 6, IN_CBOR]

    client.get_records(**ARGUMENTS)
    for _ in range(6):
        with pytest.raises(ClientError):
            client.get_records(**ARGUMENTS)

    assert client.get_records(**ARGUMENTS)[CONTENT_TYPE] == CBOR
    assert types_asked_for(server) == ["cbor-1.1"] * 8


def test_a_call_that_does_not_block_asks_for_cbor_once_the_endpoint_has_answered_it(
    server: Server, client: Any
) -> None:
    assert client.get_records.begin(**ARGUMENTS) is None
    server.answers = [IN_CBOR] * 2
    client.get_records(**ARGUMENTS)

    exchange = client.get_records.begin(**ARGUMENTS)
    while exchange.advance() is not None:
        pass

    assert exchange.result()[CONTENT_TYPE] == CBOR


@pytest.mark.parametrize("number", [0, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1])
def test_what_is_encoded_is_decoded_to_the_same(number: int) -> None:
    arguments: dict[str, str | int] = {"Limit": number, "ShardIterator": "é" * (number % 70_000), "": ""}

    assert decode(encoded(arguments)) == arguments
