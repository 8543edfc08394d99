"""A connection for one request, made as botocore makes them: certificates, proxies, time-outs.

| endpoint | proxy | how the request goes |
| --- | --- | --- |
| http or https | none | directly |
| https | http or https | through a tunnel of the proxy (CONNECT), verified inside |
| http | http | to the proxy, under the whole address |

botocore has no call for this, and its session keeps its connections.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import urllib3.exceptions
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import (
    BotoCoreError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    SSLError,
)
from botocore.httpsession import mask_proxy_url
from urllib3.util.ssl_match_hostname import CertificateError

from kinesis_spout.kinesis.read.calls.whole_body import TunnelRefused, is_refused_tunnel


def open_connection(session: Any, request: AWSPreparedRequest) -> socket.socket:
    """Send a signed request over a new connection, and return the socket; raises as botocore's session."""
    proxy_url = session._proxy_config.proxy_url_for(request.url)  # noqa: SLF001 - botocore offers no other way
    pool = session._get_connection_manager(request.url, proxy_url).connection_from_url(request.url)  # noqa: SLF001
    session._setup_ssl_cert(pool, request.url, session._verify)  # noqa: SLF001
    connection = pool._new_conn()  # noqa: SLF001
    headers = _as_text(request.headers)
    with _named_as_botocore_does(connection, request, proxy_url):
        if proxy_url is not None and request.url.startswith("https"):
            pool._prepare_proxy(connection)  # noqa: SLF001
        else:
            connection.connect()
            headers |= pool.proxy_headers  # the proxy's password, which a request without a tunnel carries
        target = session._get_request_target(request.url, proxy_url)  # noqa: SLF001
        connection.request(request.method, target, body=request.body, headers=headers)
    opened: socket.socket = connection.sock
    connection.sock = None  # it would be closed with the connection
    return opened


@contextmanager
def _named_as_botocore_does(
    connection: Any, request: AWSPreparedRequest, proxy_url: str | None
) -> Iterator[None]:
    """Close the connection if something fails, and raise what botocore would."""
    try:
        yield
    except (OSError, urllib3.exceptions.HTTPError, CertificateError) as error:
        has_a_way = proxy_url is None or connection.has_connected_to_proxy
        connection.close()
        named = _failed_at_endpoint if has_a_way else _failed_at_proxy
        raise named(error, request.url, mask_proxy_url(proxy_url or "")) from error
    except BaseException:
        connection.close()
        raise


def _failed_at_proxy(error: Exception, endpoint_url: str, proxy_url: str) -> BotoCoreError:
    if is_refused_tunnel(error):
        return TunnelRefused(endpoint_url=endpoint_url, proxy_url=proxy_url, error=error)
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
