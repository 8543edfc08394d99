"""What a tuple costs on its way through a topology: CPU of all processes, by the kind of way.

Every topology reads the same records of 100 bytes from 8 shards of one endpoint on loopback, in the way of
``backlog_reading``; Kinesis' own read limits are lifted. The first row is ``foreach_record`` with a handler
that does nothing: what is above it is the topology's.

Every row is checked: the spout acked exactly the records that were sent, and each bolt executed as many
tuples as it must.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from backlog_reading import (
    BYTEWAX,
    DEADLINE_SECONDS,
    Cost,
    Load,
    SourceQuery,
    cost_of,
    let_processes_import_benchmarks,
    other_environment,
)
from canned_backlog import WORDS
from canned_kinesis import CannedKinesis
from figures import Figure, ProcessTree, Step
from local_spark import local_session, spark_processes, spout_config
from other_services import other_services
from pyspark.sql import DataFrame, SparkSession
from read_limits import UNPACED_WORKERS, lift_read_limits
from topology_components import Ack, Count, CountWord, CountWords, Key, PassOn, Repeat, Split
from unpaced import UnpacedKinesis

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import CombinerBolt, ShellBolt, TopologyBuilder
from kinesis_spout.zookeeper import EmbeddedZooKeeper

SHARDS: Final = 8
SIZE_BYTES: Final = 100
CORES: Final = 2
HANDLER: Final = "foreach_record, nothing done"
PLAIN_SPARK: Final = "plain Spark, word count, 16 words"
_LOOK_EVERY_SECONDS: Final = 0.02
_BARE_CHILD: Final = Path(__file__).parent / "multilang_children" / "bare_bolt.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A topology, from the spout "orders" on."""

    wire: Callable[[TopologyBuilder], None] | None
    """None: no topology but a handler."""
    tuples: Mapping[str, int] = field(default_factory=dict)
    """How many tuples each bolt executes for each record."""
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    at_most: float | None = None
    """The goal, in µs of CPU a record."""
    kind: str = "orders"
    """Of records; see ``canned_backlog``."""
    peer: str = ""
    """What it must not cost more than; see ``PEERS``."""
    share: float = 1.0
    """Of the records; less where each costs much."""


def _fused(bolts: int) -> Callable[[TopologyBuilder], None]:
    def wire(builder: TopologyBuilder) -> None:
        before = "orders"
        for number in range(1, bolts):
            builder.set_bolt(f"pass{number}", PassOn(), CORES).shuffle_grouping(before)
            before = f"pass{number}"
        builder.set_bolt("end", Ack(), CORES).shuffle_grouping(before)

    return wire


def _tree(builder: TopologyBuilder) -> None:
    builder.set_bolt("repeat", Repeat(9), CORES).shuffle_grouping("orders")
    builder.set_bolt("end", Ack(), CORES).shuffle_grouping("repeat")


def _exchanged(builder: TopologyBuilder) -> None:
    builder.set_bolt("key", Key(), CORES).shuffle_grouping("orders")
    builder.set_bolt("end", Ack(), CORES).fields_grouping("key", ["key"])


def _counted(builder: TopologyBuilder) -> None:
    builder.set_bolt("key", Key(), CORES).shuffle_grouping("orders")
    builder.set_bolt("end", Count(), CORES).fields_grouping("key", ["key"])


def _split(builder: TopologyBuilder) -> None:
    builder.set_bolt("split", Split(), CORES).shuffle_grouping("orders")
    builder.set_bolt("count", CountWord(), CORES).fields_grouping("split", ["word"])


def _combined(builder: TopologyBuilder) -> None:
    builder.set_bolt("split", Split(), CORES).shuffle_grouping("orders")
    builder.set_bolt("tally", CombinerBolt(["word"]), CORES).shuffle_grouping("split")
    builder.set_bolt("count", CountWords(), CORES).fields_grouping("tally", ["word"])


def _shell(builder: TopologyBuilder) -> None:
    bare = ShellBolt([sys.executable, str(_BARE_CHILD), "--acks-only"])
    builder.set_bolt("end", bare, CORES).shuffle_grouping("orders")


