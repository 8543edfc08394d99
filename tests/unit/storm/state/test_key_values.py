"""The state as a bolt sees it, within a micro-batch and after it."""

import math
import pickle

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.state.key_values import PartitionState, task_of
from tests.support.storm.state_places import keys_of


def test_what_is_put_is_given_until_it_is_deleted() -> None:
    state = PartitionState(0, 1)
    assert state.get("a") is None
    assert state.get("a", 7) == 7
    state.put("a", [1])
    assert (state.get("a"), "a" in state, dict(state.items())) == ([1], True, {"a": [1]})
    state.delete("a")
    assert (state.get("a", 7), "a" in state, dict(state.items())) == (7, False, {})
    state.delete("never there")


def test_a_value_of_none_is_a_value() -> None:
    state = PartitionState(0, 1)
    state.put("a", None)
    assert (state.get("a", 7), "a" in state) == (None, True)


def test_keys_that_are_put_or_deleted_while_all_are_gone_through_come_once_as_they_were() -> None:
    state = PartitionState(0, 1)
    state.stored = {key: pickle.dumps(value) for key, value in {"a": 1, "b": 2}.items()}
    state.put("c", 3)
    seen = []
    for key, value in state.items():
        seen.append((key, value))
        state.put(key, value + 10)
        state.put(f"new {key}", value)
        state.delete("b")
    assert sorted(seen) == [("a", 1), ("b", 2), ("c", 3)]
    assert dict(state.items()) == {"a": 11, "c": 13, "new a": 1, "new b": 2, "new c": 3}


def test_one_value_and_a_tuple_of_it_are_the_same_key() -> None:
    state = PartitionState(0, 1)
    state.put(("a",), 1)
    assert (state.get("a"), state.get(("a",)), dict(state.items())) == (1, 1, {"a": 1})
    state.put("a", 2)
    assert state.get(("a",)) == 2


def test_a_single_value_that_is_a_tuple_is_another_key_than_several_values() -> None:
    state = PartitionState(0, 1)
    state.put((1, 2), "of two fields")
    state.put(((1, 2),), "of one field")
    assert (state.get((1, 2)), state.get(((1, 2),))) == ("of two fields", "of one field")


def test_keys_of_other_tasks_are_refused_by_every_call() -> None:
    state = PartitionState(0, 4)
    (foreign,) = keys_of(1, 4, 1)
    for call in (
        lambda: state.get(foreign),
        lambda: state.put(foreign, 1),
        lambda: state.delete(foreign),
        lambda: foreign in state,
    ):
        with pytest.raises(InvalidConfig, match=f"task 0 of 4, got '{foreign}', which is of task 1"):
            call()
    assert dict(state.items()) == {}


def test_keys_that_cannot_be_grouped_by_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="frozenset"):
        PartitionState(0, 1).put(frozenset(), 1)


def test_a_key_is_of_the_task_that_fields_grouping_sends_its_tuples_to() -> None:
    assert task_of("a", 8) == task_of(("a",), 8)
    assert task_of(1, 8) == task_of(1.0, 8) == task_of(True, 8)


def test_nan_is_no_key_because_it_is_never_found_again() -> None:
    state = PartitionState(0, 1)
    for key in (math.nan, ("a", math.nan)):
        with pytest.raises(InvalidConfig, match="expected a key that is equal to itself, got"):
            state.put(key, 1)
    assert dict(state.items()) == {}


def test_a_stored_value_is_asked_once_when_it_is_due_until_another_is_stored() -> None:
    asked: list[int] = []

    def due_at(value: int) -> float:
        asked.append(value)
        return value

    state = PartitionState(0, 1)
    state.stored = {key: pickle.dumps(value) for key, value in {"a": 1, "b": 2, "c": 3}.items()}
    assert state.due_keys(2, due_at) == ["a", "b"]
    assert asked == [1, 2, 3]

    assert state.due_keys(3, due_at) == ["a", "b", "c"]
    assert asked == [1, 2, 3]

    state.put("a", 7)
    state.delete("b")
    assert state.due_keys(3, due_at) == ["c"]
    assert state.due_keys(7, due_at) == ["a", "c"]
    state.forget_changes()
    assert state.due_keys(2, due_at) == ["a", "b"], "what was put and did not count is forgotten"
    del asked[:]

    state.apply({"a": pickle.dumps(5), "b": None, "d": pickle.dumps(6)})
    assert sorted(state.due_keys(5, due_at)) == ["a", "c"]
    assert sorted(asked) == [5, 6]
    assert set(state._due_at) == {"a", "c", "d"}
