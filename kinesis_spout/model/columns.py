"""The columns of a record in a DataFrame, as every Kinesis source for Spark has them: names, types, order."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

RECORD_COLUMNS: Final = {
    "partitionKey": "string",
    "data": "binary",
    "stream": "string",
    "shardId": "string",
    "sequenceNumber": "string",
    "approximateArrivalTimestamp": "timestamp",
}
"""Types are Spark's, by the names that SQL has for them."""
EXTRA_COLUMNS: Final = {
    "encryptionType": "string",
    "millisBehindLatest": "bigint",
    "subSequenceNumber": "bigint",
    "explicitHashKey": "string",
}
"""Further columns, for those who ask for them. The second is of the page: reading again may give another value.
The last two are of user records that came in an aggregated record, and null for others."""

HANDLED_COLUMNS: Final = RECORD_COLUMNS | {
    name: EXTRA_COLUMNS[name] for name in ("subSequenceNumber", "explicitHashKey")
}
"""The columns that a handler of DataFrames or Arrow batches is given. Rows that came in one aggregated record have
one ``sequenceNumber``, and are told apart by ``subSequenceNumber``."""

ARROW_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "bigint": pa.int64(),
}


def as_arrow(columns: Mapping[str, str]) -> pa.Schema:
    """Give columns, with Spark's types, as Arrow has them."""
    return pa.schema([(name, ARROW_TYPES[type_]) for name, type_ in columns.items()])


SCHEMA: Final = as_arrow(RECORD_COLUMNS)
HANDLED_SCHEMA: Final = as_arrow(HANDLED_COLUMNS)
