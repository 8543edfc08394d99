"""Makes the tickets of records, after a look whether a stream can take them.

A record that no stream takes gets no ticket: one such record makes PutRecords refuse its whole call.
https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecordsRequestEntry.html
"""

from collections.abc import Iterable
from typing import Final

from kinesis_spout.kinesis.write.hash_key_ranges import is_hash_key
from kinesis_spout.kinesis.write.put_records import MAX_KEY_CHARACTERS, MAX_RECORD_BYTES
from kinesis_spout.model.errors import InvalidRecord
from kinesis_spout.model.record import TraceContext
from kinesis_spout.producer.tickets import BatchTicket, Ticket

PutRecord = tuple[bytes, str] | tuple[bytes, str, str | int | None]
"""A record for ``put_many``: its data, its partition key, and perhaps its explicit hash key."""

_LONGEST_SHOWN: Final = 50


def batch_of(records: Iterable[PutRecord], trace: TraceContext | None = None) -> BatchTicket:
    """Make the ticket of several records.

    Raises:
        InvalidRecord: no stream takes one of them. Names its place.
    """
    given = list(records)
    tickets = []
    for place, record in enumerate(given):
        try:
            tickets.append(ticket_of(*_three(record), trace))
        except InvalidRecord as error:
            raise InvalidRecord(f"record {place} of {len(given)}, counted from 0: {error}") from error
    return BatchTicket(tickets)


def _three(record: PutRecord) -> tuple[bytes, str, str | int | None]:
    match record:
        case (data, partition_key):
            return data, partition_key, None
        case (data, partition_key, explicit_hash_key):
            return data, partition_key, explicit_hash_key
    raise InvalidRecord(
        f"expected data and partition key, and perhaps explicit hash key, got {type(record).__name__}"
    )


def ticket_of(
    data: bytes, partition_key: str, explicit_hash_key: str | int | None, trace: TraceContext | None = None
) -> Ticket:
    """Make the ticket of a record; quickly, for the usual types."""
    if type(data) is bytes and type(partition_key) is str and explicit_hash_key is None:
        characters = len(partition_key)
        size_bytes = len(data) + characters
        if (
            0 < characters <= MAX_KEY_CHARACTERS
            and size_bytes <= MAX_RECORD_BYTES
            and partition_key.isascii()
        ):
            return Ticket(partition_key, data, None, 0, trace, size_bytes)
    return _checked(data, partition_key, explicit_hash_key, trace)


def _checked(
    data: object, partition_key: object, explicit_hash_key: object, trace: TraceContext | None
) -> Ticket:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidRecord(f"data: expected bytes, got {type(data).__name__}; encode it first")
    if not isinstance(partition_key, str):
        raise InvalidRecord(f"partition_key: expected text, got {type(partition_key).__name__}")
    if not 0 < len(partition_key) <= MAX_KEY_CHARACTERS:
        raise InvalidRecord(
            f"partition_key: expected 1 to {MAX_KEY_CHARACTERS} characters, got {len(partition_key)}"
        )
    try:
        key_bytes = len(partition_key.encode())
    except UnicodeEncodeError as error:
        raise InvalidRecord(
            "partition_key: expected text that UTF-8 can write, got half a surrogate pair"
        ) from error
    copied = bytes(data)
    size_bytes = len(copied) + key_bytes
    if size_bytes > MAX_RECORD_BYTES:
        raise InvalidRecord(
            f"data: expected at most {MAX_RECORD_BYTES} bytes together with the key, got {size_bytes}; split it, "
            "or put it elsewhere and send where it is"
        )
    # The text itself of a subclass, such as a StrEnum or a (str, Enum): its ``str`` may differ.
    return Ticket(str.__str__(partition_key), copied, _hash_key(explicit_hash_key), 0, trace, size_bytes)


def _hash_key(given: object) -> str | None:
    if given is None:
        return None
    text = ""
    if isinstance(given, str):
        text = str.__str__(given)
    elif isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 128:
        text = int.__repr__(given)
    if not is_hash_key(text):
        raise InvalidRecord(
            f"explicit_hash_key: expected a number from 0 to 2^128 - 1, got {_shown(given)!r}"
        )
    return text


def _shown(given: object) -> str:
    """Show the beginning of a value. Python refuses to write numbers of thousands of digits."""
    if isinstance(given, int) and given.bit_length() > 2 * 128:
        return f"one of {given.bit_length()} bits"
    return str(given)[:_LONGEST_SHOWN]
