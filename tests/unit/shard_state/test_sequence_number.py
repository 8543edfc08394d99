import pytest

from shard_state import SHARD_END, SHARD_START, SequenceNumber
from shard_state.errors import InvalidSequenceNumber
from shard_state.sequence_number import MAX_DIGITS, WHOLE

LONGEST = "9" * 129


def test_sequence_numbers_are_compared_as_integers_not_as_text() -> None:
    assert SequenceNumber.parse("9") < SequenceNumber.parse("10")
    assert max("9", "10") == "9"
    assert sorted(map(SequenceNumber.parse, ("100", "99", "9"))) == [(9, WHOLE), (99, WHOLE), (100, WHOLE)]


def test_a_number_of_129_digits_is_read_and_written_in_full() -> None:
    longest = SequenceNumber.parse(LONGEST)
    assert str(longest) == longest.kinesis == LONGEST
    assert len(LONGEST) == MAX_DIGITS


def test_the_sentinels_enclose_every_number() -> None:
    assert SHARD_START < SequenceNumber.parse("0:0") < SequenceNumber.parse("0")
    assert SequenceNumber.parse(LONGEST) < SHARD_END


def test_user_records_of_an_aggregate_come_in_order_and_before_the_whole_of_it() -> None:
    texts = ["122", "123:0", "123:9", "123:10", "123", "124:0"]
    assert sorted(texts, key=SequenceNumber.parse) == texts


@pytest.mark.parametrize(
    "text", ["0", "123", "123:0", "123:4", LONGEST, f"{LONGEST}:7", "SHARD_START", "SHARD_END"]
)
def test_text_survives_a_round_trip(text: str) -> None:
    assert str(SequenceNumber.parse(text)) == text


def test_kinesis_is_given_the_number_without_the_sub_sequence_number() -> None:
    assert SequenceNumber.parse("123:4").kinesis == "123"


def test_only_a_record_of_its_own_is_whole() -> None:
    assert SequenceNumber.parse("123").is_whole
    assert not SequenceNumber.parse("123:0").is_whole


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "-1",
        "+1",
        "1.0",
        "1_000",
        "0x1",
        "LATEST",
        "shard_end",
        ":",
        "1:",
        ":1",
        "1:-1",
        "1:2:3",
        "\u0661",  # a digit to Python, not to Kinesis
        "1:\u0661",
        LONGEST + "9",
        LONGEST + "9:1",
        f"1:{WHOLE}",  # would read as the whole record
        "1:" + "9" * 5000,  # more digits than int() takes
    ],
)
def test_anything_else_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(InvalidSequenceNumber, match="expected a sequence number") as raised:
        SequenceNumber.parse(text)
    assert repr(text[:160]) in str(raised.value)
