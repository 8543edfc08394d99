"""The threads, the connections and the log that kazoo uses."""

import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import SequentialThreadingHandler

from kinesis_spout.zookeeper.credentials import Tls


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's own, except for three things. Mutable.

    * kazoo's TLS leaves a connection open whose handshake fails, trusts the system's CAs besides the named
      one, and asks for the password of a key at the terminal.
    * A thread that ends by an error of kazoo's, which is in the log, prints no traceback.
    * A connection can be cut. With a server without SASL, kazoo continues as long as the connection lasts.
    """

    def __init__(self, tls: Tls | None) -> None:
        super().__init__()
        self._tls = tls
        self._connection: socket.socket | None = None

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """Connect; by TLS if configured. Raises OSError, as kazoo expects."""
        connection: socket.socket
        if self._tls is None:
            connection = super().create_connection(address, timeout=timeout)
        else:
            connection = self._by_tls(self._tls, address, hostname, timeout)
        self._connection = connection
        return connection

    @staticmethod
    def _by_tls(
        tls: Tls, address: tuple[str, int], hostname: str | None, timeout: float | None
    ) -> socket.socket:
        context = tls.context()
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return context.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def cut(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            with suppress(KazooException):
                func(*args, **kwargs)

        return super().spawn(run)


class KazooLog(logging.LoggerAdapter[logging.Logger]):
    """kazoo's log; calls ``noticed`` with each error, on kazoo's connection thread: it must not block."""

    def __init__(self, log: logging.Logger, noticed: Callable[[BaseException], None]) -> None:
        super().__init__(log)
        self._noticed = noticed

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Report the error of the line, if any; then log it."""
        traced = kwargs.get("exc_info")
        for error in (*args, sys.exc_info()[1] if traced is True else traced):
            if level >= logging.WARNING and isinstance(error, BaseException):
                self._noticed(error)
        super().log(level, msg, *args, **kwargs, stacklevel=2)
