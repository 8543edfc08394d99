"""HTTP/1.1 as bytes, without sockets: makes requests, and takes answers in piece by piece.

Answers are narrow on purpose: heads that end in CRLF, one Content-Length or chunks. Everything else is
refused, and its connection closed. https://www.rfc-editor.org/rfc/rfc9112
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

_END: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"
KEPT_BYTES: Final = 16 * 1024
"""The buffer of a connection: a head, an answer without records, a record of TLS."""
_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_BODY_BYTES: Final = 256 * 1024 * 1024
"""Far more than a page of Kinesis: a page has 10 MiB of data, and base64 and keys."""
_MAX_SIZE_LINE_BYTES: Final = 1_024
_LONGEST_REASON: Final = 100
_SWITCHING, _OK = 101, 200
_BODILESS: Final = frozenset({204, 304})


class ProtocolError(ConnectionError):
    """An answer is not HTTP/1.1 as expected here."""


def request_start(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return what several requests begin with; `request` makes one of it."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1")


def tunnel_request(host: str, port: int, headers: Mapping[str, str]) -> bytes:
    """Return what asks a proxy to connect to a host."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return request_start("CONNECT", target, {"Host": target, **headers}) + _HEAD_END


def request(start: bytes, authorization: str, body: bytes) -> bytes:
    return b"%b\r\nAuthorization: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        start,
        authorization.encode("latin-1"),
        len(body),
        body,
    )


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    """With names in lower case."""
    body: bytes | bytearray
    """The caller's."""
    closes: bool
    """The connection takes no other request."""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")


class ReplyReader:
    """Reads one answer after the other. Mutable.

    For each: receive into ``space()``, and say how much came by ``received``, until that returns the reply.
    """

    def __init__(self) -> None:
        self._kept = bytearray(KEPT_BYTES)
        self._view = memoryview(self._kept)
        self._begin()

    def _begin(self) -> None:
        self._filled = 0
        """Bytes received: of the head in the kept buffer, then of the body."""
        self._head: Head | None = None
        self._body = bytearray()
        self._body_view = memoryview(b"")
        self._begun_with = b""
        """The part of the body that came with the head."""
        self._chunks: Chunks | None = None

    @property
    def has_begun(self) -> bool:
        """Return whether any byte of the answer has come."""
        return self._filled > 0 or self._head is not None

    def space(self) -> memoryview:
        if self._head is None:
            return self._view[self._filled :]
        if self._head.length is None:
            return self._view
        if not self._body:
            self._body = bytearray(self._head.length)
            self._body_view = memoryview(self._body)
            self._filled = len(self._begun_with)
            self._body_view[: self._filled] = self._begun_with
        return self._body_view[self._filled :]

    def received(self, count: int) -> Reply | None:
        """Take what was received; 0: the server sends no more.

        Raises:
            ProtocolError: the answer has an unexpected form.
            ConnectionError: it ends too early.
        """
        if self._head is None:
            return self._head_received(count)
        if self._head.length is not None:
            return self._body_received(count)
        return self._stream_received(bytes(self._view[:count]), is_end=count == 0)

    def _head_received(self, count: int) -> Reply | None:
        if count == 0:
            raise ConnectionError(f"expected an answer, got {self._filled} bytes of its head and the end")
        self._filled += count
        read = _head_in(bytes(self._view[: self._filled]))
        if isinstance(read, tuple):
            return self.body_follows(*read)
        self._view[: len(read)] = read
        self._filled = len(read)
        if self._filled == len(self._kept):
            self._grow()
        return None

    def _grow(self) -> None:
        if len(self._kept) >= _MAX_HEAD_BYTES:
            raise ProtocolError(
                f"expected the head of an answer, got {len(self._kept)} bytes without its end"
            )
        self._kept = self._kept + bytearray(len(self._kept))
        self._view = memoryview(self._kept)

    def body_follows(self, head: "Head", rest: bytes) -> Reply | None:
        """Take a head that was read, and what came with it; return like ``received``."""
        self._head = head
        length = head.length
        if length is None:
            self._chunks = Chunks() if head.is_chunked else None
            return self._stream_received(rest, is_end=False) if rest else None
        if len(rest) >= length:
            return self._finished(rest[:length], is_alone=len(rest) == length)
        self._begun_with = rest
        return None

    def _body_received(self, count: int) -> Reply | None:
        self._filled += count
        if self._filled == len(self._body):
            return self._finished(self._body, is_alone=True)
        if count == 0:
            raise ConnectionError(f"expected {len(self._body)} bytes, got {self._filled}")
        return None

    def _stream_received(self, data: bytes, *, is_end: bool) -> Reply | None:
        """Take a piece of a body whose length was not announced."""
        if self._chunks is None:
            self._body += data
            self._check_size()
            return self._finished(self._body, is_alone=False) if is_end else None
        if is_end:
            raise ConnectionError(f"expected another chunk after {len(self._body)} bytes, got the end")
        self._body += self._chunks.taken(data)
        self._check_size()
        return self._finished(self._body, is_alone=not self._chunks.rest) if self._chunks.ended else None

    def _check_size(self) -> None:
        if len(self._body) > _MAX_BODY_BYTES:
            raise ProtocolError(f"expected at most {_MAX_BODY_BYTES} bytes, got more")

    def _finished(self, body: bytes | bytearray, *, is_alone: bool) -> Reply:
        assert self._head is not None
        reply = Reply(self._head.status, self._head.headers, body, closes=self._head.closes or not is_alone)
        self._begin()
        return reply


