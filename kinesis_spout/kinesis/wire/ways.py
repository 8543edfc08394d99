"""Ways to an endpoint: directly, or through a proxy. Opening a connection blocks.

| endpoint | proxy | what a connection is |
| --- | --- | --- |
| http or https | none | direct |
| https | http or https | a tunnel of the proxy (CONNECT), with the endpoint's TLS inside |
| http | http | one to the proxy; each request names the whole address |

Errors are those that botocore raises. A proxy's password is in none of them.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    SSLError,
)
from botocore.httpsession import ProxyConfiguration, mask_proxy_url

from kinesis_spout.kinesis.wire.http import read_head, tunnel_request

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_TLS_BYTES: Final = 16 * 1024
_GOOD: Final = range(200, 300)


class Address(NamedTuple):
    host: str
    """Without the brackets of IPv6."""
    port: int
    is_secure: bool

    @classmethod
    def of(cls, url: str) -> "Address":
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        return cls(str(parts.hostname), port, is_secure=parts.scheme == "https")


class Way:
    """One way to an endpoint. Thread-safe.

    Args:
        trust: makes what verifies certificates, of the endpoint and of a proxy.
    """

    def __init__(
        self,
        url: str,
        proxies: ProxyConfiguration,
        *,
        trust: Callable[[], ssl.SSLContext],
        connect_timeout_seconds: float,
    ) -> None:
        self.url = url
        self.endpoint = Address.of(url)
        self._trust = trust
        self._timeout = connect_timeout_seconds
        proxy_url: str | None = proxies.proxy_url_for(url)
        self._proxy: Address | None = None if proxy_url is None else Address.of(proxy_url)
        self._shown_proxy = mask_proxy_url(proxy_url or "")
        self._proxy_headers: dict[str, str] = {}
        if proxy_url is not None:
            self._proxy_headers = proxies.proxy_headers_for(proxy_url)

    @property
    def request_headers(self) -> dict[str, str]:
        """Headers of each request that its signature does not cover."""
        return self._proxy_headers if self._goes_to_proxy else {}

    def target(self, url: str) -> str:
        """Return how a request names a URL of the endpoint: a proxy of plain HTTP gets it whole."""
        if self._goes_to_proxy:
            return url
        parts = urlsplit(url)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    @property
    def _goes_to_proxy(self) -> bool:
        return self._proxy is not None and not self.endpoint.is_secure

    def open(self, session: ssl.SSLSession | None = None) -> "Opened":
        """Open a connection, which blocks; ``session`` is one to resume.

        Raises:
            BotoCoreError: none can be opened.
        """
        if self._proxy is None:
            with self._failing_at(self.url):
                opened: Opened = self._connected(self.endpoint)
        else:
            with self._failing_at_proxy():
                opened = self._at_proxy(self._proxy)
        if self.endpoint.is_secure:
            with self._failing_at(self.url), _closed_on_error(opened):
                return self._secured(opened, self.endpoint.host, session)
        return opened

    def _connected(self, address: Address) -> socket.socket:
        connected = socket.create_connection(address[:2], self._timeout)
        with _closed_on_error(connected):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connected

    def _at_proxy(self, proxy: Address) -> "Opened":
        opened: Opened = self._connected(proxy)
        with _closed_on_error(opened):
            if proxy.is_secure:
                opened = self._secured(opened, proxy.host, None)
            if self.endpoint.is_secure:
                self._tunnel(opened)
        return opened

    def _secured(self, opened: "Opened", host: str, session: ssl.SSLSession | None) -> "Opened":
        context = self._trust()
        if isinstance(opened, ssl.SSLSocket):
            return TlsInTls(opened, context, host)
        assert isinstance(opened, socket.socket)
        return context.wrap_socket(opened, server_hostname=host, session=session)

    def _tunnel(self, opened: "Opened") -> None:
        """Have the proxy connect to the endpoint. Raises OSError with its answer if it does not."""
        deadline = time.monotonic() + self._timeout
        opened.sendall(tunnel_request(self.endpoint.host, self.endpoint.port, self._proxy_headers))

        def receive() -> bytes:
            opened.settimeout(max(0.001, deadline - time.monotonic()))
            return opened.recv(_TLS_BYTES)

        head, rest = read_head(receive)
        if head.status not in _GOOD or rest:
            raise OSError(f"Tunnel connection failed: {head.status} {head.reason}".rstrip())
        opened.settimeout(self._timeout)

    @contextmanager
    def _failing_at(self, url: str) -> Iterator[None]:
        try:
            yield
        except BotoCoreError:  # of certificates that cannot be read
            raise
        except OSError as error:
            kind: type[BotoCoreError] = EndpointConnectionError
            if isinstance(error, ssl.SSLError):
                kind = SSLError
            elif isinstance(error, TimeoutError):
                kind = ConnectTimeoutError
            raise kind(endpoint_url=url, error=error) from error

    @contextmanager
    def _failing_at_proxy(self) -> Iterator[None]:
        try:
            yield
        except BotoCoreError:
            raise
        except ssl.SSLCertVerificationError as error:
            raise SSLError(endpoint_url=self._shown_proxy, error=error) from error
        except OSError as error:
            raise ProxyConnectionError(proxy_url=self._shown_proxy, error=error) from error


class TlsInTls:
    """A connection with TLS inside a proxy's TLS, for which ``ssl`` has no socket. Mutable.

    Like a socket, it blocks or not as ``settimeout`` says, and raises what ``ssl.SSLSocket`` raises.
    """

    def __init__(self, outer: ssl.SSLSocket, context: ssl.SSLContext, host: str) -> None:
        self._outer = outer
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=host)
        self._unsent = b""
        self._done(self._tls.do_handshake)
        self._flush()

    def fileno(self) -> int:
        return self._outer.fileno()

    def settimeout(self, seconds: float) -> None:
        self._outer.settimeout(seconds)

    def close(self) -> None:
        self._outer.close()

    def pending(self) -> int:
        """Return how many bytes came that do not show at the socket."""
        return self._tls.pending() + self._received.pending + self._outer.pending()

    def send(self, data: bytes | memoryview) -> int:
        self._flush()
        count: int = self._done(self._tls.write, data[:_TLS_BYTES])
        with contextlib.suppress(ssl.SSLWantWriteError):  # the next call goes on with it
            self._flush()
        return count

    def sendall(self, data: bytes) -> None:
        while data:
            data = data[self.send(data) :]
        self._flush()

    def recv_into(self, buffer: memoryview) -> int:
        self._flush()
        try:
            count: int = self._done(self._tls.read, len(buffer), buffer)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return 0
        return count

    def recv(self, count: int) -> bytes:
        buffer = bytearray(min(count, _TLS_BYTES))
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def _done(self, step: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                return step(*arguments)
            except ssl.SSLWantReadError:
                self._flush()
                data = self._outer.recv(_TLS_BYTES)
            if data:
                self._received.write(data)
            else:
                self._received.write_eof()

    def _flush(self) -> None:
        self._unsent += self._to_send.read()
        while self._unsent:
            self._unsent = self._unsent[self._outer.send(self._unsent) :]


Opened = socket.socket | TlsInTls


@contextmanager
def _closed_on_error(opened: Opened) -> Iterator[None]:
    try:
        yield
    except BaseException:
        opened.close()
        raise
