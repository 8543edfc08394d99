"""Many shards polled by one thread over real sockets, and what a bad endpoint does to them."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic, thread_time

import pytest

from examples.demo.processes.endpoint import free_ports
from kinesis_spout.kinesis import PollingShardGetter, Prefetcher
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.read.read_settings import ReadSettings
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import KinesisError, Unavailable
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream
from shard_state import Position
from tests.support import threads
from tests.support.kinesis.own_certificate import own_certificate
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_second_run

CREATED = 1_700_000_000.0
QUICK = ReadSettings(fetch_period_seconds=0.05)


class Shards:
    """Polls so many shards of an endpoint again and again, and notes what came. Mutable."""

    def __init__(
        self,
        endpoint: UnkindEndpoint,
        count: int,
        *,
        most: int = 32,
        read_timeout_seconds: float = 20.0,
        records: int = 0,
        size: int = 3,
    ) -> None:
        self.stream = endpoint.create_stream(shards=count, created=CREATED)
        self.clock = SystemClock()
        self.client = endpoint.settings(read_timeout_seconds=read_timeout_seconds).create()
        self.prefetcher = Prefetcher(most=most)
        self.pages: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.errors: list[KinesisError] = []
        self.names = [f"shardId-{number:012d}" for number in range(count)]
        lister = InMemoryShardLister(InMemoryStream())
        for name in self.names if records else ():
            endpoint.put(self.stream, *[bytes(size)] * records, shard_id=name)
        for name in self.names:
            getter = PollingShardGetter(
                self.client,
                stream=self.stream,
                shard_id=name,
                position=Position.trim_horizon(),
                lister=lister,
                settings=QUICK,
            )
            self.prefetcher.submit(partial(self._fetch, name, getter), 0.0)

    async def _fetch(self, name: str, getter: PollingShardGetter) -> float | None:
        try:
            page = await getter.reading(10_000)
        except KinesisError as error:
            self.errors.append(error)
        else:
            self.pages[name] += 1
            self.records[name] += len(page.records)
        return getter.ready_at

    def all_have(self, count: int, *, but: str = "") -> bool:
        return all(self.pages[name] >= count for name in self.names if name != but)


@contextmanager
def polled(endpoint: UnkindEndpoint, count: int, **others: float) -> Iterator[Shards]:
    shards = Shards(endpoint, count, **others)  # type: ignore[arg-type]
    try:
        yield shards
    finally:
        shards.prefetcher.close()
        shards.client.close()


@pytest.fixture(scope="module")
def with_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnkindEndpoint]:
    with UnkindEndpoint(own_certificate(tmp_path_factory.mktemp("tls"))) as endpoint:
        yield endpoint


@pytest.fixture(params=["unkind", "with_tls"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[UnkindEndpoint]:
    endpoint: UnkindEndpoint = request.getfixturevalue(request.param)
    yield endpoint
    endpoint.reset()


def test_idle_shards_share_a_few_connections_and_one_thread(endpoint: UnkindEndpoint) -> None:
    with polled(endpoint, 200, most=8) as shards:
        wait_until(partial(shards.all_have, 3), "three pages of each")
        connections = {each["connection"] for each in endpoint.seen("GetRecords")}
        assert len(connections) <= 2 * 8  # half of them botocore's, for iterators
        assert not shards.errors
        assert threads.named("kinesis-io")


def test_a_large_page_is_whole_and_holds_nobody_up(endpoint: UnkindEndpoint) -> None:
    with polled(endpoint, 20) as shards:
        wait_until(partial(shards.all_have, 1), "a page of each")
        endpoint.put(shards.stream, *[bytes(3_000)] * 2000, shard_id=shards.names[0])
        wait_until(partial(shards.all_have, 5), "five pages of each")
        wait_until(lambda: shards.records.total() > 0, "the large page")
        assert shards.records == {**dict.fromkeys(shards.names, 0), shards.names[0]: 2000}


def test_slow_answers_of_one_shard_hold_up_no_other(endpoint: UnkindEndpoint) -> None:
    slow = "shardId-000000000000"
    endpoint.switch_on(Behaviour.SLOW, shard_id=slow, operations=["GetRecords"], seconds=15, parts=1)
    with polled(endpoint, 20, most=4) as shards:
        wait_until(partial(shards.all_have, 40, but=slow), "forty pages of the others")
        assert endpoint.happened[Behaviour.SLOW] > 0
        assert shards.pages[slow] < 40
        assert not shards.errors


def test_an_answer_that_never_comes_costs_the_read_time_out_and_only_its_shard(
    endpoint: UnkindEndpoint,
) -> None:
    hanging = "shardId-000000000000"
    with polled(endpoint, 20, most=4, read_timeout_seconds=1.0) as shards:
        wait_until(partial(shards.all_have, 2), "two pages of each")
        endpoint.switch_on(Behaviour.SILENT, shard_id=hanging)
        begun = monotonic()
        wait_until(lambda: bool(shards.errors), "the time-out")
        assert monotonic() - begun < 50.0
        assert {type(error) for error in shards.errors} == {Unavailable}
        had = shards.pages.copy()
        wait_until(
            lambda: all(shards.pages[name] > had[name] for name in shards.names if name != hanging),
            "a page of each other one",
        )


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_connections_that_break_cost_single_polls(endpoint: UnkindEndpoint, rate: float) -> None:
    with polled(endpoint, 20, records=3) as shards:
        wait_until(partial(shards.all_have, 1), "a page of each")
        endpoint.switch_on(Behaviour.CUT, operations=["GetRecords"], rate=rate, sent=0)
        wait_until(partial(shards.all_have, 10), "ten pages of each")
        assert endpoint.happened[Behaviour.CUT] >= 5
        assert shards.records == dict.fromkeys(shards.names, 3)


def test_an_endpoint_that_was_away_is_polled_again_and_not_hammered_meanwhile() -> None:
    (port,) = free_ports(1)  # nobody gets it while the endpoint is away
    with UnkindEndpoint(port=port) as endpoint:
        shards = Shards(endpoint, 20)
        wait_until(partial(shards.all_have, 2), "two pages of each")
    try:
        wait_until(lambda: len(shards.errors) >= 20, "an error of each")
        used = _loop_seconds()
        before = len(shards.errors)
        threading.Event().wait(3.0)  # an outage lasts; what it costs is what is measured
        assert len(shards.errors) - before <= 20 * 8  # 0.2 s, doubled
        assert _loop_seconds() - used < 1.0
        with UnkindEndpoint(port=port) as again:
            again.create_stream(shards=20, name=shards.stream, created=CREATED)
            had = shards.pages.copy()
            wait_until(
                lambda: all(shards.pages[name] > had[name] for name in shards.names),
                "a page of each after the outage",
            )
    finally:
        shards.prefetcher.close()
        shards.client.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_keeps_no_connection_open_that_would_wake_the_loop_for_ever(
    endpoint: UnkindEndpoint,
) -> None:
    with polled(endpoint, 8) as shards:
        wait_until(partial(shards.all_have, 2), "two pages of each")
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        try:
            endpoint.hang_up()
            had = shards.pages.copy()
            wait_until(lambda: all(shards.pages[name] > had[name] + 1 for name in shards.names), "new pages")
            used = _loop_seconds()
            threading.Event().wait(1.5)  # what it costs to wait is what is measured
            assert _loop_seconds() - used < 0.5
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_it_closes_at_once_although_no_answer_comes(endpoint: UnkindEndpoint) -> None:
    with polled(endpoint, 8) as shards:
        wait_until(partial(shards.all_have, 2), "two pages of each")
        endpoint.switch_on(Behaviour.SILENT)
        wait_until(lambda: endpoint.happened[Behaviour.SILENT] >= 8, "eight calls under way")
        begun = monotonic()
        shards.prefetcher.close()
        assert monotonic() - begun < 20.0


def _loop_seconds() -> float:
    """The CPU that the I/O thread has used."""

    async def seconds() -> float:
        return thread_time()

    return IO.run(seconds())
