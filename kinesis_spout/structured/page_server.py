"""Hands the reader's pages to the executors, over an authenticated socket.

The reader's process and the tasks share no memory, and Spark's own way (the data inside the partitions) costs
four times as much. The connection is ``multiprocessing``'s: both ends prove that they know a key, which is made
anew for every reader and travels with Spark's tasks. It authenticates, it does not encrypt: where Spark's own
traffic must be encrypted, this must stay on one machine (``pageServerHost``: 127.0.0.1).

What cannot be had here is read from Kinesis again, so every failure of this is a cost, never an error.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Final

import pyarrow as pa

from kinesis_spout.structured.page_buffer import Segment

_FORGIVE_AFTER_SECONDS: Final = 60.0
"""A server that could not be reached is left alone so long: each try may cost a time-out."""
_KEY_BYTES: Final = 32

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
        key = secrets.token_bytes(_KEY_BYTES)
        self._listener = Listener((host, 0), backlog=128, authkey=key)
        self.address = PageServerAddress(host=host, port=self._listener.address[1], key=key)
        threading.Thread(target=self._accept, name="kinesis-page-server", daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that are open end with their clients."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError) as error:
                _log.warning("a connection to the page server was refused: %r", error)
                continue
            except OSError:  # closed
                return
            threading.Thread(
                target=self._serve, args=(connection,), name="kinesis-page-client", daemon=True
            ).start()

    def _serve(self, connection: Connection) -> None:
        _send_at_once(connection)
        try:
            while True:
                for segment in _segments_of(connection.recv_bytes()):
                    rows = self._find(segment)
                    connection.send_bytes(b"" if rows is None else rows.serialize())
        except (EOFError, OSError):
            connection.close()  # the worker ended, or gave the task up


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
            connection = Client((address.host, address.port), authkey=address.key)
        except (AuthenticationError, EOFError, OSError) as error:
            _log.warning(
                "the reader's pages at %s:%d cannot be reached, reading Kinesis again (twice the read traffic; "
                "set pageServerHost to an address of the driver that executors reach): %r",
                address.host,
                address.port,
                error,
            )
            self._unreachable[address] = time.monotonic() + _FORGIVE_AFTER_SECONDS
            return None
        _send_at_once(connection)
        return connection

    def put_back(self, address: PageServerAddress, connection: Connection) -> None:
        """Keep a connection that nothing is under way on."""
        self._idle[address] = connection


_connections = _Connections()


def _send_at_once(connection: Connection) -> None:
    """Turn off Nagle's waiting: a page is sent as a length and a body, and the end of it would wait 40 ms."""
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


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
