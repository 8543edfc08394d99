"""The values of a tuple that our spout emits for a record."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec
import pybase64

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record


class DataForm(StrEnum):
    """How a record's data travels: the protocol's JSON carries no bytes."""

    TEXT = "text"
    """As text; data that is not UTF-8 fails its record."""
    BASE64 = "base64"
    """Any data, as Base64 text."""
    JSON = "json"
    """As what the JSON in it says; data that is not JSON fails its record."""


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected data that is UTF-8 (the spout's --data is text), got byte 0x{data[error.start]:02x} at "
            f"{error.start}: use --data base64"
        ) from error


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"expected data that is JSON (the spout's --data is json), got: {error}") from error


def _base64(data: bytes) -> str:
    return pybase64.b64encode(data).decode("ascii")


_FORMS: Final[dict[DataForm, Callable[[bytes], Any]]] = {
    DataForm.TEXT: _text,
    DataForm.BASE64: _base64,
    DataForm.JSON: _json,
}

_OTHER_FIELDS: Final[dict[str, Callable[[Record], Any]]] = {
    "partition_key": lambda record: record.partition_key,
    "sequence_number": lambda record: record.sequence_number,
    "sub_sequence_number": lambda record: record.sub_sequence_number,
    "explicit_hash_key": lambda record: record.explicit_hash_key,
    "shard_id": lambda record: record.shard_id,
    "arrival_timestamp": lambda record: record.arrival_timestamp,
    "attempt": lambda record: record.attempt,
    "stream": lambda record: record.stream,
}

FIELDS: Final = ("partition_key", "data", "sequence_number", "shard_id", "arrival_timestamp")
"""What a tuple has unless other fields are chosen. The partition key and the arrival (seconds since the epoch) may
be null; the sequence number, of up to 129 digits, is text; the data is what ``DataForm`` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordValues:
    """A scheme: makes the list of a record's values.

    Raises:
        InvalidConfig: there is no such field, or one comes twice.
    """

    fields: tuple[str, ...] = FIELDS
    data: DataForm = DataForm.TEXT

    def __post_init__(self) -> None:
        allowed = ("data", *_OTHER_FIELDS)
        wrong = [name for name in self.fields if name not in allowed]
        if wrong or not self.fields or len(set(self.fields)) < len(self.fields):
            got = repr(wrong[0]) if wrong else repr(",".join(self.fields))
            raise InvalidConfig(f"--fields: expected some of {', '.join(allowed)}, each once, got {got}")

    def __call__(self, record: Record) -> list[Any]:
        """Give the values.

        Raises:
            ValueError: the data has not the form. That fails the record.
        """
        read = _FORMS[self.data]
        return [read(record.data) if name == "data" else _OTHER_FIELDS[name](record) for name in self.fields]
