"""The data of a record for people: as JSON, as text or as hex, with named fields masked."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

_MAX_SHOWN: Final = 64 * 1024
_MASK: Final = "•••"
_HEX_BYTES: Final = 16


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
