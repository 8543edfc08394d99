"""What metrics, health and their HTTP server cost: a scrape of 1,000 shards, and the doors with one each second.

The scrape is made in this process, of a spout in memory that owns 1,000 shards, with a fresh look each time.

The doors read the same records with and without ``http`` in turns, while another process asks ``/metrics`` each
second, so that what disturbs one disturbs the other. What is counted without ``http`` as well
(outcomes, attempts, ages) is in both.

``monitoring:scrape``, ``monitoring:plain`` and ``monitoring:record`` are its parts.
"""

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import door_handlers
from backlog_reading import Load, let_processes_import_benchmarks
from canned_kinesis import CannedKinesis
from figures import Figure, Step, cpu_seconds
from local_spark import local_session, spark_processes, spout_config
from read_limits import UNPACED_WORKERS, lift_read_limits

from kinesis_spout import KinesisSpout
from kinesis_spout.monitoring.prometheus import exposition
from kinesis_spout.monitoring.readings import Sources
from kinesis_spout.monitoring.server import MonitoringServer
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.testing import (
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)
from kinesis_spout.zookeeper import EmbeddedZooKeeper

SHARDS: Final = 1_000
GOAL_SUMS_MILLIS: Final = 10.0
GOAL_PER_SHARD_MILLIS: Final = 100.0
GOAL_PERCENT: Final = 1.5
PARTS: Final = ("scrape", "plain", "record")
_PLAIN_RECORDS: Final = 20_000
_DEADLINE_SECONDS: Final = 300.0
_SCRAPER: Final = """
import sys, time, urllib.request
while True:
    began = time.monotonic()
    try:
        urllib.request.urlopen(f"http://{sys.argv[1]}/metrics", timeout=5).read()
    except OSError:
        pass
    time.sleep(max(0.0, began + 1 - time.monotonic()))
"""


