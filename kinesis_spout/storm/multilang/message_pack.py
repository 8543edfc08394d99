"""MessagePack values, one after the other, out of any pieces of bytes.

MessagePack has no mark between values, and almost every byte begins some value: a stray ``print`` would be
taken for numbers, for texts, or for the head of a huge array that swallows what follows. So a value only
begins where a message can begin: at a mapping whose first key is a word of the protocol, or at an array of
numbers (task ids). Everything up to the next such mapping is invalid output; an array right after it would be
more of that.

msgspec decodes whole values only, so the end of a value is found first: it is where as many values are whole
as its containers said. One counter is enough for that, and it can wait for more bytes at any place.
"""

import re
from itertools import pairwise
from typing import Any, Final

import msgspec

from kinesis_spout.storm.multilang.protocol import InvalidOutput, invalid_output

_KEYS: Final = (
    *("command", "pid", "id", "tuple", "stream", "task", "comp", "anchors", "need_task_ids", "msg", "level"),
    *("name", "params", "conf", "context", "pidDir"),
)
_HEADS: Final = rb"(?:[\x81-\x8f]|\xde..|\xdf....)"
_BEGINNING: Final = re.compile(
    _HEADS + b"(?:" + b"|".join(bytes([0xA0 | len(key)]) + key.encode() for key in _KEYS) + b")", re.DOTALL
)
_TASK_IDS: Final = re.compile(
    rb"\x90|[\x91-\x9f][\x00-\x7f\xcc-\xcf\xd0-\xd3]|\xdc..[\x00-\x7f\xcc-\xcf\xd0-\xd3]", re.DOTALL
)
_MAY_BEGIN: Final = re.compile(rb"[\x81-\x9f\xdc\xde\xdf]")
_LONGEST_BEGINNING: Final = 5 + 1 + max(len(key) for key in _KEYS)
_EXPECTED: Final = (
    "expected a MessagePack mapping with a key of the multilang protocol, or an array of task ids"
)

_UNREADABLE: Final = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
    TypeError,  # msgspec before 0.22, of a mapping's key that is a mapping
)

# For each first byte of a value (the MessagePack specification's table of formats): how many bytes it has when
# that is fixed, how many values are in it, and how wide its length is when that comes next.
_SIZE: Final = [1] * 256
_VALUES_INSIDE: Final = [0] * 256
_LENGTH_WIDTH: Final = [0] * 256
_VALUES_INSIDE[0x80:0x90] = range(0, 32, 2)
_VALUES_INSIDE[0x90:0xA0] = range(16)
_SIZE[0xA0:0xC0] = range(1, 33)
_SIZE[0xCA:0xD9] = (5, 9, 2, 3, 5, 9, 2, 3, 5, 9, 3, 4, 6, 10, 18)
_LENGTH_WIDTH[0xC4:0xCA] = (1, 2, 4, 1, 2, 4)
_LENGTH_WIDTH[0xD9:0xE0] = (1, 2, 4, 2, 4, 2, 4)
_FIRST_LONG_ARRAY: Final = 0xDC
_FIRST_LONG_MAPPING: Final = 0xDE
_EXTENSIONS: Final = frozenset({0xC7, 0xC8, 0xC9})


class MessagePackDecoder:
    """Takes apart a stream of MessagePack messages. Mutable; a ``frames.Decoder``."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._decode = msgspec.msgpack.Decoder().decode
        self._waiting = bytearray()
        self._position = 0
        self._open = 0
        self._inside = False
        self._lost = False

    def feed(self, data: bytes) -> list[Any]:
        waiting = self._waiting
        waiting += data
        if self._position > len(waiting):
            return []
        found: list[Any] = []
        start, position, open_values, inside = 0, self._position, self._open, self._inside
        if not inside and not self._lost:
            start = position = self._decode_whole(found)
        while start < len(waiting):
            if not inside:
                invalid_end = self._next_beginning(start)
                if invalid_end > start:
                    found.append(invalid_output(bytes(waiting[start:invalid_end]), _EXPECTED))
                    start = position = invalid_end
                    self._lost = True
                if not self._begins_at(start):
                    break
                open_values, inside = 1, True
            position, open_values = _skip(waiting, position, open_values)
            is_whole = not open_values and position <= len(waiting)
            if position - start > self._max_frame_bytes:
                self._lost = True
                invalid_end = self._next_beginning(start + 1)
                reason = f"expected a frame of at most {self._max_frame_bytes} bytes"
                found.append(invalid_output(bytes(waiting[start:invalid_end]), reason))
                start, position, inside = invalid_end, invalid_end, False
                continue
            if not is_whole:
                break
            found.append(self._decoded(bytes(waiting[start:position])))
            start, inside, self._lost = position, False, False
        self._position, self._open, self._inside = position - start, open_values, inside
        del waiting[:start]
        return found

    def rest(self) -> InvalidOutput | None:
        return (
            invalid_output(bytes(self._waiting), "the bytes ended inside a frame") if self._waiting else None
        )

    def _decode_whole(self, found: list[Any]) -> int:
        """Take messages that follow each other, the quick way; say where that ended.

        A slice from one beginning to the next that decodes is a message: no value is the beginning of
        another. The slow way takes a slice that does not (a mapping inside a message looks like a beginning,
        or it is invalid).
        """
        waiting = bytes(self._waiting)
        starts = [match.start() for match in _BEGINNING.finditer(waiting)]
        if not starts or starts[0] != 0:
            return 0
        for start, end in pairwise([*starts, len(waiting)]):
            if end - start > self._max_frame_bytes:
                return start
            try:
                found.append(self._decode(waiting[start:end]))
            except _UNREADABLE:
                return start
        return len(waiting)

    def _begins_at(self, at: int) -> bool:
        if _BEGINNING.match(self._waiting, at):
            return True
        return not self._lost and _TASK_IDS.match(self._waiting, at) is not None

    def _next_beginning(self, at: int) -> int:
        """Where the next message begins, or can begin once more bytes are there; the end if nowhere."""
        waiting = self._waiting
        if self._begins_at(at):
            return at
        found = _BEGINNING.search(waiting, at)
        if found is not None:
            return found.start()
        perhaps = _MAY_BEGIN.search(waiting, max(at, len(waiting) - _LONGEST_BEGINNING + 1))
        return len(waiting) if perhaps is None else perhaps.start()

    def _decoded(self, frame: bytes) -> Any:
        try:
            return self._decode(frame)
        except _UNREADABLE as error:
            return invalid_output(frame, f"{_EXPECTED}; {error}")


def _skip(waiting: bytearray, position: int, open_values: int) -> tuple[int, int]:
    """Skip values until none is open, or the bytes end. Gives the place then, and how many are open."""
    size = len(waiting)
    while open_values and position < size:
        head = waiting[position]
        width = _LENGTH_WIDTH[head]
        if not width:
            position += _SIZE[head]
            open_values += _VALUES_INSIDE[head] - 1
            continue
        body = position + 1 + width
        if body > size:
            break
        length = int.from_bytes(waiting[position + 1 : body], "big")
        if head >= _FIRST_LONG_ARRAY:
            position = body
            open_values += (2 * length if head >= _FIRST_LONG_MAPPING else length) - 1
        else:
            position = body + length + (head in _EXTENSIONS)
            open_values -= 1
    return position, open_values
