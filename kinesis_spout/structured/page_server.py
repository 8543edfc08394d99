"""Hands the reader's pages to the executors, over an authenticated socket.

The reader's process and the tasks share no memory, and Spark's own way (the data inside the partitions) costs
four times as much. The connection is ``multiprocessing``'s: both ends prove that they know a key, which is made
anew for every reader and travels with Spark's tasks. It authenticates, it does not encrypt: where Spark's own
traffic must be encrypted, this must stay on one machine (``pageServerHost``: 127.0.0.1).

What cannot be had here is read from Kinesis again, so every failure of this is a cost, never an error.
"""

import contextlib
import logging
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Final

import pyarrow as pa

from kinesis_spout.structured.page_buffer import Segment

_FORGIVE_AFTER_SECONDS: Final = 60.0
"""A server that could not be reached is left alone so long: each try may cost a time-out."""
_KEY_BYTES: Final = 32
_HANDSHAKE_SECONDS: Final = 10.0
"""How long it may take to connect, and either end to prove that it knows the key."""
_ANSWER_SECONDS: Final = 60.0
"""How long a task waits for a page, before it reads Kinesis instead."""
_NO_DESCRIPTORS_SECONDS: Final = 1.0
_MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
_KEPT_CONNECTIONS: Final = 8
"""A Python worker outlives many queries, each with a server of its own."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServerAddress:
    """Where a reader's pages are to be had; travels to the executors."""

    host: str
    port: int
    key: bytes = field(repr=False)


def advertised_host() -> str:
    """Name this machine as Spark's driver does by default: SPARK_LOCAL_IP, else the host name's address."""
    named = os.environ.get("SPARK_LOCAL_IP")
    if named:
        return named
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


class PageServer:
    """Serves segments of pages; thread-safe, on daemon threads.

    Args:
        host: where to listen.
        find: gives the rows of a segment, None if they are gone; called on the server's threads.
    """

    def __init__(self, host: str, find: Callable[[Segment], pa.RecordBatch | None]) -> None:
        self._find = find
        self._is_closed = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family, backlog=128)
        self.address = PageServerAddress(
            host=host, port=self._socket.getsockname()[1], key=secrets.token_bytes(_KEY_BYTES)
        )
        threading.Thread(target=self._accept, name="kinesis-page-server", daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that are open end with their clients. May be called twice."""
        self._is_closed = True
        with contextlib.suppress(OSError):  # not every system does it, and not twice
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who accepts, which ``close`` does not
        self._socket.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._socket.accept()
            except ConnectionError:  # gone before its turn came
                continue
            except OSError as error:
                if not self._is_closed:
                    _log.warning("the page server cannot take a connection now: %r", error)
                    time.sleep(_NO_DESCRIPTORS_SECONDS)
                continue
            # Each on a thread of its own from the first byte: nobody waits for a stranger who says nothing.
            threading.Thread(
                target=self._serve, args=(client,), name="kinesis-page-client", daemon=True
            ).start()

    def _serve(self, client: socket.socket) -> None:
        connection = _connection_of(client)
        try:
            try:
                deliver_challenge(connection, self.address.key)
                answer_challenge(connection, self.address.key)
            except (AuthenticationError, AssertionError, EOFError, OSError) as error:
                _log.warning("a connection to the page server was refused: %r", error)
                return
            _wait_at_most(connection, None)  # a worker may have nothing to ask for long
            while True:
                for segment in _segments_of(connection.recv_bytes(_MAX_REQUEST_BYTES)):
                    rows = self._find(segment)
                    connection.send_bytes(b"" if rows is None else rows.serialize())
        except (EOFError, OSError):
            return  # the worker ended, or gave the task up
        finally:
            connection.close()


def fetch_segments(
    address: PageServerAddress, segments: Sequence[Segment], schema: pa.Schema
) -> Generator[pa.RecordBatch, None, None]:
    """Fetch segments, in their order, as far as they are to be had: it ends early where one is not.

    Connections are kept for the worker's next task. One that was not read to its end is not used again.
    """
    connection = _connections.take(address)
    if connection is None:
        return
    try:
        connection.send_bytes(b"".join(_packed(segment) for segment in segments))
        for left in range(len(segments) - 1, -1, -1):
            body = connection.recv_bytes()
            if left == 0:
                _connections.put_back(address, connection)
            if not body:
                return
            yield pa.ipc.read_record_batch(pa.py_buffer(body), schema)
    except (EOFError, OSError) as error:
        _log.warning("the reader's pages are not to be had any more, reading Kinesis again: %r", error)


class _Connections:
    """This worker's idle connections. Mutable; a Python worker runs one task at a time."""

    def __init__(self) -> None:
        self._idle: dict[PageServerAddress, Connection] = {}
        self._unreachable: dict[PageServerAddress, float] = {}

    def take(self, address: PageServerAddress) -> Connection | None:
        """Give a connection; None if the server cannot be reached."""
        idle = self._idle.pop(address, None)
        if idle is not None:
            return idle
        if time.monotonic() < self._unreachable.get(address, 0.0):
            return None
        try:
            return _connected(address)
        except (AuthenticationError, AssertionError, EOFError, OSError) as error:
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

    def put_back(self, address: PageServerAddress, connection: Connection) -> None:
        """Keep a connection that nothing is under way on; the one that was not used longest is given up for it."""
        self._idle[address] = connection
        while len(self._idle) > _KEPT_CONNECTIONS:
            self._idle.pop(next(iter(self._idle))).close()

    def forget(self) -> None:
        """Close what is idle, in this process."""
        while self._idle:
            self._idle.popitem()[1].close()


_connections = _Connections()

if hasattr(os, "register_at_fork"):
    # Two processes that ask on one connection would get each other's pages.
    os.register_at_fork(after_in_child=_connections.forget)


def _connected(address: PageServerAddress) -> Connection:
    connection = _connection_of(
        socket.create_connection((address.host, address.port), timeout=_HANDSHAKE_SECONDS)
    )
    try:
        answer_challenge(connection, address.key)
        deliver_challenge(connection, address.key)
    except BaseException:
        connection.close()
        raise
    _wait_at_most(connection, _ANSWER_SECONDS)
    return connection


def _connection_of(connected: socket.socket) -> Connection:
    """Make the connection that ``multiprocessing`` authenticates; so far it waits for no answer for long."""
    connected.setblocking(True)
    # A page is sent as a length and a body: the end of it would wait 40 ms for Nagle.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A machine that vanished says no goodbye.
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection = Connection(connected.detach())
    _wait_at_most(connection, _HANDSHAKE_SECONDS)
    return connection


def _wait_at_most(connection: Connection, seconds: float | None) -> None:
    """Have reads raise OSError when nothing comes for so long; None waits for ever."""
    if os.name == "nt":  # where such sockets take their times in another form
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        whole = struct.pack("@ll", int(seconds or 0), 0)
        duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, whole)


_NUMBER_BYTES: Final = 8


def _packed(segment: Segment) -> bytes:
    return b"".join(number.to_bytes(_NUMBER_BYTES, "big") for number in segment)


def _segments_of(request: bytes) -> Iterator[Segment]:
    size = _NUMBER_BYTES * len(Segment._fields)
    for start in range(0, len(request), size):
        numbers = request[start : start + size]
        yield Segment(
            *(int.from_bytes(numbers[at : at + _NUMBER_BYTES], "big") for at in range(0, size, _NUMBER_BYTES))
        )
