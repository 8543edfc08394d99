"""Messages over a connection. A message is its length and its bytes; nothing is encrypted."""

import os
import socket
import struct
from typing import Final

import pyarrow as pa

_SMALL_BYTES: Final = 1024
"""So much is sent together with its length."""
_LENGTH: Final = struct.Struct("!Q")
_TIME: Final = struct.Struct("@ll")
"""Seconds and microseconds."""


class MessageChannel:
    """One end of a connection whose ends have proved each other. Mutable; owns its socket; one thread's at a time.

    Args:
        connected: its socket.
        wait_seconds: ``receive`` fails when nothing comes for so long; None waits for ever.
    """

    def __init__(self, connected: socket.socket, *, wait_seconds: float | None) -> None:
        self._socket = connected
        self._wait_seconds = wait_seconds
        connected.setblocking(True)
        if connected.family != getattr(socket, "AF_UNIX", None):
            # A message is sent as a length and a body: the end of it would wait 40 ms for Nagle.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wait_seconds is not None and os.name != "nt":  # which takes such times in another form
            time = _TIME.pack(int(wait_seconds), round(wait_seconds % 1 * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def is_quiet(self) -> bool:
        """Tell whether the other end waits for a request: it neither closed the connection nor sent anything."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._socket.setblocking(True)
        return False

    def send(self, body: bytes | pa.Buffer) -> None:
        """Send a message."""
        content = memoryview(body)
        length = _LENGTH.pack(content.nbytes)
        if content.nbytes <= _SMALL_BYTES:
            self._socket.sendall(length + content)
        else:
            self._socket.sendall(length)
            self._socket.sendall(content)

    def receive(self, at_most: int | None = None) -> pa.Buffer:
        """Wait for a message.

        Raises:
            OSError: the connection ended, or nothing came for too long, or more than ``at_most`` bytes were
                announced.
        """
        (size,) = _LENGTH.unpack(self._received(_LENGTH.size))
        if at_most is not None and size > at_most:
            raise OSError(f"expected a message of at most {at_most} bytes, got one of {size}")
        return self._received(size)

    def _received(self, size: int) -> pa.Buffer:
        body = pa.allocate_buffer(size)
        left = memoryview(body).cast("B")
        while left:
            try:
                count = self._socket.recv_into(left, 0, socket.MSG_WAITALL)
            except BlockingIOError as error:
                raise TimeoutError(f"nothing came for {self._wait_seconds:g} s") from error
            if not count:
                raise ConnectionError("the other end closed the connection")
            left = left[count:]
        return body
