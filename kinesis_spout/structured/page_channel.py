"""The connection between the reader and a task: authenticated, with messages that carry pages.

Where both are on one machine and it is Linux, a message can pass on memory instead of what is in it: the reader
writes a page once, and the task maps it. Else, and for small pages, messages carry the bytes. The memory is lent:
with its next request the task says what it has released. What it has not when the connection ends, or when it asks
for nothing for some seconds, it keeps.

Both ends prove that they know a key, as ``multiprocessing`` does it. Nothing is encrypted.
"""

import contextlib
import logging
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Final, NamedTuple, Self

import pyarrow as pa

from kinesis_spout.shared_memory import SharedMemory
from kinesis_spout.structured.page_buffer import Segment

HANDSHAKE_SECONDS: Final = 10.0
"""How long it may take to connect, and either end to prove that it knows the key."""
REFUSALS: Final = (AuthenticationError, AssertionError, EOFError, OSError)
"""What a handshake ends with that does not succeed: ``multiprocessing`` also asserts."""

_SMALL_BYTES: Final = 1024
"""So much is sent together with its header."""
_LENT_SECONDS: Final = 5.0
"""Who asks for nothing for so long keeps what was lent, and it is freed when it is released there."""
_MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
_HEADER: Final = struct.Struct("!?Q")
"""Whether it is memory, and how many bytes there are."""
_RELEASED: Final = struct.Struct("!Q")
"""How many memories are released, and the number of each: they are counted as they come."""
_WANTED: Final = struct.Struct("!4Q")
"""A segment, and the rows to send at once of it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServerAddress:
    """Where a reader's pages are to be had; travels to the executors."""

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
    """Listen to this machine alone; None where that is not of use, or not allowed."""
    if not SharedMemory.is_supported():
        return None
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(_abstract(name))
        listening.listen(128)
    except OSError as error:
        listening.close()
        _log.info("pages are sent as bytes, because this machine has no abstract Unix sockets: %r", error)
        return None
    return listening


class Message(NamedTuple):
    """What came over a channel: bytes, or memory that was passed on."""

    body: pa.Buffer
    """Empty if it is memory."""
    memory: SharedMemory | None = None


