"""Which values can travel in a message, and the one error for those that cannot.

JSON encoders are generous: bytes become base64, a datetime a text, NaN becomes null, and the receiver cannot
tell. So a value that has no form in the codec is refused before it is written. Numbers of other libraries
(NumPy's) and subclasses of ``str`` travel as plain numbers and text.
"""

from collections.abc import Iterable, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any, Final

from kinesis_spout.model.errors import KinesisSpoutError

_IN_JSON: Final = frozenset({str, int, bool, type(None)})
"""Whatever their value; a float can be NaN."""
_IN_MESSAGE_PACK: Final = _IN_JSON | {float, bytes}


class UnsendableValue(KinesisSpoutError, TypeError):  # noqa: N818 - the names of our errors say what happened
    """A value that the codec has no form for. Names the component, the place and the type; nothing was sent."""


def refuse_unsendable(values: Iterable[object], component: str, *, bytes_too: bool) -> None:
    """Raise UnsendableValue if a value, or one in its lists, tuples and mappings, cannot be sent.

    ``component`` is for the error. ``bytes_too``: the codec carries bytes, and NaN and Infinity (MessagePack
    does, JSON does not).
    """
    always = _IN_MESSAGE_PACK if bytes_too else _IN_JSON
    for value in values:
        kind = type(value)
        if kind not in always and not (type(value) is list and always.issuperset(map(type, value))):
            _search(value, "", component, bytes_too=bytes_too)


def plain_number_or_text(value: object) -> object:
    """An ``enc_hook`` of msgspec for numbers and text of foreign types."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise NotImplementedError


def writable_text(text: str) -> str:
    """Text that every codec, log and file can write: halves of characters become question marks."""
    return text.encode(errors="replace").decode()


def _search(value: Any, place: str, component: str, *, bytes_too: bool) -> None:
    if type(value) in (_IN_MESSAGE_PACK if bytes_too else _IN_JSON):
        return
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _search(item, f"{place}[{index}]", component, bytes_too=bytes_too)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, (str, int)):
                raise _unsendable(key, f"{place} (a key)", component, bytes_too=bytes_too)
            _search(item, f"{place}[{key!r}]", component, bytes_too=bytes_too)
    elif not (
        isinstance(value, (str, Integral)) or (isinstance(value, Real) and (bytes_too or isfinite(value)))
    ):
        raise _unsendable(value, place, component, bytes_too=bytes_too)


def _unsendable(value: object, place: str, component: str, *, bytes_too: bool) -> UnsendableValue:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if isinstance(value, float):
        name = f"{name} ({value})"
    advice = (
        "encode it yourself, for example as base64 text" if kind in {bytes, bytearray} else "convert it first"
    )
    carrier, also_bytes = ("MessagePack", ", bytes") if bytes_too else ("JSON", "")
    return UnsendableValue(
        f"component {component!r}: expected values that {carrier} carries (text, numbers, true, false, "
        f"null{also_bytes}, lists, mappings with text keys), got {name} at {place or 'the top'}: {advice}"
    )
