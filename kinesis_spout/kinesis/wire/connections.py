"""Connections to one endpoint that are kept from call to call, in the loop of the I/O thread.

A connection serves one call at a time. The loop watches it from its opening to its end, so a call costs no
registration. One that the server closes, or over which something comes that nobody asked for, is closed at
once: that would be taken for the answer of the next call. As the loop may not have looked yet, each
connection is looked at before a call, too. ``is_stale`` shows what happens at the same time.
"""

import contextlib
import os
import select
import ssl
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.wire.http import Reply, ReplyReader
from kinesis_spout.kinesis.wire.ways import Opened, TlsInTls, Way

if TYPE_CHECKING:
    import asyncio

IDLE_SECONDS: Final = 45.0
"""Load balancers close connections after 60 s without a request."""


class Connection:
    """A connection and the call under way on it. Mutable; for the I/O thread alone, which it keeps running."""

    def __init__(self, opened: Opened, ended: Callable[["Connection"], None]) -> None:
        opened.settimeout(0.0)
        self._socket = opened
        self._ended = ended
        self._look = select.poll()
        self._look.register(opened, select.POLLIN)
        self._reader = ReplyReader()
        self._unsent = memoryview(b"")
        self._answer: asyncio.Future[Reply] | None = None
        """The answer of the call under way."""
        self._is_writing = False
        """True while the loop watches for room to send."""
        self._timeout_seconds = IDLE_SECONDS
        self.calls = 0
        """Answered so far."""
        self.is_open = True
        self._loop = IO.hold()
        self._moved_at = self._loop.time()
        """When something was sent or received."""
        self._timer = self._loop.call_later(IDLE_SECONDS, self._look_at_time)
        self._loop.add_reader(opened.fileno(), self._advance)

    async def exchange(self, request: bytes, timeout_seconds: float) -> Reply:
        """Send a request, and return the answer. A failed connection is closed.

        Raises:
            TimeoutError: nothing was sent or received for so long.
            OSError: the connection broke, or the answer is not HTTP; ``is_stale`` tells more.
        """
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._answer = answer
        self._unsent = memoryview(request)
        self._timeout_seconds = timeout_seconds
        self._moved_at = self._loop.time()
        if self._timer.when() > self._moved_at + timeout_seconds:
            self._timer.cancel()
            self._timer = self._loop.call_later(timeout_seconds, self._look_at_time)
        self._advance()
        try:
            reply = await answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None
        if reply.closes or self._unsent:
            self.close()
        return reply

    def _advance(self) -> None:
        """Send and receive as far as the socket goes."""
        if self._answer is None or self._answer.done():
            self.close()  # it ended, or something came that nobody asked for
            return
        was_sent, wants_room = not self._unsent, False
        try:
            wants_room = not self._send()
            if was_sent or wants_room or isinstance(self._socket, TlsInTls):
                self._receive(self._answer)
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ssl.SSLWantWriteError:
            wants_room = True
        except Exception as error:  # noqa: BLE001 - not hidden: the call raises it
            self._answer.set_exception(error)
        if self.is_open:
            self._watch_for_room(wants_room)

    def _send(self) -> bool:
        """Send what is unsent; False if there is no room for it. The server may answer before it has all."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
                self._moved_at = self._loop.time()
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        except BrokenPipeError:  # the server takes no more; it may have said why
            self._unsent = memoryview(b"")
        return True

    def _receive(self, answer: "asyncio.Future[Reply]") -> None:
        reader = self._reader
        self._moved_at = self._loop.time()
        while (reply := reader.received(self._socket.recv_into(reader.space()))) is None:
            pass
        self.calls += 1
        answer.set_result(reply)

    def _watch_for_room(self, is_wanted: bool) -> None:  # noqa: FBT001 - a state, not a way to work
        if is_wanted and not self._is_writing:
            self._loop.add_writer(self._socket.fileno(), self._advance)
        elif self._is_writing and not is_wanted:
            self._loop.remove_writer(self._socket.fileno())
        self._is_writing = is_wanted

    def _look_at_time(self) -> None:
        """End a call that nothing was heard of, or a connection that no call used, for too long."""
        is_used = self._answer is not None
        left = self._moved_at + (self._timeout_seconds if is_used else IDLE_SECONDS) - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look_at_time)
        elif self._answer is None:
            self.close()
        elif not self._answer.done():
            self._answer.set_exception(TimeoutError("timed out"))

    @property
    def is_stale(self) -> bool:
        """Return whether the server can have closed a broken connection before the call."""
        return self.calls > 0 and not self._reader.has_begun

    @property
    def session(self) -> ssl.SSLSession | None:
        """A session that a later connection resumes; of TLS 1.3 the server sends it after the handshake."""
        return self._socket.session if isinstance(self._socket, ssl.SSLSocket) else None

    @property
    def is_ended(self) -> bool:
        """Return whether the server closed it, or sent something that nobody asked for."""
        if isinstance(self._socket, ssl.SSLSocket | TlsInTls) and self._socket.pending():
            return True
        return bool(self._look.poll(0))

    def close(self) -> None:
        """Close it. Idempotent."""
        if not self.is_open:
            return
        self.is_open = False
        self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._watch_for_room(is_wanted=False)
        self.close_socket()
        self._ended(self)
        IO.release(self._loop)

    def close_socket(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


class Connections:
    """Kept connections to one endpoint. Mutable; for the I/O thread, but for ``close``.

    Args:
        kept: how many are kept open while nobody uses them.
    """

    def __init__(self, way: Way, *, kept: int) -> None:
        self.way = way
        self._kept = kept
        self._session: ssl.SSLSession | None = None
        self._idle: list[Connection] = []
        """The one that was used last comes last."""
        self._open: set[Connection] = set()
        """All that are open, in use or not."""
        self._closed = False
        _all.add(self)

    def take(self) -> Connection | None:
        """Take a connection that is open and silent; None if there is none."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_ended:
                return connection
            connection.close()
        return None

    async def open(self) -> Connection:
        """Open a connection. Raises BotoCoreError."""
        opened = await IO.in_thread(partial(self.way.open, self._session), unwanted=_close)
        connection = Connection(opened, self._forget)
        self._open.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose reply was read, unless there are enough."""
        if connection.calls == 1:
            self._session = connection.session or self._session
        if not connection.is_open:
            return
        if self._closed or len(self._idle) >= self._kept:
            connection.close()
        else:
            self._idle.append(connection)

    def drop_idle(self) -> None:
        """Close those that nobody uses now."""
        for each in list(self._idle):
            each.close()

    def close(self) -> None:
        """Close those that nobody uses now, and the others when they are given back."""
        self._closed = True
        if self._open:
            IO.run(self._close_idle())

    async def _close_idle(self) -> None:
        self.drop_idle()

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def forget_in_child(self) -> None:
        """Close a forked child's copies of its parent's connections.

        It must not use them, nor keep them open: one that the parent closes would go on waking the parent's
        selector, which could no longer look away from it.
        """
        for each in self._open:
            each.is_open = False
            each.close_socket()
        self._open.clear()
        self._idle.clear()


def _close(opened: Opened) -> None:
    opened.close()


_all: Final = weakref.WeakSet[Connections]()

if hasattr(os, "register_at_fork"):

    def _forget_in_child() -> None:
        for each in list(_all):
            each.forget_in_child()

    os.register_at_fork(after_in_child=_forget_in_child)
