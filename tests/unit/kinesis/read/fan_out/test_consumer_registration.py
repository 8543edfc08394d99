from contextlib import ExitStack
from typing import Any

import pytest

from kinesis_spout.kinesis.read.fan_out.consumer_registration import (
    ConsumerRegistration,
    deregister_consumer,
    list_consumers,
)
from kinesis_spout.model.errors import KinesisError, Throttled
from kinesis_spout.testing import InMemoryStream, ManualClock
from tests.support.kinesis.in_memory_client import client_error
from tests.support.kinesis.pushed_stream import FanOutServer, serve

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture
def service(fan_out_server: FanOutServer) -> Any:
    with ExitStack() as opened:
        yield serve(InMemoryStream("orders"), fan_out_server, opened)


@pytest.fixture
def client(fan_out_server: FanOutServer) -> Any:
    return fan_out_server.settings().connect()


def registration(client: Any, name: str = "billing") -> ConsumerRegistration:
    return ConsumerRegistration(client, lambda: ARN, name, clock=ManualClock())


def test_a_consumer_is_registered_once_and_found_by_other_members(client: Any, service: FanOutServer) -> None:
    first = registration(client)

    arn = first.arn()

    assert first.arn() == arn
    assert registration(client).arn() == arn
    assert [one.arn for one in list_consumers(client, ARN)] == [arn]
    assert len(service.consumers) == 1


def test_a_consumer_that_was_ended_is_registered_again_once_it_is_missed(
    client: Any, service: FanOutServer
) -> None:
    member = registration(client)
    member.arn()
    deregister_consumer(client, ARN, "billing")
    assert service.consumers == {}

    member.forget()

    assert [member.arn()] == [one["ConsumerARN"] for one in service.consumers.values()]


def test_consumers_are_listed_over_all_pages(client: Any, service: FanOutServer) -> None:
    names = [f"app-{number:02}" for number in range(17)]
    for name in names:
        registration(client, name).arn()

    assert [one.name for one in list_consumers(client, ARN)] == names
    assert len(service.consumers) == 17


def test_one_consumer_too_many_is_one_error_that_names_the_others(client: Any, service: FanOutServer) -> None:
    for number in range(20):
        registration(client, f"app-{number}").arn()

    with pytest.raises(KinesisError, match=r"20 consumers.*app-7.*fan-out deregister") as refused:
        registration(client).arn()

    assert not refused.value.retriable
    assert len(service.consumers) == 20


class ThrottlesRegistering:
    """A stream with few consumers, whose account makes too many calls."""

    def describe_stream_consumer(self, **_request: Any) -> Any:
        raise client_error("ResourceNotFoundException", "DescribeStreamConsumer")

    def register_stream_consumer(self, **_request: Any) -> Any:
        raise client_error("LimitExceededException", "RegisterStreamConsumer")

    def list_stream_consumers(self, **_request: Any) -> Any:
        return {"Consumers": []}


def test_too_many_calls_are_not_taken_for_too_many_consumers() -> None:
    with pytest.raises(Throttled):
        registration(ThrottlesRegistering()).arn()
