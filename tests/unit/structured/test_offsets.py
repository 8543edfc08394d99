import json
from dataclasses import replace

import pytest

from kinesis_spout.model.errors import CheckpointUnreadable
from kinesis_spout.structured.offsets import QueryOffset, ReadRange, ShardOffset, StreamOffset
from shard_state import Position, SequenceNumber

OFFSET = QueryOffset(
    streams={
        "orders": StreamOffset(
            created=1730000000.25,
            shards={
                "b": ShardOffset(position=Position.at_timestamp(1730000000.123), parents=("a",)),
                "a": ShardOffset(
                    position=Position.after(SequenceNumber(10**55 + 7)),
                    at_end=True,
                    read=ReadRange(first=SequenceNumber(10**55), rows=3),
                ),
                "c": ShardOffset(position=Position.at(SequenceNumber(5))),
            },
        )
    },
    unlogged=True,
    deaggregated=True,
)
STORED = (
    '{"version": 1, "streams": {"orders": {"created": 1730000000.25, "shards": {'
    '"a": {"after": "10000000000000000000000000000000000000000000000000000007", "drained": true, '
    '"read": {"first": "10000000000000000000000000000000000000000000000000000000", "rows": 3}}, '
    '"b": {"at": {"type": "AT_TIMESTAMP", "timestamp": 1730000000.123}, "parents": ["a"]}, '
    '"c": {"at": {"type": "AT_SEQUENCE_NUMBER", "sequence_number": "5"}}}}}, "unlogged": true, '
    '"deaggregated": true}'
)


def test_the_stored_form_stays_readable() -> None:
    assert QueryOffset.from_document(json.loads(STORED), ["orders"]) == OFFSET


def test_what_was_stored_before_aggregates_were_taken_apart_says_so() -> None:
    document = json.loads(STORED)
    del document["deaggregated"]

    assert QueryOffset.from_document(document, ["orders"]) == replace(OFFSET, deaggregated=False)


def test_the_text_is_always_the_same() -> None:
    assert json.dumps(OFFSET.as_document()) == STORED
    again = QueryOffset.from_document(json.loads(STORED), ["orders"])
    assert json.dumps(again.as_document()) == json.dumps(OFFSET.as_document())


def test_other_streams_in_the_options_are_refused() -> None:
    with pytest.raises(CheckpointUnreadable, match="checkpointLocation of its own"):
        QueryOffset.from_document(json.loads(STORED), ["orders", "bills"])


def test_the_offset_of_a_query_with_patterns_says_when_it_began() -> None:
    offset = replace(OFFSET, began=1730000001.5)
    text = json.dumps(offset.as_document())

    assert text == STORED.removesuffix("}") + ', "began": 1730000001.5}'
    assert QueryOffset.from_document(json.loads(text), ["ord*"]) == offset


@pytest.mark.parametrize("asked", [["ord*"], ["orders", "bills-*"], ["bills", "o?ders"]])
def test_a_pattern_may_find_other_streams_than_those_of_the_offset(asked: list[str]) -> None:
    assert QueryOffset.from_document(json.loads(STORED), asked) == OFFSET


@pytest.mark.parametrize("asked", [["bills-*"], ["bills", "order"], ["order?", "bills-*", "orders-*x"]])
def test_a_stream_of_the_offset_that_no_option_names_or_finds_is_refused(asked: list[str]) -> None:
    document = json.loads(STORED)
    document["streams"]["returns"] = document["streams"]["orders"]
    with pytest.raises(CheckpointUnreadable, match="expected the streams of the query's checkpoint"):
        QueryOffset.from_document(document, asked)


@pytest.mark.parametrize(
    "document", [None, {}, [], {"version": 1}, {"version": 1, "streams": {"orders": {}}}, "text", 7]
)
def test_what_is_no_offset_is_refused(document: object) -> None:
    with pytest.raises(CheckpointUnreadable, match="expected a Kinesis offset"):
        QueryOffset.from_document(document, ["orders"])


def test_children_wait_for_every_parent() -> None:
    start = Position.trim_horizon()
    parents = {
        "a": ShardOffset(position=start, at_end=True),
        "b": ShardOffset(position=start),
        "child": ShardOffset(position=start, parents=("a", "b")),
        "orphan": ShardOffset(position=start, parents=("trimmed",)),
    }
    assert StreamOffset(created=1.0, shards=parents).readable() == ["b", "orphan"]
