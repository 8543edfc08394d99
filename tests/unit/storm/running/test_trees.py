"""What a process notes of trees that ackers decide: messages, in few bytes, that XOR to the right value."""

from array import array
from collections.abc import Mapping

from kinesis_spout.storm.components.tuples import Source
from kinesis_spout.storm.running.acking import Acker
from kinesis_spout.storm.running.blocks import TupleBlock
from kinesis_spout.storm.running.collecting import Output, TaskCollector
from kinesis_spout.storm.running.trees import Trees

SOURCE = Source("bolt", "default", 7, ("value",))


def value_of(acker: Acker, root: int) -> int:
    """Give the XOR of what was told of a root; 0 if it is complete, or unknown."""
    roots, values = acker.words()
    known: dict[int, int] = dict(zip(roots.tolist(), values.tolist(), strict=True))
    return known.get(root, 0)


def told(trees: Trees) -> Acker:
    acker = Acker()
    roots, values = trees.take()
    acker.tell_all(roots.tobytes(), values.tobytes())
    return acker


def new_trees() -> Trees:
    trees = Trees(lambda: 0.0, 30.0)
    trees.begin()
    return trees


def block(*edges: tuple[int, int], others: Mapping[int, tuple[int, ...]] | None = None) -> TupleBlock:
    """Make a block of tuples, each with a root and an edge."""
    roots, words = (array("Q", column).tobytes() for column in zip(*edges, strict=True))
    return TupleBlock(
        component="sink", index=0, source=SOURCE, values=b"", roots=roots, edges=words, others=others or {}
    )


def handle(trees: Trees, root: int, *, leaves: bool = False) -> bool:
    """Emit a spout's tuple whose bolt has one leave, or not."""

    def execute(*_: object) -> None:
        trees.has_left = trees.has_left or leaves

    collector = TaskCollector("spout", trees)
    collector.outputs["default"] = Output(1, to_all=[(1, execute)])
    return collector.emit_root((0,), root)


def test_a_tree_that_ends_where_it_began_leaves_no_message() -> None:
    trees = new_trees()
    assert handle(trees, 7) is False
    assert len(trees.take()[0]) == 0


def test_a_tree_is_open_if_one_of_its_tuples_has_left_and_the_next_one_is_not_for_that() -> None:
    trees = new_trees()
    assert handle(trees, 7, leaves=True) is True
    assert handle(trees, 8) is False


def test_a_tuple_that_is_part_of_no_tree_opens_none_when_it_leaves() -> None:
    assert handle(new_trees(), 0, leaves=True) is False


def test_what_is_done_to_a_tree_at_several_times_is_put_together_by_its_acker() -> None:
    trees = new_trees()
    trees.tell(block((7, 5), (8, 3)))
    trees.tell(block((7, 4)))
    acker = told(trees)
    assert (value_of(acker, 7), value_of(acker, 8)) == (5 ^ 4, 3)


def test_an_edge_that_leaves_where_it_has_come_to_cancels_out() -> None:
    trees = new_trees()
    trees.tell(block((7, 5), (8, 3)))
    trees.tell(block((8, 3), (7, 5)))
    assert len(trees.take()[0]) == 0


def test_an_edge_of_several_trees_is_told_of_each() -> None:
    trees = new_trees()
    trees.tell(block((6, 1), (7, 5), others={1: (8, 9)}))
    acker = told(trees)
    assert [value_of(acker, root) for root in (6, 7, 8, 9)] == [1, 5, 5, 5]


def test_of_tuples_without_trees_nothing_is_told() -> None:
    trees = new_trees()
    without = TupleBlock(component="sink", index=0, source=SOURCE, values=b"", roots=bytes(16), edges=b"")
    trees.tell(without)
    assert len(trees.take()[0]) == 0


def test_a_tree_with_a_tuple_here_that_is_not_acked_is_told_as_open_whatever_edges_cancel_out() -> None:
    trees = new_trees()
    trees.count((7, 8), 1)
    trees.count((8,), 1)
    trees.tell(block((7, 5), (7, 5)))
    assert handle(trees, 7) is True
    trees.count((8,), -1)
    acker = told(trees)
    assert value_of(acker, 7) != 0
    assert value_of(acker, 8) != 0


def test_a_tree_whose_tuples_here_are_all_acked_leaves_no_message() -> None:
    trees = new_trees()
    trees.count((7, 8), 1)
    assert handle(trees, 7) is True
    trees.count((8, 7), -1)
    assert len(trees.take()[0]) == 0


def test_messages_taken_are_told_once() -> None:
    trees = new_trees()
    trees.tell(block((7, 5)))
    assert len(trees.take()[0]) == 1
    assert len(trees.take()[0]) == 0


def test_a_new_micro_batch_knows_nothing_of_the_one_before() -> None:
    trees = new_trees()
    trees.tell(block((7, 5)))
    trees.has_left = True
    trees.begin()
    assert len(trees.take()[0]) == 0
    assert not trees.has_left
