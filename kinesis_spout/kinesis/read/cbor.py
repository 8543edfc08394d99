"""CBOR (RFC 8949) as Kinesis writes it, decoded in Python: ``application/x-amz-cbor-1.1``.

Tags are passed over. The only one that Kinesis writes is 1, for a time, with whole milliseconds where the RFC says
seconds: ``cbor2`` and others refuse them.
"""

import struct
from typing import Any, Final

_NUMBER, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_BREAK: Final = 0xFF
_BYTES_FOLLOW: Final = 24
_UNTIL_BREAK: Final = 31
_DEEPEST: Final = 100
_SIMPLE_VALUES: Final = {20: False, 21: True, 22: None, 23: None}
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}


def decode(body: bytes | bytearray | memoryview) -> Any:
    """Decode one value, which is all of ``body``. Raises ValueError for anything else."""
    decoder = _Decoder(body)
    try:
        value = decoder.value(0)
    except IndexError as error:
        raise ValueError(f"the CBOR ends inside a value, after {decoder.size} bytes") from error
    if decoder.at != decoder.size:
        raise ValueError(f"expected one value of CBOR, got {decoder.size - decoder.at} bytes after it")
    return value


class _Decoder:
    def __init__(self, body: bytes | bytearray | memoryview) -> None:
        self._body = memoryview(body).cast("B")
        self.size = len(self._body)
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError(f"expected at most {_DEEPEST} values inside each other")
        major, info = divmod(self._body[self.at], 32)
        self.at += 1
        if major == _SIMPLE:
            return self._simple(info)
        return (
            self._until_break(major, depth) if info == _UNTIL_BREAK else self._of_length(major, info, depth)
        )

    def _of_length(self, major: int, info: int, depth: int) -> Any:
        argument = self._argument(info)
        if major == _MAP:
            return {self._name(depth): self.value(depth + 1) for _ in range(argument)}
        if major == _ARRAY:
            return [self.value(depth + 1) for _ in range(argument)]
        if major in {_BYTES, _TEXT}:
            content = self._taken(argument)
            return content.decode() if major == _TEXT else content
        if major == _TAG:
            return self.value(depth + 1)
        return argument if major == _NUMBER else -1 - argument

    def _until_break(self, major: int, depth: int) -> Any:
        values: list[Any] = []
        while self._body[self.at] != _BREAK:
            if major == _MAP:
                values.append((self._name(depth), self.value(depth + 1)))
            else:
                values.append(self.value(depth + 1))
        self.at += 1
        if major == _ARRAY:
            return values
        if major == _MAP:
            return dict(values)
        kind = {_BYTES: bytes, _TEXT: str}.get(major)
        if kind is None or any(type(piece) is not kind for piece in values):
            raise ValueError(f"expected pieces of one text, got pieces of type {major} of CBOR")
        return kind().join(values)

    def _name(self, depth: int) -> str:
        name = self.value(depth + 1)
        if not isinstance(name, str):
            raise ValueError(f"expected text for the name of a member, got {type(name).__name__}")  # noqa: TRY004
        return name

    def _argument(self, info: int) -> int:
        """Read a length, or a whole number: up to 23 it is in the first byte, else in 1, 2, 4 or 8 that follow."""
        if info < _BYTES_FOLLOW:
            return info
        if info >= _BYTES_FOLLOW + 4:
            raise ValueError(f"expected a length of CBOR, got {info}")
        return int.from_bytes(self._taken(1 << (info - _BYTES_FOLLOW)))

    def _taken(self, length: int) -> bytes:
        if length > self.size - self.at:
            raise IndexError
        taken = bytes(self._body[self.at : self.at + length])
        self.at += length
        return taken

    def _simple(self, info: int) -> Any:
        form = _FLOATS.get(info)
        if form is not None:
            return struct.unpack(form, self._taken(struct.calcsize(form)))[0]
        if info not in _SIMPLE_VALUES:
            raise ValueError(f"expected a simple value of CBOR, got {info}")
        return _SIMPLE_VALUES[info]
