"""Subscriptions against a server that does what emulators do not: ends, cuts, damage, refusals, slow readers."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kinesis_spout.kinesis import ReadSettings
from kinesis_spout.kinesis.calls import ResourceInUse
from kinesis_spout.kinesis.read.fan_out.pushed_getter import FanOutShardGetter, FanOutStream
from kinesis_spout.kinesis.read.fan_out.subscribe_call import PushedEvents
from kinesis_spout.kinesis.read.fan_out.subscription_reader import SubscriptionPeriods
from kinesis_spout.kinesis.read.read_settings import DEFAULT
from kinesis_spout.kinesis.wire.http import Head
from kinesis_spout.model.errors import AccessDenied, KinesisError, Unavailable
from kinesis_spout.model.record import Record
from kinesis_spout.testing import InMemoryStream
from shard_state import Position
from tests.support.kinesis.pushed_stream import FAULTS, FanOutServer, serve, subscribed
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.kinesis.unkind.subscriptions import IN_TIME, IN_USE
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = [pytest.mark.no_second_run, pytest.mark.usefixtures("each_decoder")]

SHARD = "shardId-000000000000"


class Bench:
    """A stream, the service that pushes it, and a reader of its one shard."""

    def __init__(self, server: FanOutServer, opened: ExitStack) -> None:
        self.stream = InMemoryStream()
        self.server = server
        self.opened = opened

    def serve(self, **options: Any) -> FanOutServer:
        self.service = serve(self.stream, self.server, self.opened, **options)
        return self.service

    def fan_out(
        self, *, queue_bytes: int = 1 << 20, settings: ReadSettings = DEFAULT, **periods: float
    ) -> FanOutStream:
        return subscribed(
            self.stream,
            self.server,
            self.opened,
            queue_bytes=queue_bytes,
            settings=settings,
            periods=SubscriptionPeriods(**{"again_after_seconds": 0.0, **periods}),
        )

    def put(self, first: int, after: int, *, size: int = 0) -> None:
        for number in range(first, after):
            self.stream.put(b"%d" % number + b"." * size, "key")


@pytest.fixture
def bench(fan_out_server: FanOutServer) -> Iterator[Bench]:
    with ExitStack() as opened:
        yield Bench(fan_out_server, opened)


def read_until(
    getter: FanOutShardGetter, is_enough: Callable[[list[Record]], bool], *, raises: bool = True
) -> list[Record]:
    """Read as a door does: when it is told to, or after a while; errors are met with another read."""
    news = threading.Event()
    getter.when_ready(news.set)
    records: list[Record] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_enough(records):
        assert time.monotonic() < deadline, f"only {len(records)} records came"
        try:
            records.extend(getter.read(1000).records)
        except KinesisError:
            if raises:
                raise
        else:
            news.wait(0.02)
            news.clear()
    return records


def numbers(records: list[Record]) -> list[int]:
    return [int(record.data.rstrip(b".")) for record in records]


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_to_a_connection_nothing_is_lost_and_nothing_comes_twice(
    bench: Bench, fault: Behaviour
) -> None:
    service = bench.serve()
    getter = bench.fan_out().getter(SHARD, Position.trim_horizon())
    bench.put(0, 50)
    records = read_until(getter, lambda got: len(got) == 50)

    for round_ in range(1, 6):
        service.push(fault)
        bench.put(50 * round_, 50 * (round_ + 1))
        records += read_until(getter, lambda got: len(got) == 50, raises=False)

    assert numbers(records) == list(range(300))
    assert service.counts[fault] == 5


def test_a_subscription_is_renewed_before_it_ends(bench: Bench) -> None:
    service = bench.serve()
    fan_out = bench.fan_out(renew_after_seconds=0.1)
    getter = fan_out.getter(SHARD, Position.trim_horizon())
    bench.put(0, 10)

    records = read_until(getter, lambda got: len(got) == 10)
    made = len(service.granted) + 1  # one more may be on its way, from where the reader was before
    records += read_until(getter, lambda _: len(service.granted) >= made + 2)

    assert numbers(records) == list(range(10))
    assert service.counts[IN_TIME] == 0
    renewed = service.granted[made : made + 2]
    assert [one["StartingPosition"]["Type"] for one in renewed] == ["AFTER_SEQUENCE_NUMBER"] * 2
    assert fan_out.reader.cuts == 0


def test_a_subscription_that_ends_in_time_is_followed_by_another(bench: Bench) -> None:
    service = bench.serve(lasts_seconds=0.2)
    getter = bench.fan_out().getter(SHARD, Position.trim_horizon())
    bench.put(0, 10)

    def is_enough(got: list[Record]) -> bool:
        return len(got) == 10 and service.counts[IN_TIME] > 3

    records = read_until(getter, is_enough, raises=False)

    assert numbers(records) == list(range(10))


def test_a_subscription_that_says_nothing_is_replaced(bench: Bench) -> None:
    service = bench.serve(heartbeat_seconds=60.0)
    getter = bench.fan_out(silence_seconds=0.1).getter(SHARD, Position.trim_horizon())
    bench.put(0, 10)

    records = read_until(getter, lambda got: len(got) >= 10 and len(service.granted) > 2, raises=False)

    assert numbers(records) == list(range(10))


def test_a_taken_over_subscription_says_so_and_waits_five_seconds(bench: Bench) -> None:
    service = bench.serve()
    getter = bench.fan_out().getter(SHARD, Position.trim_horizon())
    bench.put(0, 10)
    read_until(getter, lambda got: len(got) == 10)

    taken_over_at = time.monotonic()
    assert service.take_over() == 1
    with pytest.raises(ResourceInUse):
        read_until(getter, lambda _: False)

    assert taken_over_at + 4.0 < getter.ready_at <= time.monotonic() + 5.0


def test_a_refused_subscription_is_raised_and_tried_again(bench: Bench) -> None:
    service = bench.serve()
    service.refuse_next("InternalFailureException")
    getter = bench.fan_out().getter(SHARD, Position.trim_horizon())
    bench.put(0, 10)

    with pytest.raises(Unavailable, match="InternalFailureException"):
        read_until(getter, lambda got: len(got) == 10)

    assert numbers(read_until(getter, lambda got: len(got) == 10)) == list(range(10))


def test_no_permission_is_what_it_is(bench: Bench) -> None:
    bench.serve().refuse_next("AccessDeniedException")
    getter = bench.fan_out().getter(SHARD, Position.trim_horizon())

    with pytest.raises(AccessDenied, match="SubscribeToShard of shard 'shardId-000000000000'"):
        read_until(getter, lambda _: False)


def test_a_shard_is_not_subscribed_to_twice_within_five_seconds(bench: Bench) -> None:
    service = bench.serve(again_after_seconds=0.4)
    fan_out = bench.fan_out(again_after_seconds=0.5)
    bench.put(0, 10)
    first = fan_out.getter(SHARD, Position.trim_horizon())
    read_until(first, lambda got: len(got) == 10)
    first.close()
    again = fan_out.getter(SHARD, first.position)
    bench.put(10, 20)

    records = read_until(again, lambda got: len(got) == 10)

    assert numbers(records) == list(range(10, 20))
    assert service.counts[IN_USE] == 0


def test_a_full_queue_leaves_the_socket_alone_and_others_are_read_on(bench: Bench) -> None:
    bench.stream = InMemoryStream(shards=2)
    bench.serve()
    fan_out = bench.fan_out(queue_bytes=100_000)
    stuck, busy = (
        fan_out.getter(shard.shard_id, Position.trim_horizon()) for shard in bench.stream.list_shards()
    )
    for number in range(4000):
        bench.stream.put(b"%d" % number + b"." * 2000, str(number))
    lists = [bench.stream.records(shard.shard_id) for shard in bench.stream.list_shards()]
    stuck.read(1)  # subscribes

    records = read_until(busy, lambda got: len(got) == len(lists[1]))

    assert [record.data for record in records] == [record.data for record in lists[1]]
    # What it was sent beyond its queue waits in the kernel, or at the service.
    assert stuck._subscription.waiting_bytes < 100_000 + 1000 * 3000
    late = read_until(stuck, lambda got: len(got) == len(lists[0]))
    assert [record.data for record in late] == [record.data for record in lists[0]]


def test_a_pause_longer_than_a_subscription_is_survived(bench: Bench) -> None:
    service = bench.serve(lasts_seconds=0.2)
    fan_out = bench.fan_out(queue_bytes=10_000, renew_after_seconds=0.1)
    getter = fan_out.getter(SHARD, Position.trim_horizon())
    bench.put(0, 5000, size=1000)
    getter.read(1)

    def is_quiet() -> bool:
        return not service.is_pushing

    deadline = time.monotonic() + DEADLINE_SECONDS
    news = threading.Event()
    while not (service.granted and is_quiet()):
        assert time.monotonic() < deadline
        news.wait(0.02)
    made = len(service.granted)

    records = read_until(getter, lambda got: len(got) == 5000)

    assert numbers(records) == list(range(5000))
    assert len(service.granted) > made


def test_a_service_without_an_initial_response_is_understood(bench: Bench) -> None:
    bench.serve(has_initial_response=False)
    getter = bench.fan_out().getter(SHARD, Position.trim_horizon())
    bench.put(0, 3)

    assert numbers(read_until(getter, lambda got: len(got) == 3)) == [0, 1, 2]


@pytest.mark.parametrize("refuses_within", [False, True])
def test_a_consumer_that_somebody_ended_is_registered_again(bench: Bench, *, refuses_within: bool) -> None:
    service = bench.serve(refuses_within=refuses_within)
    getter = bench.fan_out().getter(SHARD, Position.trim_horizon())
    bench.put(0, 10)
    records = read_until(getter, lambda got: len(got) == 10)

    (ended,) = service.consumers.values()
    service.consumers.clear()
    service.push(Behaviour.CUT)
    bench.put(10, 20)
    records += read_until(getter, lambda got: len(got) == 10, raises=False)

    assert numbers(records) == list(range(20))
    assert [one["ConsumerName"] for one in service.consumers.values()] == [ended["ConsumerName"]]


def test_a_latest_start_is_pinned_through_every_cut(bench: Bench) -> None:
    service = bench.serve()
    getter = bench.fan_out().getter(SHARD, Position.latest())
    service.push(Behaviour.CUT, times=3)
    bench.put(0, 10)

    assert numbers(read_until(getter, lambda got: len(got) == 10, raises=False)) == list(range(10))
    assert {one["StartingPosition"]["Type"] for one in service.granted} == {"AT_TIMESTAMP"}


def test_records_come_as_columns_as_well(bench: Bench) -> None:
    bench.serve()
    getter = bench.fan_out(settings=ReadSettings(extra_columns=("millisBehindLatest",))).getter(
        SHARD, Position.trim_horizon()
    )
    bench.put(0, 3)
    news = threading.Event()
    getter.when_ready(news.set)
    assert getter.read_arrow(10).batch.num_rows == 0
    assert news.wait(DEADLINE_SECONDS)

    batch = getter.read_arrow(10).batch

    assert batch.column("data").to_pylist() == [b"0", b"1", b"2"]
    assert batch.column("millisBehindLatest").to_pylist() == [0, 0, 0]
    assert getter.position == Position.after(bench.stream.records(SHARD)[-1].sequence)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_keeps_no_subscription_open() -> None:
    ours, service = socket.socketpair()
    service.settimeout(DEADLINE_SECONDS)
    pushed = PushedEvents(ours, Head.of(b"HTTP/1.1 200 OK"), b"")
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        pushed.close()
        assert service.recv(1) == b""
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        service.close()


def test_closing_ends_the_connection(bench: Bench) -> None:
    service = bench.serve()
    fan_out = bench.fan_out()
    getter = fan_out.getter(SHARD, Position.trim_horizon())
    bench.put(0, 3)
    read_until(getter, lambda got: len(got) == 3)

    getter.close()
    getter.close()

    deadline = time.monotonic() + DEADLINE_SECONDS
    while service.is_pushing:
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)
    fan_out.close()
    fan_out.close()
