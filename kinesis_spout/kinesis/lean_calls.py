"""Calls of Kinesis with little CPU: what all calls share is done once.

A call through botocore costs 0.6 ms of CPU, and 20 µs for each record that it puts. Signing and sending are a
small part of that. A thousand idle shards, polled once a second through botocore, use more than half a core.
botocore takes ten times as long to check, encode and decode a PutRecords.

botocore makes the first call: it finds the endpoint, the credentials and the headers, and connects with the
configured certificates, through a proxy if there is one. Later calls reuse these headers with another body,
are signed by botocore's signer (so credentials are renewed as usual), and use botocore's open connections.
botocore gets every reply that is not good JSON, to raise its errors, and makes every call that is unusual in
any way.
"""

import json
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import botocore.exceptions
import msgspec
from botocore.awsrequest import AWSResponse

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_HTTP_OK: Final = 200
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LONGEST_LINE: Final = 65_536
RAW_BODY: Final = "RawBody"
"""The key of a GetRecords reply that holds its undecoded body."""
_GET_RECORDS_MEMBERS: Final = {"ShardIterator", "Limit"}
_ANY_ENDPOINT: Final = ""
"""An iterator alone does not decide which endpoint a call goes to."""
_PUT_BY_NAME: Final = {"StreamName", "Records"}
_PUT_BY_ARN: Final = {"StreamARN", "Records"}


_OF_ONE_CALL: Final = frozenset({"amz-sdk-invocation-id", "amz-sdk-request", "content-length", "host"})


class LeanCall:
    """Calls of one operation of a client. Thread-safe, like the client."""

    def __init__(self, client: "KinesisClient", operation: str) -> None:
        inside: Any = client
        self._operation = operation
        self._signer = inside._request_signer  # noqa: SLF001 - botocore offers no other way
        self._session = inside._endpoint.http_session  # noqa: SLF001
        self._read_timeout = client.meta.config.read_timeout  # type: ignore[attr-defined]
        self._templates: dict[str, _Template] = {}
        self._pool: Any = None
        self._is_plain = True
        """False once an answer did not have the expected form: botocore then repeats the call."""
        self._here = threading.local()
        client.meta.events.register_first(f"before-sign.kinesis.{operation}", self._learn)
        client.meta.events.register_first(f"before-send.kinesis.{operation}", self._received)  # type: ignore[arg-type]

    def is_learnt(self, place: str) -> bool:
        """Whether botocore has made a call to this place, so that `made` can make the next."""
        return self._is_plain and place in self._templates

    def made(self, place: str, body: bytes) -> "Reply | None":
        """Make a call; None if botocore must make it: no connection is open, or the answer has another form.

        Raises:
            botocore.exceptions.HTTPClientError: as botocore does.
        """
        return self._exchange(self._templates[place], body)

    def by_botocore(self, place: str, call: Callable[[], Any], reply: "Reply | None" = None) -> Any:
        """Have botocore make a call, and learn from it; with a ``reply``, botocore only parses that one."""
        if reply is not None:
            url = self._templates[place].url
            self._here.reply = AWSResponse(url, reply.status, reply.headers, reply)  # type: ignore[arg-type]
        self._here.place = place
        try:
            return call()
        finally:
            self._here.reply = self._here.place = None

    def _learn(self, *, request: Any, **_event: object) -> None:
        """Keep botocore's request just before it is signed."""
        place = getattr(self._here, "place", None)
        if place is not None and place not in self._templates:
            self._templates[place] = _Template.of(request)

    def _received(self, **_event: object) -> AWSResponse | None:
        """Give botocore the reply that has come, so that it sends nothing."""
        return getattr(self._here, "reply", None)

    def _exchange(self, template: "_Template", body: bytes) -> "Reply | None":
        """Send a request on an open connection; None without one, or if the answer has another form."""
        request = template.signed_by(self._signer, self._operation, body)
        connection = self._open_connection(template.url)
        if connection is None:
            return None
        reply = None
        try:
            connection.sock.settimeout(self._read_timeout)
            connection.sock.sendall(request)
            with connection.sock.makefile("rb") as stream:
                reply = Reply.read_from(stream)
        except TimeoutError as error:
            raise botocore.exceptions.ReadTimeoutError(endpoint_url=template.url, error=error) from error
        except OSError as error:
            raise botocore.exceptions.ConnectionClosedError(endpoint_url=template.url, error=error) from error
        else:
            self._is_plain = reply is not None
        finally:
            if reply is None or reply.closes:
                connection.close()
            self._pool._put_conn(connection)  # noqa: SLF001 - urllib3 lends its connections no other way
        return reply

    def _open_connection(self, url: str) -> Any | None:
        pool = self._pool
        if pool is None or pool.pool is None:  # not used yet, or closed with the client
            pool = self._pool = self._session.open_pool(url)
        if pool is None:
            return None
        connection = pool._get_conn()  # noqa: SLF001
        if connection.sock is not None:
            return connection
        pool._put_conn(connection)  # noqa: SLF001
        return None


