"""What a tuple of a spout is made of."""

from typing import Any

import pytest

from kinesis_spout.model.record import Record
from kinesis_spout.storm.spark.tree_delivery import SpoutValues

RECORD = Record(data=b"", sequence_number="1", partition_key="key", shard_id="shard")


def values(made: Any, *fields: str) -> Any:
    return SpoutValues(lambda _: made, fields)(RECORD)


@pytest.mark.parametrize("made", ["text", [1, 2], {"a": 1}, None])
def test_for_one_field_the_value_is_what_the_scheme_makes_whatever_that_is(made: Any) -> None:
    assert values(made, "value") == (made,)


def test_of_a_mapping_the_fields_are_taken_by_their_names() -> None:
    assert values({"b": 2, "a": 1, "more": 3}, "a", "b") == [1, 2]


def test_of_a_sequence_the_fields_are_taken_by_their_places() -> None:
    assert list(values((1, 2), "a", "b")) == [1, 2]


@pytest.mark.parametrize("made", [(1, 2, 3), {"a": 1}, "ab", b"ab", 7])
def test_what_has_no_value_for_each_field_is_an_error_that_names_them(made: Any) -> None:
    with pytest.raises(
        ValueError, match=f"2 values of a record, for the fields a, b, got {type(made).__name__}"
    ):
        values(made, "a", "b")