WAYS: Final = {
    HANDLER: Way(wire=None),
    "1 fused bolt": Way(wire=_fused(1), tuples={"end": 1}, at_most=4.0),
    "1 fused bolt, no ackers": Way(wire=_fused(1), tuples={"end": 1}, options={"ackers": 0}),
    "3 fused bolts": Way(wire=_fused(3), tuples={"pass1": 1, "pass2": 1, "end": 1}),
    "trees of 10 tuples, fused": Way(wire=_tree, tuples={"repeat": 1, "end": 9}),
    "a fused bolt, then fields grouping": Way(wire=_exchanged, tuples={"key": 1, "end": 1}, at_most=6.0),
    "a fused bolt, then fields grouping, no ackers": Way(
        wire=_exchanged, tuples={"key": 1, "end": 1}, options={"ackers": 0}
    ),
    "a fused bolt, then fields grouping, Storm's ackers": Way(
        wire=_exchanged, tuples={"key": 1, "end": 1}, options={"ackers": CORES}
    ),
    "a fused bolt, then keyed state": Way(wire=_counted, tuples={"key": 1, "end": 1}, at_most=8.0),
    "word count, 16 words": Way(wire=_split, tuples={"split": 1, "count": WORDS}, kind="words", share=0.2),
    "word count, 16 words, combined first": Way(
        wire=_combined, tuples={"split": 1, "tally": WORDS}, kind="words", peer="words", share=0.2
    ),
    "1 shell bolt, a bare child": Way(wire=_shell, tuples={"end": 1}, share=0.1),
}

PEERS: Final = {
    "map": "bytewax, a fused step",
    "keyed": "bytewax, a step, then keyed state",
    "words": "bytewax, word count, 16 words",
}
"""What else runs tuples through Python and installs from PyPI, by its way in ``bytewax_flow``."""


def figures(*, quick: bool, only: Sequence[str] = ()) -> Iterator[Figure | Step]:
    known = {name for name in WAYS if not only or any(word in name for word in only)}
    load = Load(
        shards=SHARDS,
        size_bytes=SIZE_BYTES,
        records=320_000 if quick else 2_400_000,
        warm_up_records=160_000 if quick else 800_000,
    )
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        yield Step("starting Spark and ZooKeeper")
        let_processes_import_benchmarks()
        lift_read_limits()
        kinesis = stack.enter_context(CannedKinesis(stack.enter_context(other_services())))
        zookeeper = stack.enter_context(EmbeddedZooKeeper(Path(name) / "zookeeper"))
        spark = stack.enter_context(local_session(**UNPACED_WORKERS))
        costs: dict[str, Cost] = {}
        peers = {way: what for way, what in PEERS.items() if not only or any(word in what for word in only)}
        peer_micros: dict[str, float] = {}
        yield from _beside(peers, peer_micros, 200_000 if quick else 1_000_000)
        if not only or any(word in PLAIN_SPARK for word in only):
            yield Step(PLAIN_SPARK)
            yield _plain_spark(spark, kinesis, replace(load, kind="words"), Path(name) / "plain")
        for at, (what, way) in enumerate(WAYS.items()):
            if what not in known and what != HANDLER:
                continue
            yield Step(what)
            directory = Path(name) / str(at)
            part = replace(
                load,
                kind=way.kind,
                records=int(load.records * way.share),
                warm_up_records=int(load.warm_up_records * way.share),
            )
            config = spout_config(
                kinesis.settings,
                part.stream(f"way{at}"),
                directory,
                app=f"way{at}",
                zookeeper=zookeeper.connect_string,
                **way.settings,
            )
            with _Reading(KinesisSpout(config=config, scheme="text"), spark, way, directory) as reading:
                costs[what] = cost_of(reading, kinesis, f"way{at}", part)
            yield _figure(what, way, costs, peer_micros)


