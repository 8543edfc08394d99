"""Faults of connections, servers and clocks: no poll is lost, and nothing is put twice below its caller."""

import asyncio
import itertools
import json
import os
import random
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import RAW_BODY, translated
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.wire.connections import Connections
from kinesis_spout.model.errors import AccessDenied
from tests.support.waiting import wait_until
from tests.unit.kinesis.wire.servers import EMPTY, HANGS_UP, SILENCE, End, Server, answer_of, running

pytestmark = pytest.mark.no_second_run

ARGUMENTS: dict[str, Any] = {"ShardIterator": "it", "Limit": 10}
RECORDS: list[Any] = [{"Data": b"data", "PartitionKey": "k"}]
PUT = answer_of(b'{"FailedRecordCount":0,"Records":[{"SequenceNumber":"1","ShardId":"s"}]}')
REFUSAL = answer_of(
    b'{"__type":"InvalidSignatureException","message":"it does not match"}', "400 Bad Request"
)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    client = client_of(server)
    yield client
    client.close()


def client_of(server: Server, *, read_timeout_seconds: float = 30.0) -> Any:
    """Make a client that has called."""
    client: Any = KinesisClientSettings(
        region="us-east-1",
        endpoint_url=server.url,
        aws_access_key_id="AKIAPUBLIC",
        aws_secret_access_key="hush-key",
        aws_session_token="hush-token",
        read_timeout_seconds=read_timeout_seconds,
    ).create()
    client.get_records(**ARGUMENTS)
    server.answers.append(PUT)
    client.put_records(StreamName="s", Records=RECORDS)
    server.requests.clear()
    return client


def read(client: Any) -> bytes:
    return bytes(client.get_records(**ARGUMENTS)[RAW_BODY])


def test_a_connection_that_is_cut_at_any_byte_of_an_answer_fails_that_call_alone(
    server: Server, client: Any
) -> None:
    answer = answer_of(EMPTY)
    for cut in range(1, len(answer)):
        server.ends, server.answers = End.CLOSED, [answer[:cut]]
        with pytest.raises(ConnectionClosedError):
            read(client)
        server.ends = None
        assert read(client) == EMPTY

    assert len(server.requests) == 2 * (len(answer) - 1)


@pytest.mark.parametrize("end", End)
def test_connections_that_the_server_closes_between_calls_lose_no_poll(
    server: Server, client: Any, end: End
) -> None:
    server.ends = end

    assert [read(client) for _ in range(50)] == [EMPTY] * 50

    assert len(server.requests) == 50 or end is End.HALF_CLOSED  # that one reads what it cannot answer
    assert server.connections >= 50


@pytest.mark.parametrize("end", End)
def test_connections_that_the_server_closes_between_calls_put_nothing_twice(
    server: Server, client: Any, end: End
) -> None:
    server.ends = end
    for _ in range(50):
        server.answers = [PUT]
        reply = client.put_records(StreamName="s", Records=RECORDS)
        assert reply["Records"] == [{"SequenceNumber": "1", "ShardId": "s"}]
        wait_for_the_end(client)

    assert len(server.requests) == 50


@pytest.mark.parametrize("surplus", [answer_of(b'{"Records":5}'), answer_of(b"idle", "408 Request Timeout")])
def test_an_answer_that_nobody_asked_for_is_given_to_no_call(
    server: Server, client: Any, surplus: bytes
) -> None:
    for _ in range(3):
        assert read(client) == EMPTY
        server.say(surplus)
        wait_for_the_end(client)

    assert read(client) == EMPTY
    assert len(server.requests) == 4


def test_a_connection_is_looked_at_before_each_call_although_the_loop_did_not_come_to_it(
    server: Server, client: Any
) -> None:
    kept = kept_by(client)

    async def two() -> list[bytes]:
        await client.get_records.exchange(**ARGUMENTS)
        server.say(answer_of(b'{"Records":5}'))
        (connection,) = kept._idle
        while not connection.is_ended:
            pass  # the surplus is there, and the loop gets no turn to see it
        return [bytes((await client.get_records.exchange(**ARGUMENTS))[RAW_BODY])]

    assert IO.run(two()) == [EMPTY]


def test_connections_of_which_one_gave_the_wrong_answer_are_not_used_again(
    server: Server, client: Any
) -> None:
    read(client)
    before = server.connections
    IO.run(client.get_records.drop_connections())

    assert read(client) == EMPTY
    assert server.connections == before + 1


