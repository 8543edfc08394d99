"""The threads and the connections that kazoo is given."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import SequentialThreadingHandler

from kinesis_spout.zookeeper.security.credentials import Tls


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's own, but for two things.

    * Its TLS leaves a connection open whose handshake fails, trusts the system's CAs beside the one that is named,
      and has the password of a key asked for at the terminal.
    * A thread that ends by an error of kazoo's, which is in the log, prints no traceback.
    """

    def __init__(self, tls: Tls | None) -> None:
        super().__init__()
        self._tls = tls

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """Connect; by TLS if that is wanted. Raises OSError, as kazoo expects."""
        if self._tls is None:
            connection: socket.socket = super().create_connection(address, timeout=timeout)
            return connection
        context = self._tls.context()
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return context.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
        """Start a thread."""

        def run() -> None:
            with suppress(KazooException):
                func(*args, **kwargs)

        return super().spawn(run)
