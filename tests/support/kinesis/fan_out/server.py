"""The fan-out service over HTTP, on loopback."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kinesis_spout.kinesis import KinesisClientSettings
from tests.support.kinesis.fan_out.service import OPERATIONS, FanOutService, answer_json


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that trusts nobody is what some tests are about."""


class FanOutServer:
    """A context manager. It knows only the operations of fan-out.

    Args:
        service: see the attribute.
        certificate: a PEM file with its key, for TLS.
    """

    def __init__(self, service: FanOutService | None = None, *, certificate: Path | None = None) -> None:
        self.service = service
        """Whom calls are for from now on."""
        handler = type("_CallOfThisServer", (_Call,), {"owner": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._scheme = "http"
        if certificate is not None:
            self._scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def settings(self, **others: Any) -> KinesisClientSettings:
        return KinesisClientSettings(
            region="us-east-1",
            endpoint_url=self.url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            **others,
        )

    def close(self) -> None:
        if self.service is not None:
            self.service.closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Call(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: FanOutServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        service = self.owner.service
        if operation in OPERATIONS and service is not None:
            service.answer(self, operation, body)
        else:
            answer_json(self, 400, {"__type": "UnknownOperationException", "message": operation})

    def log_message(self, *_: Any) -> None:
        """Nothing."""
