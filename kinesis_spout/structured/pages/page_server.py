"""Sends the reader's pages to the executors, over an authenticated socket; see ``page_channel``.

Spark's own way, the data inside the partitions, costs four times as much. Every reader makes a key, which
travels with Spark's tasks and which both ends prove to know. That authenticates, it does not encrypt: where
Spark's own traffic must be encrypted, this must stay on one machine (``pageServerHost``: 127.0.0.1).

Tasks read from Kinesis whatever is missing here, so every failure of this is a cost, never an error.
"""

import contextlib
import ipaddress
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from kinesis_spout.processes.keyed_connections import welcome
from kinesis_spout.structured.pages.page_buffer import PageSegment, StoredPage
from kinesis_spout.structured.pages.page_channel import PageChannel, PageServerAddress, listen, listen_locally

MAX_CONNECTIONS: Final = 256
"""Each has a thread and a descriptor."""
IDLE_SECONDS: Final = 60.0
"""After so long without a request a connection is closed. Spark also ends idle Python workers then."""
_PATIENCE_SECONDS: Final = 5.0
"""A connection waits for a slot for so long; less than ``HANDSHAKE_SECONDS``."""
_KEY_BYTES: Final = 32
_NO_DESCRIPTORS_SECONDS: Final = 1.0
_ELSEWHERE: Final = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737): unused, but routed wherever there is a network."""

_log = logging.getLogger(__name__)


def advertised_host() -> str:
    """As Spark's driver: SPARK_LOCAL_IP, else the host name's address, unless that is a loopback address."""
    named = os.environ.get("SPARK_LOCAL_IP")
    if named:
        return named
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        address = "127.0.0.1"
    return (_network_address() or address) if ipaddress.ip_address(address).is_loopback else address


def _network_address() -> str | None:
    """The address that this machine uses towards others; None without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)  # sends nothing: it only chooses a way
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address


class PageServer:
    """Serves segments of pages; thread-safe, on daemon threads.

    ``find`` returns the page of a number, None if it is gone; called on the server's threads.
    """

    def __init__(
        self,
        host: str,
        find: Callable[[int], StoredPage | None],
        *,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._find = find
        self._is_closed = False
        self._is_full = False
        self._slots = ConnectionSlots(max_connections)
        name = secrets.token_hex()
        remote, local = listen(host), listen_locally(name)
        self._sockets = [remote] if local is None else [remote, local]
        self.address = PageServerAddress(
            host=host,
            port=remote.getsockname()[1],
            local=None if local is None else name,
            key=secrets.token_bytes(_KEY_BYTES),
        )
        for listening in self._sockets:
            threading.Thread(
                target=self._accept, args=(listening,), name="kinesis-page-server", daemon=True
            ).start()

    def close(self) -> None:
        """Accept no more connections; open ones end with their clients. May be called twice."""
        self._is_closed = True
        for listening in self._sockets:
            with contextlib.suppress(OSError):  # not every system does it, and not twice
                listening.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which ``close`` does not
            listening.close()

    def _accept(self, listening: socket.socket) -> None:
        while not self._is_closed:
            try:
                client, _ = listening.accept()
            except ConnectionError:  # gone before its turn came
                continue
            except OSError as error:
                if not self._is_closed:
                    _log.warning("the page server cannot take a connection now: %r", error)
                    time.sleep(_NO_DESCRIPTORS_SECONDS)
                continue
            if not self._slots.take(client, _PATIENCE_SECONDS):
                self._say_that_it_is_full()
                client.close()
                continue
            # Each on its own thread from the first byte: a silent client delays no other.
            threading.Thread(
                target=self._serve, args=(client,), name="kinesis-page-client", daemon=True
            ).start()

    def _say_that_it_is_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            _log.warning(
                "%d tasks take pages from the reader at the same time, which is the most it serves: further ones "
                "read Kinesis again. A larger bytesPerTask makes fewer tasks",
                self._slots.most,
            )

    def _serve(self, client: socket.socket) -> None:
        try:
            try:
                welcome(client, self.address.key)
            except OSError as error:
                _log.warning("a connection to the page server was refused: %r", error)
                return
            channel = PageChannel(client, wait_seconds=IDLE_SECONDS)
            while True:
                with self._slots.waiting(client):
                    wanted = channel.asked()
                for segment, step in wanted:
                    self._answer(channel, segment, step)
        except OSError:
            return  # the worker ended, gave the task up, or had nothing to ask for long
        finally:
            client.close()
            self._slots.leave(client)

    def _answer(self, channel: PageChannel, segment: PageSegment, step: int) -> None:
        page = self._find(segment.page)
        if page is None:
            channel.send(b"")
            return
        # A piece is thus sent, received and passed on while the processor's caches have it. A page of 10 MB that
        # is moved as a whole costs twice as much.
        for start in range(0, segment.rows, step):
            rows = min(step, segment.rows - start)
            channel.send(page.batch.slice(segment.offset + start, rows).serialize())


class ConnectionSlots:
    """A slot for each connection, at most ``most``. Thread-safe.

    If all are taken, a new connection replaces the one that has waited longest for its other end: a stranger,
    or an idle worker, which connects again. If all are at work, the new one is closed, and its task reads
    Kinesis itself.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._changed = threading.Condition()
        self._taken: set[socket.socket] = set()
        self._waiting: dict[socket.socket, None] = {}
        """In the order in which they began to wait."""
        self._leaving: socket.socket | None = None
        """The connection closed to make room."""

    def take(self, new: socket.socket, patience_seconds: float) -> bool:
        """Give a new connection a slot, in which it waits; False if none becomes free in time."""
        with self._changed:
            if not self._changed.wait_for(self._has_room, patience_seconds):
                return False
            self._taken.add(new)
            self._waiting[new] = None
            return True

    @contextlib.contextmanager
    def waiting(self, connection: socket.socket) -> Iterator[None]:
        """The connection counts as waiting while the block runs, and as at work after it."""
        with self._changed:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._waiting.pop(connection, None)

    def leave(self, connection: socket.socket) -> None:
        with self._changed:
            self._taken.discard(connection)
            self._waiting.pop(connection, None)
            if self._leaving is connection:
                self._leaving = None
            self._changed.notify_all()

    def _has_room(self) -> bool:
        if len(self._taken) < self.most:
            return True
        if self._waiting and self._leaving is None:
            self._leaving = next(iter(self._waiting))
            del self._waiting[self._leaving]
            with contextlib.suppress(OSError):  # it has ended already
                self._leaving.shutdown(socket.SHUT_RDWR)  # its thread leaves
        return False
