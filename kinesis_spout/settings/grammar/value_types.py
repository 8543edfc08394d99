"""The types of options: each reads text, checks a value, and says in words what it allows.

A setting is a plain value whose name has the unit: ``max_batch_seconds=5``. An option of
``format("kinesis")`` is text with its unit: ``"5s"``. The environment and the command line accept both. All
become the same value, and msgspec checks its range once.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from kinesis_spout.settings.setting_messages import NotAllowed

KIB: Final = 1 << 10
MIB: Final = 1 << 20
MEGABYTE: Final = 1_000_000
"""AWS gives the read limit of a shard, 2 MB/s, in these."""

_SECONDS_BY_UNIT: Final = {
    "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001"), "min": Decimal(60), "h": Decimal(3600),
    "d": Decimal(86400),
}  # fmt: skip
_BYTES_BY_UNIT: Final = {"t": 1 << 40, "g": 1 << 30, "m": MIB, "k": KIB, "": 1}
_DECIMAL: Final = r"([0-9]{1,18}(?:\.[0-9]{1,9})?)"
_DURATION: Final = re.compile(_DECIMAL + r"\s*(ms|s|m|min|h|d)", re.IGNORECASE)
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*(?:(b)|([kmgt])i?b?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    annotation: Any
    """The type and range of the value, for msgspec."""
    words: str
    text_words: str
    """The text that an option accepts, in words."""
    read: Callable[[str], Any]
    """Parses the text of an option; raises `NotAllowed`."""
    check: Callable[[Any], None] = lambda _: None
    """Raises `NotAllowed` for a value that the annotation accepts wrongly."""
    write: Callable[[Any], str] = str
    """Writes a value as the text of an option."""
    show: Callable[[Any], str] = str
    has_units: bool = False
    """True if text may have a unit: "5m"."""
    plain: Callable[[Any], Any] = lambda value: value
    """Converts other natural ways of writing a setting to the one that is checked."""

    def of_text(self, text: str) -> Any:
        """Parse the text of an option. Raises `NotAllowed`."""
        return self.of(self.read(text))

    def of(self, value: Any, *, strict: bool = True) -> Any:
        """Convert and check a value; raises NotAllowed. ``strict`` refuses text in place of a number."""
        try:
            found = msgspec.convert(self.plain(value), self.annotation, strict=strict)
        except msgspec.ValidationError as error:
            if isinstance(value, str) and not strict:
                return self.of_text(value)
            raise NotAllowed from error
        self.check(found)
        return found


def text(
    words: str = "text", pattern: str | None = None, check: Callable[[str], None] = lambda _: None
) -> ValueType:
    """Accept text of a form, never empty; the pattern must match all of it."""
    meta = Meta(min_length=1) if pattern is None else Meta(pattern=rf"\A(?:{pattern})\Z")
    return ValueType(annotation=Annotated[str, meta], words=words, text_words=words, read=str, check=check)


def whole(at_least: int, at_most: int | None = None) -> ValueType:
    return _number(int, "a whole number", _read_count, str, ge=at_least, le=at_most)


def number(
    at_least: float | None = None, at_most: float | None = None, *, above: float | None = None
) -> ValueType:
    return _number(float, "a number", _read_decimal, str, ge=at_least, gt=above, le=at_most)


def seconds(
    at_least: float | None = None, at_most: float | None = None, *, above: float | None = None
) -> ValueType:
    """Accept a duration. As text it has its unit: every connector reads a bare number differently."""
    words = "a duration such as 200ms, 10s, 5m or 1h"
    return _number(float, words, _read_seconds, _write_seconds, ge=at_least, gt=above, le=at_most)


def size(at_least: int, at_most: int | None = None) -> ValueType:
    """Accept a number of bytes; k, m, g and t are powers of 1024, as in Spark's settings."""
    words = "a size such as 500k, 8m or 1g, or a number of bytes"
    return _number(int, words, _read_size, _write_size, _show_size, ge=at_least, le=at_most)


def rate(at_least: int, at_most: int | None = None) -> ValueType:
    """Accept bytes a second; as text they are MB/s."""
    return _number(
        int,
        "a number of MB/s",
        lambda text: None if (megabytes := _read_decimal(text)) is None else megabytes * MEGABYTE,
        lambda value: f"{value / MEGABYTE:g}",
        ge=at_least,
        le=at_most,
    )


