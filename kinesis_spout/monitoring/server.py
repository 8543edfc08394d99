"""Answers probes and monitors over HTTP.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from socketserver import TCPServer
from time import monotonic
from types import TracebackType
from typing import Any, ClassVar, Final, Self
from urllib.parse import parse_qs

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.extras import missing_extra
from kinesis_spout.monitoring.consumer_look import ConsumerLook
from kinesis_spout.monitoring.consumer_watch import ConsumerWatch
from kinesis_spout.monitoring.health import Health, Reason, health_of, not_alive
from kinesis_spout.monitoring.readings import Sources, Watched
from kinesis_spout.monitoring.status import readiness_of, status_of
from kinesis_spout.settings.grammar.http_address import HttpAddress

_LOOK_SECONDS: Final = 1.0
"""The time between two looks by itself, which notice that a shard does not move."""
_BEAT_SECONDS: Final = 0.5
"""The time between two signs that the process runs."""
_GAP_SECONDS: Final = 1.5
"""Between two beats: the process stood still."""
_SHUTDOWN_POLL_SECONDS: Final = 0.05
_RETRIES_SHOWN: Final = 100
_REQUEST_SECONDS: Final = 5.0
"""A client's time for its request."""

_log = logging.getLogger(__name__)


class MonitoringServer:
    """Listens at one address for everything that is given to it. Thread-safe; a context manager.

        with MonitoringServer("127.0.0.1:9464", producer):
            ...

    Args:
        http: host:port; port 0 takes a free one, which ``address`` names.
        watched: spouts, queries, topologies' queries, producers, or streaming queries of Spark.

    Raises:
        InvalidConfig: the address cannot be listened at, or something else is to be watched.
    """

    def __init__(self, http: str, *watched: Watched) -> None:
        self.sources = Sources(watched)
        self._awake = Awake()
        self._http = _listening(http, self.sources, self._awake)
        self._closing = threading.Event()
        self._threads = [
            self._thread(self._beat, "alive"),
            self._thread(self._look, "looks"),
            self._thread(partial(self._http.serve_forever, _SHUTDOWN_POLL_SECONDS), "http"),
        ]
        _log.info("answers /livez, /readyz, /metrics and /status at http://%s", self.address)
        for thread in self._threads:
            thread.start()

    def _thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=work, name=f"kinesis-spout-{name}", daemon=True)

    @property
    def address(self) -> str:
        """The address it listens at, with its port."""
        host, port = self._http.server_address[:2]
        return str(HttpAddress(str(host), port))

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
        self._http.shutdown()
        self._http.server_close()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            try:
                self.sources.looks()
            except Exception as error:  # noqa: BLE001 - logged: whatever goes wrong here must end no consumer
                _log.warning("looking at what is monitored failed; it is looked at again: %r", error)

    def _beat(self) -> None:
        """Notice that the process runs; apart from the looks, which wait for locks."""
        while not self._closing.wait(_BEAT_SECONDS):
            self._awake.beat()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Awake:
    """For how long this process has run without a gap. Thread-safe.

    A process that was stopped (SIGSTOP, a paused virtual machine) finds the last turn of its loop long ago when it
    goes on, and its loop is as healthy as before.
    """

    def __init__(self) -> None:
        self._since = self._beaten_at = monotonic()

    def beat(self) -> None:
        """Note that the process runs; called every half second."""
        now = monotonic()
        if now - self._beaten_at > _GAP_SECONDS:
            self._since = now
        self._beaten_at = now

    def seconds(self) -> float:
        """For how long there was no gap."""
        now = monotonic()
        return 0.0 if now - self._beaten_at > _GAP_SECONDS else now - self._since


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    sources: Sources
    awake: Awake

    def server_bind(self) -> None:
        """Bind without asking DNS for the host's name, which can take long and is used by nobody."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say no more of a client that went away than the debug log holds."""
        del request
        _log.debug("the connection from %s failed", client_address, exc_info=True)

    def judged(self) -> tuple[Health, list[ConsumerLook]]:
        """Judge all of it, and give the looks."""
        looks = self.sources.looks()
        health = health_of(self.sources.lives(), looks, self.awake.seconds())
        failing = [Reason(app="", stream="", text=why) for why in self.sources.failing]
        return replace(health, not_ready=[*health.not_ready, *failing]), looks


