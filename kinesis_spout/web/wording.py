"""Times, sizes and names as a page shows them."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from kinesis_spout.model.clock import moment

_STEPS: Final = ((120.0, 1.0, "s"), (7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h"))
"""Below so many seconds, in units of so many."""
_DAY: Final = 86_400.0
_TAIL_DIGITS: Final = 12
_LONG_DIGITS: Final = 20
_KIB: Final = 1024


def span(seconds: float | None) -> str:
    """Write a duration: "850 ms", "12 s", "3 min", "5 h", "4 d"."""
    if seconds is None:
        return "-"
    if 0 < seconds < 0.001:  # noqa: PLR2004 - a millisecond
        return f"{seconds * 1000:.2g} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for below, unit, name in _STEPS:
        if seconds < below:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / _DAY:.0f} d"


def millis(value: float | None) -> str:
    if value is not None and value <= 0:
        return "0"
    return span(None if value is None else value / 1000)


def ago(at: float | None, now: float) -> str:
    """A time as how long it is ago, with the exact one for who points at it."""
    if at is None:
        return "-"
    exact = moment(at)
    text = "now" if abs(now - at) < 1 else f"{span(now - at)} ago" if at < now else f"in {span(at - now)}"
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(exact, text)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:,.1f}"  # noqa: PLR2004


def size(value: int | None) -> str:
    if value is None:
        return "-"
    if value < _KIB:
        return f"{value} B"
    return f"{value / _KIB:,.1f} KiB" if value < _KIB * _KIB else f"{value / _KIB / _KIB:,.1f} MiB"


def digits(text: object) -> str:
    """A sequence number by its last digits, with all of them for who points at it."""
    whole = str(text)
    if len(whole) <= _LONG_DIGITS:
        return escape(whole)
    return Markup('<span class="cut" title="{}">…{}</span>').format(whole, whole[-_TAIL_DIGITS:])


def address(*parts: str, **query: object) -> str:
    """A path of this server; parts and values are quoted, and values that are empty are left out."""
    path = "/" + "/".join(quote(part, safe="~") for part in parts)
    told = query_of(query)
    return f"{path}?{told}" if told else path


def query_of(values: Mapping[str, object]) -> str:
    return urlencode({name: value for name, value in values.items() if value not in (None, "", False)})
