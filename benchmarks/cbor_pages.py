"""The pages of the canned endpoint as CBOR: data as byte strings, times as milliseconds under tag 1."""

import base64
import functools
import json
from typing import Any

from canned_kinesis import page_body


@functools.cache
def cbor_page_body(records: int, size_bytes: int) -> bytes:
    """Make the reply that ``page_body`` makes, as AWS' Java SDKs ask for it."""
    return encoded(json.loads(page_body(records, size_bytes)))


def encoded(reply: dict[str, Any]) -> bytes:
    """Encode a GetRecords reply whose JSON was decoded."""
    records = b"".join(
        _map({name: _member(name, value) for name, value in each.items()}) for each in reply["Records"]
    )
    members = {name: _value(value) for name, value in reply.items() if name != "Records"}
    return _map({**members, "Records": _head(4, len(reply["Records"])) + records})


def _member(name: str, value: Any) -> bytes:
    if name == "Data":
        data = base64.b64decode(value)
        return _head(2, len(data)) + data
    if name == "ApproximateArrivalTimestamp":
        return b"\xc1" + _head(0, round(value * 1000))
    return _value(value)


def _value(value: str | int) -> bytes:
    if isinstance(value, int):
        return _head(0, value)
    return _head(3, len(value.encode())) + value.encode()


def _map(members: dict[str, bytes]) -> bytes:
    return _head(5, len(members)) + b"".join(_value(name) + value for name, value in members.items())


def _head(major: int, value: int) -> bytes:
    if value < 24:
        return bytes([major << 5 | value])
    size = next(size for size in (1, 2, 4, 8) if value < 1 << 8 * size)
    return bytes([major << 5 | (23 + size.bit_length())]) + value.to_bytes(size)
