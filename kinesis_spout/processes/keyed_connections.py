"""Connections between machines whose both ends prove that they know a key. Nothing is encrypted."""

import contextlib
import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kinesis_spout.processes.handshake import HANDSHAKE_SECONDS, introduce, welcome

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4))
_log = logging.getLogger(__name__)


class Machine(msgspec.Struct, frozen=True):
    """Where a machine is reached by others."""

    host: str
    port: int


class KeyedServer:
    """Serves connections whose other end knows a key, each on a thread of its own. Thread-safe.

    Args:
        host: where to listen, at a port of the system's choice.
        key: that both ends prove to know.
        serve: is given each connection; when it returns, or raises OSError, that ends.
        name: of the thread.
    """

    def __init__(self, host: str, key: bytes, serve: Callable[[socket.socket], None], name: str) -> None:
        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                try:
                    welcome(self.request, key)
                except OSError as error:
                    _log.warning("a connection was refused: %r", error)
                    return
                _end_when_the_machine_is_gone(self.request)
                with contextlib.suppress(OSError):  # the other end is gone, or had nothing to say for long
                    serve(self.request)

        self._server = _Server((host, 0), Connection)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name=name, daemon=True).start()

    def close(self) -> None:
        """Take no more connections. May be called twice."""
        self._server.shutdown()
        self._server.server_close()


def connect(machine: Machine, key: bytes) -> socket.socket:
    """Connect to a ``KeyedServer``, and prove each other. The connection waits without end.

    Raises:
        OSError: it cannot be reached, or is not the right one.
    """
    connected = socket.create_connection((machine.host, machine.port), timeout=HANDSHAKE_SECONDS)
    try:
        introduce(connected, key)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(None)
    except BaseException:
        connected.close()
        raise
    return connected


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request
        _log.exception("the connection of %s is served no more", client_address)


def _end_when_the_machine_is_gone(connected: socket.socket) -> None:
    """Have the system notice, within a minute, that nobody is there who could close the connection."""
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        if hasattr(socket, option):  # not everywhere by these names
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