def figures(*, quick: bool, only: Sequence[str] = PARTS) -> Iterator[Figure | Step]:
    if unknown := set(only) - set(PARTS):
        raise ValueError(f"expected words among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if "scrape" in only:
        yield from _scrapes(repeats=5 if quick else 15)
    if "plain" in only:
        yield Step("the plain door, in turns")
        yield from _plain(turns=3 if quick else 9, seconds=1.5 if quick else 5.0)
    if "record" in only:
        yield Step("the record door, in turns")
        yield from _record(turns=2 if quick else 6, records=400_000 if quick else 2_400_000)


# A scrape


def _scrapes(*, repeats: int) -> Iterator[Figure]:
    clock = ManualClock()
    stream = InMemoryStream("orders", shards=SHARDS, clock=clock)
    spout = SteppedSpout(
        ports=in_memory_ports(stream, InMemoryZooKeeper()),
        stream="orders",
        app="benchmark",
        initial_position="trim_horizon",
    )
    with spout.open():
        for number in range(2 * SHARDS):
            stream.put(b"x", f"key-{number}")
        sources = Sources([spout])
        while not (looks := sources.looks()) or len(looks[0].owned) < SHARDS:
            clock.advance(1)
            spout.next_tuple()
        for _ in range(SHARDS):
            spout.next_tuple()

        def scrape(*, per_shard: bool) -> None:
            clock.advance(1)
            exposition(sources.read(per_shard=per_shard))

        def look() -> None:
            clock.advance(1)
            sources.looks()

        yield _millis("a look", cpu_seconds(look, repeats=repeats))
        sums = cpu_seconds(lambda: scrape(per_shard=False), repeats=repeats)
        yield _millis("a scrape, sums", sums, GOAL_SUMS_MILLIS)
        each = cpu_seconds(lambda: scrape(per_shard=True), repeats=repeats)
        yield _millis("a scrape, per shard", each, GOAL_PER_SHARD_MILLIS)


def _millis(what: str, seconds: float, goal: float | None = None) -> Figure:
    return Figure(what=f"{SHARDS:,} shards: {what}", value=seconds * 1_000, unit="ms CPU", at_most=goal)


# The doors


@contextmanager
def _scraped(address: str | None) -> Iterator[None]:
    if address is None:
        yield
        return
    scraper = subprocess.Popen([sys.executable, "-c", _SCRAPER, address])
    try:
        yield
    finally:
        scraper.kill()
        scraper.wait()


def _in_turns(what: str, turns: int, cost: Callable[[bool], float]) -> Iterator[Figure]:
    """Compare what a record costs without and with monitoring; the order alternates."""
    taken: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(turns + 1):
        for on in (False, True) if turn % 2 else (True, False):
            seconds = cost(on)
            if turn:  # the first warms up
                taken[on].append(seconds)
    off, on = statistics.median(taken[False]), statistics.median(taken[True])
    ratios = [one / other - 1 for one, other in zip(taken[True], taken[False], strict=True)]
    spread = f"single turns from {min(ratios):+.1%} to {max(ratios):+.1%}"
    yield Figure(what=f"{what}, without http", value=off * 1e6, unit="µs CPU/record")
    yield Figure(what=f"{what}, with http, scraped each second", value=on * 1e6, unit="µs CPU/record")
    yield Figure(
        what=f"{what}: what http adds",
        value=100 * statistics.median(ratios),
        unit="% of CPU",
        at_most=GOAL_PERCENT,
        note=spread,
    )


def _plain(*, turns: int, seconds: float) -> Iterator[Figure]:
    clock = ManualClock()

    def cost(on: bool) -> float:  # noqa: FBT001 - both ways of one measurement
        stream = InMemoryStream("orders", shards=8, clock=clock)
        spout = SteppedSpout(
            ports=in_memory_ports(stream, InMemoryZooKeeper()),
            stream="orders",
            app="benchmark",
            initial_position="trim_horizon",
        )
        with spout.open(), _served(spout, on=on) as address, _scraped(address):
            handled, spent, until = 0, 0.0, time.monotonic() + seconds
            while time.monotonic() < until:
                for number in range(_PLAIN_RECORDS):
                    stream.put(b"x" * 100, f"key-{number % 97}")
                begun = time.process_time()
                left = _PLAIN_RECORDS
                while left:
                    emitted = RecordSpout.next_tuple(spout)
                    if emitted is None:
                        clock.advance(0.25)
                        spout.do_what_is_due()
                        continue
                    spout.ack(emitted.message_id)
                    left -= 1
                spent += time.process_time() - begun
                handled += _PLAIN_RECORDS
            return spent / handled

    yield from _in_turns("the plain door, 8 shards", turns, cost)


@contextmanager
def _served(spout: SteppedSpout, *, on: bool) -> Iterator[str | None]:
    if not on:
        yield None
        return
    with MonitoringServer("127.0.0.1:0", spout) as server:
        yield server.address


def _record(*, turns: int, records: int) -> Iterator[Figure]:
    let_processes_import_benchmarks()
    lift_read_limits()
    number = 0
    with (
        tempfile.TemporaryDirectory() as name,
        CannedKinesis() as kinesis,
        EmbeddedZooKeeper(Path(name, "zookeeper")) as zookeeper,
        local_session(**UNPACED_WORKERS) as spark,
    ):
        jvm = spark_processes(spark)
        load = Load(shards=8, size_bytes=100, records=0, warm_up_records=records, kind="orders")

        def cost(on: bool) -> float:  # noqa: FBT001 - as above
            nonlocal number
            number += 1
            address = _free_address() if on else None
            config = spout_config(
                kinesis.settings,
                load.stream(f"monitoring {number}"),
                Path(name, str(number)),
                app=f"app-{number}",
                zookeeper=zookeeper.connect_string,
                http=address,
            )
            wanted = load.records_in(load.warm_up_pages)
            begun = time.process_time() + jvm.cpu_seconds()
            query = KinesisSpout(config=config).foreach_record(spark, door_handlers.look)
            with query, _scraped(address):
                deadline = time.monotonic() + _DEADLINE_SECONDS
                while query.counters.acked < wanted:
                    assert query.isActive, str(query.exception())
                    assert time.monotonic() < deadline, f"expected {wanted} records, got {query.counters}"
                    time.sleep(0.02)
                spent = time.process_time() + jvm.cpu_seconds() - begun
            return spent / wanted

        yield from _in_turns("the record door, 8 shards, 100 B", turns, cost)


def _free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"
