"""An HTTP proxy on loopback between consumers and a Kinesis endpoint, that answers wrongly when it is told to.

Nothing is changed outside of a *window*: while one is open, calls of its operations go wrong at its rate, drawn
from a seed. What really went wrong is counted.
"""

import contextlib
import http.client
import json
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self
from urllib.parse import urlsplit

from tests.support.kinesis.fan_out.service import OPERATIONS, FanOutService

_HOST: Final = "127.0.0.1"
_JSON: Final = "application/x-amz-json-1.1"
_ITERATOR: Final = re.compile(rb'"(?:Next)?ShardIterator"\s*:\s*"([^"]+)"')
_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})
_SLOW_PARTS: Final = 10
_UPSTREAM_SECONDS: Final = 30.0

READS: Final = frozenset({"GetRecords"})
ITERATORS: Final = frozenset({"GetRecords", "GetShardIterator", "SubscribeToShard"})
LISTS: Final = frozenset({"ListShards", "DescribeStreamSummary", "GetShardIterator", "SubscribeToShard"})
EVERYTHING: Final = READS | LISTS
PUTS: Final = frozenset({"PutRecords"})


class KinesisFault(StrEnum):
    INTERNAL_ERROR = "answers 500"
    UNAVAILABLE = "answers 503"
    THROTTLED = "throughput exceeded"
    LIMITED = "limit exceeded"
    EXPIRED_ITERATORS = "iterators expired"
    NOT_FOUND = "not found"
    SLOW_BODY = "slow bodies"
    CUT_BODY = "cut-off bodies"
    RESET = "connections reset"
    PARTLY_REFUSED = "puts refused in part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What goes wrong, for which operations, and how often."""

    fault: KinesisFault
    operations: frozenset[str]
    rate: float


WINDOWS: Final = (
    Window(fault=KinesisFault.INTERNAL_ERROR, operations=EVERYTHING, rate=0.5),
    Window(fault=KinesisFault.UNAVAILABLE, operations=EVERYTHING, rate=1.0),
    Window(fault=KinesisFault.THROTTLED, operations=READS, rate=0.25),
    Window(fault=KinesisFault.LIMITED, operations=LISTS, rate=0.5),
    Window(fault=KinesisFault.EXPIRED_ITERATORS, operations=READS, rate=1.0),
    # A list that does not find the stream says that the stream is gone, and so it would be.
    Window(fault=KinesisFault.NOT_FOUND, operations=ITERATORS, rate=0.3),
    Window(fault=KinesisFault.SLOW_BODY, operations=READS, rate=0.3),
    Window(fault=KinesisFault.CUT_BODY, operations=READS, rate=0.5),
    Window(fault=KinesisFault.RESET, operations=EVERYTHING, rate=0.5),
)

_READER_WEATHER: Final = (
    (KinesisFault.THROTTLED, READS),
    (KinesisFault.INTERNAL_ERROR, EVERYTHING),
    (KinesisFault.RESET, EVERYTHING),
    (KinesisFault.SLOW_BODY, READS),
)
_PRODUCER_WEATHER: Final = (
    (KinesisFault.PARTLY_REFUSED, PUTS),
    (KinesisFault.THROTTLED, PUTS),
    (KinesisFault.INTERNAL_ERROR, PUTS),
    (KinesisFault.RESET, PUTS),
    (KinesisFault.CUT_BODY, PUTS),
)
ANSWERS_LOST: Final = frozenset({KinesisFault.RESET, KinesisFault.CUT_BODY})
"""After these the call has taken effect, though its caller does not know."""


def reader_weather(rate: float) -> list[Window]:
    """All that goes wrong with readers now and then, each at a share of this rate."""
    return _weather(_READER_WEATHER, rate)


def producer_weather(rate: float) -> list[Window]:
    """The same for producers."""
    return _weather(_PRODUCER_WEATHER, rate)


def _weather(kinds: Sequence[tuple[KinesisFault, frozenset[str]]], rate: float) -> list[Window]:
    share = rate / len(kinds)
    return [Window(fault=fault, operations=operations, rate=share) for fault, operations in kinds]


_REFUSALS: Final = {
    KinesisFault.INTERNAL_ERROR: (500, "InternalFailure"),
    KinesisFault.UNAVAILABLE: (503, "ServiceUnavailable"),
    KinesisFault.THROTTLED: (400, "ProvisionedThroughputExceededException"),
    KinesisFault.LIMITED: (400, "LimitExceededException"),
    KinesisFault.EXPIRED_ITERATORS: (400, "ExpiredIteratorException"),
    KinesisFault.NOT_FOUND: (400, "ResourceNotFoundException"),
}


