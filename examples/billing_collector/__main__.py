"""``python -m examples.billing_collector``: the biller is killed on the way, and the bill is exact.

Kinesis is an emulator on this machine and ZooKeeper the embedded one, unless the arguments say where others are:
``ZOOKEEPER ENDPOINT_URL``. Each biller is a process of its own.
"""

import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from examples.billing_collector.biller import APP, bill, make_tables
from examples.billing_collector.collector import Collector, recount
from examples.demo.processes.endpoint import (
    LocalEndpoint,
    bypass_proxies,
    choose_engine,
    ends_shards,
    own_endpoint,
)
from examples.demo.producer import make_stream
from kinesis_spout import SpoutConfig
from kinesis_spout.producer import ProducerSettings
from kinesis_spout.zookeeper import EmbeddedZooKeeper

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

COLLECTORS: Final = 4
CLICKS: Final = 150
"""Of each collector, before the kill, and again after it."""
_SESSION_SECONDS: Final = 2.0
_DEADLINE_SECONDS: Final = 60.0

Mode = Literal["sharing", "standby"]


class Biller:
    """A biller's process, forked while this one has no threads; it begins when it is told where things are."""

    def __init__(self, name: str, mode: Mode, path: Path) -> None:
        fork = multiprocessing.get_context("fork")
        told, self._tell = fork.Pipe(duplex=False)
        self.process = fork.Process(target=_be_biller, args=(name, mode, path, told), daemon=True)
        self.process.start()

    def begin(self, stream: str, kinesis: ProducerSettings, zookeeper: str) -> None:
        """Say what to read, and where Kinesis and ZooKeeper are."""
        self._tell.send((stream, kinesis, zookeeper))

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()
        self.process.join()


def _be_biller(name: str, mode: Mode, path: Path, told: "Connection[Any, Any]") -> None:
    stream, kinesis, zookeeper = told.recv()
    config = SpoutConfig.of(
        stream=stream,
        app=APP,
        mode=mode,
        order="shard",
        initial_position="trim_horizon",
        zookeeper=zookeeper,
        session_timeout_seconds=_SESSION_SECONDS,
        commit_interval_seconds=0.1,
        dead_letters=str(path.parent / "dead-letters"),
        **kinesis,
    )
    bill(config, path, name)


def main(zookeeper: str | None = None, endpoint_url: str | None = None) -> None:
    """Collect, kill, collect on, and compare the bill with a recount."""
    bypass_proxies()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        path, stream = folder / "bills.db", f"clicks-{time.time_ns()}"
        make_tables(path)
        first, second = Biller("first", "sharing", path), Biller("second", "standby", path)
        opened.callback(first.kill)
        opened.callback(second.kill)
        if zookeeper is None:
            zookeeper = opened.enter_context(EmbeddedZooKeeper(folder / "zookeeper")).connect_string
        if endpoint_url is None:
            engine = opened.enter_context(LocalEndpoint(choose_engine(), folder / "endpoint.log"))
            at = engine.endpoint()
        else:
            at = own_endpoint(endpoint_url)
        client = at.client_settings.connect()
        make_stream(client, stream, 2)
        kinesis = ProducerSettings(
            region=at.region,
            endpoint_url=at.url,
            aws_access_key_id=at.environment.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=at.environment.get("AWS_SECRET_ACCESS_KEY"),
        )
        # moto may give two calls at the same time the same sequence number, and lose a record.
        is_moto = not ends_shards(client, stream)
        collectors = [
            Collector(f"collector-{number}", stream, client, 1 if is_moto else 4)
            for number in range(1, COLLECTORS + 1)
        ]
        first.begin(stream, kinesis, zookeeper)
        collect(collectors, CLICKS, in_turns=is_moto)
        await_that(lambda: _count(path) > 0, "the first biller bills")
        second.begin(stream, kinesis, zookeeper)
        await_that(lambda: _count(path) >= COLLECTORS * CLICKS // 2, "half of the clicks are billed")
        first.kill()
        at_kill = _count(path)
        collect(collectors, CLICKS, in_turns=is_moto)
        await_that(lambda: _count(path) == 2 * COLLECTORS * CLICKS, "all clicks are billed")
        put = sum(collector.close() for collector in collectors)
        second.kill()
        report(path, collectors, put, at_kill)


def collect(collectors: list[Collector], count: int, *, in_turns: bool) -> None:
    """Have every collector take in so many clicks, and wait until they are on the stream."""
    for collector in collectors:
        collector.collect(count)
        if in_turns:
            collector.flush()
    for collector in collectors:
        collector.flush()


def report(path: Path, collectors: list[Collector], put: int, at_kill: int) -> None:
    """Print what happened; end with an error if the bill is not exact."""
    expected = recount(collectors)
    bills = {customer: (clicks, cents) for customer, clicks, cents in _rows(path, "SELECT * FROM bill")}
    by_biller = dict(_rows(path, "SELECT biller, count(*) FROM click GROUP BY biller"))
    total = sum(cents for _, cents in bills.values())
    print(
        f"{len(collectors)} collectors put {put:,} records for {sum(n for n, _ in expected.values()):,} clicks."
    )
    print(f"The first biller was killed when {at_kill} clicks were billed; its stand-by took over.")
    print(f"Billed by each: {', '.join(f'{name} {count}' for name, count in sorted(by_biller.items()))}.")
    print(f"{len(bills)} bills, {total / 100:,.2f} in all.")
    if bills != expected:
        sys.exit(f"expected the bills {expected}, got {bills}")
    if out_of_order(path):
        sys.exit(
            f"expected each collector's clicks of a customer in order, got {out_of_order(path)} that are not"
        )
    if set(by_biller) != {"first", "second"}:
        sys.exit("expected that both billers billed something")
    print("Checked: every bill is exact, and billed in the order of its clicks.")


def out_of_order(path: Path) -> int:
    """Count the clicks that were booked after a later one of the same customer and collector."""
    newest: dict[tuple[str, str], int] = {}
    wrong = 0
    for customer, collector, number in _rows(
        path, "SELECT customer, collector, number FROM click ORDER BY rowid"
    ):
        wrong += number < newest.get((customer, collector), -1)
        newest[customer, collector] = number
    return wrong


def await_that(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, for a limited time."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {_DEADLINE_SECONDS:g} s in vain until {what}")
        time.sleep(0.02)


def _count(path: Path) -> int:
    ((count,),) = _rows(path, "SELECT count(*) FROM click")
    return int(count)


def _rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(path)
    rows: list[tuple[Any, ...]] = db.execute(sql).fetchall()
    db.close()
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:3])
