"""What it costs to read a backlog: ``format("kinesis")`` into a sink that drops the rows, and other clients.

All read the same streams of one endpoint on loopback, whose CPU is not counted. Of every client the whole tree
of processes is: the JVM, its Python workers, the process of the stream reader and the driver's Python. Each is
warmed up with some pages per shard; when it has seen them all, more pages are put behind them, and only these are
measured, from one standstill to the next: nothing was fetched ahead at either end.

Kinesis' own limits (five reads and 2 MB a second per shard) are lifted for all clients alike, as far as they
let themselves: kcl-rs keeps its 0.2 s between two reads of a shard, async-kinesis its rounds of 0.2 s. So
records per second say how fast a client could go here, not how fast Kinesis would let it.

What the others give is less than rows of Spark: dictionaries, tuples, bytes.
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from canned_kinesis import CannedKinesis
from figures import Figure, ProcessTree
from local_spark import Batches, local_session, spark_processes
from other_services import other_services
from pyspark.sql import SparkSession
from unpaced import UnpacedKinesis

from kinesis_spout.spark.session import LOCAL_CHECKPOINTS
from kinesis_spout.zookeeper import EmbeddedZooKeeper

PAGE = 10_000
SIZES = {100: 8.0, 1024: 4.0}
"""Bytes of a record, and how many times cheaper than the boto3 loop this source should be."""
SHARDS = (1, 8, 64)
OURS: Final = "this source"
REFERENCE: Final = "boto3"
RUST: Final = "kcl-rs"
OTHERS: Final = ("boto3", "spout", "async-kinesis")
"""In their order; kcl-rs comes last, because it spends half a minute on its leases first."""
PACKAGES: Final = {"async-kinesis": "async-kinesis==3.0.1", RUST: "kcl-rs==0.1.4"}
"""From PyPI, into an environment of their own: their dependencies contradict ours."""
_RECORDS: Final = {
    OURS: 2_400_000,
    RUST: 600_000,
    "spout": 300_000,
    "boto3": 200_000,
    "async-kinesis": 200_000,
}
"""How many to measure, at least one page of each shard."""
_WARM_UP_RECORDS: Final = 100_000
_WARM_UP_RECORDS_OF_OURS: Final = 2_400_000
"""The JVM goes on compiling for as long, which a query that runs for days does not pay for."""
_DEADLINE_SECONDS: Final = 600.0
_SCRIPT: Final = Path(__file__).with_name("source_clients.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of reading a backlog."""

    cpu_micros: float
    """Per record."""
    records_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is read."""

    shards: int
    size_bytes: int
    records: int
    warm_up_records: int = _WARM_UP_RECORDS

    @property
    def pages(self) -> int:
        """Per shard."""
        return -(-self.records // (self.shards * PAGE))

    @property
    def warm_up_pages(self) -> int:
        """Per shard, before what is measured."""
        return -(-self.warm_up_records // (self.shards * PAGE))

    def stream(self, client: str) -> str:
        """Name the stream: one for each client, as each gets its further pages at its own time."""
        name = f"{client.replace('-', '_').replace(' ', '_')}_{os.getpid()}"
        return f"backlog-{self.shards}-{PAGE}-{self.size_bytes}-{self.warm_up_pages}-{name}"

    def records_in(self, pages: int) -> int:
        """Count the records of so many pages per shard."""
        return pages * self.shards * PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Where queries run."""

    spark: SparkSession
    kinesis: CannedKinesis
    checkpoints: Path


class Reading(Protocol):
    """A client at work."""

    def cpu_seconds(self) -> float:
        """Tell what its processes used so far."""
        ...

    def wait_for(self, records: int) -> None:
        """Wait until it has seen so many."""
        ...


def figures(*, quick: bool) -> Iterator[Figure]:
    shards = (8,) if quick else SHARDS
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        place = Path(directory)
        python, missing = _other_environment(place / "environment")
        beside = stack.enter_context(other_services())
        kinesis = stack.enter_context(CannedKinesis(beside))
        zookeeper = stack.enter_context(EmbeddedZooKeeper(place / "zookeeper"))
        os.environ["BENCHMARK_ZOOKEEPER"] = zookeeper.connect_string
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_SCRIPT.parent), *sys.path]))
        spark = stack.enter_context(local_session(**LOCAL_CHECKPOINTS))
        spark.dataSource.register(UnpacedKinesis)
        session = Session(spark=spark, kinesis=kinesis, checkpoints=place / "checkpoints")
        _warm_up(session)
        for size in SIZES:
            for count in shards:
                costs = _costs(session, python, missing, shards=count, size_bytes=size)
                yield from _shown(count, size, costs, missing)


