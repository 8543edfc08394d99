"""Many shards polled by one thread over real sockets, and what a bad endpoint does to them."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, thread_time

import pytest

from examples.demo.processes.endpoint import free_ports
from kinesis_spout.kinesis import PollingShardGetter, Prefetcher
from kinesis_spout.kinesis.read.polling.steps import Steps
from kinesis_spout.kinesis.read.read_settings import ReadSettings
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import KinesisError, Unavailable
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream
from shard_state import Position
from tests.support import threads
from tests.support.kinesis.faulty_endpoint import FaultyEndpoint
from tests.support.kinesis.own_certificate import own_certificate
from tests.support.waiting import wait_until

QUICK = ReadSettings(fetch_period_seconds=0.05)


class Shards:
    """Polls so many shards of an endpoint again and again, and notes what came. Mutable."""

    def __init__(
        self, endpoint: FaultyEndpoint, count: int, *, most: int = 32, read_timeout_seconds: float = 20.0
    ) -> None:
        self.clock = SystemClock()
        self.client = endpoint.settings(read_timeout_seconds=read_timeout_seconds).create()
        self.prefetcher = Prefetcher(most=most)
        self.pages: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.errors: list[KinesisError] = []
        self.names = [f"shardId-{number:012d}" for number in range(count)]
        lister = InMemoryShardLister(InMemoryStream())
        for name in self.names:
            getter = PollingShardGetter(
                self.client,
                stream="orders",
                shard_id=name,
                position=Position.trim_horizon(),
                lister=lister,
                settings=QUICK,
            )
            self.prefetcher.submit(partial(self._fetch, name, getter), 0.0)

    def _fetch(self, name: str, getter: PollingShardGetter) -> Steps[float | None]:
        try:
            page = yield from getter.reading(10_000)
        except KinesisError as error:
            self.errors.append(error)
        else:
            self.pages[name] += 1
            self.records[name] += len(page.records)
        return getter.ready_at

    def all_have(self, count: int, *, but: str = "") -> bool:
        return all(self.pages[name] >= count for name in self.names if name != but)


@contextmanager
def polled(endpoint: FaultyEndpoint, count: int, **others: float) -> Iterator[Shards]:
    shards = Shards(endpoint, count, **others)  # type: ignore[arg-type]
    try:
        yield shards
    finally:
        shards.prefetcher.close()
        shards.client.close()


@pytest.fixture(params=["http", "tls"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultyEndpoint]:
    with FaultyEndpoint(own_certificate(tmp_path) if request.param == "tls" else None) as endpoint:
        yield endpoint


def test_idle_shards_share_a_few_connections_and_one_thread(endpoint: FaultyEndpoint) -> None:
    with polled(endpoint, 200, most=8) as shards:
        wait_until(partial(shards.all_have, 3), "three pages of each")
        assert endpoint.connections <= 2 * 8  # half of them botocore's, for iterators
        assert not shards.errors
        assert threads.named("kinesis-prefetch")


def test_a_large_page_is_whole_and_holds_nobody_up(endpoint: FaultyEndpoint) -> None:
    endpoint.put("shardId-000000000000", "YWJj" * 1000, copies=2000)
    with polled(endpoint, 20) as shards:
        wait_until(partial(shards.all_have, 5), "five pages of each")
        assert shards.records == {**dict.fromkeys(shards.names, 0), "shardId-000000000000": 2000}


def test_slow_answers_of_one_shard_hold_up_no_other(endpoint: FaultyEndpoint) -> None:
    slow = "shardId-000000000000"
    endpoint.slow_seconds[slow] = 15.0
    with polled(endpoint, 20, most=4) as shards:
        wait_until(partial(shards.all_have, 40, but=slow), "forty pages of the others")
        assert endpoint.polls[slow] > 0
        assert shards.pages[slow] < 40
        assert not shards.errors


def test_an_answer_that_never_comes_costs_the_read_time_out_and_only_its_shard(
    endpoint: FaultyEndpoint,
) -> None:
    hanging = "shardId-000000000000"
    with polled(endpoint, 20, most=4, read_timeout_seconds=1.0) as shards:
        wait_until(partial(shards.all_have, 2), "two pages of each")
        endpoint.slow_seconds[hanging] = 60.0
        begun = monotonic()
        wait_until(lambda: bool(shards.errors), "the time-out")
        assert monotonic() - begun < 50.0
        assert {type(error) for error in shards.errors} == {Unavailable}
        had = shards.pages.copy()
        wait_until(
            lambda: all(shards.pages[name] > had[name] for name in shards.names if name != hanging),
            "a page of each other one",
        )


@pytest.mark.parametrize("cut_every", [20, 3])
def test_connections_that_break_cost_single_polls(endpoint: FaultyEndpoint, cut_every: int) -> None:
    for number in range(20):
        endpoint.put(f"shardId-{number:012d}", "YWJj", copies=3)
    with polled(endpoint, 20) as shards:
        wait_until(partial(shards.all_have, 1), "a page of each")
        endpoint.cut_every = cut_every
        wait_until(partial(shards.all_have, 10), "ten pages of each")
        assert endpoint.cuts >= 5
        assert shards.records == dict.fromkeys(shards.names, 3)


def test_an_endpoint_that_was_away_is_polled_again_and_not_hammered_meanwhile() -> None:
    (port,) = free_ports(1)  # nobody gets it while the endpoint is away
    with FaultyEndpoint(port=port) as endpoint:
        shards = Shards(endpoint, 20)
        wait_until(partial(shards.all_have, 2), "two pages of each")
    try:
        wait_until(lambda: len(shards.errors) >= 20, "an error of each")
        used = _loop_seconds(shards)
        before = len(shards.errors)
        threading.Event().wait(3.0)  # an outage lasts; what it costs is what is measured
        assert len(shards.errors) - before <= 20 * 8  # 0.2 s, doubled
        assert _loop_seconds(shards) - used < 1.0
        with FaultyEndpoint(port=port):
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
    endpoint: FaultyEndpoint,
) -> None:
    with polled(endpoint, 8) as shards:
        wait_until(partial(shards.all_have, 2), "two pages of each")
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        try:
            endpoint.cut_all()
            had = shards.pages.copy()
            wait_until(lambda: all(shards.pages[name] > had[name] + 1 for name in shards.names), "new pages")
            used = _loop_seconds(shards)
            threading.Event().wait(1.5)  # what it costs to wait is what is measured
            assert _loop_seconds(shards) - used < 0.5
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_it_closes_at_once_although_no_answer_comes(endpoint: FaultyEndpoint) -> None:
    with polled(endpoint, 8) as shards:
        wait_until(partial(shards.all_have, 2), "two pages of each")
        for name in shards.names:
            endpoint.slow_seconds[name] = 30.0
        had = endpoint.polls.total()
        wait_until(lambda: endpoint.polls.total() >= had + 8, "eight calls under way")
        begun = monotonic()
        shards.prefetcher.close()
        assert monotonic() - begun < 20.0


def _loop_seconds(shards: Shards) -> float:
    """The CPU that the polling thread has used."""
    seen: list[float] = []
    shards.prefetcher._loop.call(lambda: seen.append(thread_time()))
    wait_until(lambda: bool(seen), "the loop")
    return seen[0]