def _listening(http: str, sources: Sources, awake: Awake) -> _Server:
    try:
        address = HttpAddress.parse(http)
    except (AttributeError, ValueError):
        raise InvalidConfig(f"http: expected host:port, such as 127.0.0.1:9464, got {http!r}") from None
    kind: type[_Server] = _Server
    if ":" in address.host:
        kind = type("_Server6", (_Server,), {"address_family": AF_INET6})
    try:
        server = kind(address, _Handler)
    except OSError as error:
        raise InvalidConfig(
            f"http: expected an address that is free on this machine, got {http!r}: {error.strerror or error}. "
            "Spouts of one process may share one; others need another port, or port 0 for any"
        ) from error
    server.sources, server.awake = sources, awake
    return server


class _Handler(BaseHTTPRequestHandler):
    server_version = "kinesis-spout"
    sys_version = ""
    timeout = _REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        path, _, asked = self.path.partition("?")
        answer = self._answers.get(path)
        if answer is None:
            known = ", ".join(self._answers)
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"expected one of {known}\n".encode())
            return
        query = {name: values[-1] for name, values in parse_qs(asked).items()}
        try:
            status, kind, body = answer(self.server, query)
        except Exception as error:  # noqa: BLE001 - logged, and said; it must not end the connection silently
            _log.exception("%s could not be answered", path)
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

    _answers: ClassVar[dict[str, Callable[[_Server, dict[str, str]], "Answer"]]]


Answer = tuple[HTTPStatus, str, bytes]


def _livez(server: _Server, _query: dict[str, str]) -> Answer:
    reasons = not_alive(server.sources.lives(), server.awake.seconds())
    text = "".join(f"{reason}\n" for reason in reasons) or "alive\n"
    return _probe(is_good=not reasons), "text/plain; charset=utf-8", text.encode()


def _readyz(server: _Server, _query: dict[str, str]) -> Answer:
    health, looks = server.judged()
    return _probe(is_good=health.is_ready), "application/json", _json(readiness_of(health, looks))


def _metrics(server: _Server, query: dict[str, str]) -> Answer:
    try:
        from prometheus_client import CONTENT_TYPE_LATEST  # noqa: PLC0415 - 140 ms, and an extra

        from kinesis_spout.monitoring.prometheus import exposition  # noqa: PLC0415
    except ImportError:
        missing = missing_extra("/metrics", "metrics", ["prometheus-client"])
        return HTTPStatus.NOT_IMPLEMENTED, "text/plain", f"{missing}\n".encode()
    samples = server.sources.read(per_shard=query.get("per_shard", "0") not in {"0", "false", ""})
    return HTTPStatus.OK, CONTENT_TYPE_LATEST, exposition(samples)


def _status(server: _Server, query: dict[str, str]) -> Answer:
    app, stream = query.get("app"), query.get("stream")
    documents = []
    for handle in server.sources.handles:
        watches = server.sources.watches_of(handle)
        looks = [watch.look() for watch in watches]
        is_asked_for = not (app or stream) or any(
            app in {None, look.app} and stream in {None, look.stream} for look in looks
        )
        if is_asked_for:
            health = health_of([watch.life() for watch in watches], looks, server.awake.seconds())
            document = status_of(handle, looks, health.reasons)
            documents.append(document | {"retrying": _retrying(watches)})
    if len(documents) == 1:
        return HTTPStatus.OK, "application/json", _json(documents[0])
    return HTTPStatus.OK, "application/json", _json({"several": documents})


def _retrying(watches: Sequence[ConsumerWatch]) -> list[dict[str, Any]]:
    """The failed records of all streams that come again first."""
    prefixed = [
        (f"{watch.consumer.stream}/" * (len(watches) > 1), each)
        for watch in watches
        for each in watch.retrying(_RETRIES_SHOWN)
    ]
    prefixed.sort(key=lambda item: item[1].due_in_seconds)
    return [
        {
            "shard_id": prefix + each.shard_id,
            "sequence_number": str(each.sequence),
            "attempts": each.attempts,
            "due_in_seconds": round(each.due_in_seconds, 1),
        }
        for prefix, each in prefixed[:_RETRIES_SHOWN]
    ]


def _probe(*, is_good: bool) -> HTTPStatus:
    return HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE


def _json(document: Any) -> bytes:
    return json.dumps(document).encode() + b"\n"


_Handler._answers = {"/livez": _livez, "/readyz": _readyz, "/metrics": _metrics, "/status": _status}  # noqa: SLF001
