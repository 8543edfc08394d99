"""Whole topologies in one process, drawn at random, against an oracle that follows every tuple by hand.

A spout's tuple is a number. What a bolt does with a tuple depends on that number and on the bolt only. So the
oracle can tell, without running anything, how often each bolt executes and how each spout's tuple ends.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_spout.storm import (
    Bolt,
    FailedException,
    OutputCollector,
    Stream,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from kinesis_spout.storm.builder import BoltDeclarer
from tests.support.storm.scripted_topology import Declared

pytestmark = pytest.mark.no_second_run

GROUPINGS = (
    "shuffle",
    "local_or_shuffle",
    "rebalance",
    "none",
    "fields",
    "partial_key",
    "all",
    "global",
    "custom",
    "direct",
)
FATES = ("ack",) * 7 + ("fail", "raise", "forget", "late")
"""What a bolt does with a tuple after it has emitted; "late" acks it at the flush, which is in time."""
TUPLES = 12


@dataclass(frozen=True)
class Drawn:
    """A bolt: where its tuples come from, and how it behaves."""

    number: int
    parallelism: int
    inputs: tuple[tuple[int, str], ...]
    """Which bolt (-1: the spout), by which grouping."""
    seed: int
    emits_late: bool
    """Whether it emits what comes of a "late" tuple at the flush, too."""

    def fate(self, value: int) -> str:
        fate = FATES[crc32(b"%d %d" % (self.seed, value)) % len(FATES)]
        return fate if crc32(b"%d %d" % (value, self.seed)) % 3 == 0 else "ack"

    def copies(self, value: int) -> int:
        """How many tuples it emits on each of its streams for one that it is given."""
        return (self.seed + value) % 3

    def anchors(self, value: int) -> bool:
        return (self.seed + 3 * value) % 5 != 0


class Chosen:
    """Chooses none, one or two tasks."""

    def choose_tasks(self, tasks: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        return list(tasks[: values[0] % 3])


class Behaves(Bolt):
    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn
        self._held: list[Tuple] = []

    def declare_output_fields(self) -> dict[str, Stream]:
        return {"default": Stream(("value",)), "pick": Stream(("value",), direct=True)}

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self._context = context

    def execute(self, tup: Tuple) -> None:
        fate = self._drawn.fate(tup[0])
        if not (fate == "late" and self._drawn.emits_late):
            self._emit(tup)
        match fate:
            case "ack":
                self.collector.ack(tup)
            case "fail":
                self.collector.fail(tup, "failed")
            case "raise":
                raise FailedException("raised")
            case "late":
                self._held.append(tup)

    def flush(self) -> None:
        held, self._held = self._held, []
        for tup in held:
            if self._drawn.emits_late:
                self._emit(tup)
            self.collector.ack(tup)

    def _emit(self, tup: Tuple) -> None:
        value = tup[0]
        anchors = tup if self._drawn.anchors(value) else ()
        for _ in range(self._drawn.copies(value)):
            self.collector.emit((value,), anchors)
            for target in self._context.targets["pick"]:
                tasks = self._context.tasks[target]
                self.collector.emit_direct(tasks[value % len(tasks)], (value,), anchors, "pick")


@st.composite
def topologies(draw: st.DrawFn) -> list[Drawn]:
    bolts: list[Drawn] = []
    for number in range(draw(st.integers(1, 6))):
        sources = draw(st.lists(st.integers(-1, number - 1), min_size=1, max_size=3, unique=True))
        inputs = [
            (source, draw(st.sampled_from(GROUPINGS[:-1] if source < 0 else GROUPINGS))) for source in sources
        ]
        bolts.append(
            Drawn(
                number=number,
                parallelism=draw(st.integers(1, 4)),
                inputs=tuple(inputs),
                seed=draw(st.integers(0, 10_000)),
                emits_late=draw(st.booleans()),
            )
        )
    return bolts


def wired(bolts: list[Drawn]) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("spout", Declared())
    for bolt in bolts:
        declarer = builder.set_bolt(f"bolt {bolt.number}", Behaves(bolt), bolt.parallelism)
        for source, grouping in bolt.inputs:
            subscribe(declarer, "spout" if source < 0 else f"bolt {source}", grouping)
    return builder


def subscribe(declarer: BoltDeclarer, source: str, grouping: str) -> None:
    match grouping:
        case "fields":
            declarer.fields_grouping(source, ["value"])
        case "partial_key":
            declarer.partial_key_grouping(source, ["value"])
        case "custom":
            declarer.custom_grouping(source, Chosen())
        case "direct":
            declarer.direct_grouping(source, "pick")
        case _:
            getattr(declarer, f"{grouping}_grouping")(source)


class Oracle:
    """Follows one spout's tuple through the graph."""

    def __init__(self, bolts: list[Drawn], value: int) -> None:
        self._bolts = bolts
        self._value = value
        self.executed: Counter[int] = Counter()
        self.ends: set[tuple[bool, str]] = set()
        """Every end that a tuple of the tree could give it."""
        self._send(-1, in_tree=True)

    def _send(self, source: int, *, in_tree: bool) -> None:
        for bolt in self._bolts:
            for each, grouping in bolt.inputs:
                if each == source:
                    for _ in range(receivers(grouping, bolt.parallelism, self._value)):
                        self._execute(bolt, in_tree=in_tree)

    def _execute(self, bolt: Drawn, *, in_tree: bool) -> None:
        self.executed[bolt.number] += 1
        for _ in range(bolt.copies(self._value)):
            self._send(bolt.number, in_tree=in_tree and bolt.anchors(self._value))
        if in_tree:
            name = f"bolt {bolt.number}"
            match bolt.fate(self._value):
                case "fail" | "raise":
                    self.ends.add((False, name))
                case "forget":
                    self.ends.add((True, name))


def receivers(grouping: str, parallelism: int, value: int) -> int:
    match grouping:
        case "all":
            return parallelism
        case "custom":
            return min(parallelism, value % 3)
        case _:
            return 1


@settings(max_examples=150)
@given(topologies(), st.sampled_from([0, None, 1, 3]), st.integers(1, 4), st.integers(1, 2))
def test_every_tuple_ends_as_its_tree_does_and_every_bolt_executes_as_often_as_it_is_given_one(
    bolts: list[Drawn], ackers: int | None, partitions: int, batches: int
) -> None:
    local = wired(bolts).build(ackers=ackers, partitions=partitions).local()
    oracles = [Oracle(bolts, value) for value in range(TUPLES)]
    for _ in range(batches):
        result = local.run([(value,) for value in range(TUPLES)])

        executed = sum((oracle.executed for oracle in oracles), Counter[int]())
        assert {
            bolt.number: result.counts[f"bolt {bolt.number}"].executed
            for bolt in bolts
            if executed[bolt.number]
        } == {number: times for number, times in executed.items() if times}
        if ackers == 0:
            assert result.failed == []
            continue
        failed = {values[0]: (end.timed_out, end.component) for values, end in result.failed}
        assert failed.keys() == {value for value, oracle in enumerate(oracles) if oracle.ends}
        for value, end in failed.items():
            ends = oracles[value].ends
            fails = {each for each in ends if not each[0]}
            assert end in (fails or ends)
        assert [values[0] for values in result.acked] == [
            value for value in range(TUPLES) if value not in failed
        ]
    local.close()
