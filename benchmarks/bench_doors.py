"""What a record costs at each door, with a handler that does little: CPU of all processes.

All clients read the same orders (JSON of 100 bytes, 1 KB and 10 KB) from 8 shards of one endpoint on loopback,
over plain HTTP and over TLS, in the way of ``backlog_reading``. Kinesis' own read limits are lifted for all but
kcl-rs; see ``read_limits``. The JVM compiles for millions of records, so every door reads as many before the
first figure.

Every row is checked: the handlers of a door were called for exactly the records that were sent, and the spout
acked as many. Otherwise the benchmark fails.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import door_handlers
from backlog_reading import (
    DEADLINE_SECONDS,
    PAGE,
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
from certificates import Certificates, make_certificates
from figures import Figure, ProcessTree, Step
from local_spark import local_session, spark_processes, spout_config
from other_services import other_services
from pyspark.sql import SparkSession
from read_limits import UNPACED_WORKERS, lift_read_limits
from unpaced import UnpacedKinesis

from kinesis_spout import KinesisSpout
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.sessions import LOCAL_CHECKPOINTS
from kinesis_spout.zookeeper import EmbeddedZooKeeper

SHARDS: Final = 8
SIZES: Final = (100, 1024, 10_240)
_PAGE_BYTES: Final = 10 * 1024 * 1024
"""AWS: the most that one GetRecords returns."""
_USUAL: Final = 1024
TRANSPORTS: Final = ("http", "tls")
CHEAPER_THAN_BOTO3: Final = 8.0
"""The goal of ``foreach_record`` at 1 KB."""
CHEAPER_THAN_RUST: Final = 3.0
GOAL_OF_FOREACH_BATCH: Final = 1.2
"""How many times as dear as ``format("kinesis")`` with ``foreachBatch`` it may be."""
_PARSING: Final = ", json.loads"
"""Behind the name of another client that parses what it reads."""
_LOOK_EVERY_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A way to consume."""

    what: str
    start: Callable[[KinesisSpout, SparkSession], SpoutQuery] | None
    """None: ``format("kinesis")`` with ``foreachBatch``."""
    scheme: str = "raw"
    suffix: str = ""
    """Of the clients that do the same work."""


