"""What options take: each type reads text, checks a value, and says in words what it allows.

A setting is a plain value whose name has the unit: ``max_batch_seconds=5``. An option of ``format("kinesis")`` is
text with its unit: ``"5s"``. Both become the same value, and its range is checked once, by msgspec.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from kinesis_spout.settings import positions
from kinesis_spout.settings.messages import NotAllowed

KIB: Final = 1 << 10
MIB: Final = 1 << 20
MEGABYTE: Final = 1_000_000
"""AWS counts the read limit of a shard, 2 MB/s, in these."""

_SECONDS_BY_UNIT: Final = {
    "d": Decimal(86400), "h": Decimal(3600), "m": Decimal(60), "min": Decimal(60), "s": Decimal(1),
    "ms": Decimal("0.001"),
}  # fmt: skip
_BYTES_BY_UNIT: Final = {"t": 1 << 40, "g": 1 << 30, "m": MIB, "k": KIB, "": 1}
_DECIMAL: Final = r"([0-9]{1,18}(?:\.[0-9]{1,9})?)"
_DURATION: Final = re.compile(_DECIMAL + r"\s*(ms|s|m|min|h|d)", re.IGNORECASE)
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*(?:(b)|([kmgt])i?b?)?", re.IGNORECASE)


class ValueType(ABC):
    """What an option takes."""

    @property
    @abstractmethod
    def annotation(self) -> Any:
        """The type and range of the value, for msgspec."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What a setting takes, in words."""

    @property
    def text_words(self) -> str:
        """What an option that is text takes, in words."""
        return self.words

    def read(self, text: str) -> Any:
        """Read the text of an option.

        Raises:
            NotAllowed.
        """
        return self.converted(text, strict=False)

    def write(self, value: Any) -> str:
        """Write a value as the text of an option."""
        return str(value)

    def plain(self, value: Any) -> Any:
        """Turn other natural ways of writing a setting into the one that is checked."""
        return value

    def converted(self, value: Any, *, strict: bool = True) -> Any:
        """Give a value as what this type makes of it.

        Args:
            value: as it was given.
            strict: whether text must not be read as a number.

        Raises:
            NotAllowed.
        """
        try:
            found = msgspec.convert(value, self.annotation, strict=strict)
        except msgspec.ValidationError as error:
            raise NotAllowed from error
        self.check(found)
        return found

    def check(self, value: Any) -> None:  # noqa: B027 - most types have nothing to add
        """Refuse what the annotation does not.

        Raises:
            NotAllowed.
        """


class Unit(NamedTuple):
    """What a number counts, as text."""

    words: str
    read: Callable[[str], Decimal | None]
    write: Callable[[Any], str]


def _seconds(text: str) -> Decimal | None:
    match = _DURATION.fullmatch(text)
    return None if match is None else Decimal(match[1]) * _SECONDS_BY_UNIT[match[2].lower()]


def _size(text: str) -> Decimal | None:
    match = _SIZE.fullmatch(text)
    return None if match is None else Decimal(match[1]) * _BYTES_BY_UNIT[(match[3] or "").lower()]


def _write_seconds(seconds: float) -> str:
    exact = Decimal(str(seconds))
    units = ("m", "s", "ms") if exact else ("s",)
    unit = next(unit for unit in units if exact % _SECONDS_BY_UNIT[unit] == 0)
    return f"{int(exact / _SECONDS_BY_UNIT[unit])}{unit}"


def _write_size(size: int) -> str:
    unit = next(unit for unit, weight in _BYTES_BY_UNIT.items() if size % weight == 0)
    return f"{size // _BYTES_BY_UNIT[unit]}{unit}"


