"""Tuples packed for another stage."""

from array import array
from collections.abc import Collection
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from kinesis_spout.storm import Tuple
from kinesis_spout.storm.components.tuples import Source
from kinesis_spout.storm.local import LocalResult
from kinesis_spout.storm.running.blocks import FULL_BLOCK, Parcel, StageOutbox, TupleBlock
from kinesis_spout.storm.running.stage_run import StageRun
from tests.support.storm.scripted_topology import Scripted, UnloadableError, begin, given, singles

SOURCE = Source("bolt", "default", 7, ("value",))


def refuses_none(roots: Collection[int], reason: str) -> None:
    raise AssertionError(f"{list(roots)}: {reason}")


def tells_nobody(_: TupleBlock) -> None:
    """Nobody looks at trees here."""


def put(parcel: Parcel, value: object, root: int = 0) -> None:
    parcel.values.append((value,))
    parcel.roots.append(root)


def test_tuples_come_out_of_a_block_with_their_trees_none_one_or_several() -> None:
    outbox = StageOutbox(2)
    told: list[TupleBlock] = []
    parcel = outbox.fill(Parcel("sink", 3, SOURCE, refuses_none, told.append))
    put(parcel, "a")
    put(parcel, "b", 1)
    parcel.others[2] = (3, 4)
    put(parcel, "c", 2**64 - 1)
    outbox.close()
    ((partition, block),) = outbox.take()
    assert partition == 1
    assert isinstance(block, TupleBlock)
    assert told == [block]
    assert (block.component, block.index, block.source) == ("sink", 3, SOURCE)
    expected = [(("a",), 0, None), (("b",), 1, None), (("c",), 2**64 - 1, (3, 4))]
    assert list(block.tuples()) == expected
    assert len(block.edges) == len(block.roots)
    outbox.close()
    assert outbox.take() == []
    assert list(block.tuples()) == expected


def test_the_edges_of_a_block_are_others_than_those_of_every_other_block() -> None:
    parcel = StageOutbox(1).fill(Parcel("sink", 0, SOURCE, refuses_none, tells_nobody))
    for number in range(100):
        put(parcel, number, 1)
    edges = [*array("Q", parcel.block().edges), *array("Q", parcel.block().edges)]
    assert len(set(edges)) == 200
    assert max(edges) >= 2**63 > min(edges)


def test_a_block_of_tuples_without_trees_has_no_edges() -> None:
    parcel = StageOutbox(1).fill(Parcel("sink", 0, SOURCE, refuses_none, tells_nobody))
    put(parcel, "a")
    block = parcel.block()
    assert (block.edges, list(block.tuples())) == (b"", [(("a",), 0, None)])


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
    outbox = StageOutbox(1)
    put(outbox.fill(Parcel("sink", 0, SOURCE, refuses_none, tells_nobody)), 1)
    outbox.clear()
    outbox.close()
    assert outbox.take() == []


UNFIT: dict[int, object] = {3: Lock(), 5: UnloadableError(4, "no"), 8: [lambda: None]}


def swaps_unfit(bolt: Scripted, tup: Tuple) -> None:
    bolt.collector.emit((UNFIT.get(tup[0], datetime(2026, 1, 1, tup[0], tzinfo=UTC)),), tup)
    bolt.collector.ack(tup)


def unfit_to_a_far_bolt(**options: Any) -> LocalResult:
    builder = begin()
    builder.set_bolt("swap", Scripted(swaps_unfit, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("sink", Scripted()).global_grouping("swap")
    return builder.build(**options).run_local(singles(10))


def test_a_value_that_cannot_travel_fails_its_tuple_alone_and_names_who_emitted_what() -> None:
    result = unfit_to_a_far_bolt()

    assert [values for values, _ in result.failed] == [(3,), (5,), (8,)]
    assert [end.component for _, end in result.failed] == ["swap"] * 3
    for reason, kind in zip(result.reasons, ["lock", "UnloadableError", "list"], strict=True):
        assert reason.startswith(
            "swap: stream 'default', field 'value': expected a value that can be pickled"
        )
        assert f"got {kind}" in reason
    assert len(given("sink")) == 7
    assert result.counts["swap"].errors == 3
    assert "got list" in result.counts["swap"].last_error


def test_a_value_that_cannot_travel_is_reported_where_nobody_waits_for_its_tuple() -> None:
    result = unfit_to_a_far_bolt(ackers=0)

    assert result.failed == []
    assert len(given("sink")) == 7
    assert result.counts["swap"].errors == 3
    assert "field 'value': expected a value that can be pickled" in result.counts["swap"].last_error


def test_a_value_that_cannot_travel_fails_all_trees_of_its_tuple_and_no_others() -> None:
    def pairs(bolt: Scripted, tup: Tuple) -> None:
        bolt.held.append(tup)
        if len(bolt.held) == 2:
            number = tup[0] // 2
            bolt.collector.emit((Lock() if number == 1 else number,), bolt.held)
            for held in bolt.held:
                bolt.collector.ack(held)
            bolt.held = []

    def fails_two(bolt: Scripted, tup: Tuple) -> None:
        if tup[0] == 2:
            bolt.collector.fail(tup, "two")
        else:
            bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt("pair", Scripted(pairs, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("sink", Scripted(fails_two)).global_grouping("pair")
    result = builder.build().run_local(singles(8))

    assert [values for values, _ in result.failed] == [(2,), (3,), (4,), (5,)]
    assert result.reasons[2:] == ["sink: two"] * 2