def kept_by(client: Any) -> Connections:
    kept: Connections = client.get_records._operation._routes[""].connections
    return kept


def wait_for_the_end(client: Any) -> None:
    """Wait until the server's end of its connections has come: what follows is no race."""
    kept = kept_by(client)
    wait_until(lambda: not kept._idle, "the ends", every_seconds=0.001)


def test_a_put_whose_answer_does_not_come_is_not_put_again_below_its_caller(
    server: Server, client: Any
) -> None:
    server.answers = [HANGS_UP]

    with pytest.raises(ConnectionClosedError):
        client.put_records(StreamName="s", Records=RECORDS)

    assert len(server.requests) == 1


def test_a_poll_whose_kept_connection_ends_without_an_answer_is_made_again_once(
    server: Server, client: Any
) -> None:
    read(client)
    server.answers = [HANGS_UP]
    assert read(client) == EMPTY

    server.answers = [HANGS_UP, HANGS_UP]
    with pytest.raises(ConnectionClosedError):
        read(client)
    assert len(server.requests) == 5


def test_a_server_that_stops_inside_an_answer_times_out(server: Server) -> None:
    client = client_of(server, read_timeout_seconds=5.0)
    server.answers = [answer_of(EMPTY)[:-1]]

    with pytest.raises(ReadTimeoutError):
        read(client)
    assert read(client) == EMPTY
    client.close()


def test_a_poll_that_waited_in_vain_on_a_kept_connection_is_not_made_again_below_its_caller(
    server: Server,
) -> None:
    client = client_of(server, read_timeout_seconds=5.0)
    read(client)
    server.answers = [SILENCE]

    with pytest.raises(ReadTimeoutError):
        read(client)
    assert len(server.requests) == 2
    client.close()


def test_a_server_that_is_gone_is_named() -> None:
    with running() as server:
        client = client_of(server)
        server.ends = End.CLOSED
        read(client)

    with pytest.raises(EndpointConnectionError, match=server.url):
        read(client)
    client.close()


def test_throttles_and_outages_at_full_speed_cost_one_request_each(server: Server, client: Any) -> None:
    chance = random.Random(25)
    throttled = answer_of(
        b'{"__type":"ProvisionedThroughputExceededException","message":"slowly"}', "400 Bad Request"
    )
    failed = answer_of(b'{"__type":"InternalFailure"}', "500 Internal Server Error")
    outcomes = Counter[str]()
    server.answers = chance.choices([throttled, failed, answer_of(EMPTY)], weights=[30, 5, 65], k=1_000)
    for _ in range(1_000):
        try:
            outcomes[str(read(client) == EMPTY)] += 1
        except ClientError as error:
            outcomes[error.response["Error"]["Code"]] += 1

    assert outcomes == {
        "True": outcomes["True"],
        "ProvisionedThroughputExceededException": outcomes["ProvisionedThroughputExceededException"],
        "InternalFailure": outcomes["InternalFailure"],
    }
    assert min(outcomes.values()) > 20
    assert len(server.requests) == 1_000
    assert server.connections <= 4, "an error does not end a connection"


class RefusesOtherClocks:
    """Answers as AWS does to a signature of another time than its own. Mutable."""

    def __init__(self) -> None:
        self.ahead_seconds = 0
        self.says_its_time = True
        self.error = {
            "__type": "InvalidSignatureException",
            "message": "Signature expired: it is now earlier",
        }
        self.refused = 0

    def __call__(self, headers: dict[str, str]) -> bytes:
        signed = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        now = datetime.now(UTC) + timedelta(seconds=self.ahead_seconds)
        if abs((signed - now).total_seconds()) < 300:
            return answer_of(EMPTY)
        self.refused += 1
        date = f"Date: {format_datetime(now, usegmt=True)}\r\n" if self.says_its_time else ""
        return answer_of(json.dumps(self.error).encode(), "400 Bad Request", date)


@pytest.mark.parametrize("code", ["RequestExpired", "RequestInTheFuture", "RequestTimeTooSkewed"])
def test_every_error_about_the_time_has_it_corrected(server: Server, client: Any, code: str) -> None:
    read(client)
    service = server.answer_to = RefusesOtherClocks()
    service.ahead_seconds, service.error = 720, {"__type": code, "message": "no"}
    assert read(client) == EMPTY