COUNT: Final = Unit(
    "a whole number", lambda text: Decimal(text) if re.fullmatch("[0-9]{1,18}", text) else None, str
)
SECONDS: Final = Unit("a duration such as 200ms, 10s, 5m or 1h", _seconds, _write_seconds)
BYTES: Final = Unit("a size such as 500k, 8m or 1g, or a number of bytes", _size, _write_size)
RATE: Final = Unit(
    "a number of MB/s",
    lambda text: Decimal(text) * MEGABYTE if re.fullmatch(_DECIMAL, text) else None,
    lambda rate: f"{rate / MEGABYTE:g}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(ValueType):
    """A number in a range. Without a unit, only settings have it."""

    python: type[int] | type[float] = int
    unit: Unit = COUNT
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None

    @property
    def annotation(self) -> Any:
        """See `ValueType`."""
        bounds: dict[str, Any] = {"ge": self.at_least, "gt": self.above, "le": self.at_most}
        return Annotated[self.python, Meta(**bounds)]

    @property
    def words(self) -> str:
        """Such as "int >= 1 and <= 10,000"."""
        bounds = ((">=", self.at_least), (">", self.above), ("<=", self.at_most))
        text = " and ".join(f"{sign} {number_text(bound)}" for sign, bound in bounds if bound is not None)
        return f"{self.python.__name__} {text}".strip()

    @property
    def text_words(self) -> str:
        """Such as "a whole number, 1 to 10000"."""
        least, most = (
            None if bound is None else self.write(bound) for bound in (self.at_least, self.at_most)
        )
        if least is None:
            return self.unit.words
        return f"{self.unit.words}, " + (f"at least {least}" if most is None else f"{least} to {most}")

    def read(self, text: str) -> Any:
        """Read a number; a duration has its unit, for a bare number means something else to every connector."""
        number = self.unit.read(text)
        if number is None:
            raise NotAllowed
        return self.converted(int(number) if self.python is int else float(number))

    def write(self, value: Any) -> str:
        """See `ValueType`."""
        return self.unit.write(value)

    def check(self, value: Any) -> None:
        """See `ValueType`."""
        if not math.isfinite(value):
            raise NotAllowed("a finite number")


class Flag(ValueType):
    """True or false."""

    annotation = bool
    words = "true or false"

    def read(self, text: str) -> bool:
        """See `ValueType`."""
        if text.lower() not in {"true", "false"}:
            raise NotAllowed
        return text.lower() == "true"

    def write(self, value: Any) -> str:
        """See `ValueType`."""
        return str(value).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(ValueType):
    """One of some words. The case of an option's text says nothing."""

    choices: tuple[str, ...]
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """Other connectors' words, in lower case."""
    not_yet: Mapping[str, str] = field(default_factory=dict)
    """Why a word is not taken yet; in lower case."""

    @property
    def annotation(self) -> Any:
        """See `ValueType`."""
        return Literal[self.choices]

    @property
    def words(self) -> str:
        """Such as "one of unordered, key"."""
        return self.choices[0] if len(self.choices) == 1 else "one of " + ", ".join(self.choices)

    def read(self, text: str) -> str:
        """See `ValueType`."""
        word = text.lower()
        if word in self.not_yet:
            raise NotAllowed(f"{self.words}: {self.not_yet[word]}", text)
        known = {choice.lower(): choice for choice in self.choices} | dict(self.synonyms)
        if word not in known:
            raise NotAllowed(got=text)
        return known[word]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(ValueType):
    """Text of a certain form, but never empty."""

    words: str = "text"
    pattern: str | None = None
    """Of the whole text."""
    refuse: Callable[[str], object] = bool
    """Raises `NotAllowed` for what the pattern does not refuse."""

    @property
    def annotation(self) -> Any:
        """See `ValueType`."""
        meta = Meta(min_length=1) if self.pattern is None else Meta(pattern=rf"\A(?:{self.pattern})\Z")
        return Annotated[str, meta]

    def check(self, value: Any) -> None:
        """See `ValueType`."""
        self.refuse(value)


class Url(ValueType):
    """The address of an endpoint."""

    annotation = Annotated[str, Meta(pattern=r"\Ahttps?://[^\s/]\S*\Z")]
    words = "an http:// or https:// URL"

    def check(self, value: Any) -> None:
        """See `ValueType`."""
        try:
            parts = urlsplit(value)
            _ = parts.port  # read for its check
        except ValueError as error:
            raise NotAllowed(f"{self.words} that can be parsed") from error
        if parts.username is not None or parts.password is not None:
            raise NotAllowed("a URL without a password or a user: it would show in logs and messages")
        if not parts.hostname:
            raise NotAllowed


class PositionText(ValueType):
    """A position for all shards of a stream, kept as it was written; see ``positions``."""

    annotation = str
    words = positions.ALLOWED

    def plain(self, value: Any) -> Any:
        """Write a date or a number of seconds as text."""
        if isinstance(value, datetime):
            return value.isoformat()
        return repr(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value

    def check(self, value: Any) -> None:
        """See `ValueType`."""
        positions.parse_position_of_all_shards(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names(ValueType):
    """A comma-separated list: none of its parts empty, none twice. Only options have it."""

    of: ValueType = field(default_factory=Text)

    @property
    def annotation(self) -> Any:
        """See `ValueType`."""
        return tuple[str, ...]

    @property
    def words(self) -> str:
        """Such as "a comma-separated list of encryptionType, millisBehindLatest"."""
        choices = f" of {', '.join(self.of.choices)}" if isinstance(self.of, Choice) else ""
        return f"a comma-separated list{choices}"

    def read(self, text: str) -> tuple[str, ...]:
        """See `ValueType`."""
        parts = [part.strip() for part in text.split(",")]
        if "" in parts:
            raise NotAllowed(f"{self.words} without an empty part")
        found = tuple(self.of.read(part) for part in parts)
        if len(set(found)) != len(found):
            raise NotAllowed(f"{self.words}, each once")
        return found


def number_text(number: Any) -> str:
    """Give a number as people read it: 10,000."""
    return f"{number:,}" if isinstance(number, int) else f"{number}"
