"""Subscriptions over TLS and through proxies, to a service and through a proxy on loopback."""

import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.kinesis.calls import ResourceInUse
from kinesis_spout.kinesis.read.fan_out.subscribe_call import subscribe
from kinesis_spout.model.errors import KinesisError, Unavailable
from kinesis_spout.testing import InMemoryStream
from shard_state import Position
from tests.support.kinesis.aws_front import Front, front_of
from tests.support.kinesis.own_certificate import own_certificate
from tests.support.kinesis.pushed_stream import FanOutServer, serve, subscribed
from tests.support.waiting import DEADLINE_SECONDS

SHARD = "shardId-000000000000"
PASSWORD = "hush-proxy"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(autouse=True)
def _no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Way:
    """A stream, the service that pushes it, and perhaps a proxy before it."""

    def __init__(self, opened: ExitStack, certificate: Path) -> None:
        self.opened = opened
        self.certificate = certificate
        self.stream = InMemoryStream()

    def to_service(self, *, tls: bool) -> FanOutServer:
        self.server = self.opened.enter_context(FanOutServer(certificate=self.certificate if tls else None))
        self.service = serve(self.stream, self.server, self.opened)
        return self.server

    def proxy(self, *, tls: bool = False) -> Front:
        return self.opened.enter_context(front_of("", self.certificate if tls else None))

    def client(self, **settings: Any) -> Any:
        client = self.server.settings(**settings).create()
        self.opened.callback(client.close)
        return client

    def trusting(self, **settings: Any) -> Any:
        return self.client(ca_bundle=str(self.certificate), **settings)

    def read(self, client: Any, count: int, **options: Any) -> list[bytes]:
        """Read the shard from its beginning until so many records came."""
        fan_out = subscribed(self.stream, self.server, self.opened, client=client, **options)
        getter = fan_out.getter(SHARD, Position.trim_horizon())
        news = threading.Event()
        getter.when_ready(news.set)
        found: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} records came"
            found += [record.data for record in getter.read(1000).records]
            news.wait(0.02)
            news.clear()
        return found

    def subscribe(self, client: Any) -> None:
        """Make nothing but the call, as for a consumer that was registered long ago."""
        subscribe(
            client,
            consumer_arn="arn:aws:kinesis:us-east-1:0:stream/s/consumer/app:1",
            shard_id=SHARD,
            position=Position.trim_horizon(),
            call="SubscribeToShard",
        ).close()


@pytest.fixture
def way(certificate: Path) -> Iterator[Way]:
    with ExitStack() as opened:
        yield Way(opened, certificate)


def test_a_subscription_is_verified_with_the_authorities_of_a_file(way: Way) -> None:
    way.to_service(tls=True)
    payloads = [b"%d" % number for number in range(500)]
    for payload in payloads:
        way.stream.put(payload, "key")

    assert way.read(way.trusting(), 500) == payloads


def test_what_tls_has_decrypted_already_is_read_after_a_pause(way: Way) -> None:
    way.to_service(tls=True)
    payloads = [b"%d" % number + bytes(5_000) for number in range(500)]
    for payload in payloads:
        way.stream.put(payload, "key")

    assert way.read(way.trusting(), 500, queue_bytes=20_000) == payloads


@pytest.mark.parametrize(("reaches", "raised"), [(99, ResourceInUse), (40, Unavailable)])
def test_an_error_is_read_in_as_many_pieces_as_it_comes(
    reaches: int, raised: type[KinesisError], way: Way
) -> None:
    body = b'{"__type":"ResourceInUseException","message":"subscribed to"}'
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/x-amz-json-1.1\r\n"

    class Pieces(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline() not in {b"\r\n", b""}:
                pass
            self.wfile.write(head + b"Content-Length: %d\r\n\r\n" % len(body))
            for at in range(0, min(reaches, len(body)), 20):
                self.wfile.write(body[at : at + 20])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Pieces) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        way.to_service(tls=False)
        endpoint_url = f"http://127.0.0.1:{server.server_address[1]}"
        client = replace(way.server.settings(), endpoint_url=endpoint_url).create()
        way.opened.callback(client.close)
        with pytest.raises(raised):
            way.subscribe(client)
        server.shutdown()


@pytest.mark.parametrize(("tls_to_service", "tls_to_proxy"), [(False, False), (True, False), (True, True)])
def test_subscriptions_go_through_a_proxy_and_show_it_the_password(
    way: Way, *, tls_to_service: bool, tls_to_proxy: bool
) -> None:
    way.to_service(tls=tls_to_service)
    proxy = way.proxy(tls=tls_to_proxy)
    way.stream.put(b"one", "key")
    way.stream.put(b"two", "key")

    found = way.read(way.trusting(proxy_url=proxy.url.replace("//", f"//user:{PASSWORD}@")), 2)

    assert found == [b"one", b"two"]
    if tls_to_service:
        assert set(proxy.actions()) == {"CONNECT"}
    else:
        assert proxy.actions()[-1] == "SubscribeToShard"
        assert all(seen.target.startswith(way.server.url) for seen in proxy.seen)
    assert all(seen.headers["proxy-authorization"].startswith("Basic ") for seen in proxy.seen)
