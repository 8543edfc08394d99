"""Times, sizes, names and data as a page shows them.

Data of records is shown as JSON, as text or as hex, with named fields masked.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from kinesis_spout.model.clock import moment

_STEPS: Final = ((120.0, 1.0, "s"), (7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h"))
"""Below so many seconds, in units of so many."""
_DAY: Final = 86_400.0
_TAIL_DIGITS: Final = 12
_LONG_DIGITS: Final = 20
_KIB: Final = 1024
_MAX_SHOWN: Final = 64 * 1024
_MASK: Final = "•••"
_HEX_BYTES: Final = 16


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


class Rendering(StrEnum):
    JSON = "json"
    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownData:
    form: Rendering
    text: str
    is_cut: bool
    note: str | None = None


def shown(data: bytes, form: Rendering | None, masks: Collection[str]) -> ShownData:
    """``form`` None chooses what fits.

    With masks, data that is not a JSON object or array is not shown: there are no fields by which it could be
    masked. Its size still is.
    """
    parsed, is_json = _parsed(data, frozenset(masks))
    if masks and not is_json:
        return ShownData(
            form=Rendering.TEXT,
            text="",
            is_cut=False,
            note="not shown: fields are masked (--mask), and this is no JSON object or array",
        )
    if masks:
        data = json.dumps(parsed, ensure_ascii=False).encode("utf-8", "backslashreplace")
    if form is None:
        form = Rendering.JSON if is_json else Rendering.TEXT if _is_text(data) else Rendering.HEX
    if form is Rendering.JSON and not is_json:
        form = Rendering.TEXT
    text, is_cut = _written(data, parsed, form)
    note = "the values of masked fields are not shown" if masks else None
    return ShownData(form=form, text=text, is_cut=is_cut, note=note)


def _written(data: bytes, parsed: Any, form: Rendering) -> tuple[str, bool]:
    if form is Rendering.JSON:
        text = json.dumps(parsed, indent=2, ensure_ascii=False)
        return text[:_MAX_SHOWN], len(text) > _MAX_SHOWN
    is_cut = len(data) > _MAX_SHOWN
    data = data[:_MAX_SHOWN]
    return (data.decode("utf-8", "replace") if form is Rendering.TEXT else _hex(data)), is_cut


def _parsed(data: bytes, masks: frozenset[str]) -> tuple[Any, bool]:
    """The JSON value, masked, and whether there is one that can be shown as such."""
    try:
        value = _masked(json.loads(data), masks)
        json.dumps(value, indent=2)
    except (ValueError, RecursionError):
        return None, False
    return value, isinstance(value, dict | list)


def _masked(value: Any, masks: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: _MASK if name in masks else _masked(each, masks) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, masks) for each in value]
    return value


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(each.isprintable() or each in "\n\r\t" for each in text)


def _hex(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), _HEX_BYTES):
        part = data[at : at + _HEX_BYTES]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in part)  # noqa: PLR2004 - ASCII
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)
