"""Bytes into messages and back: the two codecs of the multilang protocol. No pipes here.

Storm's own framing is JSON in UTF-8, then a line ``end``. A message is an object or (task ids) an array; it
can stand on several lines, and lines can end as on Windows. pystorm's other framing is MessagePack values one
after the other, with nothing between.

A component's standard output also gets each stray ``print``. Bytes that are no message are ``InvalidOutput``
and cost no message after them: a decoder finds the next one itself. For JSON that is the next line that
begins one; a message never begins in the middle of a line, because a broken one can end in what looks like a
whole one.

A component's output is read as leniently as a record: see ``decoded_json``. JSON encoders are generous, too:
bytes become base64, a datetime a text, NaN becomes null, and the receiver cannot tell. So a value that has no
form in the codec is refused before it is written. Numbers of other libraries (NumPy's) and subclasses of
``str`` travel as plain numbers and text.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import isfinite
from numbers import Integral, Real
from typing import Any, Final, Protocol

import msgspec

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.scheme import decoded_json
from kinesis_spout.storm.multilang.message_pack import MessagePackDecoder
from kinesis_spout.storm.multilang.protocol import InvalidOutput, TupleIn, invalid_output

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""A larger frame is invalid output. Kinesis has records of 10 MiB; several can be in one tuple."""

_END: Final = b"\nend\n"
_MAX_ATTEMPTS: Final = 64
"""Tries to find a message of several lines in one damaged frame; each costs at most one pass over the frame."""


class Decoder(Protocol):
    """Takes bytes as they come and gives messages when they are whole. Mutable; one per stream of bytes."""

    def feed(self, data: bytes) -> list[Any]:
        """Give what is complete now, in order: what ``protocol.parse`` takes, and ``InvalidOutput``."""
        ...

    def rest(self) -> InvalidOutput | None:
        """The incomplete frame in which the bytes ended. None if they ended between frames."""
        ...