def is_good_json(status: int, headers: Any) -> bool:
    return status == _HTTP_OK and "json" in headers.get("content-type", "")


class _Unsigned:
    """The part of botocore's ``AWSRequest`` that its signer uses. Mutable: the signer adds headers."""

    def __init__(self, template: "_Template", body: bytes) -> None:
        self.method = template.method
        self.url = template.url
        self.params: dict[str, str] = {}
        self.context = dict(template.context)
        self.headers = _copied(template.headers)
        self.body = body


class _Template(NamedTuple):
    method: str
    url: str
    target: str
    headers: Any
    context: dict[str, Any]

    @classmethod
    def of(cls, request: Any) -> "_Template":
        url = urlsplit(request.url)
        host = f"[{url.hostname}]" if ":" in str(url.hostname) else str(url.hostname)
        if url.port not in {None, _DEFAULT_PORTS.get(url.scheme)}:
            host = f"{host}:{url.port}"
        headers = _copied(request.headers)
        for name in _OF_ONE_CALL:
            del headers[name]  # silent if absent
        headers["Host"] = host
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        return cls(request.method, request.url, target, headers, dict(request.context))

    def signed_by(self, signer: Any, operation: str, body: bytes) -> bytes:
        """Return the signed request with this body, as bytes for the wire."""
        request = _Unsigned(self, body)
        signer.sign(operation, request)
        lines = [f"{self.method} {self.target} HTTP/1.1", "Accept-Encoding: identity"]
        lines.extend(f"{name}: {_text(value)}" for name, value in request.headers.items())
        lines.append(f"Content-Length: {len(body)}\r\n\r\n")
        return "\r\n".join(lines).encode("latin-1") + body


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    """With names in lower case."""
    body: bytes

    @classmethod
    def read_from(cls, stream: Any) -> "Reply | None":
        """Read an answer of known length; None if it has another form.

        Raises:
            OSError: it ends too early.
        """
        version, _, status = _line(stream).partition(" ")
        headers = {}
        while line := _line(stream):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = headers.get("content-length", "")
        plain = version == "HTTP/1.1" and "transfer-encoding" not in headers
        if not plain or not length.isdecimal() or not status[:3].isdecimal():
            return None
        body = stream.read(int(length))
        if len(body) < int(length):
            raise ConnectionError(f"expected {length} bytes, got {len(body)}")
        return cls(int(status[:3]), headers, body)

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"

    def stream(self) -> Iterator[bytes]:
        yield self.body


def _line(stream: Any) -> str:
    line: bytes = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise ConnectionError(f"expected a line of an answer, got {len(line)} bytes without an end")
    return line.rstrip(b"\r\n").decode("latin-1")


def _copied(headers: Any) -> Any:
    copied = type(headers)()
    for name, value in headers.items():
        copied[name] = value
    return copied


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


class LeanGetRecords:
    """Called instead of a client's ``get_records``. Thread-safe, like the client."""

    def __init__(self, client: "KinesisClient") -> None:
        self._whole = client.get_records
        self._lean = LeanCall(client, "GetRecords")

    def __call__(self, **arguments: Any) -> Any:
        """See boto3. The body of a good JSON reply is not decoded, but returned under ``RAW_BODY``."""
        if arguments.keys() != _GET_RECORDS_MEMBERS:
            return self._whole(**arguments)
        reply = None
        if self._lean.is_learnt(_ANY_ENDPOINT):
            reply = self._lean.made(_ANY_ENDPOINT, json.dumps(arguments).encode())
        if reply is not None and is_good_json(reply.status, reply.headers):
            return {RAW_BODY: reply.body}
        return self._lean.by_botocore(_ANY_ENDPOINT, lambda: self._whole(**arguments), reply)


class LeanPutRecords:
    """Called instead of a client's ``put_records``. Thread-safe, like the client.

    Records have ``bytes`` for data. A good reply has no ``ResponseMetadata``.
    """

    def __init__(self, client: "KinesisClient") -> None:
        self._whole = client.put_records
        self._lean = LeanCall(client, "PutRecords")

    def __call__(self, **arguments: Any) -> Any:
        members = arguments.keys()
        if members not in (_PUT_BY_NAME, _PUT_BY_ARN) or not _are_of_bytes(arguments["Records"]):
            return self._whole(**arguments)
        # The ARN decides on the endpoint, which may be an account's.
        place = arguments.get("StreamARN") or ""
        reply = None
        if self._lean.is_learnt(place):
            reply = self._lean.made(place, _encode(arguments))
        if reply is not None and is_good_json(reply.status, reply.headers):
            return _decoded(reply.body)
        return self._lean.by_botocore(place, lambda: self._whole(**arguments), reply)


def _are_of_bytes(records: Any) -> bool:
    """Whether msgspec encodes these records as botocore does: it would not make base64 of text."""
    return isinstance(records, list) and {type(record["Data"]) for record in records} <= {bytes}


def _decoded(body: bytes) -> dict[str, Any]:
    """Decode a reply; invalid JSON is an empty one, as for botocore."""
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return reply if isinstance(reply, dict) else {}


_encode = msgspec.json.Encoder().encode
