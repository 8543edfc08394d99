"""An HTTP/1.1 answer whose body comes over minutes: its head, and its body in pieces."""

import socket
from dataclasses import dataclass
from typing import Final

from kinesis_spout.model.errors import Unavailable

_LONGEST_HEAD_BYTES: Final = 65_536
_LONGEST_SIZE_LINE: Final = 1_024
_END: Final = b"\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """The status and the headers of an answer."""

    status: int
    headers: dict[str, str]
    """By their names in lower case."""

    @classmethod
    def parse(cls, head: bytes) -> "AnswerHead":
        """Parse what stands before the empty line.

        Raises:
            ConnectionError: it is no HTTP/1.1.
        """
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise ConnectionError(f"expected an answer in HTTP/1.1, got {first[:100]!r}")
        pairs = (line.partition(":") for line in lines)
        return cls(
            status=int(status[:3]),
            headers={name.strip().lower(): value.strip() for name, _, value in pairs},
        )


def read_head(connection: socket.socket) -> tuple[AnswerHead, bytes]:
    """Read the head of an answer from a blocking socket, and the first bytes of the body, which came with it.

    Raises:
        OSError: the connection ended, is slower than its time-out, or speaks something else.
    """
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        if len(received) > _LONGEST_HEAD_BYTES:
            raise ConnectionError(
                f"expected the head of an answer, got {len(received)} bytes without its end"
            )
        piece = connection.recv(_LONGEST_HEAD_BYTES)
        if not piece:
            raise ConnectionError(f"expected the head of an answer, got {len(received)} bytes and the end")
        received += piece
    head = AnswerHead.parse(received[:end])
    if head.status == 100:  # noqa: PLR2004 - HTTP's "go on": the answer follows
        raise ConnectionError("expected an answer, got 100 Continue, which was not asked for")
    return head, received[end + 4 :]


class AnswerBody:
    """Takes the transfer coding off a body. Mutable.

    Args:
        head: of the answer.
    """

    def __init__(self, head: AnswerHead) -> None:
        self._is_chunked = "chunked" in head.headers.get("transfer-encoding", "").lower()
        length = head.headers.get("content-length", "")
        self._left = int(length) if length.isdecimal() and not self._is_chunked else None
        """Of the body, or of the chunk, in bytes; None: until the connection ends, or not known yet."""
        self._coded = bytearray()
        self._in_chunk = False
        self.ended = self._left == 0
        """Whether the body is complete."""

    def feed(self, data: bytes) -> bytes:
        """Take in what came over the connection, and give what it says of the body.

        Raises:
            Unavailable: it is not coded as the head says.
        """
        if self._is_chunked:
            return self._without_chunks(data)
        if self._left is None:
            return data
        piece = data[: self._left]
        self._left -= len(piece)
        self.ended = self._left == 0
        return piece

    def _without_chunks(self, data: bytes) -> bytes:
        coded = self._coded
        coded += data
        body = bytearray()
        while not self.ended:
            if self._in_chunk:
                assert self._left is not None
                taken = min(self._left, len(coded))
                body += memoryview(coded)[:taken]
                del coded[:taken]
                self._left -= taken
                if self._left or len(coded) < len(_END):
                    break
                if coded[: len(_END)] != _END:
                    raise _not_chunked(bytes(coded[:20]))
                del coded[: len(_END)]
                self._in_chunk = False
            elif not self._begin_chunk():
                break
        return bytes(body)

    def _begin_chunk(self) -> bool:
        """Take the size of the next chunk off; False if it has not come yet."""
        end = self._coded.find(_END)
        if end < 0:
            if len(self._coded) > _LONGEST_SIZE_LINE:
                raise _not_chunked(bytes(self._coded[:20]))
            return False
        size = bytes(self._coded[:end]).partition(b";")[0].strip()
        del self._coded[: end + len(_END)]
        try:
            self._left = int(size, 16)
        except ValueError as error:
            raise _not_chunked(size[:20]) from error
        self._in_chunk = self._left > 0
        self.ended = self._left == 0
        return True


def _not_chunked(found: bytes) -> Unavailable:
    return Unavailable(f"expected a body in chunks, got {found!r}; the shard is subscribed to again")
