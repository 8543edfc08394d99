"""Connections between machines whose both ends prove that they know a key, without sending it.

Each sends a random number, and answers with the HMAC-SHA-256 of its role and both numbers: so an answer
cannot be used again, nor sent back to its maker. The client answers first. All messages have a fixed size,
and all of it takes ``HANDSHAKE_SECONDS`` at most. Nothing is encrypted.

``multiprocessing`` authenticates similarly, but before Python 3.12 with MD5, which systems under FIPS 140
refuse.
"""

import contextlib
import hmac
import logging
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kinesis_spout.processes.message_channel import MessageChannel

HANDSHAKE_SECONDS: Final = 10.0
"""The longest time in which either end may prove that it knows the key."""
MAX_STRANGERS: Final = 64
"""The most connections that may take that time at once; one that knows the key takes milliseconds."""

_GREETING: Final = b"kinesis-spout pages 3\n"
"""Names the protocol and its version, of the handshake and of what follows."""
_NUMBER_BYTES: Final = 32
_HASH: Final = "sha256"
_PROOF_BYTES: Final = 32
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4))
_log = logging.getLogger(__name__)


class Machine(msgspec.Struct, frozen=True):
    host: str
    port: int


class KeyedServer:
    """Serves connections whose other end knows a key, each on its own thread. Thread-safe.

    Listens at ``host``, at a port of the system's choice. When ``serve`` returns, or raises OSError, its
    connection ends.
    """

    def __init__(self, host: str, key: bytes, serve: Callable[[MessageChannel], None], name: str) -> None:
        class OneConnection(socketserver.BaseRequestHandler):
            server: _Server

            def handle(self) -> None:
                try:
                    welcome(self.request, key)
                except OSError as error:
                    _log.warning("a connection was refused: %r", error)
                    return
                finally:
                    self.server.strangers.pop(self.request, None)
                _end_when_the_machine_is_gone(self.request)
                with contextlib.suppress(OSError):  # the other end is gone, or had nothing to say for long
                    serve(MessageChannel(self.request))

        self._server = _Server((host, 0), OneConnection)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name=name, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def connect(machine: Machine, key: bytes) -> MessageChannel:
    """Connect to a ``KeyedServer``, and prove each other. The connection has no time-out.

    OSError: the server cannot be reached, or is not the right one.
    """
    connected = socket.create_connection((machine.host, machine.port), timeout=HANDSHAKE_SECONDS)
    try:
        introduce(connected, key)
        connected.settimeout(None)
    except BaseException:
        connected.close()
        raise
    return MessageChannel(connected)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self.strangers: dict[socket.socket, None] = {}
        """Connections whose other end has not proved yet that it knows the key, the oldest first."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on its own thread; beyond ``MAX_STRANGERS`` the oldest stranger makes room."""
        self.strangers[request] = None
        if len(self.strangers) > MAX_STRANGERS:
            oldest = next(iter(self.strangers.copy()))
            self.strangers.pop(oldest, None)
            with contextlib.suppress(OSError):  # its thread may have closed it just now
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request
        _log.exception("the connection of %s is served no more", client_address)


def _end_when_the_machine_is_gone(connected: socket.socket) -> None:
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        if hasattr(socket, option):  # not everywhere by these names
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def introduce(connected: socket.socket, key: bytes) -> None:
    """Prove each other, at the client's end.

    OSError: the other end does not know the key, speaks something else, or went away.
    """
    end = _End(connected, key)
    end.send_greeting()
    end.receive_greeting()
    end.send_proof(b"client", end.ours, end.theirs)
    end.check_proof(b"server", end.ours, end.theirs)


def welcome(connected: socket.socket, key: bytes) -> None:
    """Prove each other, at the server's end. Raises as ``introduce``."""
    end = _End(connected, key)
    end.receive_greeting()
    end.send_greeting()
    end.check_proof(b"client", end.theirs, end.ours)
    end.send_proof(b"server", end.theirs, end.ours)


class _End:
    def __init__(self, connected: socket.socket, key: bytes) -> None:
        self._socket = connected
        self._key = key
        self._until = time.monotonic() + HANDSHAKE_SECONDS
        self.ours = secrets.token_bytes(_NUMBER_BYTES)
        self.theirs = b""

    def send_greeting(self) -> None:
        self._socket.sendall(_GREETING + self.ours)

    def receive_greeting(self) -> None:
        greeting = self._receive(len(_GREETING))
        if greeting != _GREETING:
            raise ConnectionError(
                f"expected {_GREETING!r} of the same version of kinesis-spout, got {greeting!r}"
            )
        self.theirs = self._receive(_NUMBER_BYTES)

    def send_proof(self, role: bytes, clients: bytes, servers: bytes) -> None:
        self._socket.sendall(self._proof(role, clients, servers))

    def check_proof(self, role: bytes, clients: bytes, servers: bytes) -> None:
        if not hmac.compare_digest(self._receive(_PROOF_BYTES), self._proof(role, clients, servers)):
            raise ConnectionError("the other end does not know the key")

    def _proof(self, role: bytes, clients: bytes, servers: bytes) -> bytes:
        return hmac.digest(self._key, _GREETING + role + clients + servers, _HASH)

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"expected the handshake to take {HANDSHAKE_SECONDS:g} s at most")
            self._socket.settimeout(left)
            part = self._socket.recv(size - len(received))
            if not part:
                raise ConnectionError("the other end closed the connection")
            received += part
        return received
