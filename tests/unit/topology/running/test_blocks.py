"""Tuples packed for another stage."""

from kinesis_spout.topology.components.tuples import Source
from kinesis_spout.topology.running.blocks import FULL_BLOCK, Parcel, TupleBlock
from kinesis_spout.topology.running.outbox import Outbox
from kinesis_spout.topology.running.stage_run import StageRun
from tests.scripted_topology import Scripted, begin

SOURCE = Source("bolt", "default", 7, ("value",))


def put(parcel: Parcel, value: object, root: int = 0, edge: int = 0) -> None:
    parcel.values.append((value,))
    parcel.roots.append(root)
    parcel.edges.append(edge)


def test_tuples_come_out_of_a_block_with_the_edges_they_had_in_no_tree_one_or_several() -> None:
    outbox = Outbox(2)
    parcel = outbox.parcel("sink", 3, SOURCE)
    put(parcel, "a")
    put(parcel, "b", 1, 2**64 - 1)
    parcel.others[2] = {3: 6, 4: 0}
    put(parcel, "c", 2**64 - 1, 5)
    put(parcel, "d", 9, 0)
    outbox.close()
    ((partition, block),) = outbox.take()
    assert partition == 1
    assert isinstance(block, TupleBlock)
    assert (block.component, block.index, block.source) == ("sink", 3, SOURCE)
    expected = [
        (("a",), 0, 0, None),
        (("b",), 1, 2**64 - 1, None),
        (("c",), 2**64 - 1, 5, {3: 6, 4: 0}),
        (("d",), 9, 0, None),
    ]
    assert list(block.tuples()) == expected
    outbox.close()
    assert outbox.take() == []
    assert list(block.tuples()) == expected


def test_what_is_for_one_task_leaves_in_blocks_that_are_full_and_a_last_one() -> None:
    builder = begin()
    builder.set_bolt("sink", Scripted()).global_grouping("numbers")
    run = StageRun(builder.build()._programs(4)["numbers"], 0, 0, lambda: 0.0)
    run.begin()
    for number in range(FULL_BLOCK):
        assert run.outbox.take() == []
        run.spout.emit_root((number,), 1)
    ((_, first),) = run.outbox.take()
    run.spout.emit_root(("last",), 1)
    run.finish()
    last, *_ = [block for _, block in run.outbox.take()]
    assert isinstance(first, TupleBlock)
    assert isinstance(last, TupleBlock)
    assert [values for values, *_ in first.tuples()] == [(number,) for number in range(FULL_BLOCK)]
    assert [values for values, *_ in last.tuples()] == [("last",)]


def test_what_a_stage_did_not_send_is_dropped_when_the_next_batch_begins() -> None:
    outbox = Outbox(1)
    put(outbox.parcel("sink", 0, SOURCE), 1)
    outbox.clear()
    outbox.close()
    assert outbox.take() == []