def _costs(
    session: Session,
    python: Path,
    missing: Mapping[str, str],
    *,
    shards: int,
    size_bytes: int,
) -> dict[str, Cost]:
    def load(client: str) -> Load:
        return Load(
            shards=shards,
            size_bytes=size_bytes,
            records=_RECORDS[client],
            warm_up_records=_WARM_UP_RECORDS_OF_OURS if client == OURS else _WARM_UP_RECORDS,
        )

    def process(client: str) -> _Process:
        return _Process(python if client in PACKAGES else Path(sys.executable), kinesis, client, load(client))

    kinesis = session.kinesis
    costs = {}
    with ExitStack() as stack:
        if RUST not in missing:
            rust = stack.enter_context(process(RUST))
        with _Query(session, load(OURS)) as query:
            costs[OURS] = _cost(query, kinesis, OURS, load(OURS))
        for client in OTHERS:
            if client not in missing:
                with process(client) as other:
                    costs[client] = _cost(other, kinesis, client, load(client))
        if RUST not in missing:
            costs[RUST] = _cost(rust, kinesis, RUST, load(RUST))
    return costs


def _cost(reading: Reading, kinesis: CannedKinesis, client: str, load: Load) -> Cost:
    warm_up, measured = load.records_in(load.warm_up_pages), load.records_in(load.pages)
    reading.wait_for(warm_up)
    cpu, started = reading.cpu_seconds(), time.perf_counter()
    kinesis.extend(load.stream(client), load.pages)
    reading.wait_for(warm_up + measured)
    seconds = time.perf_counter() - started
    return Cost(
        cpu_micros=(reading.cpu_seconds() - cpu) / measured * 1e6, records_per_second=measured / seconds
    )


def _shown(
    shards: int, size_bytes: int, costs: Mapping[str, Cost], missing: Mapping[str, str]
) -> Iterator[Figure]:
    load = f"{size_bytes:,} B, {shards} shard{'s' * (shards > 1)}"
    ours = costs[OURS]
    for client in (OURS, *OTHERS, RUST):
        what = f"{load}: {client}"
        cost = costs.get(client)
        if cost is None:
            yield Figure(what=what, value=None, unit="", note=f"skipped: {missing[client]}")
            continue
        compared = client == OURS
        yield Figure(
            what=what,
            value=cost.cpu_micros,
            unit="CPU s/million",
            reference=REFERENCE if compared else "",
            ratio=costs[REFERENCE].cpu_micros / ours.cpu_micros if compared else None,
            cheaper_at_least=SIZES[size_bytes] if compared else None,
            note=f"{cost.records_per_second:,.0f} records/s",
        )
    if RUST in costs:
        yield Figure(
            what=f"{load}: {OURS}",
            value=ours.cpu_micros,
            unit="CPU s/million",
            reference=RUST,
            ratio=costs[RUST].cpu_micros / ours.cpu_micros,
            cheaper_at_least=1.0,
        )


def _warm_up(session: Session) -> None:
    """Have the JVM compile what every batch needs."""
    load = Load(shards=8, size_bytes=100, records=0)
    records = load.records_in(load.warm_up_pages)
    with _Query(session, load, client="first") as query:
        for step in range(1, 40):
            query.wait_for(records * step)
            session.kinesis.extend(load.stream("first"), load.warm_up_pages)


class _Query:
    """A streaming query that drops its rows."""

    def __init__(self, session: Session, load: Load, client: str = OURS) -> None:
        checkpoint = session.checkpoints / load.stream(client)
        self._query = (
            session.spark.readStream.format(UnpacedKinesis.name())
            .option("streamName", load.stream(client))
            .option("region", "us-east-1")
            .option("endpointUrl", session.kinesis.url)
            .option("awsAccessKey", "test")
            .option("awsSecretKey", "test")
            .option("initialPosition", "trim_horizon")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        self._batches = Batches(self._query, checkpoint)
        self._jvm = spark_processes(session.spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._query.stop()

    def cpu_seconds(self) -> float:
        return time.process_time() + self._jvm.cpu_seconds()

    def wait_for(self, records: int) -> None:
        self._batches.wait_for(records, seconds=_DEADLINE_SECONDS)


class _Process:
    """Another client, in a process of its own."""

    def __init__(self, python: Path, kinesis: CannedKinesis, client: str, load: Load) -> None:
        warm_up = load.records_in(load.warm_up_pages)
        counts = (warm_up, warm_up + load.records_in(load.pages))
        self._process = subprocess.Popen(
            [str(python), str(_SCRIPT), client, kinesis.url, load.stream(client), *map(str, counts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._tree = ProcessTree(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()  # closes its standard input, which ends it

    def cpu_seconds(self) -> float:
        return self._tree.cpu_seconds()

    def wait_for(self, records: int) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == f"{records}\n", f"expected to see {records} records, got {line!r}"


def _other_environment(directory: Path) -> tuple[Path, dict[str, str]]:
    """Install the clients from PyPI. Returns their Python, and why some are not there."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    missing = {}
    for client, package in PACKAGES.items():
        installed = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", package],
            capture_output=True,
            text=True,
            check=False,
        )
        if installed.returncode:
            missing[client] = _last_line(installed.stderr.splitlines())
    return python, missing


def _last_line(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.startswith("ERROR")), "pip could not install it")
