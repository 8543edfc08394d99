"""Calls through proxies: plain ones, tunnels, tunnels in TLS, broken ones; and whom a call trusts."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import RAW_BODY, translated
from kinesis_spout.kinesis.read.fan_out.subscribe_call import subscribe
from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError, Unavailable
from shard_state import Position
from tests.support.kinesis.aws_front import Front, front_of
from tests.support.kinesis.own_certificate import own_certificate
from tests.unit.kinesis.wire.servers import EMPTY, HANGS_UP, SILENCE, End, Server, answer_of, serving

PASSWORD = "hush-proxy"
PUT = answer_of(b'{"FailedRecordCount":0,"Records":[{"SequenceNumber":"1","ShardId":"s"}]}')
LARGE = b'{"Records":[],"X":"' + b"x" * 5_000_000 + b'"}'
OPERATIONS = ("GetRecords", "PutRecords", "SubscribeToShard")


class TlsServer(Server):
    def __init__(self, chain: Path) -> None:
        super().__init__()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return super().url.replace("http:", "https:")


class Way(NamedTuple):
    """A service, and the proxy before it."""

    server: Server
    proxy: Front
    client: Any


@pytest.fixture(autouse=True)
def _no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(
    params=[(False, False), (True, False), (True, True)], ids=["plain", "tunnel", "tunnel in TLS"]
)
def way(request: pytest.FixtureRequest, certificate: Path) -> Iterator[Way]:
    has_tls, proxy_has_tls = request.param
    with ExitStack() as opened:
        server = opened.enter_context(serving(TlsServer(certificate) if has_tls else Server()))
        proxy = opened.enter_context(front_of("", certificate if proxy_has_tls else None))
        client = client_of(server.url, proxy.url, certificate)
        yield Way(server, proxy, client)
        client.close()


def client_of(url: str, proxy_url: str | None, certificate: Path | None) -> Any:
    return KinesisClientSettings(
        region="us-east-1",
        endpoint_url=url,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        ca_bundle=None if certificate is None else str(certificate),
        proxy_url=None if proxy_url is None else proxy_url.replace("//", f"//user:{PASSWORD}@"),
        connect_timeout_seconds=3.0,
    ).create()


def call(client: Any, operation: str, data: bytes = b"data") -> bytes:
    if operation == "SubscribeToShard":
        subscribe(
            client, consumer_arn="c", shard_id="s", position=Position.trim_horizon(), call=operation
        ).close()
        return b""
    with translated(operation):
        if operation == "PutRecords":
            records = [{"Data": data, "PartitionKey": "k"}]
            return str(client.put_records(StreamName="s", Records=records)["FailedRecordCount"]).encode()
        return bytes(client.get_records(ShardIterator="it", Limit=1)[RAW_BODY])


def test_calls_go_through_the_proxy_over_a_kept_connection_and_show_it_the_password(way: Way) -> None:
    for _ in range(3):
        assert call(way.client, "GetRecords") == EMPTY
        way.server.answers = [PUT]
        assert call(way.client, "PutRecords") == b"0"

    assert len(way.server.requests) == 6
    assert all(seen.headers["proxy-authorization"].startswith("Basic ") for seen in way.proxy.seen)
    if way.server.url.startswith("https:"):
        assert way.proxy.actions() == ["CONNECT"]
        assert not any("proxy-authorization" in headers for _, headers, _ in way.server.requests)
    else:
        assert way.proxy.actions() == ["GetRecords", "PutRecords"] * 3
        assert {seen.target for seen in way.proxy.seen} == {f"{way.server.url}/"}


def test_large_bodies_pass_both_ways(way: Way) -> None:
    data = bytes(range(256)) * 16_000
    way.server.answers = [answer_of(LARGE), PUT]

    assert call(way.client, "GetRecords") == LARGE
    assert call(way.client, "PutRecords", data) == b"0"
    assert len(way.server.requests[1][2]) > len(data) * 4 // 3


def test_a_connection_that_ends_behind_the_proxy_loses_no_poll(way: Way) -> None:
    assert call(way.client, "GetRecords") == EMPTY
    way.server.answers = [HANGS_UP]
    for _ in range(2):
        try:
            assert call(way.client, "GetRecords") == EMPTY
        except Unavailable:
            assert way.server.url.startswith("http:"), "a proxy of plain HTTP says so, or hangs up"
    assert call(way.client, "GetRecords") == EMPTY


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 5\r\n\r\nhello",
            r"\(Tunnel connection failed: 407 Proxy Authentication Required\)",
        ),
        (b"HTTP/1.0 502 Bad Gateway\r\n\r\n", r"\(Tunnel connection failed: 502 Bad Gateway\)"),
        (b"HTTP/1.1 200 Fine\r\n\r\nsurplus", r"\(Tunnel connection failed: 200 Fine\)"),
        (b"HTTP/1.1 200 Connection estab", "proxy URL"),
        (HANGS_UP, "proxy URL"),
        (SILENCE, "proxy URL"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "proxy URL"),
    ],
    ids=["407", "502", "surplus", "cut", "hangs up", "silent", "no HTTP"],
)
def test_a_proxy_that_makes_no_tunnel_is_one_error_that_may_pass_and_names_the_setting(
    certificate: Path, operation: str, answer: bytes, said: str
) -> None:
    with serving(Server()) as proxy:
        proxy.answers = [answer] * 2
        proxy.ends = None if answer == SILENCE else End.CLOSED
        client = client_of("https://kinesis.example", proxy.url, certificate)
        with pytest.raises(Unavailable, match=rf"{operation} failed: .*{said}.*`proxy_url`") as raised:
            call(client, operation)
        client.close()

    assert proxy.requests[0][0] == "CONNECT kinesis.example:443 HTTP/1.1"
    assert not knows_the_password(raised.value)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("scheme", "endpoint"), [("http", "http"), ("http", "https"), ("https", "https")])
def test_a_proxy_that_is_not_there_is_named_without_its_password(
    certificate: Path, operation: str, scheme: str, endpoint: str
) -> None:
    client = client_of(f"{endpoint}://kinesis.example", f"{scheme}://127.0.0.1:9", certificate)
    with pytest.raises(Unavailable, match=r"Failed to connect to proxy URL: .*`proxy_url`") as raised:
        call(client, operation)
    client.close()
    assert not knows_the_password(raised.value)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_proxy_without_tls_that_is_called_with_it_is_one_error(certificate: Path, operation: str) -> None:
    with front_of("") as proxy:
        client = client_of("https://kinesis.example", proxy.url.replace("http:", "https:"), certificate)
        with pytest.raises(Unavailable, match=r"Failed to connect to proxy URL: .*`proxy_url`"):
            call(client, operation)
        client.close()


def test_a_proxy_that_would_not_be_verified_is_a_setting_to_mend(certificate: Path) -> None:
    with pytest.raises(InvalidConfig, match="proxy_url: expected http:// for the endpoint http://kinesis"):
        client_of("http://kinesis.example", "https://127.0.0.1:9", certificate)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("is_in_tunnel", [False, True])
def test_a_service_is_verified_directly_and_in_a_tunnel(
    certificate: Path, tmp_path: Path, operation: str, *, is_in_tunnel: bool
) -> None:
    with serving(TlsServer(own_certificate(tmp_path))) as server, front_of("") as proxy:
        client = client_of(server.url, proxy.url if is_in_tunnel else None, certificate)
        with pytest.raises(Unavailable, match=r"SSL validation failed for https://.*`ca_bundle`"):
            call(client, operation)
        client.close()
    assert proxy.actions() == ["CONNECT"] * is_in_tunnel


@pytest.mark.parametrize("operation", OPERATIONS)
def test_authorities_that_are_not_there_are_one_error(
    monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/authorities.pem")
    with serving(Server()) as server:
        client = client_of(server.url.replace("http:", "https:"), None, None)
        with pytest.raises(Unavailable, match=rf"{operation} failed: SSL validation failed .*`ca_bundle`"):
            call(client, operation)
        client.close()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_service_that_is_not_there_is_named(operation: str) -> None:
    client = client_of("http://127.0.0.1:9", None, None)
    with pytest.raises(Unavailable, match='Could not connect to the endpoint URL: "http://127'):
        call(client, operation)
    client.close()


def knows_the_password(error: KinesisSpoutError) -> bool:
    """Whether any text of an error, or of its causes, shows it."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        texts += [str(cause), repr(cause)]
        cause = cause.__cause__ or cause.__context__
    return any(PASSWORD in text for text in texts)
