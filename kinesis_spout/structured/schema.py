"""The columns of a read: the six that every Kinesis source has, and the extra ones requested.

A table (``CREATE TABLE … USING kinesis OPTIONS (…)``) is read by its columns alone: Spark keeps its options,
but does not pass them on when it is queried. So a table's first column carries them, without secrets: every
user who sees a table sees its columns.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from kinesis_spout.model.columns import EXTRA_COLUMNS, RECORD_COLUMNS, as_arrow
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.option import Use
from kinesis_spout.settings.source_options.option_reader import OptionReader

_SPARK_TYPES: Final = {
    "string": StringType(),
    "binary": BinaryType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
}
_OPTIONS: Final = "kinesis.options"
"""The metadata key of a table's options, in its first column."""


def arrow_schema(extra_columns: Sequence[str] = ()) -> pa.Schema:
    """The columns as Arrow types, the extra ones last, in the order given."""
    return as_arrow(_with(extra_columns))


def _with(extra_columns: Sequence[str]) -> dict[str, str]:
    return RECORD_COLUMNS | {name: EXTRA_COLUMNS[name] for name in extra_columns}


def columns_of(options: Mapping[str, str]) -> StructType:
    """Spark asks before it says what the options are for, so options for any use are accepted here.

    Raises InvalidConfig: an option is unknown or given twice, its value is not what it takes, a column is not
    one of the extra ones, or a table is to keep a secret.
    """
    given = OptionReader(options, *Use)
    given.check_values()
    columns = _columns(given.extra_columns)
    if given.are_of_table:
        columns.fields[0].metadata = {_OPTIONS: json.dumps(given.to_keep())}
    return columns


def _columns(extra_columns: Sequence[str]) -> StructType:
    return StructType(
        [StructField(name, _SPARK_TYPES[type_]) for name, type_ in _with(extra_columns).items()]
    )


def check_columns(schema: StructType, extra_columns: Sequence[str]) -> None:
    """Refuse columns that the user has listed and that are not those of the read.

    Spark passes listed columns (``.schema(…)``, ``CREATE TABLE t (…)``) only when the read is planned. Raises
    InvalidConfig: names what was expected.
    """
    expected, got = _listed(_columns(extra_columns)), _listed(schema)
    if got != expected:
        raise InvalidConfig(
            f"expected the columns ({', '.join(expected)}), got ({', '.join(got)}): list no columns, neither in "
            'schema(...) nor in CREATE TABLE; choose and cast them in the query, as in selectExpr("cast(data as '
            'string)")'
        )


def _listed(columns: StructType) -> list[str]:
    return [f"{column.name} {column.dataType.simpleString()}" for column in columns]


def with_those_of_table(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Add a table's options to those of a read; those of the read win."""
    kept = schema.fields[0].metadata.get(_OPTIONS) if schema.fields else None
    of_table: dict[str, str] = {} if kept is None else json.loads(kept)
    written = {name.lower() for name in options}
    return {name: text for name, text in of_table.items() if name.lower() not in written} | dict(options)
