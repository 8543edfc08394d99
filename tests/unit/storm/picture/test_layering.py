"""Boxes and arrows find places in columns."""

from itertools import pairwise

from kinesis_spout.storm.picture.layering import Layers, layers_of


def layers(columns: list[list[str]], arrows: list[tuple[str, str]]) -> Layers:
    heights = {name: 40.0 for column in columns for name in column}
    return layers_of(columns, arrows, heights, passing=2.0, apart=10.0)


def test_boxes_that_are_connected_crosswise_change_places() -> None:
    found = layers([["a", "b"], ["c", "d"]], [("a", "d"), ("b", "c")])
    places = {item: column.index(item) for column in found.columns for item in column}
    assert (places["a"] < places["b"]) == (places["d"] < places["c"])


def test_an_arrow_over_a_column_gets_a_place_beside_its_boxes() -> None:
    found = layers([["a"], ["b"], ["c"]], [("a", "b"), ("b", "c"), ("a", "c")])
    passed = found.paths[2][1]
    assert passed in found.columns[1]
    assert abs(found.middle[passed] - found.middle["b"]) >= 20 + 1 + 10


def test_a_chain_is_a_straight_line() -> None:
    found = layers([["a"], ["b"], ["c"]], [("a", "b"), ("b", "c")])
    assert all(abs(found.middle[one] - found.middle[other]) < 0.5 for one, other in pairwise("abc"))


def test_items_of_a_column_keep_their_distance_and_begin_at_the_top() -> None:
    found = layers([["a"], ["b", "c", "d"]], [("a", "b"), ("a", "c"), ("a", "d")])
    heights = sorted(found.middle[name] for name in "bcd")
    assert all(lower - upper >= 50 - 1e-6 for upper, lower in pairwise(heights))
    assert min(heights) == 20
