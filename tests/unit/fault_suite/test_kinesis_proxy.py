"""The proxy of the fault suite does what it says, and nothing else."""

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.fault.suite.kinesis_proxy import (
    WINDOWS,
    KinesisFault,
    KinesisProxy,
    Window,
    producer_weather,
    reader_weather,
)

ANSWER = json.dumps({"NextShardIterator": "fresh", "Records": ["x" * 500]}).encode()


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[KinesisProxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        with KinesisProxy(url, "seed", slow_body_seconds=0.01) as proxy:
            yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def call(proxy: KinesisProxy, operation: str = "GetRecords", iterator: str = "old") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=20)
    try:
        headers = {"X-Amz-Target": f"Kinesis_20131202.{operation}"}
        connection.request("POST", "/", json.dumps({"ShardIterator": iterator}), headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def window(fault: KinesisFault, **changes: Any) -> Window:
    return Window(**{"fault": fault, "operations": frozenset({"GetRecords"}), "rate": 1.0, **changes})


def code_of(answer: bytes) -> str:
    return str(json.loads(answer)["__type"])


def test_outside_of_a_window_calls_pass_unchanged(proxy: KinesisProxy) -> None:
    assert call(proxy) == (200, ANSWER)
    proxy.open_window(window(KinesisFault.INTERNAL_ERROR))
    proxy.close_window()
    assert call(proxy) == (200, ANSWER)
    assert not proxy.injected


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (KinesisFault.INTERNAL_ERROR, 500, "InternalFailure"),
        (KinesisFault.UNAVAILABLE, 503, "ServiceUnavailable"),
        (KinesisFault.THROTTLED, 400, "ProvisionedThroughputExceededException"),
        (KinesisFault.LIMITED, 400, "LimitExceededException"),
        (KinesisFault.NOT_FOUND, 400, "ResourceNotFoundException"),
    ],
)
def test_a_window_refuses_the_calls_of_its_operations_and_counts_them(
    proxy: KinesisProxy, fault: KinesisFault, status: int, code: str
) -> None:
    proxy.open_window(window(fault))
    refused, answer = call(proxy)
    assert (refused, code_of(answer)) == (status, code)
    assert call(proxy, "ListShards") == (200, ANSWER)
    assert proxy.injected == {fault: 1}


def test_iterators_given_out_before_the_window_have_expired_and_later_ones_have_not(
    proxy: KinesisProxy,
) -> None:
    proxy.open_window(window(KinesisFault.EXPIRED_ITERATORS))
    assert code_of(call(proxy)[1]) == "ExpiredIteratorException"
    assert call(proxy, "GetShardIterator") == (200, ANSWER)
    assert call(proxy, iterator="fresh") == (200, ANSWER)


def test_a_body_is_cut_off(proxy: KinesisProxy) -> None:
    proxy.open_window(window(KinesisFault.CUT_BODY))
    with pytest.raises(http.client.IncompleteRead):
        call(proxy)


def test_a_slow_body_comes_whole(proxy: KinesisProxy) -> None:
    proxy.open_window(window(KinesisFault.SLOW_BODY))
    assert call(proxy) == (200, ANSWER)
    assert proxy.injected == {KinesisFault.SLOW_BODY: 1}


def test_a_connection_is_reset(proxy: KinesisProxy) -> None:
    proxy.open_window(window(KinesisFault.RESET))
    with pytest.raises(OSError, match=r"reset|closed"):
        call(proxy)


def test_every_fault_has_a_window() -> None:
    of_producers = {each.fault for each in producer_weather(0.3)}
    assert {each.fault for each in WINDOWS} | of_producers == set(KinesisFault)


def test_the_kinds_of_a_weather_share_its_rate() -> None:
    for weather in (reader_weather(0.2), producer_weather(0.2)):
        assert sum(each.rate for each in weather) == pytest.approx(0.2)