class PageChannel:
    """One end of a connection. Mutable; owns its socket; one thread's at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lent: dict[int, SharedMemory] = {}
        self._lent_count = 0
        self._borrowed_count = 0
        self._released: deque[int] = deque()
        self.is_local = connected.family == getattr(socket, "AF_UNIX", None)
        connected.setblocking(True)
        if not self.is_local:
            # A page is sent as a length and a body: the end of it would wait 40 ms for Nagle.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A machine that vanished says no goodbye.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.wait_at_most(HANDSHAKE_SECONDS)

    @classmethod
    def connected(cls, address: PageServerAddress) -> Self:
        """Connect to a server, and prove each other.

        Raises:
            One of ``REFUSALS``.
        """
        channel = cls(_connect(address))
        try:
            with channel._connection() as connection:
                answer_challenge(connection, address.key)
                deliver_challenge(connection, address.key)
        except BaseException:
            channel.close()
            raise
        return channel

    def welcome(self, key: bytes) -> None:
        """Prove each other, at the server's end.

        Raises:
            One of ``REFUSALS``.
        """
        with self._connection() as connection:
            deliver_challenge(connection, key)
            answer_challenge(connection, key)

    def close(self) -> None:
        """End the connection."""
        self._give_away_what_is_lent()
        self._socket.close()

    def wait_at_most(self, seconds: float | None) -> None:
        """Have ``receive`` raise OSError when nothing comes for so long; None waits for ever."""
        if os.name != "nt":  # where such sockets take their times in another form
            whole = struct.pack("@ll", int(seconds or 0), 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, whole)

    def send(self, body: bytes | pa.Buffer) -> None:
        """Send bytes."""
        content = memoryview(body)
        header = _HEADER.pack(False, content.nbytes)
        if content.nbytes <= _SMALL_BYTES:
            self._socket.sendall(header + content)
        else:
            self._socket.sendall(header)
            self._socket.sendall(content)

    def give(self, memory: SharedMemory) -> None:
        """Pass memory on for good; only to somebody who ``is_local``."""
        memory.give_away()
        self._pass_on(memory)

    def lend(self, memory: SharedMemory) -> None:
        """Pass memory on until it is released; only to somebody who ``is_local``, and asks with ``ask``."""
        self._lent[self._lent_count] = memory
        self._lent_count += 1
        self._pass_on(memory)

    def _pass_on(self, memory: SharedMemory) -> None:
        socket.send_fds(self._socket, [_HEADER.pack(True, memory.size)], [memory.descriptor])

    def ask(self, segments: Sequence[Segment], rows_at_once: int) -> None:
        """Ask for segments, of which so many rows are sent at once; say what was released since."""
        released = [self._released.popleft() for _ in range(len(self._released))]
        self.send(
            b"".join(
                [
                    *map(_RELEASED.pack, [len(released), *released]),
                    *(_WANTED.pack(*segment, rows_at_once) for segment in segments),
                ]
            )
        )

    def say_what_is_released(self) -> None:
        """Say so before the next request, which may come much later."""
        if self._released:
            self.ask((), 0)

    def asked(self) -> list[tuple[Segment, int]]:
        """Wait for a request, and take back what it releases.

        Returns:
            The segments that are wanted, each with how many rows to send at once.

        Raises:
            EOFError, OSError: as ``receive``; OSError also if it is no request.
        """
        request = memoryview(self._request())
        try:
            (count,) = _RELEASED.unpack_from(request)
            wanted = _RELEASED.size * (count + 1)
            for (number,) in _RELEASED.iter_unpack(request[_RELEASED.size : wanted]):
                self._lent.pop(number, None)
            return [
                (Segment(page, offset, rows), max(1, rows_at_once))
                for page, offset, rows, rows_at_once in _WANTED.iter_unpack(request[wanted:])
            ]
        except struct.error as error:
            raise OSError(f"expected a request for pages, got {request.nbytes} bytes: {error!r}") from error

    def _request(self) -> pa.Buffer:
        if self._lent:  # which is on Linux
            incoming = select.poll()
            incoming.register(self._socket, select.POLLIN)
            if not incoming.poll(_LENT_SECONDS * 1000):
                # A task refers to its last memory until it has ended, and only the worker's next one says so.
                self._give_away_what_is_lent()
        return self.receive(_MAX_REQUEST_BYTES).body

    def _give_away_what_is_lent(self) -> None:
        for memory in self._lent.values():
            memory.give_away()
        self._lent.clear()

    def receive(self, at_most: int | None = None) -> Message:
        """Wait for a message.

        Raises:
            EOFError: the other end closed the connection.
            OSError: it broke, or nothing came for too long, or more than ``at_most`` bytes were announced.
        """
        descriptors: list[int] = []
        if self.is_local:
            header, descriptors, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1, socket.MSG_WAITALL)
        else:
            header = self._socket.recv(_HEADER.size, socket.MSG_WAITALL)
        if len(header) < _HEADER.size:
            raise EOFError("the other end closed the connection")
        is_memory, size = _HEADER.unpack(header)
        if is_memory:
            if not descriptors:
                raise OSError("expected memory, got none: this process may have no more descriptors")
            return Message(pa.py_buffer(b""), self._borrowed(descriptors[0], size))
        if at_most is not None and size > at_most:
            raise OSError(f"expected a message of at most {at_most} bytes, got one of {size}")
        return Message(self._body(size))

    def _borrowed(self, descriptor: int, size: int) -> SharedMemory:
        memory = SharedMemory.received(descriptor, size)
        memory.when_released(self._released.append, self._borrowed_count)
        self._borrowed_count += 1
        return memory

    def _body(self, size: int) -> pa.Buffer:
        body = pa.allocate_buffer(size)
        left = memoryview(body).cast("B")
        while left:
            received = self._socket.recv_into(left, 0, socket.MSG_WAITALL)
            if not received:
                raise EOFError("the other end closed the connection")
            left = left[received:]
        return body

    def _connection(self) -> Connection:
        """Give what ``multiprocessing`` authenticates."""
        return Connection(os.dup(self._socket.fileno()))


def _connect(address: PageServerAddress) -> socket.socket:
    if address.local is not None and SharedMemory.is_supported():
        local = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):  # it is on another machine, or such sockets are not allowed here
            local.connect(_abstract(address.local))
            return local
        local.close()
    return socket.create_connection((address.host, address.port), timeout=HANDSHAKE_SECONDS)


def _abstract(name: str) -> bytes:
    """Give the address of a Unix socket that is in no folder and vanishes with who listens (Linux)."""
    return b"\0kinesis-spout-" + name.encode()