def read_head(receive: Callable[[], bytes]) -> "tuple[Head, bytes]":
    """Read the head of an answer, and what comes with it, from a source that blocks; it returns b"" at its end.

    Raises:
        ProtocolError: the answer has an unexpected form.
        ConnectionError: it ends too early.
    """
    data = b""
    while True:
        piece = receive()
        if not piece:
            raise ConnectionError(f"expected an answer, got {len(data)} bytes of its head and the end")
        read = _head_in(data + piece)
        if isinstance(read, tuple):
            return read
        if len(read) >= _MAX_HEAD_BYTES:
            raise ProtocolError(f"expected the head of an answer, got {len(read)} bytes without its end")
        data = read


def _head_in(data: bytes) -> "tuple[Head, bytes] | bytes":
    """Return the head and what follows it; or, if the head is not whole, what was received of it."""
    while (end := data.find(_HEAD_END)) >= 0:
        head, rest = Head.of(data[:end]), data[end + len(_HEAD_END) :]
        if head.status >= _OK:
            return head, rest
        data = rest  # 100 Continue and the like announce the answer
    return data


class Head(NamedTuple):
    status: int
    reason: str
    """The server's words for the status, without control characters."""
    headers: dict[str, str]
    length: int | None
    """None: the body comes in chunks, or ends with the connection."""
    is_chunked: bool
    closes: bool

    @classmethod
    def of(cls, head: bytes) -> "Head":
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if (
            version not in {"HTTP/1.1", "HTTP/1.0"}
            or not (code.isascii() and code.isdecimal())
            or rest[3:4].strip()
        ):
            raise ProtocolError(f"expected HTTP/1.1 and a status, got {first[:40]!r}")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip() or not name:
                raise ProtocolError(f"expected a header, got {line[:40]!r}")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        status, coding = int(code), headers.get("transfer-encoding")
        reason = "".join(filter(str.isprintable, rest[4:_LONGEST_REASON]))
        if status == _SWITCHING or coding not in {None, "chunked", "Chunked"}:
            raise ProtocolError(f"expected an answer of HTTP/1.1, got status {status} coded as {coding!r}")
        connection = headers.get("connection", "").lower()
        closes = "close" in connection or (version == "HTTP/1.0" and "keep-alive" not in connection)
        if coding is not None:
            # A length in addition is void, and a sign that someone on the way understands HTTP in another way.
            return cls(
                status, reason, headers, None, is_chunked=True, closes=closes or "content-length" in headers
            )
        if status in _BODILESS:
            return cls(status, reason, headers, 0, is_chunked=False, closes=closes)
        length = headers.get("content-length")
        if length is None:
            return cls(status, reason, headers, None, is_chunked=False, closes=True)
        if (
            not (length.isascii() and length.isdecimal())
            or len(length) > len(str(_MAX_BODY_BYTES))
            or int(length) > _MAX_BODY_BYTES
        ):
            raise ProtocolError(f"expected a length of up to {_MAX_BODY_BYTES} bytes, got {length[:40]!r}")
        return cls(status, reason, headers, int(length), is_chunked=False, closes=closes)


class Chunks:
    """Removes the chunked coding from a body. Mutable."""

    def __init__(self) -> None:
        self._coded = bytearray()
        self._left: int | None = None
        """Bytes left of the chunk; None: its size comes next."""
        self._is_trailer = False
        self.ended = False

    @property
    def rest(self) -> int:
        """The number of bytes after the end."""
        return len(self._coded)

    def taken(self, data: bytes) -> bytes:
        """Return what of the body is in these bytes, and in what came before. Raises ProtocolError."""
        coded = self._coded
        coded += data
        body = bytearray()
        while not self.ended:
            if self._left is None:
                if not self._line_taken():
                    break
            elif self._left:
                taken = min(self._left, len(coded))
                body += memoryview(coded)[:taken]
                del coded[:taken]
                self._left -= taken
                if self._left:
                    break
            elif len(coded) < len(_END):
                break
            elif not coded.startswith(_END):
                raise ProtocolError(f"expected a body in chunks, got {bytes(coded[:20])!r}")
            else:
                del coded[: len(_END)]
                self._left = None
        return bytes(body)

    def _line_taken(self) -> bool:
        """Take a chunk's size, or a line of the trailer; False if it has not come yet."""
        end = self._coded.find(_END)
        if end < 0:
            if len(self._coded) > _MAX_SIZE_LINE_BYTES:
                raise ProtocolError(f"expected a body in chunks, got {bytes(self._coded[:20])!r}")
            return False
        line = bytes(self._coded[:end])
        del self._coded[: end + len(_END)]
        if self._is_trailer:
            self.ended = not line
            return True
        digits = line.partition(b";")[0].strip()
        if not digits or digits.strip(b"0123456789abcdefABCDEF") or len(digits) > 8:  # noqa: PLR2004 - 4 GiB
            raise ProtocolError(f"expected the size of a chunk, got {line[:20]!r}")
        size = int(digits, 16)
        self._left, self._is_trailer = size or None, size == 0
        return True
