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
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backlog_reading import (
    ASYNC,
    PACKAGES,
    REFERENCE,
    RUST,
    ClientProcess,
    Cost,
    Load,
    SourceQuery,
    cost_of,
    let_processes_import_benchmarks,
    other_environment,
)
from canned_kinesis import CannedKinesis
from figures import Figure
from local_spark import local_session
from other_services import other_services
from pyspark.sql import SparkSession
from unpaced import UnpacedKinesis

from kinesis_spout.spark.sessions import LOCAL_CHECKPOINTS
from kinesis_spout.zookeeper import EmbeddedZooKeeper

SIZES = {100: 8.0, 1024: 4.0}
"""Bytes of a record, and how many times cheaper than the boto3 loop this source should be."""
SHARDS = (1, 8, 64)
OURS: Final = "this source"
OTHERS: Final = ("boto3", "spout", "async-kinesis")
"""In their order; kcl-rs comes last, because it spends half a minute on its leases first."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Where queries run."""

    spark: SparkSession
    kinesis: CannedKinesis
    checkpoints: Path


def figures(*, quick: bool) -> Iterator[Figure]:
    shards = (8,) if quick else SHARDS
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        place = Path(directory)
        python, missing = other_environment(place / "environment", [ASYNC, RUST])
        beside = stack.enter_context(other_services())
        kinesis = stack.enter_context(CannedKinesis(beside))
        zookeeper = stack.enter_context(EmbeddedZooKeeper(place / "zookeeper"))
        os.environ["BENCHMARK_ZOOKEEPER"] = zookeeper.connect_string
        let_processes_import_benchmarks()
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

    def process(client: str) -> ClientProcess:
        return ClientProcess(
            python if client in PACKAGES else Path(sys.executable), kinesis, client, load(client)
        )

    kinesis = session.kinesis
    costs = {}
    with ExitStack() as stack:
        if RUST not in missing:
            rust = stack.enter_context(process(RUST))
        with _query(session, load(OURS).stream(OURS)) as query:
            costs[OURS] = cost_of(query, kinesis, OURS, load(OURS))
        for client in OTHERS:
            if client not in missing:
                with process(client) as other:
                    costs[client] = cost_of(other, kinesis, client, load(client))
        if RUST not in missing:
            costs[RUST] = cost_of(rust, kinesis, RUST, load(RUST))
    return costs


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
    load = Load(shards=8, size_bytes=100, records=0, warm_up_records=_WARM_UP_RECORDS)
    records = load.records_in(load.warm_up_pages)
    with _query(session, load.stream("first")) as query:
        for step in range(1, 40):
            query.wait_for(records * step)
            session.kinesis.extend(load.stream("first"), load.warm_up_pages)


def _query(session: Session, stream: str) -> SourceQuery:
    return SourceQuery(session.spark, session.kinesis, stream, session.checkpoints)
