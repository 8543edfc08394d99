"""Who decides trees: the acker, fed by tasks that XOR first, or those tasks, which report what they hold.

Both against trees of tuples written down in full, and against each other.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.model.handler import Failure
from kinesis_spout.storm.components.tuples import Source, Tuple
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.blocks import AckBlock, Block, Parcel, StageReport, TupleBlock
from kinesis_spout.storm.running.collecting import Output, TaskCollector
from kinesis_spout.storm.running.trees import Trees, acker_decides, acker_of, root_of, verdict_of

pytestmark = pytest.mark.no_second_run

ACKED, FAILED, FORGOTTEN, ACKED_TWICE, FAILED_AFTER_ACK = (
    "acked",
    "failed",
    "forgotten",
    "twice",
    "fail after ack",
)
FATES = (ACKED,) * 8 + (FAILED, FORGOTTEN, ACKED_TWICE, FAILED_AFTER_ACK)
ACKERS = 3
SOURCE = Source("any", "default", 1, ("value",))


@dataclass
class Drawn:
    """A tuple of the tree: which tuples it is anchored to, in which task it is handled, what becomes of it."""

    anchors: list[int]
    task: int
    fate: str
    roots: set[int] = field(default_factory=set)
    tup: Tuple | None = None


@st.composite
def forests(draw: st.DrawFn) -> tuple[int, list[Drawn]]:
    """Draw spouts' tuples first; each later one is anchored to any before it: none, one, several, one twice."""
    roots = draw(st.integers(1, 4))
    drawn = [Drawn([], draw(st.integers(0, 3)), draw(st.sampled_from(FATES))) for _ in range(roots)]
    for number in range(roots, roots + draw(st.integers(0, 25))):
        anchors = draw(st.lists(st.integers(0, number - 1), max_size=3))
        drawn.append(Drawn(anchors, draw(st.integers(0, 3)), draw(st.sampled_from(FATES))))
    return roots, drawn


class Tasks:
    """Four tasks, each with the trees of its own process, as they run bolts."""

    def __init__(self) -> None:
        self.trees = [Trees(lambda: 0.0, 30.0) for _ in range(4)]
        self.collectors = [TaskCollector(f"bolt {number}", trees) for number, trees in enumerate(self.trees)]
        self.sent: list[TupleBlock] = []
        for collector, trees in zip(self.collectors, self.trees, strict=True):
            parcel = Parcel("any", 0, SOURCE, collector.refused, trees.tell)
            collector.outputs["default"] = Output(1, to_all=[(1, partial(self.send, parcel))])

    def send(self, parcel: Parcel, values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
        parcel.values.append(values)
        parcel.roots.append(root)
        if others is not None:
            parcel.others[0] = others
        self.sent.append(parcel.block())
        parcel.clear()

    def take(self, task: int) -> Tuple:
        """Have what was sent come to a task, whose bolt holds it for now."""
        block = self.sent.pop()
        self.trees[task].tell(block)
        ((values, root, others),) = block.tuples()
        tup = Tuple(values, SOURCE, root, others, is_held=True)
        self.trees[task].count(tup.roots, 1)
        return tup

    def blocks(self) -> list[tuple[int, Block]]:
        """Give every message on its way to an acker, as small as it can be: one root each."""
        blocks: list[tuple[int, Block]] = []
        for trees in self.trees:
            values = dict(zip(*(words.tolist() for words in trees.take()), strict=True))
            for root in values.keys() | trees.ends.keys():
                known = [root] if root in values else []
                block = AckBlock(
                    roots=array("Q", known).tobytes(),
                    values=array("Q", [values[each] for each in known]).tobytes(),
                    ends={root: trees.ends[root]} if root in trees.ends else {},
                )
                blocks.append((acker_of(root, ACKERS), block))
        return blocks


def handle(tasks: Tasks, drawn: Drawn) -> None:
    collector, trees = tasks.collectors[drawn.task], tasks.trees[drawn.task]
    tup = drawn.tup
    assert tup is not None
    if drawn.fate in (ACKED, ACKED_TWICE, FAILED_AFTER_ACK):
        collector.ack(tup)
    if drawn.fate == ACKED_TWICE:
        collector.ack(tup)
    if drawn.fate in (FAILED, FAILED_AFTER_ACK):
        collector.fail(tup, "failed")
    if drawn.fate == FORGOTTEN:
        end = TreeEnd.after_time_out(Failure(error_text="forgotten"))
        for root in tup.roots:
            trees.end(root, end)


@given(forest=forests(), order=st.randoms(use_true_random=False), depth_first=st.booleans())
def test_a_tree_is_complete_if_and_only_if_every_tuple_of_it_was_acked(
    *, forest: tuple[int, list[Drawn]], order: Random, depth_first: bool
) -> None:
    count, drawn = forest
    tasks = Tasks()
    root_ids = [root_of(number, 0) for number in range(count)]
    for number in range(count):
        tasks.collectors[0].emit_root((0,), root_ids[number])
        drawn[number].tup = tasks.take(drawn[number].task)
        drawn[number].roots = {number}
    # Who emits holds its anchors open until all that is anchored to them is emitted; their acks are in any order.
    for each in drawn[count:]:
        anchors = [drawn[at].tup for at in each.anchors]
        emitter = tasks.collectors[drawn[each.anchors[0]].task if each.anchors else 0]
        emitter.emit((0,), [tup for tup in anchors if tup is not None])
        each.tup = tasks.take(each.task)
        each.roots = set().union(*(drawn[at].roots for at in each.anchors))
    handled = list(drawn)
    if not depth_first:
        order.shuffle(handled)
    for each in handled:
        handle(tasks, each)

    blocks = tasks.blocks()
    order.shuffle(blocks)
    of_ackers = [
        report
        for acker in range(ACKERS)
        for report in acker_decides(block for key, block in blocks if key == acker)
        if isinstance(report, StageReport)
    ]
    roots = [root for report in of_ackers for root in report.ends]
    assert len(set(roots)) == len(roots)
    found = {number: end for number, ends in verdict_of(of_ackers).ends.items() for end in ends.values()}

    reported = verdict_of(trees.report({}) for trees in tasks.trees)
    assert {number: end.timed_out for number, ends in reported.ends.items() for end in ends.values()} == {
        number: end.timed_out for number, end in found.items()
    }
    assert not reported.has_touched

    fates: dict[int, set[str]] = defaultdict(set)
    for each in drawn:
        for number in each.roots:
            fates[number].add(each.fate)
    times_out = {
        number: FAILED not in those for number, those in fates.items() if those & {FAILED, FORGOTTEN}
    }
    assert {number: end.timed_out for number, end in found.items()} == times_out
