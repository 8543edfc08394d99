"""GetRecords and PutRecords with little CPU: the one way in which they are called.

A call through botocore costs 0.6 ms of CPU, and 20 µs for each record that it puts. A thousand idle shards, polled
once a second through botocore, use more than half a core.

botocore prepares the first request to each place, which finds the endpoint and the headers, and sends none. All
calls are like it, but for their bodies, and are signed here, with the credentials that botocore finds. They are
made in the I/O thread; a caller on another thread waits. An answer that is an error becomes the exception that
botocore would make of it, without a word about retries.
"""

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError, SSLError
from botocore.httpsession import ProxyConfiguration, create_urllib3_context, get_cert_path
from botocore.parsers import create_parser
from botocore.utils import get_environ_proxies

from kinesis_spout.kinesis.calls import RAW_BODY, UnusableConfig
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.wire.connections import Connection, Connections
from kinesis_spout.kinesis.wire.credentials import SIGNED, Signing
from kinesis_spout.kinesis.wire.http import Reply, request, request_start
from kinesis_spout.kinesis.wire.sigv4 import SIGNATURE_REFUSED, RequestTemplate, SigningSecond
from kinesis_spout.kinesis.wire.ways import Address, Way

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
    from mypy_boto3_kinesis import KinesisClient

_HTTP_OK, _FIRST_ERROR = 200, 300
_IN_PLACE_BYTES: Final = 64 * 1024
"""A body up to this size is signed in the I/O thread."""


class Wire:
    """Shared parts of one client's calls. Thread-safe.

    Args:
        signing: of the session that made the client.
        ca_bundle: as botocore is configured; None: the authorities that botocore trusts.
    """

    def __init__(
        self,
        client: "KinesisClient",
        signing: Signing,
        ca_bundle: str | None,
    ) -> None:
        self.client = client
        self.config = cast("Any", client.meta.config)
        self.signing = signing
        self._ca_bundle = ca_bundle
        proxies = self.config.proxies
        if proxies is None:
            proxies = get_environ_proxies(client.meta.endpoint_url)
        self._proxies = ProxyConfiguration(proxies)
        self._context: ssl.SSLContext | None = None
        self._connections: dict[Address, Connections] = {}
        self._lock = threading.Lock()

    def connections_to(self, url: str) -> Connections:
        """Return the kept connections to a URL's endpoint."""
        way = self.way_to(url)
        with self._lock:
            if way.endpoint not in self._connections:
                self._connections[way.endpoint] = Connections(way, kept=self.config.max_pool_connections)
            return self._connections[way.endpoint]

    def way_to(self, url: str) -> Way:
        return Way(url, self._proxies, trust=self._trust, connect_timeout_seconds=self.config.connect_timeout)

    def _trust(self) -> ssl.SSLContext:
        """Return what verifies endpoints and proxies. Raises SSLError if the certificates cannot be read."""
        with self._lock:
            if self._context is None:
                self._context = self._made_context()
            return self._context

    def _made_context(self) -> ssl.SSLContext:
        context: ssl.SSLContext = create_urllib3_context()
        context.options &= ~ssl.OP_NO_TICKET  # it would keep TLS 1.2 from being resumed
        context.check_hostname = True
        ca_bundle: Any = self._ca_bundle or True
        own = self.config.client_cert
        try:
            context.load_verify_locations(cafile=get_cert_path(ca_bundle))
            if own is not None:
                context.load_cert_chain(*((own,) if isinstance(own, str) else own))
        except OSError as error:
            raise SSLError(endpoint_url=self.client.meta.endpoint_url, error=error) from error
        return context

    def close(self) -> None:
        with self._lock:
            connections = list(self._connections.values())
        for each in connections:
            each.close()


@dataclass(frozen=True, slots=True, repr=False)  # a repr would show the token
class _Second:
    at: int
    keys: "ReadOnlyCredentials"
    signing: SigningSecond
    start: bytes
    """The first bytes of each request."""


class _Route:
    """A way to call one place, as botocore would. Mutable, for the I/O thread. Shows no secrets."""

    def __init__(
        self, url: str, template: RequestTemplate, connections: Connections, signing: Signing
    ) -> None:
        self.connections = connections
        self._template = template
        self._signing = signing
        self._second: _Second | None = None
        self._target = connections.way.target(url)

    def sign_anew(self) -> None:
        """Sign the next request with other keys, or at another time, than the last one."""
        self._second = None

    async def request(self, body: bytes) -> tuple[bytes, tuple[str, str | None]]:
        """Return a signed request, and the access key and token that signed it.

        Credentials that are due are renewed, at most once a second.

        Raises:
            BotoCoreError, ClientError: they cannot be renewed.
        """
        signing = self._signing
        second = self._second
        if second is None or second.at != signing.now():
            credentials = signing.credentials
            keys = None if credentials.are_due else credentials.last
            if keys is None:
                keys = await IO.in_thread(credentials.get_frozen_credentials)
            second = self._second = self._second_of(signing.now(), keys)
        if len(body) > _IN_PLACE_BYTES:
            signed = await IO.in_thread(partial(_signed, second, body))
        else:
            signed = _signed(second, body)
        return signed, (str(second.keys.access_key), second.keys.token or None)

    def _second_of(self, now: int, keys: "ReadOnlyCredentials") -> _Second:
        signing = SigningSecond(self._template, keys, now)
        headers = {**signing.headers, **self.connections.way.request_headers}
        return _Second(now, keys, signing, request_start(self._template.method, self._target, headers))