def choice(
    *choices: str,
    synonyms: Mapping[str, str] = MappingProxyType({}),
    not_yet: Mapping[str, str] = MappingProxyType({}),
) -> ValueType:
    """Accept one of some words, as text in any case.

    ``synonyms`` and ``not_yet``, in lower case, are other words with the choice that each means, or why it is
    not accepted yet.
    """
    words = choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)
    known = {choice.lower(): choice for choice in choices} | dict(synonyms)

    def read(text: str) -> str:
        word = text.lower()
        if word in not_yet:
            raise NotAllowed(f"{words}: {not_yet[word]}", text)
        if word not in known:
            raise NotAllowed(got=text)
        return known[word]

    return ValueType(annotation=Literal[choices], words=words, text_words=words, read=read)


def names(of: ValueType | None = None) -> ValueType:
    """Accept a comma-separated list: no part empty, none twice. Only options have it."""
    words = "a comma-separated list" + ("" if of is None else f" of {of.words.removeprefix('one of ')}")

    def read(text: str) -> tuple[str, ...]:
        parts = [part.strip() for part in text.split(",")]
        if "" in parts:
            raise NotAllowed(f"{words} without an empty part")
        found = tuple(part if of is None else of.of_text(part) for part in parts)
        if len(set(found)) != len(found):
            raise NotAllowed(f"{words}, each once")
        return found

    return ValueType(annotation=tuple[str, ...], words=words, text_words=words, read=read)


def _read_flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise NotAllowed
    return text.lower() == "true"


def _write_flag(value: object) -> str:
    return str(value).lower()


FLAG: Final = ValueType(
    annotation=bool,
    words="true or false",
    text_words="true or false",
    read=_read_flag,
    write=_write_flag,
    show=_write_flag,
)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read for its check
    except ValueError as error:
        raise NotAllowed(f"{URL.words} that can be parsed") from error
    if parts.username is not None or parts.password is not None:
        raise NotAllowed("a URL without a password or a user: it would show in logs and messages")
    if not parts.hostname:
        raise NotAllowed


URL: Final = text("an http:// or https:// URL", r"https?://[^\s/]\S*", _check_url)


def _check_proxy(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise NotAllowed from error
    if not parts.hostname or port is None or parts.path.strip("/") or parts.query or parts.fragment:
        raise NotAllowed


PROXY: Final = text(
    "http://host:port or https://host:port, with user:password@ before the host if need be",
    r"https?://[^\s/]+/?",
    _check_proxy,
)


def _number(
    python: type[int] | type[float],
    unit: str,
    read: Callable[[str], Decimal | None],
    write: Callable[[Any], str],
    show: Callable[[Any], str] = "{:,}".format,
    **bounds: Any,
) -> ValueType:
    def read_number(text: str) -> float:
        found = read(text)
        if found is None:
            raise NotAllowed
        return python(found)

    least, most = (None if bounds[end] is None else write(bounds[end]) for end in ("ge", "le"))
    in_range = "" if least is None else f", at least {least}" if most is None else f", {least} to {most}"
    signs = {"ge": ">=", "gt": ">", "le": "<="}
    ends = [f"{signs[end]} {bound:,}" for end, bound in bounds.items() if bound is not None]
    return ValueType(
        annotation=Annotated[python, Meta(**bounds)],
        words=f"{python.__name__} {' and '.join(ends)}",
        text_words=unit + in_range,
        read=read_number,
        check=_check_finite,
        write=write,
        show=show,
        has_units=read in {_read_seconds, _read_size},
    )


def _check_finite(value: float) -> None:
    if not math.isfinite(value):
        raise NotAllowed("a finite number")


def _read_count(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch("[0-9]{1,18}", text) else None


def _read_decimal(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(_DECIMAL, text) else None


def _read_seconds(text: str) -> Decimal | None:
    match = _DURATION.fullmatch(text)
    return None if match is None else Decimal(match[1]) * _SECONDS_BY_UNIT[match[2].lower()]


def _write_seconds(value: float) -> str:
    exact = Decimal(str(value))
    units = ("m", "s", "ms") if exact else ("s",)
    unit = next(unit for unit in units if exact % _SECONDS_BY_UNIT[unit] == 0)
    return f"{int(exact / _SECONDS_BY_UNIT[unit])}{unit}"


def _read_size(text: str) -> Decimal | None:
    match = _SIZE.fullmatch(text)
    return None if match is None else Decimal(match[1]) * _BYTES_BY_UNIT[(match[3] or "").lower()]


def _write_size(value: int) -> str:
    unit = next(unit for unit, weight in _BYTES_BY_UNIT.items() if value % weight == 0)
    return f"{value // _BYTES_BY_UNIT[unit]}{unit}"


def _show_size(value: int) -> str:
    return f"{value // KIB} KiB" if value % MIB else f"{value // MIB} MiB"
