"""The connection between the reader and a task: authenticated, with messages that carry pages.

Messages use a Unix socket where both ends are on one machine (Linux), else TCP, which costs more. Both ends
prove that they know a key (``processes.keyed_connections``). Nothing is encrypted.

Tasks fetch pages with ``fetch_segments``. A Python worker keeps its connections for its next tasks.
"""

import contextlib
import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import pyarrow as pa

from kinesis_spout.processes.keyed_connections import HANDSHAKE_SECONDS, introduce
from kinesis_spout.processes.message_channel import MessageChannel
from kinesis_spout.structured.pages.page_buffer import PageSegment

_MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
_HAS_LOCAL_NAMES: Final = sys.platform == "linux"
_FORGIVE_AFTER_SECONDS: Final = 60.0
"""An unreachable server is not tried again for so long: each try can cost a time-out."""
_ANSWER_SECONDS: Final = 60.0
"""A task waits for a page for so long, before it reads Kinesis instead."""
_KEPT_CONNECTIONS: Final = 8
"""A Python worker outlives many queries, each with its own server."""

_WANTED: Final = struct.Struct("!4Q")
"""A segment, and the rows to send at once of it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServerAddress:
    """The address at which a reader serves its pages; travels to the executors."""

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
    if not _HAS_LOCAL_NAMES:
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
    """One end of a connection over which pages are requested and sent. Mutable."""

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

    def ask(self, segments: Sequence[PageSegment], rows_at_once: int) -> None:
        self.send(b"".join(_WANTED.pack(*segment, rows_at_once) for segment in segments))

    def asked(self) -> list[tuple[PageSegment, int]]:
        """Wait for a request: the segments, each with how many rows to send at once."""
        request = self.receive(_MAX_REQUEST_BYTES)
        if len(request) % _WANTED.size:
            raise OSError(f"expected a request for pages, got {len(request)} bytes")
        return [
            (PageSegment(page, offset, rows), max(1, rows_at_once))
            for page, offset, rows, rows_at_once in _WANTED.iter_unpack(request)
        ]

    def receive_buffer(self) -> pa.Buffer:
        """Wait for a message in memory of Arrow's. Raises as ``receive``."""
        return self.receive(allocate=pa.allocate_buffer)


def _connect(address: PageServerAddress) -> socket.socket:
    if address.local is not None and _HAS_LOCAL_NAMES:
        local = socket.socket(socket.AF_UNIX)
        local.settimeout(HANDSHAKE_SECONDS)
        with contextlib.suppress(OSError):  # it is on another machine, or such sockets are not allowed here
            local.connect(_abstract(address.local))
            return local
        local.close()
    return socket.create_connection((address.host, address.port), timeout=HANDSHAKE_SECONDS)


def _abstract(name: str) -> bytes:
    """A Unix socket address that is in no folder and vanishes with its listener (Linux)."""
    return b"\0kinesis-spout-" + name.encode()


def fetch_segments(
    address: PageServerAddress, segments: Sequence[PageSegment], schema: pa.Schema, *, rows_at_once: int
) -> Generator[pa.RecordBatch, None, None]:
    """Yield rows up to the first missing segment. A connection not read to its end is not reused."""
    channel = _connections.take(address)
    if channel is None:
        return
    is_kept = False
    try:
        channel.ask(segments, rows_at_once)
        for number, segment in enumerate(segments, 1):
            left = segment.rows
            while left > 0:
                body = channel.receive_buffer()
                batch = pa.ipc.read_record_batch(body, schema) if body.size else None
                left -= segment.rows if batch is None else batch.num_rows
                if number == len(segments) and left <= 0:
                    _connections.put_back(address, channel)
                    is_kept = True
                if batch is None:
                    return
                yield batch
    except OSError as error:
        _log.warning("the reader no longer serves its pages, reading Kinesis again: %r", error)
    finally:
        if not is_kept:
            channel.close()


class _Connections:
    """This worker's idle connections. Mutable; a Python worker runs one task at a time."""

    def __init__(self) -> None:
        self._idle: dict[PageServerAddress, PageChannel] = {}
        self._unreachable: dict[PageServerAddress, float] = {}

    def take(self, address: PageServerAddress) -> PageChannel | None:
        """None if the server cannot be reached."""
        idle = self._idle.pop(address, None)
        if idle is not None:
            if idle.is_quiet():
                return idle
            idle.close()  # the server ended it: nothing was asked for long, or others needed its slot
        if time.monotonic() < self._unreachable.get(address, 0.0):
            return None
        try:
            return PageChannel.connected(address, wait_seconds=_ANSWER_SECONDS)
        except OSError as error:
            _log.warning(
                "the reader's pages at %s:%d cannot be reached, reading Kinesis again (twice the read traffic; "
                "set pageServerHost to an address of the driver that executors reach): %r",
                address.host,
                address.port,
                error,
            )
            now = time.monotonic()
            self._unreachable = {known: until for known, until in self._unreachable.items() if until > now}
            self._unreachable[address] = now + _FORGIVE_AFTER_SECONDS
            return None

    def put_back(self, address: PageServerAddress, channel: PageChannel) -> None:
        """Keep an idle connection, and close the least recently used one if there are too many."""
        self._idle[address] = channel
        while len(self._idle) > _KEPT_CONNECTIONS:
            self._idle.pop(next(iter(self._idle))).close()

    def forget(self) -> None:
        while self._idle:
            self._idle.popitem()[1].close()


_connections = _Connections()

if hasattr(os, "register_at_fork"):
    # Two processes that ask on one connection would get each other's pages.
    os.register_at_fork(after_in_child=_connections.forget)
