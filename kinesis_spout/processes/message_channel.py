"""Messages between processes over a socket: each is its length and its bytes.

Tasks and drivers, readers and their page servers, and the host processes of shell components all talk this way.
A channel does not look into its messages. Unpickle one only from a peer that has proved that it knows the key
(``keyed_connections``), or over a socket that no other process can reach.
"""

import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

MOST_BYTES: Final = 1 << 34
"""No message is larger, unless ``receive`` sets a lower bound."""
_SMALL_BYTES: Final = 1024
"""A body of at most this size is sent together with its length."""
_MOST_DESCRIPTORS: Final = 2
_LENGTH: Final = struct.Struct("!Q")
_TIME: Final = struct.Struct("@ll")
"""Seconds and microseconds."""

Bytes = Any
"""An object with the buffer protocol: ``bytes``, or a buffer of Arrow."""


class ChannelClosed(ConnectionError):  # noqa: N818 - the normal end of a conversation
    """The other end closed the connection between two messages."""


class MessageChannel:
    """One end of a connection. Mutable; owns its socket.

    One thread sends and receives; any thread may ``shut`` it. ``wait_seconds``: how long ``receive`` waits for
    something to come; None: without end, or as long as the socket's own time-out says.
    """

    def __init__(self, connected: socket.socket, *, wait_seconds: float | None = None) -> None:
        self._socket = connected
        self._wait_seconds = wait_seconds
        if not self.is_local:
            # A message is sent as a length and a body: Nagle's algorithm would delay the body's end by 40 ms.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wait_seconds is None:
            return
        connected.setblocking(True)
        if os.name != "nt":  # which takes such times in another form
            time = _TIME.pack(int(wait_seconds), round(wait_seconds % 1 * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)

    @property
    def is_local(self) -> bool:
        """Return whether it is a Unix socket, so both ends are on this machine, and descriptors can be sent."""
        return self._socket.family == getattr(socket, "AF_UNIX", None)

    @property
    def own_host(self) -> str:
        """The address of this machine by which the connection was made; not of a Unix socket."""
        return str(self._socket.getsockname()[0])

    def set_timeout(self, seconds: float | None) -> None:
        """Set how long each following call may wait, to send as well as to receive; None: without end."""
        self._socket.settimeout(seconds)

    def send(self, body: Bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a message, with copies of file descriptors, at most two. Raises OSError."""
        content = memoryview(body)
        frame: Any = _LENGTH.pack(content.nbytes)
        if descriptors:
            frame = frame[socket.send_fds(self._socket, [frame], list(descriptors)) :]
        if content.nbytes <= _SMALL_BYTES:
            self._socket.sendall(frame + content)
        else:
            self._socket.sendall(frame)
            self._socket.sendall(content)

    def receive(self, at_most: int = MOST_BYTES, allocate: Callable[[int], Bytes] = bytearray) -> Bytes:
        """Wait for a message, and return what ``allocate`` made for it.

        Raises:
            ChannelClosed: there will be no further message.
            TimeoutError: nothing came in time.
            OSError: the connection was lost, or more than ``at_most`` bytes were announced.
        """
        return self._body(self._received(bytearray(_LENGTH.size), may_end=True), at_most, allocate)

    def receive_with_descriptors(self, at_most: int = MOST_BYTES) -> tuple[bytearray, list[int]]:
        """As ``receive``, with the file descriptors that were sent with the message."""
        part, descriptors, *_ = socket.recv_fds(self._socket, _LENGTH.size, _MOST_DESCRIPTORS)
        if not part:
            raise ChannelClosed("the other end closed the connection")
        try:
            head = part + self._received(bytearray(_LENGTH.size - len(part)))
            return self._body(head, at_most, bytearray), descriptors
        except BaseException:
            for each in descriptors:
                os.close(each)
            raise

    def is_quiet(self) -> bool:
        """Return whether the other end waits for a message: it neither closed the connection nor sent anything."""
        timeout = self._socket.gettimeout()
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._socket.settimeout(timeout)
        return False

    def shut(self) -> None:
        """End the connection, and wake the thread that waits for a message."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other end has closed it

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _body(self, head: Bytes, at_most: int, allocate: Callable[[int], Bytes]) -> Bytes:
        (size,) = _LENGTH.unpack(head)
        if size > at_most:
            raise OSError(f"expected a message of at most {at_most} bytes, got one of {size}")
        return self._received(allocate(size))

    def _received(self, body: Bytes, *, may_end: bool = False) -> Bytes:
        left = memoryview(body).cast("B")
        while left:
            try:
                count = self._socket.recv_into(left, 0, socket.MSG_WAITALL)
            except BlockingIOError as error:
                raise TimeoutError(f"nothing came for {self._wait_seconds:g} s") from error
            if not count:
                between = may_end and len(left) == len(body)
                kind = ChannelClosed if between else ConnectionError
                raise kind(f"the other end closed the connection{'' if between else ' within a message'}")
            left = left[count:]
        return body
