"""Servers of HTTP that answer what a test says, on kept connections."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from typing import Any, TypeVar

JSON = "application/x-amz-json-1.1"
EMPTY = b'{"Records":[],"MillisBehindLatest":0}'


class End(Enum):
    CLOSED = auto()
    HALF_CLOSED = auto()
    """The server sends no more, but still reads."""


class Server(socketserver.ThreadingTCPServer):
    """Answers on kept connections. Mutable."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.answers: list[bytes] = []
        """The next ones; good ones, when there are no more."""
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.talking: list[Connection] = []
        self.answer_to: Callable[[dict[str, str]], bytes] = lambda _headers: answer_of(EMPTY)
        """Answers a request with these headers, when no other answer is prepared."""
        self.ends: End | None = None
        """What each connection does after an answer, without a word about it."""

    def say(self, what: bytes) -> None:
        """Send something that nobody asked for over the newest connection."""
        self.talking[-1].wfile.write(what)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


class Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.connections += 1
        server.talking.append(self)
        is_half_closed = False
        while line := self.rfile.readline():
            headers = {}
            while (header := self.rfile.readline()) not in {b"\r\n", b""}:
                name, _, value = header.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            body = self.rfile.read(int(headers.get("content-length", 0)))
            server.requests.append((line.decode().strip(), headers, body))
            answer = server.answers.pop(0) if server.answers else server.answer_to(headers)
            if answer == SILENCE:
                self.rfile.read(1)  # until the caller hangs up
                return
            if is_half_closed:
                continue
            end = server.ends  # what a test says after the answer is for the next one
            self.wfile.write(answer)
            if answer in {HANGS_UP, CUT_OFF} or end is End.CLOSED:
                return
            if end is End.HALF_CLOSED:
                self.connection.shutdown(socket.SHUT_WR)
                is_half_closed = True


def answer_of(body: bytes, status: str = "200 OK", more: str = "", content_type: str = JSON) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{more}x-amzn-RequestId: r-1\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


SILENCE = b"silence"
HANGS_UP = b""
CUT_OFF = answer_of(EMPTY)[:-5]
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"%x\r\n%b\r\n0\r\n\r\n" % (len(EMPTY), EMPTY)
)


S = TypeVar("S", bound=Server)


def running() -> AbstractContextManager[Server]:
    return serving(Server())


@contextmanager
def serving(made: S) -> Iterator[S]:
    with made as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
