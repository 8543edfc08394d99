import pytest

from shard_state import SHARD_START, Position, PositionType, SequenceNumber


def test_latest_is_resolved_to_the_time_of_the_start() -> None:
    assert Position.latest().resolved(12.5) == Position.at_timestamp(12.5)


@pytest.mark.parametrize(
    "position",
    [
        Position.trim_horizon(),
        Position.at_timestamp(3.0),
        Position.at(SequenceNumber(5)),
        Position.after(SequenceNumber(5)),
    ],
)
def test_every_other_position_is_resolved_already(position: Position) -> None:
    assert position.resolved(12.5) == position


def test_reading_goes_on_after_the_last_finished_record() -> None:
    assert Position.at_timestamp(3.0).advanced_to(SequenceNumber(5)) == Position.after(SequenceNumber(5))


def test_reading_begins_at_the_start_while_nothing_is_finished() -> None:
    assert Position.at_timestamp(3.0).advanced_to(SHARD_START) == Position.at_timestamp(3.0)


def test_after_a_user_record_its_aggregate_is_read_again() -> None:
    inside = SequenceNumber(5, 2)
    assert Position.after(inside) == Position.at(inside)
    assert Position.after(SequenceNumber(5)).type is PositionType.AFTER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (Position.trim_horizon(), "TRIM_HORIZON"),
        (Position.at_timestamp(3.0), "AT_TIMESTAMP(3.0)"),
        (Position.at(SequenceNumber(5, 2)), "AT_SEQUENCE_NUMBER(5:2)"),
    ],
)
def test_a_position_reads_well_in_a_message(position: Position, text: str) -> None:
    assert str(position) == text
