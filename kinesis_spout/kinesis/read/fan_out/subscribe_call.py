"""The SubscribeToShard call: botocore makes and signs the request; we read its answer.

botocore would parse every record (19 µs for 1 KB), block a thread for each stream, and refuse a stream
without an initial response. So the signed request is sent over a separate connection of urllib3 (with
botocore's certificates and proxies), and the socket returned. botocore gets every other answer, to raise its
errors.

| endpoint | proxy | how the request goes |
| --- | --- | --- |
| http or https | none | directly |
| https | http or https | through a tunnel of the proxy (CONNECT), verified inside |
| http | http | to the proxy, under the whole address |

``http.client`` reads the head of an answer. It cannot read a body from a non-blocking socket; ``h11`` can,
but takes 2 to 4 times the CPU (0.75 ms a MB instead of 0.3, in pieces of 16 KB).
"""

import contextlib
import math
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING, Any, Final, cast

import urllib3.exceptions
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict, create_request_object
from botocore.exceptions import (
    BotoCoreError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    SSLError,
)
from botocore.httpsession import mask_proxy_url
from botocore.parsers import create_parser
from urllib3.connection import HTTPConnection, HTTPSConnection, ProxyConfig
from urllib3.util import Url, parse_url
from urllib3.util.ssl_match_hostname import CertificateError

from kinesis_spout.kinesis.calls import expected, translated
from kinesis_spout.kinesis.read.fan_out.subscription import OPERATION
from kinesis_spout.kinesis.wire.calls import Wire, failed
from kinesis_spout.kinesis.wire.http import Chunks, ProtocolError
from kinesis_spout.model.errors import Unavailable
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


PUSHED: Final = "Pushed"
"""The key of a SubscribeToShard reply that holds its ``PushedEvents``."""

_HTTP_OK: Final = 200
_LONGEST_ERROR_BYTES: Final = 1024 * 1024


class PushedEvents:
    """A streaming answer: its non-blocking connection, and its body. Mutable. Its user closes it.

    A body that is not ``chunked`` has ``length`` bytes; None: it ends with the connection.
    """

    def __init__(self, connection: socket.socket, *, length: int | None, chunked: bool) -> None:
        self.connection = connection
        self._chunks = Chunks() if chunked else None
        self._left = length
        """Bytes left of a body that is not in chunks; None: until the connection ends."""
        self.ended = not chunked and length == 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.close()

    def body_in(self, data: bytes) -> bytes:
        """Remove the transfer coding from received bytes. Raises Unavailable if it is invalid."""
        if self._chunks is not None:
            try:
                body = self._chunks.taken(data)
            except ProtocolError as error:
                raise Unavailable(f"{error}; the shard is subscribed to again") from error
            self.ended = self._chunks.ended
            return body
        if self._left is None:
            return data
        piece = data[: self._left]
        self._left -= len(piece)
        self.ended = self._left == 0
        return piece


