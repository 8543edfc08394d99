"""The SubscribeToShard call: botocore makes and signs the request; we send it, and read its answer.

botocore would parse every record (19 µs for 1 KB), block a thread for each stream, and refuse a stream
without an initial response. So the signed request is sent over a connection of its own, and the connection
returned. botocore gets every other answer, to raise its errors.
"""

import contextlib
import math
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict, create_request_object
from botocore.parsers import create_parser

from kinesis_spout.kinesis.calls import expected, translated
from kinesis_spout.kinesis.read.fan_out.subscription import OPERATION
from kinesis_spout.kinesis.wire.calls import Wire, failed
from kinesis_spout.kinesis.wire.http import (
    KEPT_BYTES,
    Chunks,
    Head,
    ProtocolError,
    Reply,
    ReplyReader,
    read_head,
    request_start,
)
from kinesis_spout.kinesis.wire.sigv4 import host_of, text
from kinesis_spout.kinesis.wire.ways import Opened
from kinesis_spout.model.errors import Unavailable
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


PUSHED: Final = "Pushed"
"""The key of a SubscribeToShard reply that holds its ``PushedEvents``."""

_HTTP_OK: Final = 200


class PushedEvents:
    """A streaming answer: its non-blocking connection, and its body. Mutable. Its user closes it."""

    def __init__(self, connection: Opened, head: Head, begun_with: bytes) -> None:
        self.connection = connection
        self.begun_with = begun_with
        """Bytes that came with the head, for ``body_in``."""
        self._chunks = Chunks() if head.is_chunked else None
        self._left = head.length
        """Bytes left of a body that is not in chunks; None: until the connection ends."""
        self.ended = head.length == 0
        _all.add(self)

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
        url = str(request.url)
        way = self._wire.way_to(url)
        connection = way.open()
        try:
            connection.settimeout(self._wire.config.read_timeout)
            connection.sendall(_request_bytes(request, way.target(url), way.request_headers))
            head, rest = read_head(partial(connection.recv, KEPT_BYTES))
            headers = HeadersDict(head.headers)
            response = AWSResponse(url, head.status, headers, None)  # type: ignore[arg-type]
            if head.status == _HTTP_OK:
                connection.settimeout(0.0)
                return response, {PUSHED: PushedEvents(connection, head, rest), "ResponseMetadata": {}}
            refusal = _refusal(connection, head, rest)
        except Exception as error:
            connection.close()
            raise failed(error, url) from error
        connection.close()
        reply = {"status_code": head.status, "headers": headers, "body": bytes(refusal.body), "context": {}}
        return response, create_parser("json").parse(reply, model.output_shape)


def _request_bytes(request: AWSPreparedRequest, target: str, headers: dict[str, str]) -> bytes:
    sent = {name: text(value) for name, value in request.headers.items()}
    host = {"Host": host_of(urlsplit(str(request.url))), "Accept-Encoding": "identity"}
    start = request_start(request.method, target, {**host, **sent, **headers})
    return start + b"\r\n\r\n" + cast("bytes", request.body)


def _refusal(connection: Opened, head: Head, rest: bytes) -> Reply:
    """Read the rest of an answer that is an error, in as many pieces as it comes."""
    reader = ReplyReader()
    reply = reader.body_follows(head, rest)
    while reply is None:
        reply = reader.received(connection.recv_into(reader.space()))
    return reply


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


_all: Final = weakref.WeakSet[PushedEvents]()

if hasattr(os, "register_at_fork"):

    def _close_in_child() -> None:
        """Close a forked child's copies: Kinesis would not notice that the parent closes its own."""
        for each in list(_all):
            each.close()

    os.register_at_fork(after_in_child=_close_in_child)
