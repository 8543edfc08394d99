"""The columns of a DataFrame that are written to Kinesis, their values row by row, and the counts of a write."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType

from kinesis_spout.model.errors import InvalidConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

DATA: Final = "data"
PARTITION_KEY: Final = "partitionKey"
EXPLICIT_HASH_KEY: Final = "explicitHashKey"
STREAM: Final = "stream"

_ROWS_AT_A_TIME: Final = 1_000
"""The rows of an Arrow batch that are Python objects at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """The counts of one task, or of all of them."""

    records: int = 0
    """Rows that are on Kinesis."""
    size_bytes: int = 0
    """Their data and keys."""
    retried: int = 0
    """Rows that were put again: refused, in a call whose answer was lost, or overtaken by a resharding."""
    dead_lettered: int = 0
    """Rows that are dead letters instead."""

    @classmethod
    def sum_of(cls, parts: Iterable[WriterCommitMessage | None]) -> Self:
        """Add up what tasks reported; a task that failed reports None."""
        known = [part for part in parts if isinstance(part, Written)]
        return cls(
            records=sum(part.records for part in known),
            size_bytes=sum(part.size_bytes for part in known),
            retried=sum(part.retried for part in known),
            dead_lettered=sum(part.dead_lettered for part in known),
        )

    def __str__(self) -> str:
        return (
            f"{self.records} records ({self.size_bytes} bytes) on Kinesis, {self.retried} of them put again, "
            f"{self.dead_lettered} rows dead-lettered"
        )


class RowValues(NamedTuple):
    """The values of a row, unchecked."""

    stream: str | None
    partition_key: str | None
    explicit_hash_key: str | None
    data: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenColumns:
    """Column numbers of the values. Other columns are not written."""

    data: int
    partition_key: int
    explicit_hash_key: int | None
    stream: int | str
    """A column, or the one stream of all rows."""

    @classmethod
    def of(cls, schema: "StructType", *, partition_key: str | None, stream: str | None) -> Self:
        """Find the columns; names are compared without regard to case, as Spark compares them.

        ``partition_key`` names the column of the key, None: ``partitionKey``. ``stream`` is the stream of all
        rows, whatever a column ``stream`` says (a DataFrame that was read from Kinesis has one); None: go by
        that column. Raises InvalidConfig: a column is missing, is there twice, or has another type.
        """
        data = _column(schema, DATA, (BinaryType, StringType), "binary or string")
        key = _text_column(schema, partition_key or PARTITION_KEY)
        if data is None:
            raise _missing(schema, DATA, "binary or string: add it, for example with to_json")
        if key is None:
            raise _missing(schema, partition_key or PARTITION_KEY, "string: add it with withColumn")
        named = stream if stream is not None else _text_column(schema, STREAM)
        if named is None:
            raise _missing(schema, STREAM, "string, or the option streamName for all rows")
        return cls(
            data=data,
            partition_key=key,
            explicit_hash_key=_text_column(schema, EXPLICIT_HASH_KEY),
            stream=named,
        )

    def values(self, items: "Iterable[pa.RecordBatch | Row]") -> Iterator[RowValues]:
        for item in items:
            if isinstance(item, tuple):
                yield self._of_row(item)
            else:
                for start in range(0, item.num_rows, _ROWS_AT_A_TIME):
                    yield from self._of_batch(item.slice(start, _ROWS_AT_A_TIME))

    def _of_row(self, row: "tuple[Any, ...]") -> RowValues:
        data = row[self.data]
        return RowValues(
            self.stream if isinstance(self.stream, str) else row[self.stream],
            row[self.partition_key],
            None if self.explicit_hash_key is None else row[self.explicit_hash_key],
            data.encode() if isinstance(data, str) else None if data is None else bytes(data),
        )

    def _of_batch(self, batch: "pa.RecordBatch") -> Iterator[RowValues]:
        nothing = [None] * batch.num_rows
        return map(
            RowValues,
            [self.stream] * batch.num_rows
            if isinstance(self.stream, str)
            else batch.column(self.stream).to_pylist(),
            batch.column(self.partition_key).to_pylist(),
            nothing if self.explicit_hash_key is None else batch.column(self.explicit_hash_key).to_pylist(),
            _as_binary(batch.column(self.data)).to_pylist(),
        )


def _as_binary(column: "pa.Array") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - only tasks need it, and the driver starts a process for each batch

    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _text_column(schema: "StructType", name: str) -> int | None:
    return _column(schema, name, (StringType,), "string")


def _column(schema: "StructType", name: str, kinds: tuple[type[DataType], ...], expected: str) -> int | None:
    found = [number for number, field in enumerate(schema.fields) if field.name.lower() == name.lower()]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidConfig(
            f"column {name!r}: expected it once, got {[schema.fields[number].name for number in found]}; "
            "drop or rename the others"
        )
    kind = schema.fields[found[0]].dataType
    if not isinstance(kind, kinds):
        raise InvalidConfig(
            f"column {name!r}: expected {expected}, got {kind.simpleString()}; cast or encode it before the write"
        )
    return found[0]


def _missing(schema: "StructType", name: str, expected: str) -> InvalidConfig:
    return InvalidConfig(f"column {name!r}: expected {expected}, got only the columns {schema.fieldNames()}")
