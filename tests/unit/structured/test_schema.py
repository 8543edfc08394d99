import pyarrow as pa
import pytest

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.kinesis import SCHEMA
from kinesis_spout.structured.schema import arrow_schema, columns_of

USUAL = (
    "partitionKey string, data binary, stream string, shardId string, sequenceNumber string, "
    "approximateArrivalTimestamp timestamp"
)


def test_the_usual_columns_are_those_of_every_kinesis_source() -> None:
    assert columns_of({"streamName": "orders"}) == USUAL
    assert arrow_schema() == SCHEMA


def test_extra_columns_come_last_in_the_order_asked_for() -> None:
    columns = columns_of({"streamName": "orders", "extracolumns": "millisBehindLatest,encryptionType"})
    schema = arrow_schema(("millisBehindLatest", "encryptionType"))

    assert columns == f"{USUAL}, millisBehindLatest bigint, encryptionType string"
    assert schema.names == [column.split(" ")[0] for column in columns.split(", ")]
    assert schema.types[-2:] == [pa.int64(), pa.string()]


@pytest.mark.parametrize(
    "options", [{"initialPosition": "latest"}, {"endingPosition": "latest"}, {"deadLetters": "/dead"}]
)
def test_options_of_any_use_have_columns(options: dict[str, str]) -> None:
    assert columns_of(options) == USUAL


@pytest.mark.parametrize("options", [{"streamNmae": "orders"}, {"path": "orders"}, {"extraColumns": "data"}])
def test_options_that_cannot_be_right_have_no_columns(options: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(options))):
        columns_of(options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("maxRecordsPerTrigger", "many"),
        ("minFetchPeriod", "1ms"),
        ("failOnDataLoss", "maybe"),
        ("initialPosition", "yesterday"),
        ("endingPosition", "trim_horizon"),
        ("endpointUrl", "localhost:4566"),
    ],
)
def test_a_wrong_value_is_refused_when_the_columns_are_asked_for_whatever_it_is_for(
    option: str, value: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"option {option}: "):
        columns_of({"streamName": "orders", option: value})


@pytest.mark.parametrize("beside", [{}, {"streamName": "orders", "extraColumns": "millisBehindLatest"}])
def test_the_options_of_a_table_are_read_like_any_others(beside: dict[str, str]) -> None:
    of_table = {"option.streamname": "orders", "option.extraColumns": "millisBehindLatest"}
    properties = {"provider": "kinesis", "owner": "root", "Location": "file:/x"}
    assert columns_of(of_table | properties | beside) == f"{USUAL}, millisBehindLatest bigint"
    with pytest.raises(InvalidConfig, match="provider"):
        columns_of({"streamName": "orders", "provider": "kinesis"})
