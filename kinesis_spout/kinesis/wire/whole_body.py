"""Reads the body of a reply in one piece.

botocore joins it from pieces of 64 KiB. For a page of 10 MB all are alive at once, on a heap that grows and
shrinks for every page: a fifth of the CPU of reading such pages, for nothing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import botocore.exceptions
import urllib3.exceptions
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


class TunnelRefused(botocore.exceptions.ProxyConnectionError):
    """A proxy would not connect to the endpoint. Unlike botocore's error it says why."""

    fmt = 'Proxy "{proxy_url}" refused a tunnel to "{endpoint_url}": {error}'


def endpoint_of(client: "KinesisClient") -> Any:
    """What signs and sends a client's requests, with its ``http_session``.

    botocore has no public way to it: a client is not made of a session that the caller gives.
    """
    inside: Any = client
    return inside._endpoint  # noqa: SLF001


class WholeBodySession:
    """Replaces botocore's HTTP session in an endpoint; only the reading of bodies differs."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @property
    def within(self) -> Any:
        return self._session

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """Send a request and read the whole answer, except an event stream's."""
        if request.stream_output:  # an event stream: its reader takes it as it comes
            return self._sent(request)
        request.stream_output = True  # leaves the body unread
        response = self._sent(request)
        response.raw = OnePiece(response.raw)
        try:
            response.content  # noqa: B018 - reads it, as botocore's own session does here
        except urllib3.exceptions.ReadTimeoutError as error:
            raise botocore.exceptions.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except urllib3.exceptions.HTTPError as error:
            raise botocore.exceptions.ConnectionClosedError(
                endpoint_url=request.url, request=request, error=error
            ) from error
        return response

    def _sent(self, request: AWSPreparedRequest) -> AWSResponse:
        try:
            answer: AWSResponse = self._session.send(request)
        except botocore.exceptions.ProxyConnectionError as error:
            refused = _refused_tunnel(error)
            if refused is None:
                raise
            proxy_url = error.kwargs["proxy_url"]
            raise TunnelRefused(endpoint_url=request.url, proxy_url=proxy_url, error=refused) from error
        return answer

    def close(self) -> None:
        self._session.close()


def is_refused_tunnel(error: BaseException) -> bool:
    return isinstance(error, OSError) and str(error).startswith("Tunnel connection failed")


def _refused_tunnel(error: botocore.exceptions.ProxyConnectionError) -> BaseException | None:
    within: Any = error.kwargs.get("error")
    return next((each for each in getattr(within, "args", ()) if is_refused_tunnel(each)), None)


class OnePiece:
    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def stream(self) -> Iterator[bytes]:
        yield self._raw.read()