class PushedSubscriptions:
    """Makes a client's ``subscribe_to_shard`` return ``PushedEvents`` under ``PUSHED``. Thread-safe."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._trust = cache(wire.trust)
        events: Any = wire.client.meta.events  # its stubs know no handler that answers
        events.register_first(f"before-call.kinesis.{OPERATION}", self._exchange)

    def _exchange(
        self, *, model: Any, params: Any, request_signer: Any, **_event: object
    ) -> tuple[AWSResponse, dict[str, Any]]:
        while True:
            unsigned = create_request_object(params)
            request_signer.sign(model.name, unsigned)
            self._wire.signing.sign(request=unsigned)
            answer = self._answered(unsigned.prepare(), model)
            if not self._wire.signing.goes_again(answer, model, unsigned.context):
                return answer

    def _answered(self, request: AWSPreparedRequest, model: Any) -> tuple[AWSResponse, dict[str, Any]]:
        connection = self._sent(request)
        connection.settimeout(self._wire.config.read_timeout)
        try:
            with HTTPResponse(_Unbuffered(connection)) as answer:  # type: ignore[arg-type]
                answer.begin()
                headers = HeadersDict(answer.headers)
                response = AWSResponse(request.url, answer.status, headers, None)  # type: ignore[arg-type]
                if answer.status == _HTTP_OK:
                    connection.settimeout(0.0)  # TLS within a proxy's TLS has no setblocking
                    pushed = PushedEvents(connection, length=answer.length, chunked=bool(answer.chunked))
                    return response, {PUSHED: pushed, "ResponseMetadata": {}}
                body = _error_in(answer)
        except Exception as error:
            connection.close()
            raise failed(error, str(request.url)) from error
        connection.close()
        reply = {"status_code": answer.status, "headers": headers, "body": body, "context": {}}
        return response, create_parser("json").parse(reply, model.output_shape)

    def _sent(self, request: AWSPreparedRequest) -> socket.socket:
        """Send a signed request over a new connection, and return the socket; raises as botocore's session."""
        proxies = self._wire.proxies
        url, proxy_url = parse_url(request.url), proxies.proxy_url_for(request.url)
        proxy = None if proxy_url is None else parse_url(proxy_url)
        connection = self._connection(url, proxy)
        target, headers = url.request_uri, _as_text(request.headers)
        if proxy is not None:
            password = proxies.proxy_headers_for(proxy_url)
            if url.scheme == "https":
                connection.set_tunnel(_host(url), url.port or 443, password, str(proxy.scheme))
            else:
                target, headers = request.url, headers | password
        with _named_as_botocore_does(connection, request, proxy_url):
            connection.connect()
            connection.request(request.method, target, body=cast("bytes", request.body), headers=headers)
        opened = cast("socket.socket", connection.sock)
        connection.sock = None  # it would be closed with the connection
        return opened

    def _connection(self, url: Url, proxy: Url | None) -> HTTPConnection:
        to = proxy or url
        port = to.port or (443 if to.scheme == "https" else 80)
        keep_alive = (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options: dict[str, Any] = {
            "timeout": self._wire.config.connect_timeout,
            "socket_options": [*HTTPConnection.default_socket_options, keep_alive],
            "proxy": proxy,
        }
        if "https" not in {url.scheme, to.scheme}:
            return HTTPConnection(_host(to), port, **options)
        context = self._trust()
        to_proxy = ProxyConfig(
            context, use_forwarding_for_https=False, assert_hostname=None, assert_fingerprint=None
        )
        return HTTPSConnection(_host(to), port, ssl_context=context, proxy_config=to_proxy, **options)


def _error_in(answer: HTTPResponse) -> bytes:
    """Read what an answer says of an error, in as many pieces as it comes."""
    body = b""
    while piece := answer.read(_LONGEST_ERROR_BYTES - len(body)):
        body += piece
    if answer.length and len(body) < _LONGEST_ERROR_BYTES:
        raise IncompleteRead(body, answer.length)
    return body


class _Unbuffered:
    """A socket of which ``http.client`` reads no byte beyond the head."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def makefile(self, mode: str) -> Any:
        return self._connection.makefile(mode, buffering=0)  # type: ignore[call-overload]


def subscribe(
    client: "KinesisClient", *, consumer_arn: str, shard_id: str, position: Position, call: str
) -> PushedEvents:
    """Subscribe to a shard, from a position other than LATEST, and wait for the answer's head."""
    arguments: Any = {
        "ConsumerARN": consumer_arn,
        "ShardId": shard_id,
        "StartingPosition": starting_position(position),
    }
    with translated(call):
        reply: Any = client.subscribe_to_shard(**arguments)
        return expected(reply, PUSHED, call, PushedEvents)


def starting_position(position: Position) -> dict[str, Any]:
    starting: dict[str, Any] = {"Type": position.type.value}
    if position.sequence_number is not None:
        starting["SequenceNumber"] = position.sequence_number.kinesis
    if position.timestamp is not None:
        # Arrivals are whole milliseconds: a finer start would skip what arrived in the same millisecond.
        starting["Timestamp"] = math.floor(position.timestamp * 1000) / 1000
    return starting


def _host(url: Url) -> str:
    return str(url.host).strip("[]")


@contextmanager
def _named_as_botocore_does(
    connection: Any, request: AWSPreparedRequest, proxy_url: str | None
) -> Iterator[None]:
    """Close the connection if something fails, and raise what botocore would."""
    try:
        yield
    except (OSError, HTTPException, urllib3.exceptions.HTTPError, CertificateError) as error:
        has_a_way = proxy_url is None or connection.has_connected_to_proxy
        connection.close()
        named = _failed_at_endpoint if has_a_way else _failed_at_proxy
        raise named(error, request.url, mask_proxy_url(proxy_url or "")) from error
    except BaseException:
        connection.close()
        raise


def _failed_at_proxy(error: Exception, _endpoint_url: str, proxy_url: str) -> BotoCoreError:
    if isinstance(error, ssl.SSLCertVerificationError | CertificateError):
        return SSLError(endpoint_url=proxy_url, error=error)
    return ProxyConnectionError(proxy_url=proxy_url, error=error)


def _failed_at_endpoint(error: Exception, endpoint_url: str, _proxy_url: str) -> BotoCoreError:
    kind = next(named for raised, named in _NAMES if isinstance(error, raised))
    return kind(endpoint_url=endpoint_url, error=error)


_NAMES: Final[tuple[tuple[type[Exception], type[BotoCoreError]], ...]] = (
    (ssl.SSLError, SSLError),
    (urllib3.exceptions.SSLError, SSLError),
    (CertificateError, SSLError),
    (urllib3.exceptions.NewConnectionError, EndpointConnectionError),
    (urllib3.exceptions.ConnectTimeoutError, ConnectTimeoutError),
    (TimeoutError, ConnectTimeoutError),
    (Exception, ConnectionClosedError),
)


def _as_text(headers: Any) -> dict[str, str]:
    return {
        name: value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in headers.items()
    }
