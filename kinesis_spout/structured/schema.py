"""The columns of a read: the six that every Kinesis source has, and those asked for beside them."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from kinesis_spout.kinesis.arrow import EXTRA_COLUMNS, SCHEMA
from kinesis_spout.structured.options import Use
from kinesis_spout.structured.options.given import GivenOptions
from kinesis_spout.structured.options.reads import extra_columns

_SPARK_TYPES: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int64(): "bigint",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


def arrow_schema(extra_columns: Sequence[str] = ()) -> pa.Schema:
    """Give the columns as Arrow types, the extra ones last, in the order given."""
    return pa.schema([*SCHEMA, *(pa.field(name, EXTRA_COLUMNS[name]) for name in extra_columns)])


def columns_of(options: Mapping[str, str]) -> str:
    """Give the columns as DDL.

    Spark asks for them before it says what the options are for, so an option of any use is taken here.

    Raises:
        InvalidConfig: an option is unknown or given twice, its value is not what it takes, or a column is not
            one of the extra ones.
    """
    given = GivenOptions(options, *Use)
    given.check_values()
    schema = arrow_schema(extra_columns(given))
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)
