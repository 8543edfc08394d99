"""Reads the text of an option as what its spec says it is.

Raises, from every function: ``InvalidConfig``, naming the option, what it takes, and the value unless secret.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, NoReturn
from urllib.parse import urlsplit

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.structured.options.tables.specs import Kind, OptionSpec

MEGABYTE: Final = 1_000_000
"""AWS counts the read limit of a shard, 2 MB/s, in these."""

_SECONDS_BY_UNIT: Final = {
    "ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "min": Decimal(60), "h": Decimal(3600),
    "d": Decimal(86400),
}  # fmt: skip
_BYTES_BY_UNIT: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_NUMBER: Final = r"([0-9]{1,18}(?:\.[0-9]{1,9})?)"
_DURATION: Final = re.compile(_NUMBER + r"\s*(ms|s|m|min|h|d)", re.IGNORECASE)
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*(?:(b)|([kmgt])i?b?)?", re.IGNORECASE)


def flag(spec: OptionSpec, text: str) -> bool:
    """Read true or false."""
    if text.lower() not in {"true", "false"}:
        refuse(spec, text)
    return text.lower() == "true"


def choice(spec: OptionSpec, text: str) -> str:
    """Read one of the spec's words, whatever its case."""
    word = next((word for word in spec.choices if word.lower() == text.lower()), None)
    if word is None:
        refuse(spec, text)
    return word


def names(spec: OptionSpec, text: str) -> tuple[str, ...]:
    """Read a list: none of its parts empty, none twice."""
    parts = tuple(part.strip() for part in text.split(","))
    if "" in parts:
        refuse(spec, text, "without an empty part")
    repeated = next((part for part in parts if parts.count(part) > 1), None)
    if repeated is not None:
        refuse(spec, text, f"that has {repeated!r} once")
    return parts


def count(spec: OptionSpec, text: str) -> int:
    """Read a whole number."""
    return int(_bounded(spec, text, _count))


def seconds(spec: OptionSpec, text: str) -> float:
    """Read a duration. Its unit must be there: a bare number means something else to every connector."""
    return float(_bounded(spec, text, _seconds))


def size(spec: OptionSpec, text: str) -> int:
    """Read a number of bytes; k, m, g and t are powers of 1024, as in Spark's settings."""
    return int(_bounded(spec, text, _size))


def bytes_per_second(spec: OptionSpec, text: str) -> int:
    """Read a number of MB/s."""
    return int(_bounded(spec, text, _rate) * MEGABYTE)


def url(spec: OptionSpec, text: str) -> str:
    """Read the address of an endpoint."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # read for its check
    except ValueError:
        refuse(spec, None, "that can be parsed")
    if parts.username is not None or parts.password is not None:
        refuse(spec, None, "without a user or a password: it would show in logs")
    if parts.scheme not in {"http", "https"} or not parts.hostname or re.search(r"\s", text):
        refuse(spec, text)
    return text


def refuse(spec: OptionSpec, text: str | None, more: str = "") -> NoReturn:
    """Raise for a value that the option does not take; None as ``text`` keeps the value out of the message."""
    shown = "another value (not shown)" if spec.secret or text is None else repr(text[:160])
    raise InvalidConfig(
        f"option {spec.name}: expected {spec.allowed}{' ' + more if more else ''}, got {shown}"
    )


def _bounded(spec: OptionSpec, text: str, read: Callable[[str], Decimal | None]) -> Decimal:
    value = read(text)
    if value is None:
        refuse(spec, text)
    for bound, wrong in ((spec.at_least, -1), (spec.at_most, 1)):
        limit = None if bound is None else read(bound)
        if limit is not None and value.compare(limit) == wrong:
            refuse(spec, text)
    return value


def _count(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _seconds(text: str) -> Decimal | None:
    match = _DURATION.fullmatch(text)
    return None if match is None else Decimal(match[1]) * _SECONDS_BY_UNIT[match[2].lower()]


def _size(text: str) -> Decimal | None:
    match = _SIZE.fullmatch(text)
    return None if match is None else Decimal(match[1]) * _BYTES_BY_UNIT[(match[3] or "").lower()]


def _rate(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(_NUMBER, text) else None


READERS: Final[Mapping[Kind, Callable[[OptionSpec, str], object]]] = {
    Kind.LIST: names,
    Kind.FLAG: flag,
    Kind.CHOICE: choice,
    Kind.COUNT: count,
    Kind.DURATION: seconds,
    Kind.SIZE: size,
    Kind.RATE: bytes_per_second,
    Kind.URL: url,
}
"""What reads an option of a kind. Any text will do for TEXT; positions have a module of their own."""
