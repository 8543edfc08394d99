"""The columns of a record in a DataFrame, as in every Kinesis source for Spark: names, types, order."""

from collections.abc import Mapping
from typing import Final

from kinesis_spout.model.extras import missing_extra

try:
    import pyarrow as pa
except ImportError as missing:
    raise missing_extra("Arrow columns", "arrow", ["pyarrow"]) from missing

RECORD_COLUMNS: Final = {
    "partitionKey": "string",
    "data": "binary",
    "stream": "string",
    "shardId": "string",
    "sequenceNumber": "string",
    "approximateArrivalTimestamp": "timestamp",
}
"""Types are Spark's, by their names in SQL."""
EXTRA_COLUMNS: Final = {
    "encryptionType": "string",
    "millisBehindLatest": "bigint",
    "subSequenceNumber": "bigint",
    "explicitHashKey": "string",
}
"""Further columns, on request. The second is of the page: reading again may give another value. The last two
are of user records that came in an aggregated record, and null for others."""

HANDLED_COLUMNS: Final = RECORD_COLUMNS | {
    name: EXTRA_COLUMNS[name] for name in ("subSequenceNumber", "explicitHashKey")
}
"""The columns that a handler of DataFrames or Arrow batches gets. Rows of one aggregated record share their
``sequenceNumber``, and differ in ``subSequenceNumber``."""

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
    """Convert columns with Spark's types to an Arrow schema."""
    return pa.schema([(name, ARROW_TYPES[type_]) for name, type_ in columns.items()])


SCHEMA: Final = as_arrow(RECORD_COLUMNS)
HANDLED_SCHEMA: Final = as_arrow(HANDLED_COLUMNS)
