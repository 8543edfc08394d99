from collections.abc import Mapping

import pyarrow as pa
import pytest

from kinesis_spout.kinesis import SCHEMA
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.structured.schema import arrow_schema, columns_of, with_those_of_table

USUAL = (
    "partitionKey string, data binary, stream string, shardId string, sequenceNumber string, "
    "approximateArrivalTimestamp timestamp"
)


def ddl(options: Mapping[str, str]) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns_of(options))


def test_the_usual_columns_are_those_of_every_kinesis_source() -> None:
    assert ddl({"streamName": "orders"}) == USUAL
    assert arrow_schema() == SCHEMA


def test_extra_columns_come_last_in_the_order_asked_for() -> None:
    columns = ddl({"streamName": "orders", "extracolumns": "millisBehindLatest,encryptionType"})
    schema = arrow_schema(("millisBehindLatest", "encryptionType"))

    assert columns == f"{USUAL}, millisBehindLatest bigint, encryptionType string"
    assert schema.names == [column.split(" ")[0] for column in columns.split(", ")]
    assert schema.types[-2:] == [pa.int64(), pa.string()]


@pytest.mark.parametrize(
    "options", [{"initialPosition": "latest"}, {"endingPosition": "latest"}, {"deadLetters": "/dead"}]
)
def test_options_of_any_use_have_columns(options: dict[str, str]) -> None:
    assert ddl(options) == USUAL


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
def test_the_columns_of_a_table_carry_its_options_for_whoever_queries_it(beside: dict[str, str]) -> None:
    of_table = {"option.streamname": "orders", "option.extraColumns": "millisBehindLatest"}
    properties = {"provider": "kinesis", "owner": "root", "Location": "file:/x"}
    given = of_table | properties | beside
    assert ddl(given) == f"{USUAL}, millisBehindLatest bigint"
    kept = with_those_of_table({}, columns_of(given))
    assert kept == {"streamName": "orders", "extraColumns": "millisBehindLatest"}
    assert with_those_of_table({"STREAMNAME": "others"}, columns_of(given)) == {
        "STREAMNAME": "others",
        "extraColumns": "millisBehindLatest",
    }


def test_what_is_no_table_has_no_options_in_its_columns_and_no_properties() -> None:
    assert with_those_of_table({}, columns_of({"streamName": "orders"})) == {}
    with pytest.raises(InvalidConfig, match="provider"):
        columns_of({"streamName": "orders", "provider": "kinesis"})


def test_a_table_keeps_no_secret() -> None:
    with pytest.raises(InvalidConfig, match="option awsSecretKey: a table cannot keep a secret") as refused:
        columns_of({"option.streamName": "orders", "option.awsSecretKey": "hush"})
    assert "hush" not in str(refused.value)
