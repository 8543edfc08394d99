"""What a record costs at ``foreach_record``, by the number of shards and by what its handler does with it.

JSON of 1 KB over plain HTTP, without Kinesis' read limits, as ``backlog_reading`` measures it. CPU is that of all
processes. The records that fail do so once, spread evenly, and are acked by their first retry. What one of them
costs is what a run with failures used beyond one without, by failed record.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import door_handlers
from backlog_reading import DEADLINE_SECONDS, Load, let_processes_import_benchmarks
from canned_kinesis import CannedKinesis
from figures import Figure, ProcessTree, Step
from local_spark import local_session, spark_processes, spout_config
from pyspark.sql import SparkSession
from read_limits import UNPACED_WORKERS, lift_read_limits

from kinesis_spout import KinesisSpout
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.sessions import LOCAL_CHECKPOINTS

SIZE_BYTES: Final = 1024
FEW: Final = 8
FAILED_GOAL_MICROS: Final = 40.0
FLAT_GOAL: Final = 1.1
"""How many times as dear a record of one or of many shards may be as one of few."""
_LOOK_EVERY_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row."""

    what: str
    load: Load
    failed_percent: int = 0
    """How many of 100 records fail at their first delivery."""

    @property
    def app(self) -> str:
        """The application's name, and the last part of the stream's."""
        return "".join(sign if sign.isalnum() else "_" for sign in self.what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one record, in microseconds of CPU."""

    driver: float
    beside: float
    """Of the JVM and its Python workers."""
    records_per_second: float

    @property
    def total(self) -> float:
        """Sum it up."""
        return self.driver + self.beside


def _load(shards: int, page: int, pages: int) -> Load:
    records = shards * page
    return Load(
        shards=shards,
        size_bytes=SIZE_BYTES,
        records=records * pages,
        warm_up_records=records,
        kind="orders",
        page=page,
    )


def _cases(*, quick: bool) -> dict[str, Case]:
    pages = 2 if quick else 10
    return {
        "1": Case(what="1 shard", load=_load(1, 10_000, pages * 8)),
        "8": Case(what="8 shards", load=_load(FEW, 10_000, pages)),
        "1000": Case(what="1,000 shards", load=_load(1000, 800, 1 if quick else 2)),
        "failed1": Case(what="1 % fail once", load=_load(FEW, 10_000, pages), failed_percent=1),
        "failed5": Case(what="5 % fail once", load=_load(FEW, 10_000, pages), failed_percent=5),
        "failed50": Case(
            what="50 % fail once", load=_load(FEW, 10_000, 1 if quick else 3), failed_percent=50
        ),
    }


def figures(*, quick: bool, only: Sequence[str] = ()) -> Iterator[Figure | Step]:
    cases = _cases(quick=quick)
    unknown = [word for word in only if word not in cases]
    if unknown:
        raise ValueError(f"expected words among {', '.join(cases)}, got {', '.join(unknown)}")
    chosen = {word: case for word, case in cases.items() if not only or word in (*only, "8")}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        yield Step("starting Spark")
        let_processes_import_benchmarks()
        lift_read_limits()
        kinesis = stack.enter_context(CannedKinesis())
        spark = stack.enter_context(local_session(**LOCAL_CHECKPOINTS, **UNPACED_WORKERS))
        bench = _Bench(spark, kinesis, Path(name))
        if not quick:
            yield Step("warm-up")
            bench.cost(Case(what="warm up", load=_load(FEW, 10_000, 12)))
        costs: dict[str, Cost] = {}
        for word, case in chosen.items():
            yield Step(case.what)
            costs[word] = bench.cost(case)
        yield from _shown(chosen, costs)


def _shown(cases: dict[str, Case], costs: dict[str, Cost]) -> Iterator[Figure]:
    few = costs["8"].total
    for word, case in cases.items():
        cost = costs[word]
        note = f"driver {cost.driver:.2f}, JVM and workers {cost.beside:.2f}"
        yield Figure(
            what=f"{case.what}: a record",
            value=cost.total,
            unit="CPU s/million",
            at_most=None if case.failed_percent or word == "8" else round(few * FLAT_GOAL, 2),
            note=f"{cost.records_per_second:,.0f} records/s, {note}",
        )
        if case.failed_percent:
            share = case.failed_percent / 100
            driver = (cost.driver - costs["8"].driver) / share
            yield Figure(
                what=f"{case.what}: a failure",
                value=(cost.total - few) / share,
                unit="CPU µs",
                at_most=FAILED_GOAL_MICROS,
                note=f"driver {driver:.1f}",
            )


class _Bench:
    """What all rows share."""

    def __init__(self, spark: SparkSession, kinesis: CannedKinesis, place: Path) -> None:
        self._spark = spark
        self._kinesis = kinesis
        self._place = place
        self._beside: ProcessTree = spark_processes(spark)

    def cost(self, case: Case) -> Cost:
        load, stream = case.load, case.load.stream(case.app)
        config = spout_config(self._kinesis.settings, stream, self._place, app=case.app)
        handler = (
            door_handlers.FailsAtFirst(case.failed_percent) if case.failed_percent else door_handlers.look
        )
        warm_up, measured = load.records_in(load.warm_up_pages), load.records_in(load.pages)
        with KinesisSpout(config=config).foreach_record(self._spark, handler) as query:
            _until_acked(query, warm_up)
            driver, beside, started = time.process_time(), self._beside.cpu_seconds(), time.perf_counter()
            self._kinesis.extend(stream, load.pages)
            _until_acked(query, warm_up + measured)
            seconds = time.perf_counter() - started
            cost = Cost(
                driver=(time.process_time() - driver) / measured * 1e6,
                beside=(self._beside.cpu_seconds() - beside) / measured * 1e6,
                records_per_second=measured / seconds,
            )
            failed = (warm_up + measured) * case.failed_percent // 100
            assert query.counters.retried == failed, (failed, query.counters)
        return cost


def _until_acked(query: SpoutQuery, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while query.counters.acked < count:
        assert query.isActive, str(query.exception())
        assert time.monotonic() < deadline, f"expected {count} acks, got {query.counters}"
        time.sleep(_LOOK_EVERY_SECONDS)
    assert query.counters.acked == count, query.counters
