"""Bytes into messages and back: the two codecs of the multilang protocol. No pipes here.

Storm's own framing is JSON in UTF-8, then a line ``end``. A message is an object or (task ids) an array; it may
stand on several lines, and lines may end as on Windows. pystorm's other framing is MessagePack values one after
the other, with nothing between.

A component's standard output is also where a stray ``print`` goes. What is no message becomes ``Junk`` and costs
no message after it: a decoder finds the next one by itself. For JSON that is the next line that begins one; a
message never begins in the middle of a line, because a broken message may end in what looks like a whole one.
"""

import json
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from kinesis_spout.storm.multilang.junk import Junk, junk_of
from kinesis_spout.storm.multilang.message_pack import MessagePackDecoder
from kinesis_spout.storm.multilang.sendable import UnsendableValue, plain_number_or_text, refuse_unsendable

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""A frame that is larger is junk. Kinesis has records of 10 MiB; several may be in one tuple."""

_END: Final = b"\nend\n"
_MAX_ATTEMPTS: Final = 64
"""Tries to find a message of several lines in one damaged frame; each costs at most a look at the whole frame."""


class Decoder(Protocol):
    """Takes bytes as they come and gives messages when they are whole. Mutable; one per stream of bytes."""

    def feed(self, data: bytes) -> list[Any]:
        """Give what is complete now, in order: objects and arrays (for ``messages.parse``), and ``Junk``."""
        ...

    def rest(self) -> Junk | None:
        """Give the incomplete frame in which the bytes ended. None if they ended between frames."""
        ...


class Codec(Protocol):
    """One way to write messages. Has no state; may be shared."""

    name: str
    """``json`` or ``msgpack``."""

    def encode(self, message: object, component: str) -> bytes:
        """Write a message (one of ``messages``, or plain values) as one frame.

        Args:
            message: what is to be written.
            component: who sends it, or to whom it goes; for the error.

        Raises:
            UnsendableValue: there is no form for one of its values.
        """
        ...

    def decoder(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> Decoder:
        """Give a new decoder."""
        ...


class JsonCodec:
    """Storm's protocol: JSON, then a line ``end``."""

    name = "json"

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=plain_number_or_text)

    def encode(self, message: object, component: str) -> bytes:
        """Write a message as one frame. Bytes, dates, NaN and the like are refused; see ``Codec.encode``."""
        return _encoded(self._encoder, message, component, bytes_too=False) + _END

    def decoder(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> "JsonDecoder":
        """Give a new decoder."""
        return JsonDecoder(max_frame_bytes)


class MessagePackCodec:
    """pystorm's ``msgpack`` serializer: MessagePack values one after the other. Bytes stay bytes."""

    name = "msgpack"

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=plain_number_or_text)

    def encode(self, message: object, component: str) -> bytes:
        """Write a message as one frame. Dates and the like, and integers beyond 64 bits, are refused."""
        return _encoded(self._encoder, message, component, bytes_too=True)

    def decoder(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> MessagePackDecoder:
        """Give a new decoder."""
        return MessagePackDecoder(max_frame_bytes)


CODECS: Final[dict[str, Codec]] = {codec.name: codec for codec in (JsonCodec(), MessagePackCodec())}
"""By name."""


class JsonDecoder:
    """Takes apart a stream of JSON frames. Mutable; see ``Decoder``.

    A whole line that is outside of a message, and begins no object or array, is junk at once, not only when its
    frame ends: so a component that prints and never speaks is heard, and memory stays small.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._decode = msgspec.json.Decoder().decode
        self._waiting = bytearray()
        self._searched = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[Any]:
        """Give what is complete now, in order."""
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
            try:
                found.append(_message(self._decode(frame)))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, _NoMessage):
                found += self._salvaged(frame)
        if waiting:
            found += self._cut_waiting()
        self._searched = max(0, len(self._waiting) - len(_END))
        return found

    def rest(self) -> Junk | None:
        """Give the incomplete frame after which the bytes ended."""
        return (
            junk_of(bytes(self._waiting), "the bytes ended inside a frame") if self._waiting.strip() else None
        )

    def _cut_waiting(self) -> list[Junk]:
        """Take away what waits for an end and is no frame, or too large for one."""
        waiting, found = self._waiting, []
        if not self._skipping and waiting[0] not in b"{[":  # what is rare is looked at closely
            cut = _first_beginning(waiting)
            junk = _outside(bytes(waiting[:cut]))
            found += [junk] if junk else []
            del waiting[:cut]
        if len(waiting) > self._max_frame_bytes:
            if not self._skipping:
                found.append(self._too_large(bytes(waiting)))
            self._skipping = True
            del waiting[: 1 - len(_END)]
        return found

    def _too_large(self, frame: bytes) -> Junk:
        # An emit may be in what is still to come of it, and is not looked at any more.
        return replace(
            junk_of(frame, f"expected a frame of at most {self._max_frame_bytes} bytes"), may_be_emit=True
        )

    def _salvaged(self, frame: bytes) -> list[Any]:
        """Find the messages in a frame that is not one message."""
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
                    message, taken = self._lenient(b"\n".join(lines[at:])), len(lines) - at
                if message is None:
                    message, taken = self._lenient(line), 1
            if message is None:
                outside.append(line)
            else:
                found += [junk for junk in [_outside(b"\n".join(outside))] if junk]
                found.append(message)
                outside = []
            at += taken
        return found + [junk for junk in [_outside(b"\n".join(outside))] if junk]

    def _lenient(self, text: bytes) -> Any:
        """Decode, also what components write although JSON has it not (NaN). None if it is no message."""
        try:
            return _message(json.loads(text))
        except (ValueError, RecursionError, _NoMessage):
            return None


class _NoMessage(Exception):  # noqa: N818 - never leaves this module
    """JSON that is neither an object nor an array."""


def _message(value: Any) -> Any:
    if type(value) is dict or type(value) is list:
        return value
    raise _NoMessage


def _may_begin_message(line: bytes | bytearray) -> bool:
    return line.lstrip()[:1] in (b"{", b"[")


def _first_beginning(waiting: bytearray) -> int:
    """Say where the first line begins that may begin a message, or that is not whole yet."""
    at = 0
    while (line_end := waiting.find(b"\n", at)) >= 0 and not _may_begin_message(waiting[at:line_end]):
        at = line_end + 1
    return at


def _outside(text: bytes) -> Junk | None:
    """Make junk of what stood outside of messages; blank lines and a lone ``end`` are none."""
    lines = [line for line in text.split(b"\n") if line.strip() not in (b"", b"end")]
    return junk_of(b"\n".join(lines), "expected a JSON object or array, then a line `end`") if lines else None


def _encoded(
    encoder: msgspec.json.Encoder | msgspec.msgpack.Encoder,
    message: object,
    component: str,
    *,
    bytes_too: bool,
) -> bytes:
    values = msgspec.structs.astuple(message) if isinstance(message, msgspec.Struct) else (message,)
    try:
        refuse_unsendable(values, component, bytes_too=bytes_too)
        return encoder.encode(message)
    except UnsendableValue:
        raise
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError) as error:
        raise UnsendableValue(
            f"component {component!r}: expected values that can be sent, got: {error}"
        ) from error