@pytest.mark.parametrize("ahead_seconds", [720, -3_600])
def test_a_wrong_clock_is_corrected_by_the_services_and_told_once_until_it_is_right_again(
    server: Server, client: Any, caplog: pytest.LogCaptureFixture, ahead_seconds: int
) -> None:
    service = server.answer_to = RefusesOtherClocks()
    service.ahead_seconds = ahead_seconds
    assert [read(client) for _ in range(3)] == [EMPTY] * 3
    client.list_shards(StreamName="s")
    assert service.refused == 1

    service.ahead_seconds = 0
    assert [read(client) for _ in range(3)] == [EMPTY] * 3
    assert service.refused == 2
    told = [record.getMessage() for record in caplog.records if record.name.endswith("credentials")]
    assert len(told) == 2
    assert re.search(r"clock is (719|720|3600|3601) s (behind|ahead of) the service's", told[0])
    assert ("behind" in told[0]) == (ahead_seconds > 0)
    assert "signed by this machine's clock again" in told[1]


def test_dates_that_lie_make_no_call_without_end(server: Server, client: Any) -> None:
    moments = itertools.count(1_000, 1_000)

    def answer(_headers: dict[str, str]) -> bytes:
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=next(moments)), usegmt=True)
        return answer_of(
            b'{"__type":"RequestExpired","message":"no"}', "400 Bad Request", f"Date: {date}\r\n"
        )

    server.answer_to = answer
    with pytest.raises(AccessDenied, match="this machine's clock says"), translated("x"):
        client.list_shards(StreamName="s")
    assert len(server.requests) <= 4


def test_a_wrong_clock_that_cannot_be_corrected_is_named_and_the_call_may_be_repeated(
    server: Server, client: Any
) -> None:
    service = server.answer_to = RefusesOtherClocks()
    service.ahead_seconds, service.says_its_time = 720, False
    with (
        pytest.raises(AccessDenied, match=r"this machine's clock says 20.*set it") as caught,
        translated("x"),
    ):
        read(client)

    assert caught.value.retriable
    assert "check the credentials" not in str(caught.value)
    service.ahead_seconds = 0
    assert read(client) == EMPTY


def test_a_signature_that_is_refused_once_may_be_repeated_by_the_caller(server: Server, client: Any) -> None:
    server.answers = [REFUSAL]
    with pytest.raises(AccessDenied, match="it does not match") as caught, translated("x"):
        read(client)

    assert caught.value.retriable
    assert read(client) == EMPTY


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(server: Server, client: Any) -> None:
    read(client)
    connections = server.connections
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(read(client) != EMPTY)
        finally:
            os._exit(code)

    assert os.waitpid(child, 0)[1] == 0
    assert server.connections == connections + 1
    assert read(client) == EMPTY
    assert server.connections == connections + 1


def test_many_calls_at_a_time_are_answered_in_any_order(server: Server, client: Any) -> None:
    large = b'{"Records":[],"X":"' + b"x" * 3_000_000 + b'"}'
    server.answers = [answer_of(large), answer_of(EMPTY)] * 10

    async def twenty() -> list[Any]:
        return await asyncio.gather(*(client.get_records.exchange(**ARGUMENTS) for _ in range(20)))

    bodies = [bytes(reply[RAW_BODY]) for reply in IO.run(twenty())]
    assert Counter(bodies) == {large: 10, EMPTY: 10}


def test_a_call_that_its_caller_gives_up_takes_its_connection_with_it(server: Server, client: Any) -> None:
    server.answers = [SILENCE]

    async def given_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.get_records.exchange(**ARGUMENTS), 0.05)

    IO.run(given_up())
    assert read(client) == EMPTY


def test_a_call_in_the_io_thread_that_would_wait_for_it_is_refused(client: Any) -> None:
    async def call() -> None:
        read(client)

    with pytest.raises(RuntimeError, match="must not wait"):
        IO.run(call())


def test_secrets_are_in_no_error_and_in_no_repr(server: Server, client: Any) -> None:
    refusal = answer_of(b'{"__type":"AccessDeniedException","message":"no"}', "400 Bad Request")
    server.answers = [refusal, answer_of(EMPTY)[:10]]
    server.ends = End.CLOSED
    said = []
    for _ in range(2):
        try:
            read(client)
        except Exception as error:  # noqa: BLE001 - what it says is looked at
            said.append("".join(traceback.format_exception(error)))
            said.append(f"{vars(error)!r} {error!r}")
    route = client.get_records._operation._routes[""]
    said += [repr(each) for each in (client.get_records, route, route._second)]

    assert len(said) == 7
    assert "hush" not in "".join(said)
