"""SubscribeToShard itself: botocore makes and signs the request; its answer is left to us.

botocore would parse every record (19 µs for 1 KB), wait for each event on a thread of its own, and refuse a
stream without an initial response. So the request is taken out of its hands once it is signed, sent over a
connection of its own (made by botocore's session: certificates, proxies), and given back as a socket.
Whatever is not a good answer is given to botocore, which makes the errors of it.
"""

import contextlib
import math
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import botocore.exceptions
from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.parsers import create_parser

from kinesis_spout.kinesis.errors import translated
from kinesis_spout.kinesis.read.fan_out.event_stream import OPERATION
from kinesis_spout.kinesis.read.fan_out.http_answer import AnswerBody, AnswerHead, read_head
from kinesis_spout.kinesis.read.fan_out.own_connection import open_connection
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

PUSHED: Final = "Pushed"
"""Where a reply of SubscribeToShard holds its ``PushedEvents``."""

_HTTP_OK: Final = 200
_LONGEST_ERROR_BYTES: Final = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class PushedEvents:
    """An answer that goes on: its connection, and what came with the head. Whoever has it closes it."""

    connection: socket.socket
    """Does not block."""
    body: AnswerBody
    first: bytes
    """Of the body as it is coded; to be fed to ``body`` first."""

    def close(self) -> None:
        """End the subscription. May be called twice."""
        with contextlib.suppress(OSError):
            self.connection.close()


class PushedSubscriptions:
    """Has a client's ``subscribe_to_shard`` give ``PushedEvents`` under ``PUSHED``. Thread-safe."""

    def __init__(self, client: "KinesisClient") -> None:
        inside: Any = client
        self._endpoint = inside._endpoint  # noqa: SLF001 - botocore offers no other way
        self._read_timeout = client.meta.config.read_timeout  # type: ignore[attr-defined]
        events: Any = client.meta.events  # its stubs know no handler that answers
        events.register_first(f"before-call.kinesis.{OPERATION}", self._exchange)

    def _exchange(self, *, model: Any, params: Any, **_event: object) -> tuple[AWSResponse, dict[str, Any]]:
        request = self._endpoint.create_request(params, model)
        connection = open_connection(self._endpoint.http_session.within, request)
        try:
            connection.settimeout(self._read_timeout)
            head, first = read_head(connection)
            body = AnswerBody(head)
            if head.status == _HTTP_OK:
                connection.settimeout(0.0)  # TLS within a proxy's TLS knows no setblocking
                pushed = PushedEvents(connection=connection, body=body, first=first)
                return _response(request.url, head), {PUSHED: pushed, "ResponseMetadata": {}}
            whole = _whole(connection, body, first)
        except TimeoutError as error:
            connection.close()
            raise botocore.exceptions.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except OSError as error:
            connection.close()
            raise botocore.exceptions.ConnectionClosedError(endpoint_url=request.url, error=error) from error
        connection.close()
        reply = {
            "status_code": head.status,
            "headers": HeadersDict(head.headers),
            "body": whole,
            "context": {},
        }
        return _response(request.url, head), create_parser("json").parse(reply, model.output_shape)


def subscribe(
    client: "KinesisClient", *, consumer_arn: str, shard_id: str, position: Position, call: str
) -> PushedEvents:
    """Subscribe to a shard, waiting for the answer's head.

    Args:
        client: from ``KinesisClientSettings``.
        consumer_arn: of the registered consumer.
        shard_id: the shard.
        position: where to begin; not LATEST.
        call: what is being done and to what, for errors.

    Raises:
        KinesisError: as the table in ``kinesis.errors`` has it.
    """
    arguments: Any = {
        "ConsumerARN": consumer_arn,
        "ShardId": shard_id,
        "StartingPosition": starting_position(position),
    }
    with translated(call):
        reply: Any = client.subscribe_to_shard(**arguments)
    pushed: PushedEvents = reply[PUSHED]
    return pushed


def starting_position(position: Position) -> dict[str, Any]:
    """Give a position as the call takes it."""
    starting: dict[str, Any] = {"Type": position.type.value}
    if position.sequence_number is not None:
        starting["SequenceNumber"] = position.sequence_number.kinesis
    if position.timestamp is not None:
        # Arrivals are whole milliseconds: a finer start would skip what arrived in its own millisecond.
        starting["Timestamp"] = math.floor(position.timestamp * 1000) / 1000
    return starting


def _whole(connection: socket.socket, body: AnswerBody, first: bytes) -> bytes:
    """Read the rest of an answer that is no stream."""
    whole = body.feed(first)
    while not body.ended and len(whole) < _LONGEST_ERROR_BYTES:
        piece = connection.recv(65_536)
        if not piece:
            break
        whole += body.feed(piece)
    return whole


def _response(url: str, head: AnswerHead) -> AWSResponse:
    return AWSResponse(url, head.status, head.headers, None)  # type: ignore[arg-type]
