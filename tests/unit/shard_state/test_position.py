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
    after = Position.after(SequenceNumber(5, 2))
    assert (after.type, after.sequence_number) == (PositionType.AT_SEQUENCE_NUMBER, SequenceNumber(5, 2))
    assert Position.after(SequenceNumber(5)).type is PositionType.AFTER_SEQUENCE_NUMBER


def test_at_and_after_a_user_record_differ_in_whether_that_record_is_skipped() -> None:
    inside = SequenceNumber(5, 2)
    assert Position.after(inside) != Position.at(inside)
    assert included(Position.at(inside)) == ["5:2", "5:3", "5", "6:0", "6"]
    assert included(Position.after(inside)) == ["5:3", "5", "6:0", "6"]


def test_at_a_whole_record_includes_its_user_records_and_after_it_none_of_them() -> None:
    whole = SequenceNumber(5)
    assert included(Position.at(whole)) == ["5:0", "5:1", "5:2", "5:3", "5", "6:0", "6"]
    assert included(Position.after(whole)) == ["6:0", "6"]


@pytest.mark.parametrize("position", [Position.trim_horizon(), Position.latest(), Position.at_timestamp(3.0)])
def test_a_position_that_names_no_record_includes_all_that_is_read(position: Position) -> None:
    assert len(included(position)) == 9


@pytest.mark.parametrize(
    "position", [Position.at(SequenceNumber(5, 2)), Position.after(SequenceNumber(5, 2))]
)
def test_what_is_skipped_survives_being_stored(position: Position) -> None:
    assert Position.from_document(position.as_document()) == position


def test_an_older_release_reads_a_user_record_again_rather_than_skip_one() -> None:
    """It reads type and number only, and an older stored form has no more."""
    stored = Position.after(SequenceNumber(5, 2)).as_document()
    known = {name: stored[name] for name in ("type", "sequence_number")}
    assert known == {"type": "AT_SEQUENCE_NUMBER", "sequence_number": "5:2"}
    assert Position.from_document(known) == Position.at(SequenceNumber(5, 2))


def included(position: Position) -> list[str]:
    read = ["4:9", "4", "5:0", "5:1", "5:2", "5:3", "5", "6:0", "6"]
    return [text for text in read if position.includes(SequenceNumber.parse(text))]


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (Position.trim_horizon(), "TRIM_HORIZON"),
        (Position.at_timestamp(3.0), "AT_TIMESTAMP(3.0)"),
        (Position.at(SequenceNumber(5, 2)), "AT_SEQUENCE_NUMBER(5:2)"),
        (Position.after(SequenceNumber(5, 2)), "AFTER_SEQUENCE_NUMBER(5:2)"),
    ],
)
def test_a_position_reads_well_in_a_message(position: Position, text: str) -> None:
    assert str(position) == text