def _plain_spark(spark: SparkSession, kinesis: CannedKinesis, load: Load, directory: Path) -> Figure:
    """Count words as Spark does it itself: from ``format("kinesis")``, in each micro-batch."""
    part = replace(load, records=load.records // 5, warm_up_records=load.warm_up_records // 5)

    def count(batch: DataFrame, _number: int) -> None:
        words = batch.selectExpr("explode(split(cast(data AS STRING), ' ')) AS word")
        words.groupBy("word").count().write.format("noop").mode("append").save()

    spark.dataSource.register(UnpacedKinesis)
    with SourceQuery(spark, kinesis, part.stream("plain"), directory, count) as reading:
        cost = cost_of(reading, kinesis, "plain", part)
    return Figure(
        what=PLAIN_SPARK,
        value=cost.cpu_micros,
        unit="CPU s/million records",
        note=f"{cost.records_per_second:,.0f} records/s; each micro-batch by itself, no state is kept",
    )


def _beside(peers: Mapping[str, str], peer_micros: dict[str, float], tuples: int) -> Iterator[Figure | Step]:
    if not peers:
        return
    with tempfile.TemporaryDirectory() as name:
        yield Step(f"installing {BYTEWAX}")
        python, missing = other_environment(Path(name), [BYTEWAX])
        for way, what in peers.items():
            yield Step(what)
            note, cpu_micros = "tuples in memory, no stream is read; nothing is acked", None
            if missing:
                note = missing[BYTEWAX]
            else:
                cpu_micros = peer_micros[way] = _cpu_seconds_of_peer(python, way, tuples) * 1e6 / tuples
            yield Figure(what=what, value=cpu_micros, unit="CPU s/million records", note=note)


def _cpu_seconds_of_peer(python: Path, way: str, tuples: int) -> float:
    command = [str(python), str(Path(__file__).parent / "bytewax_flow.py"), way, str(tuples)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    return float(done.stdout)


def _figure(what: str, way: Way, costs: Mapping[str, Cost], peer_micros: Mapping[str, float]) -> Figure:
    cost, handler = costs[what], costs[HANDLER]
    tuples = sum(way.tuples.values())
    above = cost.cpu_micros - handler.cpu_micros
    notes = [f"{cost.records_per_second:,.0f} records/s"]
    if tuples:
        notes += [
            f"{cost.records_per_second * tuples:,.0f} tuples/s",
            f"{above:.2f} above the handler, {above / tuples:.2f} a tuple",
        ]
    peer = peer_micros.get(way.peer)
    return Figure(
        what=what,
        value=cost.cpu_micros,
        unit="CPU s/million records",
        reference="" if peer is None else PEERS[way.peer],
        ratio=None if peer is None else peer / cost.cpu_micros,
        cheaper_at_least=None if peer is None else 1.0,
        at_most=way.at_most,
        note="; ".join(notes),
    )


class _Reading(AbstractContextManager["_Reading"]):
    """A topology at work, or a handler, which ends with the block; see ``backlog_reading.Reading``."""

    def __init__(self, spout: KinesisSpout, spark: SparkSession, way: Way, directory: Path) -> None:
        self._way = way
        self._jvm: ProcessTree = spark_processes(spark)
        if way.wire is None:
            self._query: Any = spout.foreach_record(spark, _nothing)
            self._spout: Any = self._query
        else:
            builder = TopologyBuilder()
            builder.set_spout("orders", spout, fields=["order"])
            way.wire(builder)
            topology = builder.build("benchmark", state=str(directory / "state"), **way.options)
            self._query = topology.run(spark)
            self._spout = self._query.spouts["orders"]

    def __exit__(self, *_error: object) -> None:
        self._query.stop()

    def cpu_seconds(self) -> float:
        return time.process_time() + self._jvm.cpu_seconds()

    def wait_for(self, records: int) -> None:
        spout, deadline = self._spout, time.monotonic() + DEADLINE_SECONDS
        while spout.counters.acked < records:
            assert spout.isActive, str(spout.exception())
            assert time.monotonic() < deadline, f"expected {records} acks, got {spout.counters}"
            time.sleep(_LOOK_EVERY_SECONDS)
        assert spout.counters.acked == spout.counters.delivered == records, spout.counters
        if self._way.wire is not None:
            for component, tuples in self._way.tuples.items():
                executed = self._query.components[component].executed
                assert executed == records * tuples, (component, executed, records)


def _nothing(_record: Any) -> None:
    pass
