"""Connections to one endpoint that are kept from call to call.

A connection serves one call at a time, on a socket with a time-out (``advance`` then returns when the answer is
there) or on a non-blocking one (``advance`` then says what it waits for).

A connection is looked at before each call: one that the server closed, or over which something came that nobody
asked for, is closed, or that would be taken for the answer of the call. What happens at the same time shows by
``is_stale``. A connection that nothing was sent over for some time is closed, because the server does that soon.
"""

import contextlib
import os
import select
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from kinesis_spout.kinesis.wire.http import Reply, ReplyReader

IDLE_SECONDS: Final = 45.0
"""Load balancers close connections after 60 s without a request."""
NON_BLOCKING: Final = 0.0


class Want(Enum):
    """What a call waits for on its socket."""

    READ = auto()
    WRITE = auto()


class Address(NamedTuple):
    host: str
    """Without the brackets of IPv6."""
    port: int
    is_secure: bool


class Connection:
    """A connected socket. Mutable, and for one call at a time; its user gives it back, or closes it."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._look = select.poll()
        self._look.register(connected, select.POLLIN)
        self._reader = ReplyReader()
        self._unsent = memoryview(b"")
        self._blocks = True
        self.calls = 0
        """How many were answered."""
        self.idle_since = 0.0
        """Monotonic."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def begin(self, request: bytes, timeout_seconds: float) -> None:
        """Take a request, of which ``advance`` sends the first byte; ``timeout_seconds``: see ``advance``."""
        self._socket.settimeout(timeout_seconds)
        self._blocks = timeout_seconds != NON_BLOCKING
        self._unsent = memoryview(request)

    def advance(self) -> Reply | Want:
        """Send and receive: until the reply is there, or, if the socket does not block, as far as it goes.

        Raises:
            TimeoutError: the server took longer than the time-out for one step.
            OSError: the connection broke, or the answer is not HTTP; ``is_stale`` tells more.
        """
        try:
            if self._unsent and self._send() and not self._blocks:
                return Want.READ  # the answer cannot be there yet
        except (BlockingIOError, ssl.SSLWantWriteError):
            return Want.WRITE
        except ssl.SSLWantReadError:
            return Want.READ
        receive_into, reader = self._socket.recv_into, self._reader
        try:
            while (reply := reader.received(receive_into(reader.space()))) is None:
                if self._blocks and reader.has_long_body:
                    reply = reader.long_body(receive_into)
                    break
        except (BlockingIOError, ssl.SSLWantReadError):
            return Want.READ
        except ssl.SSLWantWriteError:
            return Want.WRITE
        self.calls += 1
        return reply

    def _send(self) -> bool:
        """Send; False if the server takes no more. It may have said why."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BrokenPipeError:
            self._unsent = memoryview(b"")
            return False
        return True

    @property
    def is_stale(self) -> bool:
        """Of one that broke: whether the server had closed it before the call, as far as one can tell."""
        return self.calls > 0 and not self._reader.has_begun

    @property
    def session(self) -> ssl.SSLSession | None:
        """What a later connection resumes; of TLS 1.3 the server sends it after the handshake."""
        return self._socket.session if isinstance(self._socket, ssl.SSLSocket) else None

    @property
    def is_ended(self) -> bool:
        """Whether the server closed it, or sent something that nobody asked for."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._look.poll(0))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


class Connections:
    """Those to one endpoint. Thread-safe.

    Args:
        trust: makes the context of TLS when the first connection is opened.
        kept: how many are kept open while nobody uses them.
    """

    def __init__(
        self,
        address: Address,
        *,
        trust: Callable[[], ssl.SSLContext],
        kept: int,
        connect_timeout_seconds: float,
    ) -> None:
        self._address = address
        self._trust = trust
        self._kept = kept
        self._connect_timeout = connect_timeout_seconds
        self._context: ssl.SSLContext | None = None
        self._session: ssl.SSLSession | None = None
        self._idle: deque[Connection] = deque()
        """The one that was used last comes last. Under the lock, like all that is assigned below."""
        self._open = weakref.WeakSet[Connection]()
        """Those in use, too."""
        self._closed = False
        self._lock = threading.Lock()
        _all.add(self)
        weakref.finalize(self, _close_all, self._idle)  # of a client that nobody closes

    def kept(self) -> Connection | None:
        """Take a connection that is open and silent; None if there is none. Does not block."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            idle_seconds = time.monotonic() - connection.idle_since
            if idle_seconds < IDLE_SECONDS and not connection.is_ended:
                return connection
            connection.close()

    def open(self) -> Connection:
        """Open a connection; blocks.

        Raises:
            OSError: in particular ssl.SSLError, socket.gaierror, and TimeoutError after ``connect_timeout``.
        """
        host, port, is_secure = self._address
        plain = socket.create_connection((host, port), self._connect_timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection = Connection(self._secured(plain) if is_secure else plain)
        except BaseException:
            plain.close()
            raise
        with self._lock:
            self._open.add(connection)
        return connection

    def _secured(self, plain: socket.socket) -> ssl.SSLSocket:
        with self._lock:
            if self._context is None:
                self._context = self._trust()
            context, session = self._context, self._session
        return context.wrap_socket(plain, server_hostname=self._address.host, session=session)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose reply was read, unless there are enough."""
        connection.idle_since = time.monotonic()
        session = connection.session if connection.calls == 1 else None
        surplus = []
        with self._lock:
            self._session = session or self._session
            self._idle.append(connection)
            while self._idle and (
                self._closed
                or len(self._idle) > self._kept
                or connection.idle_since - self._idle[0].idle_since >= IDLE_SECONDS
            ):
                surplus.append(self._idle.popleft())
        for each in surplus:
            each.close()

    def drop(self, connection: Connection) -> None:
        """Close a connection, unless a call uses it."""
        with self._lock:
            if connection not in self._idle:
                return
            self._idle.remove(connection)
        connection.close()

    def close(self) -> None:
        """Close those that nobody uses now, and the others when they are given back."""
        with self._lock:
            self._closed = True
        self.drop_all()

    def drop_all(self) -> None:
        """Close those that nobody uses now."""
        with self._lock:
            _close_all(self._idle)

    def forget_in_child(self) -> None:
        """Close a forked child's copies of its parent's connections.

        It must not use them, nor keep them open: one that the parent closes would go on waking the parent's
        selector, which could no longer look away from it.
        """
        self._lock = threading.Lock()  # another thread may have held it at the fork
        self._idle.clear()
        for each in list(self._open):
            each.close()


def _close_all(connections: deque[Connection]) -> None:
    while connections:
        connections.pop().close()


_all: Final = weakref.WeakSet[Connections]()

if hasattr(os, "register_at_fork"):

    def _forget_in_child() -> None:
        for each in list(_all):
            each.forget_in_child()

    os.register_at_fork(after_in_child=_forget_in_child)
