"""The connection between the reader and a task: authenticated, with messages that carry pages.

Messages go over a Unix socket where both ends are on one machine (Linux), else over TCP, which costs more. Both
ends prove that they know a key (``processes.keyed_connections``). Nothing is encrypted.
"""

import contextlib
import logging
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from kinesis_spout.processes.keyed_connections import HANDSHAKE_SECONDS, introduce
from kinesis_spout.processes.message_channel import MessageChannel
from kinesis_spout.structured.pages.page_buffer import Segment

_MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
_WANTED: Final = struct.Struct("!4Q")
"""A segment, and the rows to send at once of it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServerAddress:
    """Where a reader serves its pages; travels to the executors."""

    host: str
    port: int
    local: str | None = None
    """The name for those on the same machine."""
    key: bytes = field(repr=False)


def listen(host: str) -> socket.socket:
    """Listen to the network, at a port of the system's choice."""
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


class PageChannel(MessageChannel):
    """One end of a connection over which pages are asked for, and sent."""

    @classmethod
    def connected(cls, address: PageServerAddress, *, wait_seconds: float) -> Self:
        """Connect to a server, and prove each other.

        Raises:
            OSError: it cannot be reached, or is not the right one, or has no slot for this connection.
        """
        connected = _connect(address)
        try:
            introduce(connected, address.key)
            return cls(connected, wait_seconds=wait_seconds)
        except BaseException:
            connected.close()
            raise

    def ask(self, segments: Sequence[Segment], rows_at_once: int) -> None:
        """Ask for segments, of which so many rows are sent at once."""
        self.send(b"".join(_WANTED.pack(*segment, rows_at_once) for segment in segments))

    def asked(self) -> list[tuple[Segment, int]]:
        """Wait for a request.

        Returns:
            The segments that are wanted, each with how many rows to send at once.

        Raises:
            OSError: as ``receive``; also if it is no request.
        """
        request = self.receive(_MAX_REQUEST_BYTES)
        if request.size % _WANTED.size:
            raise OSError(f"expected a request for pages, got {request.size} bytes")
        return [
            (Segment(page, offset, rows), max(1, rows_at_once))
            for page, offset, rows, rows_at_once in _WANTED.iter_unpack(request)
        ]


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
    """Give the address of a Unix socket that is in no folder and vanishes with its listener (Linux)."""
    return b"\0kinesis-spout-" + name.encode()
