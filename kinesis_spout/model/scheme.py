"""Schemes: a record becomes the values that a handler or a bolt gets.

The scheme runs where the handler runs. An error that it raises fails its record, like one of the handler: it
is retried, and dead-lettered in the end. It never ends the spout.

A record is retried and dead-lettered as it was read (invariant 16), but handlers do change their records
(``record.data = decompress(record.data)``). So no record that is kept leaves this module: handlers, and
users' schemes, get a copy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from json import loads
from operator import attrgetter
from typing import Any, Final, Protocol

import msgspec

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record


class Scheme(Protocol):
    """Turns a record into values. May raise anything: that fails the record."""

    def __call__(self, record: Record, /) -> Any:
        """Return the record's values."""
        ...


def raw(record: Record) -> Record:
    """Return a copy of the record."""
    return record.__copy__()


def text(record: Record) -> str:
    """Return the data as text.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        return record.data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(_refused("text in UTF-8", record.data, error)) from error


def json(record: Record) -> Any:
    """Return the data decoded as JSON; see ``decoded_json``."""
    return decoded_json(record.data)


def decoded_json(data: bytes) -> Any:
    """Decode JSON, as leniently as Python's ``json``: one rule for records and for multilang.

    Beyond JSON it takes what others write: half of a character as JavaScript cuts it, a BOM, UTF-16, NaN, and
    numbers too large for a float, which are infinite.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # what is strict is ten times as fast
        pass
    try:
        return loads(data)
    except ValueError as error:
        raise ValueError(_refused("JSON", data, error)) from error


def _refused(expected: str, data: bytes, error: ValueError) -> str:
    if data.startswith(_GZIP):
        return (
            f"expected {expected}, got gzip, as subscriptions of CloudWatch Logs put it: decompress it first, in "
            "a scheme of your own"
        )
    return f"expected {expected}, got {'no data' if not data else f'something else: {error}'}"


BUILT_IN: Final[dict[str, Scheme]] = {"raw": raw, "text": text, "json": json}


def resolve(scheme: str | Callable[[Record], Any]) -> Callable[[Record], Any]:
    """Find the scheme: "raw", "text" or "json", ``"module:callable"``, or a callable, which gets copies.

    The built-in ones and those found by name can be pickled to the executors.

    Raises:
        InvalidConfig: there is no such scheme. Errors from the import of a user's module pass through.
    """
    if not isinstance(scheme, str):
        if not callable(scheme):
            raise InvalidConfig(f"scheme: expected {_ALLOWED}, got {scheme!r}")
        return _OnCopies(scheme)
    if scheme in BUILT_IN:
        return BUILT_IN[scheme]
    module_name, colon, path = scheme.partition(":")
    if not (module_name and colon and path):
        raise InvalidConfig(f"scheme: expected {_ALLOWED}, got {scheme!r}")
    try:
        found: Any = attrgetter(path)(import_module(module_name))
    except (ImportError, AttributeError) as error:
        raise InvalidConfig(
            f"scheme: expected an importable 'module:callable', got {scheme!r}: {error}; "
            "is its module on the Python path?"
        ) from error
    if not callable(found):
        raise InvalidConfig(f"scheme: expected {scheme!r} to be callable, got a {type(found).__name__}")
    return found if found in BUILT_IN.values() else _OnCopies(found)


@dataclass(frozen=True, slots=True)
class _OnCopies:
    """A scheme that may return its record, or change it. Picklable if the scheme is."""

    scheme: Callable[[Record], Any]

    def __call__(self, record: Record) -> Any:
        """Call the scheme with a copy of the record."""
        return self.scheme(record.__copy__())


_GZIP: Final = b"\x1f\x8b"
"""Its first bytes (RFC 1952)."""
_ALLOWED: Final = f"one of {', '.join(BUILT_IN)}, a callable, or 'module:callable'"
