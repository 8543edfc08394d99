"""Tuples packed for another stage."""

from typing import Any

from kinesis_spout.topology.components.tuples import Source
from kinesis_spout.topology.running.blocks import FULL_BLOCK, TupleBlock
from kinesis_spout.topology.running.outbox import Outbox

SOURCE = Source("bolt", "default", 7, ("value",))


def sent(block: TupleBlock) -> list[tuple[Any, dict[int, int]]]:
    found: list[tuple[Any, dict[int, int]]] = []
    block.send(lambda values, edges: found.append((values, edges)))
    return found


def test_tuples_come_out_of_a_block_with_the_edges_they_had_in_no_tree_one_or_several() -> None:
    outbox = Outbox(2)
    parcel = outbox.parcel("sink", 3, SOURCE)
    put = [(("a",), {}), (("b",), {1: 2**64 - 1}), (("c",), {2**64 - 1: 5, 3: 6}), (["d"], {4: 0})]
    for values, edges in put:
        assert not parcel.add(values, edges)
    outbox.close()
    ((partition, block),) = outbox.take()
    assert partition == 1
    assert isinstance(block, TupleBlock)
    assert (block.component, block.index, block.source) == ("sink", 3, SOURCE)
    assert sent(block) == put
    outbox.close()
    assert outbox.take() == []


def test_a_parcel_is_full_at_the_size_of_a_block_and_begins_anew() -> None:
    outbox = Outbox(1)
    parcel = outbox.parcel("sink", 0, SOURCE)
    for number in range(FULL_BLOCK + 1):
        if parcel.add((number,), {1: number}):
            outbox.send(parcel)
    outbox.close()
    blocks = [block for _, block in outbox.take() if isinstance(block, TupleBlock)]
    assert [len(sent(block)) for block in blocks] == [FULL_BLOCK, 1]
    assert sent(blocks[1]) == [((FULL_BLOCK,), {1: FULL_BLOCK})]


def test_what_a_stage_did_not_send_is_dropped_when_the_next_batch_begins() -> None:
    outbox = Outbox(1)
    outbox.parcel("sink", 0, SOURCE).add((1,), {})
    outbox.clear()
    outbox.close()
    assert outbox.take() == []