def _signed(second: _Second, body: bytes) -> bytes:
    return request(second.start, second.signing.authorization(body), body)


class _Prepared(Exception):  # noqa: N818 - no error: it takes a request out of botocore
    """Raised where botocore would send a request. A mock inside botocore, such as moto's, has answered it."""

    def __init__(self, request: AWSPreparedRequest, mocked: AWSResponse | None) -> None:
        super().__init__("a request that is not sent by botocore")
        self.request = request
        self.mocked = mocked


class _Operation:
    """Calls of one operation. Thread-safe. ``key`` names a place: what decides which endpoint a call goes to."""

    def __init__(
        self,
        wire: Wire,
        name: str,
        by_botocore: Callable[..., Any],
        good: Callable[[Reply], Any],
    ) -> None:
        self._wire = wire
        self._name = name
        self._by_botocore = by_botocore
        self._good = good
        """Makes the result of an answer with status 200; None: botocore's parser must."""
        self._model = wire.client.meta.service_model.operation_model(name)
        self._parser = create_parser("json")
        self._routes: dict[str, _Route] = {}
        self._here = threading.local()
        events: Any = wire.client.meta.events
        events.register_first(f"before-send.kinesis.{name}", self._take)

    async def call(self, key: str, arguments: Mapping[str, Any], body: bytes | None, *, is_read: bool) -> Any:
        """Make a call. A read is repeated once if its kept connection was closed before it.

        Without a ``body``, botocore makes it of the arguments.

        Raises:
            ClientError: the answer is an error.
            BotoCoreError: no answer came.
        """
        known = self._routes.get(key)
        if known is None or body is None:
            prepared = await IO.in_thread(partial(self._prepared, key, arguments))
            if isinstance(prepared, Reply):
                return self.result(prepared)
            route, sent = prepared
        else:
            route, sent = known, body
        context: dict[str, Any] = {}
        while True:
            request, context[SIGNED] = await route.request(sent)
            reply = await self._answer(route, request, is_read=is_read)
            try:
                result = self.result(reply)
            except ClientError as error:
                if not await self._goes_again(error, reply, context):
                    raise
                route.sign_anew()
            else:
                self._wire.signing.credentials.were_accepted = True
                return result

    async def drop_connections(self) -> None:
        for route in list(self._routes.values()):
            route.connections.drop_idle()

    def result(self, reply: Reply) -> Any:
        """Return what an answer says. Raises ClientError."""
        if reply.status == _HTTP_OK and (result := self._good(reply)) is not None:
            return result
        parsed = self._parsed(reply, self._model.output_shape)
        if reply.status < _FIRST_ERROR:
            return parsed
        code = parsed.get("Error", {}).get("Code")
        shape = None if code is None else self._model.service_model.shape_for_error_code(code)
        if shape is not None:
            parsed.update(self._parsed(reply, shape))
        exceptions: Any = self._wire.client.exceptions
        raise exceptions.from_code(code)(parsed, self._name)

    def _parsed(self, reply: Reply, shape: Any) -> dict[str, Any]:
        response = {
            "headers": HeadersDict(reply.headers),
            "status_code": reply.status,
            "context": {"operation_name": self._name},
            "body": bytes(reply.body),
        }
        parsed: dict[str, Any] = self._parser.parse(response, shape)
        return parsed

    async def _answer(self, route: _Route, request: bytes, *, is_read: bool) -> Reply:
        connections = route.connections
        kept = connections.take()
        if kept is not None:
            try:
                return await self._exchanged(connections, kept, request)
            except BotoCoreError as error:
                is_after_time_out = isinstance(error, ReadTimeoutError)
                if is_after_time_out or not (is_read and kept.is_stale):
                    raise
        return await self._exchanged(connections, await connections.open(), request)

    async def _exchanged(self, connections: Connections, connection: Connection, request: bytes) -> Reply:
        try:
            reply = await connection.exchange(request, self._wire.config.read_timeout)
        except Exception as error:
            raise failed(error, connections.way.url) from error
        connections.give_back(connection)
        return reply

    async def _goes_again(self, error: ClientError, reply: Reply, context: dict[str, Any]) -> bool:
        """Return True to sign and call again: the clock is known now, or there are other keys."""
        if error.response.get("Error", {}).get("Code") not in SIGNATURE_REFUSED:
            return False
        answer: Any = AWSResponse("", reply.status, HeadersDict(reply.headers), None)  # type: ignore[arg-type]
        judge = partial(self._wire.signing.goes_again, (answer, error.response), self._model, context)
        return await IO.in_thread(judge)

    def _prepared(self, key: str, arguments: Mapping[str, Any]) -> tuple[_Route, bytes] | Reply:
        """Have botocore prepare a call; may block. Returns the answer if a mock inside botocore gave one.

        Raises:
            UnusableConfig: the request is signed in another way than ours.
            BotoCoreError, ClientError: botocore cannot prepare it.
        """
        self._here.is_preparing = True
        try:
            self._by_botocore(**arguments)
        except _Prepared as prepared:
            sent, mocked = prepared.request, prepared.mocked
        else:
            raise UnusableConfig(
                f"{self._name}: expected botocore to prepare a request, got an answer of a stub"
            )
        finally:
            self._here.is_preparing = False
        if mocked is not None:
            headers = {str(name).lower(): str(value) for name, value in mocked.headers.items()}
            return Reply(mocked.status_code, headers, mocked.content, closes=False)
        url = str(sent.url)
        template = RequestTemplate.of(sent.method, url, dict(sent.headers.items()))
        if template is None:
            raise UnusableConfig(
                f"{self._name}: expected requests that botocore signs with Signature Version 4, got others"
            )
        route = _Route(url, template, self._wire.connections_to(url), self._wire.signing)
        return self._routes.setdefault(key, route), cast("bytes", sent.body)

    def _take(self, *, request: AWSPreparedRequest, event_name: str, **_event: object) -> None:
        if getattr(self._here, "is_preparing", False):
            self._here.is_preparing = False  # the handlers behind this one are asked now
            events: Any = self._wire.client.meta.events
            _, mocked = events.emit_until_response(event_name, request=request)
            raise _Prepared(request, mocked)


