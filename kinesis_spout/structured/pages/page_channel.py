"""The connection between the reader and a task: authenticated, with messages that carry pages.

Messages use a Unix socket where both ends are on one machine (Linux), else TCP, which costs more. Both ends
prove that they know a key (``processes.keyed_connections``). Nothing is encrypted.
"""

import contextlib
import logging
import os
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import pyarrow as pa

from kinesis_spout.processes.keyed_connections import HANDSHAKE_SECONDS, introduce
from kinesis_spout.structured.pages.page_buffer import Segment

_MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
_WANTED: Final = struct.Struct("!4Q")
"""A segment, and the rows to send at once of it."""

_SMALL_BYTES: Final = 1024
"""A body of at most this size is sent together with its length."""
_LENGTH: Final = struct.Struct("!Q")
_TIME: Final = struct.Struct("@ll")
"""Seconds and microseconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServerAddress:
    """Where a reader serves its pages; travels to the executors."""

    host: str
    port: int
    local: str | None = None
    """The name for clients on the same machine."""
    key: bytes = field(repr=False)


def listen(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=128)


def listen_locally(name: str) -> socket.socket | None:
    """Listen to this machine alone; None where the system has no abstract Unix sockets (all but Linux)."""
    if not _has_local_names():
        return None
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(_abstract(name))
        listening.listen(128)
    except OSError as error:
        listening.close()
        _log.info("pages go over TCP, because this machine allows no abstract Unix sockets: %r", error)
        return None
    return listening


class PageChannel:
    """One end of a connection over which pages are requested and sent. A message is its length and its bytes.

    Mutable; owns its socket, which is authenticated; one thread's at a time. ``receive`` fails when nothing
    comes for ``wait_seconds``.
    """

    def __init__(self, connected: socket.socket, *, wait_seconds: float | None) -> None:
        self._socket = connected
        self._wait_seconds = wait_seconds
        connected.setblocking(True)
        if connected.family != getattr(socket, "AF_UNIX", None):
            # A message is sent as a length and a body: Nagle's algorithm would delay the body's end by 40 ms.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wait_seconds is not None and os.name != "nt":  # which takes such times in another form
            time = _TIME.pack(int(wait_seconds), round(wait_seconds % 1 * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)

    @classmethod
    def connected(cls, address: PageServerAddress, *, wait_seconds: float) -> Self:
        """Connect and authenticate both ends. Raises OSError, also if there is no slot free."""
        connected = _connect(address)
        try:
            introduce(connected, address.key)
            return cls(connected, wait_seconds=wait_seconds)
        except BaseException:
            connected.close()
            raise

    def ask(self, segments: Sequence[Segment], rows_at_once: int) -> None:
        self.send(b"".join(_WANTED.pack(*segment, rows_at_once) for segment in segments))

    def asked(self) -> list[tuple[Segment, int]]:
        """Wait for a request: the segments, each with how many rows to send at once."""
        request = self.receive(_MAX_REQUEST_BYTES)
        if request.size % _WANTED.size:
            raise OSError(f"expected a request for pages, got {request.size} bytes")
        return [
            (Segment(page, offset, rows), max(1, rows_at_once))
            for page, offset, rows, rows_at_once in _WANTED.iter_unpack(request)
        ]

    def close(self) -> None:
        self._socket.close()

    def is_quiet(self) -> bool:
        """Whether the other end waits for a request: it neither closed the connection nor sent anything."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._socket.setblocking(True)
        return False

    def send(self, body: bytes | pa.Buffer) -> None:
        content = memoryview(body)
        length = _LENGTH.pack(content.nbytes)
        if content.nbytes <= _SMALL_BYTES:
            self._socket.sendall(length + content)
        else:
            self._socket.sendall(length)
            self._socket.sendall(content)

    def receive(self, at_most: int | None = None) -> pa.Buffer:
        """Wait for a message. Raises OSError, also if more than ``at_most`` bytes were announced."""
        (size,) = _LENGTH.unpack(self._received(_LENGTH.size))
        if at_most is not None and size > at_most:
            raise OSError(f"expected a message of at most {at_most} bytes, got one of {size}")
        return self._received(size)

    def _received(self, size: int) -> pa.Buffer:
        body = pa.allocate_buffer(size)
        left = memoryview(body).cast("B")
        while left:
            try:
                count = self._socket.recv_into(left, 0, socket.MSG_WAITALL)
            except BlockingIOError as error:
                raise TimeoutError(f"nothing came for {self._wait_seconds:g} s") from error
            if not count:
                raise ConnectionError("the other end closed the connection")
            left = left[count:]
        return body


def _connect(address: PageServerAddress) -> socket.socket:
    if address.local is not None and _has_local_names():
        local = socket.socket(socket.AF_UNIX)
        local.settimeout(HANDSHAKE_SECONDS)
        with contextlib.suppress(OSError):  # it is on another machine, or such sockets are not allowed here
            local.connect(_abstract(address.local))
            return local
        local.close()
    return socket.create_connection((address.host, address.port), timeout=HANDSHAKE_SECONDS)


def _has_local_names() -> bool:
    return sys.platform == "linux"


def _abstract(name: str) -> bytes:
    """A Unix socket address that is in no folder and vanishes with its listener (Linux)."""
    return b"\0kinesis-spout-" + name.encode()
