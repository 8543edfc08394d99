"""What Kinesis never takes, seen before it is sent: one such record would make PutRecords refuse its whole call.

https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecordsRequestEntry.html
"""

import re
from typing import Final

from kinesis_spout.kinesis.write.put_records import MAX_KEY_CHARACTERS, MAX_RECORD_BYTES
from kinesis_spout.structured.write.written_columns import (
    DATA,
    EXPLICIT_HASH_KEY,
    PARTITION_KEY,
    STREAM,
    RowValues,
)

_HASH_KEY: Final = re.compile(r"0|[1-9][0-9]{0,38}")
_HASH_KEYS: Final = 1 << 128
_STREAM: Final = re.compile(
    r"[A-Za-z0-9_.-]{1,128}|arn:aws[a-z-]*:kinesis:[^:/]+:[0-9]{12}:stream/[\w.-]{1,128}"
)


def fault_of(values: RowValues) -> str | None:
    """Say what is wrong with a row, without its data and key, or None."""
    return _fault_of_record(values) or _fault_of_place(values)


def _fault_of_record(values: RowValues) -> str | None:
    key, data = values.partition_key, values.data
    if data is None:
        return f"{DATA}: expected binary or string, got null"
    if not key:
        return f"{PARTITION_KEY}: expected a key, got {'null' if key is None else 'an empty one'}"
    if len(key) > MAX_KEY_CHARACTERS:
        return f"{PARTITION_KEY}: expected 1 to {MAX_KEY_CHARACTERS} characters, got {len(key)}"
    size = len(data) + len(key.encode())
    if size > MAX_RECORD_BYTES:
        return f"{DATA}: expected at most {MAX_RECORD_BYTES} bytes together with the key, got {size}"
    return None


def _fault_of_place(values: RowValues) -> str | None:
    hash_key, stream = values.explicit_hash_key, values.stream
    if hash_key is not None and not _is_hash_key(hash_key):
        return f"{EXPLICIT_HASH_KEY}: expected null or a decimal number below 2^128, got {hash_key[:50]!r}"
    if stream is None:
        return f"{STREAM}: expected a stream's name or ARN, got null"
    if not _STREAM.fullmatch(stream):
        return f"{STREAM}: expected a stream's name or ARN, got {stream[:200]!r}"
    return None


def _is_hash_key(text: str) -> bool:
    return bool(_HASH_KEY.fullmatch(text)) and int(text) < _HASH_KEYS
