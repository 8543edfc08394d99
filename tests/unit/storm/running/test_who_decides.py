"""Histories of which only one of two knows: who held or failed a tuple, or the XOR of the edges."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kinesis_spout.storm import KeyValueState, StatefulBolt, Topology, Tuple
from kinesis_spout.storm.components.tuples import Source
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.blocks import AckBlock, Block, StageReport, TupleBlock
from kinesis_spout.storm.running.collecting import Output, TaskCollector
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.running.trees import NOBODY_SAID, Trees, acker_decides
from kinesis_spout.storm.state.key_values import PartitionState
from tests.support.storm.scripted_topology import Script, Scripted, acks, begin, holds, passes_on, singles

SOURCE = Source("bolt", "default", 7, ("value",))
HIGH, HIGHEST = 1 << 32, 1 << 63

Keyed = tuple[int, Block]
Way = Callable[[Iterable[Keyed]], Iterator[Keyed]]


def two_stages(first: Script, last: Script) -> Topology:
    builder = begin()
    builder.set_bolt("first", Scripted(first, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("last", Scripted(last), 2).fields_grouping("first", ["value"])
    return builder.build(partitions=1, ackers=1)


def in_pairs(bolt: Scripted, tup: Tuple) -> None:
    bolt.held.append(tup)
    if len(bolt.held) == 2:
        bolt.collector.emit((1,), bolt.held)
        for each in bolt.held:
            bolt.collector.ack(each)


def as_it_is(blocks: Iterable[Keyed]) -> Iterator[Keyed]:
    yield from blocks


def without_tuples(blocks: Iterable[Keyed]) -> Iterator[Keyed]:
    """Lose what travels, as an exchange would that loses a block, or a stage that takes none."""
    yield from ((to, block) for to, block in blocks if not isinstance(block, TupleBlock))


def without_other_roots(blocks: Iterable[Keyed]) -> Iterator[Keyed]:
    """Have tuples come as part of one of their trees only: an anchor is dropped on the way."""
    for to, block in blocks:
        yield to, replace(block, others={}) if isinstance(block, TupleBlock) else block


def ends_by_acker(blocks: Iterable[Block]) -> dict[int, TreeEnd]:
    ends: dict[int, TreeEnd] = {}
    for found in acker_decides(blocks):
        if isinstance(found, StageReport):
            ends.update(found.ends)
    return ends


def ran(topology: Topology, way: Way, roots: Sequence[int]) -> tuple[dict[int, TreeEnd], set[int]]:
    """Run a tuple for each root. Gives how trees ended by the acker, and which of them are held or failed."""
    program = topology._programs(1)["numbers"]
    stages = [StageRun(program, stage, 0, lambda: 0.0) for stage in range(2)]
    stages[0].begin()
    for number, root in enumerate(roots):
        stages[0].spout.emit_root((number,), root)
    stages[0].finish()
    blocks = [*stages[1].run(way(stages[0].outbox.take()))]
    return ends_by_acker(block for _, block in blocks), {
        root for stage in stages for root in stage.trees.opened
    }


def test_of_a_tuple_that_left_and_never_came_only_the_xor_knows() -> None:
    assert ran(two_stages(passes_on, acks), as_it_is, [HIGH, HIGHEST]) == ({}, set())
    ends, held = ran(two_stages(passes_on, acks), without_tuples, [HIGH, HIGHEST])
    assert held == set()
    assert ends == {HIGH: NOBODY_SAID, HIGHEST: NOBODY_SAID}


def test_of_a_tuple_that_came_without_one_of_its_anchors_only_the_xor_knows() -> None:
    assert ran(two_stages(in_pairs, acks), as_it_is, [5, 6]) == ({}, set())
    assert ran(two_stages(in_pairs, acks), without_other_roots, [5, 6]) == ({6: NOBODY_SAID}, set())


def test_of_a_tuple_that_came_and_was_not_acked_its_process_knows_and_tells_the_acker() -> None:
    ends, held = ran(two_stages(passes_on, holds), as_it_is, [5, 6])
    assert held == {5, 6}
    assert {(end.timed_out, end.component) for end in ends.values()} == {(True, "last")}


@pytest.mark.parametrize("edge", [HIGH, HIGHEST, HIGH | HIGHEST, 1])
def test_every_bit_of_an_edge_counts(edge: int) -> None:
    words = array("Q", [9]).tobytes()
    edges = array("Q", [edge]).tobytes()
    left = TupleBlock(component="last", index=0, source=SOURCE, values=b"", roots=words, edges=edges)
    trees = Trees(lambda: 0.0, 30.0)
    trees.tell(left)
    roots, values = trees.take()
    told = AckBlock(roots=roots.tobytes(), values=values.tobytes())
    assert ends_by_acker([told]) == {9: NOBODY_SAID}
    assert ends_by_acker([told, told]) == {}


def test_a_tuple_with_several_anchors_is_part_of_all_trees_of_each() -> None:
    sent: list[set[int]] = []

    def send(_: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
        sent.append({root, *(others or ())})

    collector = TaskCollector("bolt", Trees(lambda: 0.0, 30.0))
    collector.outputs["default"] = Output(1, to_all=[(1, send)])
    collector.outputs["pick"] = Output(1, direct=True, tasks={3: send})
    anchors = [Tuple((0,), SOURCE, 1, (2, 3)), Tuple((0,), SOURCE, 4), Tuple((0,), SOURCE, 5, (2, 6))]
    collector.emit((0,), anchors)
    collector.emit((0,), anchors[2:])
    collector.emit((0,), anchors[2])
    collector.emit_direct(3, (0,), anchors, "pick")
    assert sent == [{1, 2, 3, 4, 5, 6}, {5, 2, 6}, {5, 2, 6}, {1, 2, 3, 4, 5, 6}]


class Counts(StatefulBolt):
    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        self._state.put(tup[0], 1)
        self.collector.ack(tup)


def test_all_roots_of_a_tuple_that_changes_state_have_touched_it() -> None:
    builder = begin()
    builder.set_bolt("first", Scripted(in_pairs, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("count", Counts()).fields_grouping("first", ["value"])
    program = builder.build(partitions=1, ackers=1, state="/nowhere")._programs(1)["numbers"]
    sending = StageRun(program, 0, 0, lambda: 0.0)
    sending.begin()
    for root in (7, 8):
        sending.spout.emit_root((0,), root)
    sending.finish()
    counting = StageRun(program, 1, 0, lambda: 0.0)
    blocks = [*counting.run(sending.outbox.take(), lambda _, index: PartitionState(index, 1))]
    acked = [block for _, block in blocks if isinstance(block, AckBlock)]
    assert {root for block in acked for root in array("Q", block.touched)} == {7, 8}


def test_a_tuple_without_a_tree_that_cannot_travel_is_reported_by_its_component() -> None:
    def emits_what_cannot_be_pickled(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.emit((lambda: None,))
        bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt("first", Scripted(emits_what_cannot_be_pickled, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("last", Scripted(acks), 2).global_grouping("first")
    result = builder.build().run_local(singles(2))
    assert not result.failed
    assert result.counts["first"].errors == 2
    assert "pickled" in result.counts["first"].last_error
