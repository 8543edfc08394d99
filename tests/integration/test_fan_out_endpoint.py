"""Fan-out against kinesis-mock: no initial event, an event a second, refusals within the stream."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.kinesis import FanOutStream, KinesisShardLister, PollingShardGetter
from kinesis_spout.kinesis.read.fan_out.consumer_registration import deregister_consumer, list_consumers
from kinesis_spout.kinesis.read.fan_out.pushed_getter import FanOutShardGetter
from kinesis_spout.kinesis.read.fan_out.subscription_reader import SubscriptionPeriods
from kinesis_spout.model.errors import Throttled, Unavailable
from shard_state import Position
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.kinesis.streams_under_test import FIRST_SHARD, LeapingClock
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.model.record import Record

pytestmark = [pytest.mark.no_second_run, pytest.mark.endpoint]


class Pushed:
    """A stream of one shard at kinesis-mock, and its subscriptions, renewed after 1.2 s.

    Waits after a refusal take no time: kinesis-mock refuses a subscription until its last event to the one before
    has failed, up to a second later.
    """

    def __init__(self, endpoint: KinesisEndpoint) -> None:
        self.client: KinesisClient = endpoint.client()
        self.name = endpoint.create_stream()
        self.lister = KinesisShardLister(self.client, self.name)
        self.arn = self.lister.summary().arn
        self.fan_out = FanOutStream(
            self.client,
            self.name,
            consumer_name="app",
            lister=self.lister,
            periods=SubscriptionPeriods(renew_after_seconds=1.2, again_after_seconds=0.0),
            clock=LeapingClock(),
            jitter=lambda: 0.0,
        )

    def put(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.client.put_record(StreamName=self.name, Data=payload, PartitionKey="key")

    def polled(self) -> "list[Record]":
        getter = PollingShardGetter(
            self.client,
            stream=self.name,
            shard_id=FIRST_SHARD,
            position=Position.trim_horizon(),
            lister=self.lister,
        )
        return list(getter.read(1000).records)


@pytest.fixture
def pushed(kinesis_local: KinesisEndpoint) -> Iterator[Pushed]:
    pushed = Pushed(kinesis_local)
    yield pushed
    pushed.fan_out.close()


def read_until(getter: FanOutShardGetter, condition: "Callable[[list[Record]], bool]") -> "list[Record]":
    """Read until the condition holds, going on after errors as the doors do."""
    records: list[Record] = []

    def is_enough() -> bool:
        with suppress(Throttled, Unavailable):
            records.extend(getter.read(1000).records)
        return condition(records)

    wait_until(is_enough, "what is pushed", every_seconds=0.05)
    return records


def test_what_is_pushed_is_what_is_polled_also_after_renewals_and_the_end_of_the_consumer(
    pushed: Pushed,
) -> None:
    pushed.put(b"0", b"1", b"2")
    getter = pushed.fan_out.getter(FIRST_SHARD, Position.trim_horizon())
    records = read_until(getter, lambda came: len(came) == 3)
    (first,) = list_consumers(pushed.client, pushed.arn)
    assert (first.name, first.status) == ("app", "ACTIVE")

    deregister_consumer(pushed.client, pushed.arn, "app")
    wait_until(lambda: list_consumers(pushed.client, pushed.arn) == [], "the consumer to be gone")
    # The connection lives until it is renewed. Then the consumer is not found, and is registered again.
    assert read_until(getter, lambda _: list_consumers(pushed.client, pushed.arn) != []) == []
    pushed.put(b"3", b"4")
    records += read_until(getter, lambda came: len(came) == 2)

    assert records == pushed.polled()
    assert [each.data for each in records] == [b"0", b"1", b"2", b"3", b"4"]
    (second,) = list_consumers(pushed.client, pushed.arn)
    assert (second.name, second.status) == ("app", "ACTIVE")
    assert pushed.fan_out.reader.cuts == 0
