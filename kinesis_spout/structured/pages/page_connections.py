"""How many connections a server has at a time, and which one goes when there are too many."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class ConnectionSlots:
    """A slot for each connection, and no more than ``most``. Thread-safe.

    A connection either waits for its other end, or is at work. Where all slots are taken, the one that has
    waited longest is ended for a new one. It is a stranger who says nothing, or a worker that has nothing to ask;
    that worker connects again when it has.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._changed = threading.Condition()
        self._taken: set[socket.socket] = set()
        self._waiting: dict[socket.socket, None] = {}
        """In the order in which they began to wait."""
        self._leaving: socket.socket | None = None
        """The one that was ended for a new one."""

    def take(self, new: socket.socket, patience_seconds: float) -> bool:
        """Give a new connection a slot, in which it waits; False if none becomes free for so long."""
        with self._changed:
            if not self._changed.wait_for(self._has_room, patience_seconds):
                return False
            self._taken.add(new)
            self._waiting[new] = None
            return True

    @contextlib.contextmanager
    def waiting(self, connection: socket.socket) -> Iterator[None]:
        """Have a connection count as one that waits while the block runs, and as one at work after it."""
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
        """Free the slot of a connection that is closed."""
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
            with contextlib.suppress(OSError):  # it ended by itself
                self._leaving.shutdown(socket.SHUT_RDWR)  # its thread leaves
        return False
