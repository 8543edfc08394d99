"""What stands between a client and AWS: an endpoint, with or without TLS, or an HTTP proxy. It says what passed.

Everything but the portal of SSO is answered by the server behind it, which is moto's.
"""

import http.client
import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_OF_ONE_CONNECTION = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "proxy-authorization", "date", "server"}
)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request that came."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes

    @property
    def action(self) -> str:
        """What was asked for: GetRecords, CONNECT, …"""
        return self.headers.get("x-amz-target", "").rpartition(".")[2] or self.method


class Front(http.server.ThreadingHTTPServer):
    """Listens on loopback. Mutable: remembers."""

    daemon_threads = True

    def __init__(self, behind: str, certificate: Path | None) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.behind = behind
        self.seen: list[Seen] = []
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_address[1]}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up, or trusts nobody, is what some tests are about."""

    def actions(self) -> list[str]:
        """Name what was asked for, in order."""
        return [each.action for each in self.seen]


class _Connection(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def do_POST(self) -> None:
        """Answer as an endpoint, or, if the whole address is given, as a proxy."""
        self._note()
        if self.path.startswith("/federation/credentials"):
            return self._answer(200, {"content-type": "application/json"}, _credentials_of_sso())
        address = urlsplit(self.path if "://" in self.path else self.server.behind)
        behind = http.client.HTTPConnection(str(address.hostname), address.port or 80, timeout=30)
        try:
            headers = _to_pass_on(self.seen.headers)
            path = urlsplit(self.path)
            target = path.path + (f"?{path.query}" if path.query else "")
            behind.request(self.command, target, self.seen.body, headers)
            reply = behind.getresponse()
            if reply.chunked:
                return self._relay(reply)
            return self._answer(reply.status, reply.headers, reply.read())
        finally:
            behind.close()

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST  # noqa: N815 - http.server's names

    def do_CONNECT(self) -> None:
        """Pass bytes on, both ways, until one side hangs up."""
        self._note()
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as behind:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pass_on, args=(behind, self.connection), daemon=True)
            back.start()
            _pass_on(self.connection, behind)
            back.join(30)
        self.close_connection = True

    def _note(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(self._chunks())
        else:
            body = self.rfile.read(int(headers.get("content-length", 0)))
        self.seen = Seen(method=self.command, target=self.path, headers=headers, body=body)
        self.server.seen.append(self.seen)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _relay(self, reply: http.client.HTTPResponse) -> None:
        """Pass an answer on as it comes."""
        self.send_response(reply.status)
        for name, value in _to_pass_on(reply.headers).items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := reply.read1(65_536):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, headers: Any, body: bytes) -> None:
        self.send_response(status)
        for name, value in _to_pass_on(headers).items():
            self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header("Content-Length", headers["content-length"] if is_head else str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def front_of(behind: str, certificate: Path | None = None) -> Iterator[Front]:
    """Serve while the context is open; with TLS, if there is a certificate with its key."""
    with Front(behind, certificate) as front:
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield front
        finally:
            front.shutdown()
            thread.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def _to_pass_on(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_ONE_CONNECTION}


def _credentials_of_sso() -> bytes:
    in_an_hour = int(time.time() + 3600) * 1000
    return json.dumps(
        {
            "roleCredentials": {
                "accessKeyId": "ASIAOFSSO",
                "secretAccessKey": "hush",
                "sessionToken": "hush-token",
                "expiration": in_an_hour,
            }
        }
    ).encode()