class Codec:
    """One way to write messages. Has no state; can be shared. Use those in ``CODECS``."""

    def __init__(
        self,
        name: str,
        encoder: type[msgspec.json.Encoder | msgspec.msgpack.Encoder],
        decoder: Callable[[int], Decoder],
        *,
        end: bytes,
        bytes_too: bool,
    ) -> None:
        self.name = name
        self._encode = encoder(enc_hook=plain_number_or_text).encode
        self._decoder = decoder
        self._end = end
        self._bytes_too = bytes_too

    def encode(self, message: object, component: str) -> bytes:
        """Write a message (one of ``protocol``, or plain values) as one frame. ``component`` is for the error.

        UnsendableValue: there is no form for one of its values: dates and the like; in JSON also
        bytes and NaN, in MessagePack integers beyond 64 bits and halves of characters.
        """
        values: Iterable[object] = (message,)
        if isinstance(message, TupleIn):
            values = (message.values,)  # Nothing else of it is the user's.
        elif isinstance(message, msgspec.Struct):
            values = msgspec.structs.astuple(message)
        try:
            refuse_unsendable(values, component, bytes_too=self._bytes_too)
            try:
                return self._encode(message) + self._end
            except UnicodeEncodeError:
                if self._bytes_too:
                    raise
                # Half of a character has no UTF-8, but JSON has an escape for it.
                plain = msgspec.to_builtins(message, enc_hook=plain_number_or_text)
                return json.dumps(plain).encode() + self._end
        except UnsendableValue:
            raise
        except (UnicodeEncodeError, OverflowError, RecursionError, TypeError) as error:
            raise UnsendableValue(
                f"component {component!r}: expected values that can be sent, got: {error}"
            ) from error

    def decoder(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> Decoder:
        return self._decoder(max_frame_bytes)


class JsonDecoder:
    """Takes apart a stream of JSON frames. Mutable.

    A whole line that is outside a message, and begins no object or array, is invalid output at once, not only
    when its frame ends: so a component that prints and never speaks is heard, and memory stays small.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._waiting = bytearray()
        self._searched = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[Any]:
        waiting = self._waiting
        waiting += data
        if waiting.find(b"\r", self._searched) >= 0:
            waiting = self._waiting = waiting.replace(b"\r\n", b"\n")
        if waiting.find(_END, self._searched) < 0:
            frames: list[bytes] = []
        else:
            *frames, rest = bytes(waiting).split(_END)
            waiting = self._waiting = bytearray(rest)
        found: list[Any] = []
        for frame in frames:
            if self._skipping:
                self._skipping = False
                continue
            if len(frame) > self._max_frame_bytes:
                found.append(self._too_large(frame))
                continue
            message = _decoded(frame)
            found += _salvaged(frame) if message is None else (message,)
        if waiting:
            found += self._cut_waiting()
        self._searched = max(0, len(self._waiting) - len(_END))
        return found

    def rest(self) -> InvalidOutput | None:
        rest = bytes(self._waiting)
        return invalid_output(rest, "the bytes ended inside a frame") if rest.strip() else None

    def _cut_waiting(self) -> list[InvalidOutput]:
        waiting = self._waiting
        found: list[InvalidOutput] = []
        if not self._skipping and waiting[0] not in b"{[":  # what is rare is looked at closely
            cut = _first_beginning(waiting)
            found += _outside(bytes(waiting[:cut]))
            del waiting[:cut]
        if len(waiting) > self._max_frame_bytes:
            if not self._skipping:
                found.append(self._too_large(bytes(waiting)))
            self._skipping = True
            del waiting[: 1 - len(_END)]
        return found

    def _too_large(self, frame: bytes) -> InvalidOutput:
        # An emit can be in what is still to come of it, and is not looked at any more.
        return replace(
            invalid_output(frame, f"expected a frame of at most {self._max_frame_bytes} bytes"),
            may_be_emit=True,
        )


def _salvaged(frame: bytes) -> list[Any]:
    found: list[Any] = []
    outside: list[bytes] = []
    lines = frame.split(b"\n")
    attempts = _MAX_ATTEMPTS
    at = 0
    while at < len(lines):
        line, taken, message = lines[at], 1, None
        if _may_begin_message(line):
            if attempts and at + 1 < len(lines):
                attempts -= 1
                message, taken = _decoded(b"\n".join(lines[at:])), len(lines) - at
            if message is None:
                message, taken = _decoded(line), 1
        if message is None:
            outside.append(line)
        else:
            found += _outside(b"\n".join(outside))
            found.append(message)
            outside = []
        at += taken
    return found + _outside(b"\n".join(outside))


def _decoded(text: bytes) -> Any:
    """None if it is no message."""
    try:
        value = decoded_json(text)
    except (ValueError, RecursionError):
        return None
    return value if type(value) is dict or type(value) is list else None


def _may_begin_message(line: bytes | bytearray) -> bool:
    return line.removeprefix(BOM_UTF8).lstrip()[:1] in (b"{", b"[")


def _first_beginning(waiting: bytearray) -> int:
    at = 0
    while (line_end := waiting.find(b"\n", at)) >= 0 and not _may_begin_message(waiting[at:line_end]):
        at = line_end + 1
    return at


def _outside(text: bytes) -> list[InvalidOutput]:
    lines = [line for line in text.split(b"\n") if line.strip() not in (b"", b"end")]
    reason = "expected a JSON object or array, then a line `end`"
    return [invalid_output(b"\n".join(lines), reason)] if lines else []


_IN_JSON: Final = frozenset({str, int, bool, type(None)})
"""Types with a JSON form for every value; a float can be NaN."""
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
        if type(value) in always:
            continue
        if not (isinstance(value, (list, tuple)) and always.issuperset(map(type, value))):
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


CODECS: Final = {
    "json": Codec("json", msgspec.json.Encoder, JsonDecoder, end=_END, bytes_too=False),
    "msgpack": Codec("msgpack", msgspec.msgpack.Encoder, MessagePackDecoder, end=b"", bytes_too=True),
}