class KinesisProxy:
    """Mutable. A context manager; everything it is told takes effect on the next call."""

    def __init__(self, endpoint_url: str, seed: str, *, slow_body_seconds: float = 1.5) -> None:
        self._target = urlsplit(endpoint_url).netloc
        self.slow_part_seconds = slow_body_seconds / _SLOW_PARTS
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.fan_out: FanOutService | None = None
        """Answers what the endpoint cannot; None: nobody asks."""
        self._windows: tuple[Window, ...] = ()
        self._fresh_iterators: set[str] = set()
        self.injected: Counter[KinesisFault] = Counter()
        """Answers that went wrong."""
        self.chances = 0.0
        """How many answers were to go wrong on average."""
        self.calls = 0
        self.puts_lost = 0
        """Records that were put by calls whose answers were lost."""
        self._server = _Server((_HOST, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._server.server_address[1]}"

    def open_window(self, *windows: Window) -> None:
        """Have these go wrong from now on, and nothing else."""
        with self._lock:
            self._windows = windows
            self._fresh_iterators.clear()

    def close_window(self) -> None:
        with self._lock:
            self._windows = ()

    def close(self) -> None:
        if self.fan_out is not None:
            self.fan_out.closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fault_for(self, operation: str, body: bytes) -> KinesisFault | None:
        """Say what is to go wrong with this call, and count it."""
        with self._lock:
            self.calls += 1
            for window in self._windows:
                if operation not in window.operations:
                    continue
                if window.fault is not KinesisFault.EXPIRED_ITERATORS:  # that spares fresh ones
                    self.chances += window.rate
                if self._random.random() >= window.rate:
                    continue
                if window.fault is KinesisFault.EXPIRED_ITERATORS and self._is_fresh(body):
                    continue
                self.injected[window.fault] += 1
                return window.fault
            return None

    def count_lost_puts(self, records: int) -> None:
        """Note how many records the answer to a call was about that its caller never saw."""
        with self._lock:
            self.puts_lost += records

    def answered(self, answer: bytes) -> None:
        """Note the iterators that were given out: they are younger than the window."""
        with self._lock:
            if any(window.fault is KinesisFault.EXPIRED_ITERATORS for window in self._windows):
                self._fresh_iterators.update(found.decode() for found in _ITERATOR.findall(answer))

    def _is_fresh(self, body: bytes) -> bool:
        return json.loads(body).get("ShardIterator") in self._fresh_iterators

    def _handler(self) -> type["_Call"]:
        return type("_CallOfThisProxy", (_Call,), {"proxy": self, "target": self._target})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A consumer that was killed, or an endpoint that ends with the run: nothing to tell."""


class _Call(BaseHTTPRequestHandler):
    """The calls of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: KinesisProxy
    target: str
    _upstream: http.client.HTTPConnection | None = None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        fault = self.proxy.fault_for(operation, body)
        if fault in _REFUSALS:
            status, code = _REFUSALS[fault]
            refusal = json.dumps({"__type": code, "message": "injected"}).encode()
            self._answer(status, {"Content-Type": _JSON}, refusal)
            return
        if operation in OPERATIONS and self.proxy.fan_out is not None:
            if fault is KinesisFault.RESET:
                self._reset()
            else:
                self.proxy.fan_out.answer(self, operation, body)
            return
        if fault is KinesisFault.PARTLY_REFUSED:
            self._answer(200, {"Content-Type": _JSON}, self._put_a_part(body))
            return
        status, headers, answer = self._forward(body)
        if fault in ANSWERS_LOST and operation in PUTS:
            self.proxy.count_lost_puts(len(json.loads(body)["Records"]))
        self.proxy.answered(answer)
        match fault:
            case KinesisFault.RESET:
                self._reset()
            case KinesisFault.CUT_BODY:
                self._answer(status, headers, answer, sent=len(answer) // 2)
            case KinesisFault.SLOW_BODY:
                self._answer(status, headers, answer, pause_seconds=self.proxy.slow_part_seconds)
            case _:
                self._answer(status, headers, answer)

    def _put_a_part(self, body: bytes) -> bytes:
        """Refuse each second record of the call, and put the others."""
        call = json.loads(body)
        taken, refused = call["Records"][::2], call["Records"][1::2]
        _, _, answer = self._forward(json.dumps(call | {"Records": taken}).encode())
        reply = json.loads(answer)
        if "Records" not in reply:
            return answer
        entry = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "injected"}
        answers = [reply["Records"][at // 2] if at % 2 == 0 else entry for at in range(len(call["Records"]))]
        failed = reply.get("FailedRecordCount", 0) + len(refused)
        return json.dumps(reply | {"Records": answers, "FailedRecordCount": failed}).encode()

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection(self.target, timeout=_UPSTREAM_SECONDS)
        self._upstream.request("POST", self.path, body, headers)
        reply = self._upstream.getresponse()
        answer = reply.read()
        kept = {name: value for name, value in reply.getheaders() if name.lower() not in _HOP_BY_HOP}
        return reply.status, kept, answer

    def _answer(
        self,
        status: int,
        headers: dict[str, str],
        body: bytes,
        *,
        sent: int | None = None,
        pause_seconds: float = 0.0,
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if sent is not None:
            self.wfile.write(body[:sent])
            self.close_connection = True
        elif pause_seconds:
            step = -(-len(body) // _SLOW_PARTS) or 1
            for start in range(0, len(body), step):
                time.sleep(pause_seconds)  # the fault itself
                self.wfile.write(body[start : start + step])
        else:
            self.wfile.write(body)

    def _reset(self) -> None:
        # Closed with unsent data dropped: the other side gets a reset, not an end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """Nothing: calls are counted."""
