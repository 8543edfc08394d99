import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record
from kinesis_spout.storm.multilang.kinesis_component import FIELDS, DataForm, RecordValues

RECORD = Record(
    data=b'{"a": [1, null]}',
    sequence_number="9" * 40,
    partition_key="key",
    arrival_timestamp=1.5,
    stream="orders",
    shard_id="shardId-000000000001",
    attempt=2,
)


def test_a_tuple_has_text_that_json_carries_in_the_order_that_is_declared() -> None:
    assert FIELDS == ("partition_key", "data", "sequence_number", "shard_id", "arrival_timestamp")
    assert RecordValues()(RECORD) == ["key", '{"a": [1, null]}', "9" * 40, "shardId-000000000001", 1.5]


def test_the_fields_may_be_chosen() -> None:
    assert RecordValues(fields=("attempt", "stream"))(RECORD) == [2, "orders"]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (DataForm.TEXT, '{"a": [1, null]}'),
        (DataForm.BASE64, "eyJhIjogWzEsIG51bGxdfQ=="),
        (DataForm.JSON, {"a": [1, None]}),
    ],
)
def test_data_travels_in_the_chosen_form(form: DataForm, value: object) -> None:
    assert RecordValues(fields=("data",), data=form)(RECORD) == [value]


@pytest.mark.parametrize(
    ("form", "data", "error"),
    [
        (
            DataForm.TEXT,
            b"ab\xff",
            "expected data that is UTF-8 (the spout's --data is text), got byte 0xff at 2",
        ),
        (
            DataForm.JSON,
            b"{",
            "expected JSON, got something else: Expecting property name",
        ),
        (DataForm.JSON, b'"\xff"', "expected JSON, got something else: "),
    ],
)
def test_data_of_another_form_fails_its_record_with_the_reason(
    form: DataForm, data: bytes, error: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at below
        RecordValues(data=form)(Record(data=data, sequence_number="1"))
    assert error in str(caught.value)


@pytest.mark.parametrize("fields", [("data", "colour"), ("data", "data"), ("",), ()])
def test_fields_that_cannot_be_are_refused(fields: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConfig, match=r"--fields: expected some of data, partition_key, .*, each once"):
        RecordValues(fields=fields)
