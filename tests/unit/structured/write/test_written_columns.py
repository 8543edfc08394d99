"""Columns are found and checked once, from the schema; values are the same from Arrow batches and from rows."""

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import StructType

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.structured.write.written_columns import RowValues, WrittenColumns

CYRILLIC = "\u041a\u043b\u044e\u0447"


def columns(
    *fields: tuple[str, str], partition_key: str | None = None, stream: str | None = "orders"
) -> WrittenColumns:
    schema = StructType()
    for name, kind in fields:
        schema.add(name, kind)
    return WrittenColumns.of(schema, partition_key=partition_key, stream=stream)


DATA, TEXT, KEY, HASH, STREAM = (
    ("data", "binary"),
    ("data", "string"),
    ("partitionKey", "string"),
    ("explicitHashKey", "string"),
    ("stream", "string"),
)


def test_values_come_from_arrow_batches_in_order_and_other_columns_are_not_read() -> None:
    batch = pa.record_batch(
        {
            "other": [1, 2],
            "partitionKey": ["a", None],
            "data": pa.array([b"\xff", None], pa.binary()),
            "explicitHashKey": [None, "7"],
        }
    )
    assert (
        list(columns(("other", "integer"), KEY, DATA, HASH).values([batch, batch]))
        == [
            RowValues("orders", "a", None, b"\xff"),
            RowValues("orders", None, "7", None),
        ]
        * 2
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_becomes_utf_8_whatever_arrow_calls_it(kind: pa.DataType) -> None:
    data = pa.array([CYRILLIC, None]).cast(kind)
    batch = pa.record_batch({"data": data, "partitionKey": ["a", "b"]})
    assert [values.data for values in columns(TEXT, KEY).values([batch])] == [CYRILLIC.encode(), None]


def test_more_rows_than_are_read_at_a_time_keep_their_order() -> None:
    keys = [str(number) for number in range(2_345)]
    batch = pa.record_batch({"data": keys, "partitionKey": keys})
    assert list(columns(TEXT, KEY).values([batch])) == [
        RowValues("orders", key, None, key.encode()) for key in keys
    ]


def test_rows_which_pyspark_4_0_gives_to_streaming_writers_say_the_same_as_batches() -> None:
    rows = [
        Row(data="text", partitionKey="a", stream="s", explicitHashKey=None),
        Row(data=bytearray(b"\xff"), partitionKey="b", stream="t", explicitHashKey="7"),
        Row(data=None, partitionKey=None, stream=None, explicitHashKey=None),
    ]
    assert list(columns(DATA, KEY, STREAM, HASH, stream=None).values(rows)) == [
        RowValues("s", "a", None, b"text"),
        RowValues("t", "b", "7", b"\xff"),
        RowValues(None, None, None, None),
    ]


def test_the_stream_of_the_options_goes_before_the_column() -> None:
    batch = pa.record_batch({"data": ["x"], "partitionKey": ["k"], "stream": ["where-it-was-read-from"]})
    assert [values.stream for values in columns(TEXT, KEY, STREAM).values([batch])] == ["orders"]
    assert [values.stream for values in columns(TEXT, KEY, STREAM, stream=None).values([batch])] == [
        "where-it-was-read-from"
    ]


def test_another_column_may_hold_the_key_and_case_does_not_matter() -> None:
    batch = pa.record_batch({"DATA": ["x"], "partitionKey": ["k"], "customer": ["c"]})
    found = columns(("DATA", "string"), KEY, ("Customer", "string"), partition_key="customer")
    assert [values.partition_key for values in found.values([batch])] == ["c"]


@pytest.mark.parametrize(
    ("fields", "partition_key", "stream", "message"),
    [
        (
            (KEY,),
            None,
            "s",
            "column 'data': expected binary or string.*, got only the columns .'partitionKey'.",
        ),
        ((DATA,), None, "s", "column 'partitionKey': expected string.*, got only the columns .'data'."),
        ((DATA, KEY), "customer", "s", "column 'customer': expected string.*, got only"),
        ((DATA, KEY), None, None, "column 'stream': expected string, or the option streamName"),
        ((("data", "long"), KEY), None, "s", "column 'data': expected binary or string, got bigint"),
        ((DATA, ("partitionKey", "long")), None, "s", "column 'partitionKey': expected string, got bigint"),
        (
            (DATA, KEY, ("explicitHashKey", "decimal(38,0)")),
            None,
            "s",
            "'explicitHashKey': expected string, got dec",
        ),
        ((DATA, KEY, ("stream", "integer")), None, None, "column 'stream': expected string, got int"),
        (
            (DATA, KEY, ("Data", "binary")),
            None,
            "s",
            r"column 'data': expected it once, got \['data', 'Data'\]",
        ),
    ],
)
def test_a_column_that_does_not_fit_is_an_error_that_names_it(
    fields: tuple[tuple[str, str], ...], partition_key: str | None, stream: str | None, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        columns(*fields, partition_key=partition_key, stream=stream)
