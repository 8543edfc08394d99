"""From where the shards of a stream are read."""

import pytest

from shard_state import SHARD_START, Checkpoint, Position, SequenceNumber, StartPositions

NOW = 1_700_000_000.0
AFTER, TIME = Position.after(SequenceNumber(7)), Position.at_timestamp(5.5)


def test_a_shard_that_is_not_named_has_the_position_of_all_others() -> None:
    start = StartPositions(default=TIME, shards={"a": AFTER})
    assert (start.of_shard("a"), start.of_shard("b")) == (AFTER, TIME)
    assert start.every == (TIME, AFTER)


def test_latest_becomes_the_time_wherever_it_is_said() -> None:
    start = StartPositions(default=Position.latest(), shards={"a": AFTER, "b": Position.latest()})
    now = Position.at_timestamp(NOW)
    assert start.resolved(NOW) == StartPositions(default=now, shards={"a": AFTER, "b": now})


def test_what_is_written_is_read() -> None:
    start = StartPositions(default=TIME, shards={"a": AFTER, "b": Position.at(SequenceNumber(7, 3))})
    read = StartPositions.from_documents(start.default.as_document(), start.shards_as_document())
    assert read == start


def test_its_text_names_the_shards_with_positions_of_their_own() -> None:
    assert str(StartPositions(default=TIME)) == "AT_TIMESTAMP(5.5)"
    assert str(StartPositions(default=TIME, shards={"a": AFTER})) == (
        "a: AFTER_SEQUENCE_NUMBER(7), others: AT_TIMESTAMP(5.5)"
    )


@pytest.mark.parametrize(
    ("position", "start", "base"),
    [
        (TIME, TIME, SHARD_START),
        (AFTER, AFTER, SHARD_START),
        (Position.at(SequenceNumber(7, 0)), Position.at(SequenceNumber(7)), SHARD_START),
        (Position.at(SequenceNumber(7, 3)), Position.at(SequenceNumber(7)), SequenceNumber(7, 2)),
        (Position.after(SequenceNumber(7, 3)), Position.at(SequenceNumber(7)), SequenceNumber(7, 3)),
    ],
    ids=str,
)
def test_a_shard_that_begins_inside_an_aggregate_has_finished_what_is_before_it(
    position: Position, start: Position, base: SequenceNumber
) -> None:
    stored = Checkpoint.beginning_at(position, parents=("p",), epoch=4)
    assert stored == Checkpoint(start=start, base=base, parents=("p",), epoch=4)
    assert Checkpoint.decode(stored.encode()) == stored
