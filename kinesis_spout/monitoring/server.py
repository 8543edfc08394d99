"""Answers probes and monitors over HTTP, and touches a file for probes without it.

| address | answer |
| --- | --- |
| ``/livez`` | 200 while everything watched is alive, else 503; text |
| ``/readyz`` | 200 while records move, else 503; JSON with the reasons and each shard |
| ``/metrics`` | for Prometheus; ``?per_shard=1`` adds the series of each shard |
| ``/status`` | what is watched, as JSON; ``?app=`` and ``?stream=`` choose |

Nothing that it answers contains a record's data. It has no access control: keep it on loopback or inside a
cluster's network.
"""

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET6
from types import TracebackType
from typing import Any, ClassVar, Final, Self
from urllib.parse import parse_qs, urlsplit

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.monitoring.health import health_of
from kinesis_spout.monitoring.readings import Sources, Watched
from kinesis_spout.monitoring.status import readiness_of, status_of
from kinesis_spout.settings.grammar.http_address import HttpAddress

_LOOK_SECONDS: Final = 1.0
"""How often it looks by itself: what notices that a shard does not move."""
_REQUEST_SECONDS: Final = 5.0
"""How long a client may take for its request."""

_log = logging.getLogger(__name__)


class MonitoringServer:
    """Listens at one address for everything that is given to it. Thread-safe; a context manager.

        with MonitoringServer("127.0.0.1:9464", producer):
            ...

    Args:
        http: host:port; port 0 takes a free one, which ``address`` names. None: no HTTP, only the file.
        watched: spouts, queries, topologies' queries, producers, or streaming queries of Spark.
        health_file: touched about once a second while all of them are alive.

    Raises:
        InvalidConfig: the address cannot be listened at, the file cannot be written, or something else is to
            be watched.
    """

    def __init__(
        self, http: str | None = None, *watched: Watched, health_file: str | Path | None = None
    ) -> None:
        self.sources = Sources(watched)
        self._file = None if health_file is None else Path(health_file)
        self._touch()
        self._http = None if http is None else _listening(http, self.sources)
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._look, name="kinesis-spout-monitoring", daemon=True)]
        if self._http is not None:
            serve = self._http.serve_forever
            self._threads.append(threading.Thread(target=serve, name="kinesis-spout-http", daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> str | None:
        """Where it listens, with the port it has; None without HTTP."""
        if self._http is None:
            return None
        host, port = self._http.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def add(self, watched: Watched) -> None:
        """Watch this as well. Raises InvalidConfig if it cannot be watched."""
        self.sources.add(watched)

    def remove(self, watched: Watched) -> None:
        """Watch this no more."""
        self.sources.remove(watched)

    def close(self) -> None:
        """Stop listening and looking. May be called twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            try:
                if health_of(self.sources.looks()).is_alive:
                    self._touch()
            except Exception:  # noqa: BLE001 - logged: whatever goes wrong here must end no consumer
                _log.exception("looking at what is monitored failed; it is looked at again")

    def _touch(self) -> None:
        if self._file is None:
            return
        try:
            self._file.touch()
        except OSError as error:
            raise InvalidConfig(
                f"health_file: expected a file that can be written, got {str(self._file)!r}: {error}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    sources: Sources


def _listening(http: str, sources: Sources) -> _Server:
    address = HttpAddress.parse(http)
    kind: type[_Server] = _Server
    if ":" in address.bare_host:
        kind = type("_Server6", (_Server,), {"address_family": AF_INET6})
    try:
        server = kind((address.bare_host, address.port), _Handler)
    except OSError as error:
        raise InvalidConfig(
            f"http: expected an address that is free on this machine, got {http!r}: {error.strerror or error}. "
            "Spouts of one process may share one; others need another port, or port 0 for any"
        ) from error
    server.sources = sources
    return server


class _Handler(BaseHTTPRequestHandler):
    server_version = "kinesis-spout"
    sys_version = ""
    timeout = _REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        answer = self._answers.get(asked.path)
        if answer is None:
            known = ", ".join(self._answers)
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"expected one of {known}\n".encode())
            return
        query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
        try:
            status, kind, body = answer(self.server.sources, query)
        except Exception as error:  # noqa: BLE001 - logged, and said; it must not end the connection silently
            _log.exception("%s could not be answered", asked.path)
            status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain"
            body = f"{type(error).__name__}; the log says more\n".encode()
        self._send(status, kind, body)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        with suppress(ConnectionError):  # a probe that no longer waits
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        _log.debug(format, *args)

    _answers: ClassVar[dict[str, Callable[[Sources, dict[str, str]], "Answer"]]]


Answer = tuple[HTTPStatus, str, bytes]


def _livez(sources: Sources, _query: dict[str, str]) -> Answer:
    health = health_of(sources.looks())
    text = "alive\n" if health.is_alive else "".join(f"{reason}\n" for reason in health.not_alive)
    return _probe(is_good=health.is_alive), "text/plain; charset=utf-8", text.encode()


def _readyz(sources: Sources, _query: dict[str, str]) -> Answer:
    health, document = readiness_of(sources.looks())
    return _probe(is_good=health.is_ready), "application/json", _json(document)


def _metrics(sources: Sources, query: dict[str, str]) -> Answer:
    try:
        from prometheus_client import CONTENT_TYPE_LATEST  # noqa: PLC0415 - 140 ms, and an extra

        from kinesis_spout.monitoring.prometheus import exposition  # noqa: PLC0415
    except (ImportError, InvalidConfig):
        missing = 'expected prometheus-client, found none: pip install "kinesis-spout[metrics]"\n'
        return HTTPStatus.NOT_IMPLEMENTED, "text/plain", missing.encode()
    samples = sources.read(per_shard=query.get("per_shard", "0") not in {"0", "false", ""})
    return HTTPStatus.OK, CONTENT_TYPE_LATEST, exposition(samples)


def _status(sources: Sources, query: dict[str, str]) -> Answer:
    app, stream = query.get("app"), query.get("stream")
    documents = []
    for handle in sources.handles:
        looks = [watch.look() for watch in sources.watches_of(handle)]
        names = {(look.app, look.stream) for look in looks}
        if any(app in (None, of_app) and stream in (None, of_stream) for of_app, of_stream in names):
            documents.append(status_of(handle, looks))
    if len(documents) == 1:
        return HTTPStatus.OK, "application/json", _json(documents[0])
    return HTTPStatus.OK, "application/json", _json({"several": documents})


def _probe(*, is_good: bool) -> HTTPStatus:
    return HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE


def _json(document: Any) -> bytes:
    return json.dumps(document).encode() + b"\n"


_Handler._answers = {"/livez": _livez, "/readyz": _readyz, "/metrics": _metrics, "/status": _status}  # noqa: SLF001