class GetRecords:
    """Called instead of a client's ``get_records``. Thread-safe, like the client.

    The body of a good answer is not decoded, but returned under ``RAW_BODY``.
    """

    def __init__(self, wire: Wire) -> None:
        self._operation = _Operation(wire, "GetRecords", wire.client.get_records, _page)

    def __call__(self, **arguments: Any) -> Any:
        """See boto3."""
        return IO.run(self.exchange(**arguments))

    async def exchange(self, **arguments: Any) -> Any:
        """Make the call, in the I/O thread."""
        body = _encode(arguments) if arguments.keys() in _GET_RECORDS else None
        return await self._operation.call(arguments.get("StreamARN", ""), arguments, body, is_read=True)

    async def drop_connections(self) -> None:
        """Close the kept connections that no call uses: one of them gave an answer to another call."""
        await self._operation.drop_connections()


class PutRecords:
    """Called instead of a client's ``put_records``. Thread-safe, like the client. A good reply has no metadata."""

    def __init__(self, wire: Wire) -> None:
        self._operation = _Operation(wire, "PutRecords", wire.client.put_records, _decoded)

    def __call__(self, **arguments: Any) -> Any:
        """See boto3."""
        is_usual = arguments.keys() in _PUT_RECORDS and _are_of_bytes(arguments["Records"])
        body = _encode(arguments) if is_usual else None
        # The ARN decides on the endpoint, which may be an account's.
        key = arguments.get("StreamARN", "")
        return IO.run(self._operation.call(key, arguments, body, is_read=False))


_GET_RECORDS: Final = ({"ShardIterator", "Limit"}, {"ShardIterator", "Limit", "StreamARN"})
_PUT_RECORDS: Final = ({"StreamName", "Records"}, {"StreamARN", "Records"})
_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode


def _page(reply: Reply) -> dict[str, Any]:
    return {RAW_BODY: reply.body}


def _are_of_bytes(records: Any) -> bool:
    """Return whether msgspec encodes these records as botocore does: it would not make base64 of text."""
    return isinstance(records, list) and {type(record["Data"]) for record in records} <= {bytes}


def _decoded(reply: Reply) -> dict[str, Any] | None:
    """Decode an answer to PutRecords; invalid JSON is an empty one, as for botocore."""
    if "json" not in reply.content_type:
        return None
    try:
        result = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return result if isinstance(result, dict) else {}


def failed(error: Exception, url: str) -> BotoCoreError:
    """Make the error that botocore raises for a connection that broke, or brought no HTTP."""
    kind = ReadTimeoutError if isinstance(error, TimeoutError) else ConnectionClosedError
    return kind(endpoint_url=url, error=error)
