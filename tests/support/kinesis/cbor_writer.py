"""Writes CBOR as servers of Kinesis do: of known length, or until a break; times in milliseconds under tag 1."""

import struct
from typing import Any, NamedTuple


class Milliseconds(NamedTuple):
    value: int
    is_tagged: bool = True


def cbor(value: Any, *, until_break: bool = False) -> bytes:
    """Encode a value; ``until_break``: lengths of maps and arrays are not told."""
    if isinstance(value, Milliseconds):
        return (b"\xc1" if value.is_tagged else b"") + _head(0, value.value)
    if isinstance(value, dict):
        return _around(5, [part for member in value.items() for part in member], until_break=until_break)
    if isinstance(value, list):
        return _around(4, value, until_break=until_break)
    return _scalar(value)


def _scalar(value: Any) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", False: b"\xf4", True: b"\xf5"}[value]
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    content = value.encode() if isinstance(value, str) else value
    return _head(3 if isinstance(value, str) else 2, len(content)) + content


def _around(major: int, values: list[Any], *, until_break: bool) -> bytes:
    inside = b"".join(cbor(value, until_break=until_break) for value in values)
    if until_break:
        return bytes([major << 5 | 31]) + inside + b"\xff"
    return _head(major, len(values) // (2 if major == 5 else 1)) + inside


def _head(major: int, value: int) -> bytes:
    if value < 24:
        return bytes([major << 5 | value])
    for info, form in ((24, ">B"), (25, ">H"), (26, ">I"), (27, ">Q")):
        if value < 1 << 8 * struct.calcsize(form):
            return bytes([major << 5 | info]) + struct.pack(form, value)
    raise ValueError(f"expected a number of at most 8 bytes, got {value}")
