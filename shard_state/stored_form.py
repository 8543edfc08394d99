"""The values of which stored forms are made, each checked: a wrong one is an error, and never a default."""

import json
import zlib
from collections.abc import Mapping
from math import isfinite

from shard_state.errors import ShardStateError


def sealed(document: Mapping[str, object]) -> bytes:
    """Write a document, of one field at least, with the checksum of everything before it as its last field."""
    body = json.dumps(document, separators=(",", ":"))[:-1].encode()
    return body + _seal(body)


def check_seal(stored: bytes) -> None:
    """Refuse bytes that are not as ``sealed`` wrote them."""
    length = len(_seal(b""))
    if stored[-length:] != _seal(stored[:-length]):
        raise ValueError(
            "its content does not match the checksum at its end: the node was damaged, or changed by hand"
        )


def _seal(body: bytes) -> bytes:
    return b',"crc32":"%08x"}' % zlib.crc32(body)


def check_version(version: object, newest: int, what: str, error: type[ShardStateError]) -> None:
    """Refuse another version of ``what`` than ``newest``, the only one that this code knows.

    Raises:
        ValueError: it is no version, or an earlier one. ``error``: it is a newer one.
    """
    if whole_number(version) > newest:
        raise error(
            f"expected {what} of version {newest}, got version {version}: "
            "it was written by a newer kinesis-spout; upgrade this one"
        )
    if version != newest:
        raise ValueError(f"expected version {newest}, got version {version}")


def whole_number(value: object) -> int:
    if type(value) is not int or value < 0:  # a bool is an int too, by its class
        raise ValueError(f"expected a whole number, 0 or more, got {value!r}")
    return value


def number(value: object, meaning: str = "a finite number") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"expected {meaning}, got {value!r}")
    return float(value)


def truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, got {value!r}")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r}")
    return value


def texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {value!r}")
    return tuple(text(item) for item in value)


def mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, got {value!r}")
    return value


def no_number(name: str) -> float:
    """Refuse NaN and the infinities, which JSON does not know; for ``parse_constant``."""
    raise ValueError(f"expected numbers, got {name}")
