"""A TCP proxy on loopback between one ZooKeeper client and the server, that can lose requests and answers.

It knows just enough of the protocol: a frame is a length and a body; a request's body begins with its xid and
its operation code, an answer's with the xid; the first frame of a connection, either way, is the hand-shake.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

MULTI = 14
"""The operation code of a transaction."""
SASL = 102
"""That of a step of SASL."""

_HOST = "127.0.0.1"


class ZooKeeperProxy:
    """Mutable. Forwards connections; everything it is told takes effect on connections new and old."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server((_HOST, 0))
        self._lock = threading.Lock()
        self._open = True
        self._sockets: set[socket.socket] = set()
        self._holes: set[socket.socket] = set()
        """Of these nothing is forwarded, not even their end."""
        self._threads: list[threading.Thread] = []
        self._lose_requests: list[int] = []
        """The operations of the next requests to lose."""
        self._lose_answers = 0
        self._before_next: Callable[[], object] | None = None
        self.connections = 0
        """How many were forwarded."""
        self.requests_lost = 0
        self.answers_lost = 0
        self._closed = False
        self._spawn(self._accept)

    @property
    def connect_string(self) -> str:
        return f"{_HOST}:{self._listener.getsockname()[1]}"

    def lose_next_request(self, operation: int = MULTI) -> None:
        """Cut the connection instead of forwarding the next transaction, or the next request of another kind."""
        with self._lock:
            self._lose_requests.append(operation)

    def lose_next_answer(self) -> None:
        """Forward the next transaction, wait until the server has answered it, and cut the connection."""
        with self._lock:
            self._lose_answers += 1

    def lose_no_more(self) -> None:
        """Forget what was to be lost and has not been yet."""
        with self._lock:
            self._lose_requests.clear()
            self._lose_answers = 0

    def before_next_transaction(self, act: Callable[[], object]) -> None:
        """Keep the next transaction back until ``act`` has returned."""
        with self._lock:
            self._before_next = act

    def close_door(self) -> None:
        """Cut what is connected, and every connection to come."""
        with self._lock:
            self._open = False
        self._cut_all()

    def open_door(self) -> None:
        with self._lock:
            self._open = True

    def vanish(self) -> None:
        """Let the present connections go nowhere, as if the host behind them were gone; neither end is told."""
        with self._lock:
            self._holes |= self._sockets

    def close(self) -> None:
        self._closed = True
        # Waking accept() by a connection works everywhere; closing the listener under it does not.
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.getsockname()).close()
        self._cut_all()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _cut_all(self) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for connection in sockets:
            _cut(connection)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with self._lock:
                admitted = self._open and not self._closed
            if self._closed:
                client.close()
                return
            if not admitted:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:  # the server is down
                client.close()
                continue
            for connection in (client, server):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, server}
                self.connections += 1
            self._spawn(_Relay(self, client, server).run)


class _Relay:
    """Mutable. One connection through the proxy; requests in this thread, answers in another."""

    def __init__(self, proxy: ZooKeeperProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._swallow_xid: int | None = None

    def run(self) -> None:
        answers = threading.Thread(target=self._relay_answers, daemon=True)
        answers.start()
        self._relay_requests()
        answers.join()
        with self._proxy._lock:
            self._proxy._sockets -= {self._client, self._server}
            self._proxy._holes -= {self._client, self._server}
        self._client.close()
        self._server.close()

    def _relay_requests(self) -> None:
        with contextlib.suppress(OSError):
            shaken_hands = False
            while (frame := _read_frame(self._client)) is not None:
                if shaken_hands and self._is_to_be_lost(frame):
                    break
                shaken_hands = True
                if not self._is_hole:
                    self._server.sendall(frame)
        self._end()

    def _end(self) -> None:
        _cut(self._client)
        if not self._is_hole:  # else the server hears of it when the session moves or ends
            _cut(self._server)

    @property
    def _is_hole(self) -> bool:
        with self._proxy._lock:
            return self._server in self._proxy._holes

    def _is_to_be_lost(self, frame: bytes) -> bool:
        xid, operation = struct.unpack_from("!ii", frame, 4)
        with self._proxy._lock:
            if operation != MULTI and operation not in self._proxy._lose_requests:
                return False
        with self._proxy._lock:
            act, self._proxy._before_next = self._proxy._before_next, None
        if act is not None:
            act()
        with self._proxy._lock:
            if operation in self._proxy._lose_requests:
                self._proxy._lose_requests.remove(operation)
                self._proxy.requests_lost += 1
                return True
            if self._proxy._lose_answers:
                self._proxy._lose_answers -= 1
                self._swallow_xid = xid
        return False

    def _relay_answers(self) -> None:
        with contextlib.suppress(OSError):
            shaken_hands = False
            while (frame := _read_frame(self._server)) is not None:
                if shaken_hands and struct.unpack_from("!i", frame, 4)[0] == self._swallow_xid:
                    self._proxy.answers_lost += 1
                    break
                shaken_hands = True
                if not self._is_hole:
                    self._client.sendall(frame)
        self._end()


def _read_frame(connection: socket.socket) -> bytes | None:
    head = _read_exactly(connection, 4)
    if head is None:
        return None
    body = _read_exactly(connection, struct.unpack("!i", head)[0])
    return None if body is None else head + body


def _read_exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return parts


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # cut already
        connection.shutdown(socket.SHUT_RDWR)
