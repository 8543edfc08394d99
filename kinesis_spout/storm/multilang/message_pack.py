"""MessagePack values, one after the other, out of any pieces of bytes.

MessagePack has no mark between values, and almost every byte begins some value: a stray ``print`` would be
taken for numbers, for texts, or for the head of a huge array that swallows what follows. So a value only
begins where a message can begin: at a mapping whose first key is a word of the protocol, or at an array of
numbers (task ids). Everything up to the next such mapping is invalid output; an array right after it would be
more of that.
"""

import re
from typing import Any, Final

import msgpack
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
_MOST_ITEMS: Final = 2**31 - 1
"""The most items of a list or a mapping: as far as the library can count."""
_EXPECTED: Final = (
    "expected a MessagePack mapping with a key of the multilang protocol, or an array of task ids"
)


class MessagePackDecoder:
    """Takes apart a stream of MessagePack messages. Mutable; a ``frames.Decoder``."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._waiting = bytearray()
        """Bytes that are not given out yet. The unpacker has the same, and may have begun to read them."""
        self._unpacker = self._new_unpacker()
        self._began_at: int | None = None
        """The beginning of the message that is waiting, as the unpacker counts; None before it is known."""
        self._is_lost = False
        """True if invalid output came last."""

    def feed(self, data: bytes) -> list[Any]:
        waiting = self._waiting
        waiting += data
        self._unpacker.feed(data)
        found: list[Any] = []
        start = 0
        while start < len(waiting):
            if self._began_at is None:
                invalid_end = self._next_beginning(start)
                if invalid_end > start:
                    invalid = self._unpacker.read_bytes(invalid_end - start)
                    found.append(invalid_output(invalid, _EXPECTED))
                    start, self._is_lost = invalid_end, True
                if not self._begins_at(start):
                    break
                self._began_at = self._unpacker.tell()
            message, reason = None, ""
            try:
                message = self._unpacker.unpack()
            except msgpack.OutOfData:
                if len(waiting) - start <= self._max_frame_bytes:
                    break
            except (ValueError, TypeError, RecursionError) as error:
                reason = f"{_EXPECTED}; {error}"
            size_bytes = self._unpacker.tell() - self._began_at
            self._began_at = None
            if message is None or size_bytes > self._max_frame_bytes:
                reason = reason or f"expected a frame of at most {self._max_frame_bytes} bytes"
                self._is_lost = True
                invalid_end = self._next_beginning(start + 1)
                found.append(invalid_output(bytes(waiting[start:invalid_end]), reason))
                start = invalid_end
                self._unpacker = self._new_unpacker()
                self._unpacker.feed(waiting[start:])
            else:
                self._is_lost = False
                found.append(message)
                start += size_bytes
        del waiting[:start]
        return found

    def rest(self) -> InvalidOutput | None:
        return (
            invalid_output(bytes(self._waiting), "the bytes ended inside a frame") if self._waiting else None
        )

    def _new_unpacker(self) -> msgpack.Unpacker:
        most_items = min(self._max_frame_bytes, _MOST_ITEMS)
        return msgpack.Unpacker(
            strict_map_key=False,
            ext_hook=msgspec.msgpack.Ext,
            max_buffer_size=0,
            max_array_len=most_items,
            max_map_len=most_items,
        )

    def _begins_at(self, at: int) -> bool:
        if _BEGINNING.match(self._waiting, at):
            return True
        return not self._is_lost and _TASK_IDS.match(self._waiting, at) is not None

    def _next_beginning(self, at: int) -> int:
        """Find where the next message begins, or can begin once more bytes are there; the end if nowhere."""
        waiting = self._waiting
        if self._begins_at(at):
            return at
        found = _BEGINNING.search(waiting, at)
        if found is not None:
            return found.start()
        perhaps = _MAY_BEGIN.search(waiting, max(at, len(waiting) - _LONGEST_BEGINNING + 1))
        return len(waiting) if perhaps is None else perhaps.start()
