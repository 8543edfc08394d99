"""What a process notes of trees that ackers decide: messages, in few bytes, that XOR to the right value."""

from collections import Counter

import pytest

from kinesis_spout.topology.acking import Acker
from kinesis_spout.topology.running import trees as module
from kinesis_spout.topology.running.trees import ToldTrees


def told(trees: ToldTrees) -> Acker:
    acker = Acker()
    roots, values = trees.take()
    acker.tell_all(roots.tobytes(), values.tobytes())
    return acker


def new_trees() -> ToldTrees:
    trees = ToldTrees(lambda: 0.0, 30.0)
    trees.begin()
    return trees


def handle(trees: ToldTrees, root: int, *values: int) -> bool:
    trees.current = root
    for value in values:
        trees.tell(root, None, value)
    return trees.leave()


def test_a_tree_that_ends_where_it_began_leaves_no_message() -> None:
    trees = new_trees()
    assert handle(trees, 7, 5, 5) is False
    assert len(trees.take()[0]) == 0


def test_what_is_done_to_a_tree_at_several_times_is_put_together_by_its_acker() -> None:
    trees = new_trees()
    assert handle(trees, 7, 5) is True
    trees.tell(8, None, 3)
    trees.tell(7, None, 4)
    acker = told(trees)
    assert (acker.value(7), acker.value(8)) == (5 ^ 4, 3)


def test_an_edge_of_several_trees_is_told_of_each_whichever_is_at_hand() -> None:
    trees = new_trees()
    trees.current = 8
    trees.tell(7, (8, 9), 5)
    assert trees.leave() is True
    acker = told(trees)
    assert [acker.value(root) for root in (7, 8, 9)] == [5, 5, 5]


def test_a_tree_with_a_tuple_here_that_is_not_acked_is_told_as_open_whatever_edges_cancel_out() -> None:
    trees = new_trees()
    trees.count((7, 8), 1)
    trees.count((8,), 1)
    assert handle(trees, 7, 5, 5) is True
    trees.count((8,), -1)
    acker = told(trees)
    assert acker.value(7) != 0
    assert acker.value(8) != 0


def test_a_tree_whose_tuples_here_are_all_acked_leaves_no_message() -> None:
    trees = new_trees()
    trees.count((7, 8), 1)
    assert handle(trees, 7) is True
    trees.count((8, 7), -1)
    assert len(trees.take()[0]) == 0


def test_messages_taken_are_told_once() -> None:
    trees = new_trees()
    handle(trees, 7, 5)
    assert len(trees.take()[0]) == 1
    assert len(trees.take()[0]) == 0


def test_a_new_micro_batch_knows_nothing_of_the_one_before() -> None:
    trees = new_trees()
    handle(trees, 7, 5)
    trees.begin()
    assert len(trees.take()[0]) == 0


def test_trees_of_many_tuples_take_no_more_room_than_trees_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FOLD_AT", 100)
    trees, expected = new_trees(), Counter[int]()
    for number in range(5_000):
        root, value = 1 + number % 10, 1 + number % 97
        trees.tell(root, None, value)
        expected[root] ^= value
        trees.fold()
        assert len(trees._roots) < 100
        assert len(trees._folded) <= 10
    acker = told(trees)
    assert {root: acker.value(root) for root in expected} == dict(expected)