FOREACH_RECORD: Final = "foreach_record"
FOREACH_BATCH: Final = "foreach_batch"
FORMAT: Final = "format"
DOORS: Final = {
    FOREACH_RECORD: Door(
        what="foreach_record",
        start=lambda spout, spark: spout.foreach_record(spark, door_handlers.look),
    ),
    "foreach_record_json": Door(
        what="foreach_record, json.loads",
        start=lambda spout, spark: spout.foreach_record(spark, door_handlers.parse),
        suffix=_PARSING,
    ),
    "foreach_record_scheme": Door(
        what='foreach_record, scheme="json"',
        start=lambda spout, spark: spout.foreach_record(spark, door_handlers.take_parsed),
        scheme="json",
        suffix=_PARSING,
    ),
    "foreach_arrow": Door(
        what="foreach_arrow",
        start=lambda spout, spark: spout.foreach_arrow(spark, door_handlers.look_at_rows),
    ),
    FOREACH_BATCH: Door(
        what="foreach_batch, count",
        start=lambda spout, spark: spout.foreach_batch(spark, door_handlers.count_rows),
    ),
    FORMAT: Door(what='format("kinesis"), foreachBatch, count', start=None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How many records are read, at least one page of each shard."""

    first: int
    """By each door before the first figure: the JVM goes on compiling for millions."""
    warm_up: int
    """By every client before each of its figures."""
    measured: int
    measured_of_others: int
    """By boto3 and kcl-rs, of which boto3 is slow."""


FULL: Final = Amounts(first=1_200_000, warm_up=400_000, measured=2_400_000, measured_of_others=240_000)
QUICK: Final = Amounts(first=0, warm_up=80_000, measured=160_000, measured_of_others=80_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is measured; boto3 is always."""

    doors: Mapping[str, Door]
    rust: bool
    sizes: Sequence[int]
    transports: Sequence[str]

    @classmethod
    def of(cls, words: Sequence[str], *, quick: bool) -> "Selection":
        """Read the words behind the benchmark's name. What is not named is not narrowed down.

        Raises:
            ValueError: a word is none of them.
        """
        known = [*DOORS, RUST, *map(str, SIZES), *TRANSPORTS]
        unknown = [word for word in words if word not in known]
        if unknown:
            raise ValueError(f"expected words among {', '.join(known)}, got {', '.join(unknown)}")
        doors = {name: door for name, door in DOORS.items() if name in words}
        return cls(
            doors=doors or DOORS,
            rust=RUST in words or not (doors or quick),
            sizes=[size for size in SIZES if str(size) in words] or ([_USUAL] if quick else SIZES),
            transports=[each for each in TRANSPORTS if each in words] or TRANSPORTS,
        )

    @property
    def others(self) -> list[str]:
        """The clients to compare with."""
        suffixes = sorted({door.suffix for door in self.doors.values()})
        return [name + suffix for name in [REFERENCE, *[RUST] * self.rust] for suffix in suffixes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where all run."""

    spark: SparkSession
    endpoints: Mapping[str, CannedKinesis]
    """By transport."""
    zookeeper: str
    directory: Path
    python: Path
    """Of the clients from PyPI."""
    environment: Mapping[str, str]
    """Of the clients in processes."""


def figures(*, quick: bool, only: Sequence[str] = ()) -> Iterator[Figure | Step]:
    selection, amounts = Selection.of(only, quick=quick), QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        python, missing = Path(sys.executable), {RUST: "not with --quick, nor where only doors are named"}
        if selection.rust:
            yield Step("installing kcl-rs")
            python, missing = other_environment(directory / "environment", [RUST])
        yield Step("starting Spark and ZooKeeper")
        place = _place(stack, directory, python, make_certificates(directory))
        if amounts.first:
            yield from _warmed_up(place, selection, amounts.first)
        for transport in selection.transports:
            for size_bytes in selection.sizes:
                yield from _compared(
                    place, selection, amounts, missing, transport=transport, size_bytes=size_bytes
                )


def _place(stack: ExitStack, directory: Path, python: Path, certificates: Certificates) -> Place:
    # The processes of Spark inherit it, and so do the tasks that read.
    os.environ["AWS_CA_BUNDLE"] = certificates.environment["AWS_CA_BUNDLE"]
    let_processes_import_benchmarks()
    lift_read_limits()
    beside = stack.enter_context(other_services())
    endpoints = {
        "http": stack.enter_context(CannedKinesis(beside)),
        "tls": stack.enter_context(CannedKinesis(beside, certificates)),
    }
    zookeeper = stack.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
    spark = stack.enter_context(local_session(**LOCAL_CHECKPOINTS, **UNPACED_WORKERS))
    spark.dataSource.register(UnpacedKinesis)
    return Place(
        spark=spark,
        endpoints=endpoints,
        zookeeper=zookeeper.connect_string,
        directory=directory,
        python=python,
        environment=certificates.environment,
    )


def _warmed_up(place: Place, selection: Selection, records: int) -> Iterator[Step]:
    """Have the JVM and the workers run through every door, before any is measured."""
    for at, (name, door) in enumerate(selection.doors.items()):
        load = _load(selection.sizes[0], 0, records)
        yield Step(f"warm-up {at + 1} of {len(selection.doors)}: {name}")
        kinesis = place.endpoints[selection.transports[0]]
        with _reading(place, kinesis, door, load.stream(f"first {name}"), f"first-{name}") as reading:
            reading.wait_for(load.records_in(load.warm_up_pages))


def _compared(
    place: Place,
    selection: Selection,
    amounts: Amounts,
    missing: Mapping[str, str],
    *,
    transport: str,
    size_bytes: int,
) -> Iterator[Figure | Step]:
    kinesis = place.endpoints[transport]
    of_doors = _load(size_bytes, amounts.measured, amounts.warm_up)
    of_others = _load(size_bytes, amounts.measured_of_others, amounts.warm_up)
    what = f"{size_bytes:,} B, {transport}"
    costs: dict[str, Cost] = {}
    with ExitStack() as stack:
        # kcl-rs spends up to a minute on its leases, so it begins first and is measured last.
        rust = {
            client: stack.enter_context(_process(place, place.python, kinesis, client, of_others))
            for client in selection.others
            if client.startswith(RUST) and RUST not in missing
        }
        for name, door in selection.doors.items():
            yield Step(f"{what}: {name}")
            app = f"{name}-{transport}"
            with _reading(place, kinesis, door, of_doors.stream(name), app) as reading:
                costs[name] = cost_of(reading, kinesis, name, of_doors)
        for client in selection.others:
            if client.startswith(REFERENCE):
                yield Step(f"{what}: {client}")
                with _process(place, Path(sys.executable), kinesis, client, of_others) as other:
                    costs[client] = cost_of(other, kinesis, client, of_others)
        for client, other in rust.items():
            yield Step(f"{what}: {client}")
            costs[client] = cost_of(other, kinesis, client, of_others)
    yield from _shown(what, selection, costs, missing)


def _load(size_bytes: int, records: int, warm_up_records: int) -> Load:
    """Of large records fewer, in pages of as many bytes as Kinesis gives."""
    page = min(PAGE, _PAGE_BYTES // size_bytes)
    return Load(
        shards=SHARDS,
        size_bytes=size_bytes,
        records=records * page // PAGE,
        warm_up_records=warm_up_records * page // PAGE,
        kind="orders",
        page=page,
    )


def _process(place: Place, python: Path, kinesis: CannedKinesis, client: str, load: Load) -> ClientProcess:
    return ClientProcess(python, kinesis, client, load, place.environment)


def _shown(
    what: str, selection: Selection, costs: Mapping[str, Cost], missing: Mapping[str, str]
) -> Iterator[Figure]:
    for name, door in selection.doors.items():
        reference, rust = REFERENCE + door.suffix, costs.get(RUST + door.suffix)
        beside = f"{rust.cpu_micros / costs[name].cpu_micros:.1f} times cheaper than kcl-rs" if rust else ""
        is_judged = name == FOREACH_RECORD and what.startswith(f"{_USUAL:,} B")
        yield _figure(
            f"{what}: {door.what}",
            costs[name],
            beside,
            reference,
            costs[reference],
            cheaper_at_least=CHEAPER_THAN_BOTO3 if is_judged else None,
        )
        if is_judged and rust:
            yield _figure(
                f"{what}: {door.what}",
                costs[name],
                reference=RUST,
                compared=rust,
                cheaper_at_least=CHEAPER_THAN_RUST,
            )
    if {FOREACH_BATCH, FORMAT} <= selection.doors.keys():
        yield _figure(
            f"{what}: {DOORS[FOREACH_BATCH].what}",
            costs[FOREACH_BATCH],
            f"at most {GOAL_OF_FOREACH_BATCH} times as dear",
            DOORS[FORMAT].what,
            costs[FORMAT],
            cheaper_at_least=round(1 / GOAL_OF_FOREACH_BATCH, 2),
        )
    for client in selection.others:
        if client in costs:
            yield _figure(f"{what}: {client}", costs[client])
    if RUST in missing:
        yield Figure(what=f"{what}: {RUST}", value=None, unit="", note=f"skipped: {missing[RUST]}")


def _figure(
    what: str,
    cost: Cost,
    note: str = "",
    reference: str = "",
    compared: Cost | None = None,
    *,
    cheaper_at_least: float | None = None,
) -> Figure:
    return Figure(
        what=what,
        value=cost.cpu_micros,
        unit="CPU s/million",
        reference=reference,
        ratio=compared.cpu_micros / cost.cpu_micros if compared else None,
        cheaper_at_least=cheaper_at_least,
        note="; ".join(filter(None, [f"{cost.records_per_second:,.0f} records/s", note])),
    )


def _reading(place: Place, kinesis: CannedKinesis, door: Door, stream: str, app: str) -> "_Checked":
    directory = place.directory / app
    if door.start is None:
        return _Checked(SourceQuery(place.spark, kinesis, stream, directory, door_handlers.count_rows))
    config = spout_config(kinesis.settings, stream, directory, app=app, zookeeper=place.zookeeper)
    query = door.start(KinesisSpout(config=config, scheme=door.scheme), place.spark)
    return _Checked(_SpoutReading(query, spark_processes(place.spark)))


class _SpoutReading(AbstractContextManager["_SpoutReading"]):
    """A query of the spout, which ends with the block; see ``Reading``."""

    def __init__(self, query: SpoutQuery, jvm: ProcessTree) -> None:
        self._query = query
        self._jvm = jvm

    def __exit__(self, *_error: object) -> None:
        self._query.stop()

    def cpu_seconds(self) -> float:
        return time.process_time() + self._jvm.cpu_seconds()

    def wait_for(self, records: int) -> None:
        query, deadline = self._query, time.monotonic() + DEADLINE_SECONDS
        while query.counters.acked < records:
            assert query.isActive, str(query.exception())  # it cannot be pickled itself
            assert time.monotonic() < deadline, f"expected {records} acks, got {query.counters}"
            time.sleep(_LOOK_EVERY_SECONDS)
        assert query.counters.acked == query.counters.delivered == records, query.counters


class _Checked(AbstractContextManager["_Checked"]):
    """A reading of which the handlers must be called for exactly the records that it says it has seen."""

    def __init__(self, reading: SourceQuery | _SpoutReading) -> None:
        self._reading = reading
        self._handled_before = door_handlers.handled()

    def __exit__(self, *error: object) -> None:
        self._reading.__exit__(*error)

    def cpu_seconds(self) -> float:
        return self._reading.cpu_seconds()

    def wait_for(self, records: int) -> None:
        self._reading.wait_for(records)
        handled = door_handlers.handled() - self._handled_before
        assert handled == records, f"expected the handlers to get {records} records, they got {handled}"
