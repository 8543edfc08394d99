"""Reads the body of a reply in one piece.

botocore joins it from pieces of 64 KiB. For a page of 10 MB they are all alive at once, on a heap that grows
and shrinks again for every page: a fifth of the CPU that reading such pages takes, and nothing is gained.
"""

import socket
from collections.abc import Iterator
from typing import Any

import botocore.exceptions
import urllib3.exceptions
from botocore.awsrequest import AWSPreparedRequest, AWSResponse


class WholeBodySession:
    """botocore's HTTP session, but for how bodies are read. Replaces it in an endpoint."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """Send a request and read the whole answer, unless a stream of events was asked for.

        Raises:
            botocore.exceptions.HTTPClientError: its kinds, as botocore's own session.
        """
        if request.stream_output:  # an event stream: its reader takes it as it comes
            events: AWSResponse = self._session.send(request)
            return events
        request.stream_output = True  # leaves the body unread
        response: AWSResponse = self._session.send(request)
        response.raw = _OnePiece(response.raw)
        try:
            response.content  # noqa: B018 - reads it, as botocore's own session does here
        except urllib3.exceptions.ReadTimeoutError as error:
            raise botocore.exceptions.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except urllib3.exceptions.HTTPError as error:
            raise botocore.exceptions.ConnectionClosedError(
                endpoint_url=request.url, request=request, error=error
            ) from error
        return response

    def open_pool(self, url: str) -> Any | None:
        """Give urllib3's pool of connections to an address; None if a proxy stands between."""
        session = self._session
        if session._proxy_config.proxy_url_for(url) is not None:  # noqa: SLF001 - botocore offers no other way
            return None
        return session._manager.connection_from_url(url)  # noqa: SLF001

    def open_connection(self, request: AWSPreparedRequest) -> socket.socket:
        """Send a request over a connection of its own, and give the socket, on which the answer comes.

        Certificates, proxies and time-outs are those of every other request.

        Raises:
            OSError, urllib3.exceptions.HTTPError: it could not be connected, or sent.
        """
        session = self._session
        proxy_url = session._proxy_config.proxy_url_for(request.url)  # noqa: SLF001
        pool = session._get_connection_manager(request.url, proxy_url).connection_from_url(request.url)  # noqa: SLF001
        session._setup_ssl_cert(pool, request.url, session._verify)  # noqa: SLF001
        connection = pool._new_conn()  # noqa: SLF001
        try:
            if connection.proxy is not None and request.url.startswith("https"):
                pool._prepare_proxy(connection)  # noqa: SLF001
            else:
                connection.connect()
            target = session._get_request_target(request.url, proxy_url)  # noqa: SLF001
            connection.request(request.method, target, body=request.body, headers=_as_text(request.headers))
        except BaseException:
            connection.close()
            raise
        opened: socket.socket = connection.sock
        connection.sock = None  # it would be closed with the connection
        return opened

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


class _OnePiece:
    """An unread answer whose stream has a single piece."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def stream(self) -> Iterator[bytes]:
        """Give the body."""
        yield self._raw.read()


def _as_text(headers: Any) -> dict[str, str]:
    return {
        name: value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in headers.items()
    }
