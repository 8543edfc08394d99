"""Requests in CBOR (RFC 8949). Answers are decoded by ``read``."""

from collections.abc import Mapping
from typing import Final

_NUMBER, _TEXT, _MAP = 0x00, 0x60, 0xA0
_SIZES: Final = ((24, 1), (25, 2), (26, 4), (27, 8))


def encoded(arguments: Mapping[str, str | int]) -> bytes:
    """Encode the arguments of a call; numbers are not negative, and below 2^64."""
    parts = [_head(_MAP, len(arguments))]
    for name, value in arguments.items():
        parts.append(_text(name))
        parts.append(_text(value) if isinstance(value, str) else _head(_NUMBER, value))
    return b"".join(parts)


def _text(value: str) -> bytes:
    content = value.encode()
    return _head(_TEXT, len(content)) + content


def _head(kind: int, argument: int) -> bytes:
    if argument < _SIZES[0][0]:
        return bytes((kind | argument,))
    info, size = next((info, size) for info, size in _SIZES if argument < 1 << (8 * size))
    return bytes((kind | info,)) + argument.to_bytes(size, "big")
