"""What AWS does for registered consumers, over a client that reads the stream with GetRecords.

One subscription for each consumer and shard: within 5 s of the last one another is refused, later it takes
over, and the old one is told so. It ends after 300 s, and at the end of the shard. What is told in
``push_faults`` goes wrong with the next events, whoever gets them.
"""

import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from botocore.exceptions import ClientError

from kinesis_spout.kinesis.calls import RAW_BODY
from tests.support.kinesis.fan_out.frames import chunk, event_frame, exception_frame, initial_response

OPERATIONS: Final = frozenset(
    {
        "RegisterStreamConsumer",
        "DescribeStreamConsumer",
        "ListStreamConsumers",
        "DeregisterStreamConsumer",
        "SubscribeToShard",
    }
)
_JSON: Final = "application/x-amz-json-1.1"


class PushFault(Enum):
    """What goes wrong with an event."""

    CUT = auto()
    """Half of the frame, and the connection is closed."""
    BAD_CHECKSUM = auto()
    DRIP = auto()
    """A few bytes at a time."""
    ENDED = auto()
    """The stream ends in order before the event, as after five minutes."""


@dataclass(slots=True, kw_only=True)
class Pushing:
    """A subscription under way."""

    shard_id: str
    taken_over: threading.Event = field(default_factory=threading.Event)
    is_caught_up: bool = False
    """Everything there was has been sent."""


class Refused(Exception):  # noqa: N818 - an answer, not a mistake
    def __init__(self, code: str, message: str = "as told") -> None:
        super().__init__(message)
        self.code = code


class FanOutService:
    """Mutable, thread-safe.

    Args:
        client: gives one to read a stream with.
        again_after_seconds: AWS' 5 s.
        lasts_seconds: AWS' 300 s.
        poll_seconds: how often the stream is looked at.
        heartbeat_seconds: how often an event without records is sent.
        has_initial_response: AWS sends one, kinesis-mock does not.
        refuses_within: say within a stream why a subscription is refused, as kinesis-mock does.
        cut_rate: what share of events is cut short instead, besides ``push_faults``.
        seed: of the cuts.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        *,
        again_after_seconds: float = 5.0,
        lasts_seconds: float = 300.0,
        poll_seconds: float = 0.01,
        heartbeat_seconds: float = 0.05,
        has_initial_response: bool = True,
        refuses_within: bool = False,
        most_consumers: int = 20,
        cut_rate: float = 0.0,
        seed: str = "",
    ) -> None:
        self._client = client
        self.again_after_seconds = again_after_seconds
        self.lasts_seconds = lasts_seconds
        self.poll_seconds = poll_seconds
        self.heartbeat_seconds = heartbeat_seconds
        self._has_initial_response = has_initial_response
        self._refuses_within = refuses_within
        self._most_consumers = most_consumers
        self.cut_rate = cut_rate
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.consumers: dict[str, dict[str, Any]] = {}
        """By ARN."""
        self._pushing: dict[tuple[str, str], Pushing] = {}
        self._subscribed_at: dict[tuple[str, str], float] = {}
        self.refuse_next: deque[str] = deque()
        """Codes of errors that the next subscriptions are answered with."""
        self.fail_next: deque[str] = deque()
        """Codes of errors that come within the stream, instead of the next event."""
        self.push_faults: deque[PushFault] = deque()
        self.counts: Counter[str] = Counter()
        self.subscriptions: list[dict[str, Any]] = []
        """The requests that were granted."""
        self.closed = threading.Event()

    def answer(self, handler: BaseHTTPRequestHandler, operation: str, body: bytes) -> None:
        request = json.loads(body)
        try:
            if operation == "SubscribeToShard":
                self._subscribe(handler, request)
                return
            reply = getattr(self, "_" + operation)(request)
        except Refused as refused:
            if self._refuses_within and operation == "SubscribeToShard":
                begin_stream(handler)
                handler.wfile.write(chunk(exception_frame(refused.code, str(refused))) + b"0\r\n\r\n")
                return
            answer_json(handler, 400, {"__type": refused.code, "message": str(refused)})
        except ClientError as error:
            answer_json(handler, 400, {"__type": error.response["Error"]["Code"], "message": str(error)})
        else:
            answer_json(handler, 200, reply)

    def is_caught_up(self, shard_id: str) -> bool:
        with self._lock:
            pushing = [one for one in self._pushing.values() if one.shard_id == shard_id]
        return bool(pushing) and all(one.is_caught_up for one in pushing)

    def take_over(self, shard_id: str | None = None) -> int:
        """End subscriptions as if another member had subscribed. Returns how many."""
        with self._lock:
            ended = [one for one in self._pushing.values() if shard_id in {None, one.shard_id}]
        for one in ended:
            one.taken_over.set()
        return len(ended)

    # Consumers

    def _RegisterStreamConsumer(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - the API's name
        with self._lock:
            if self._of(request) is not None:
                raise Refused("ResourceInUseException")
            if len(self.consumers) >= self._most_consumers:
                raise Refused("LimitExceededException")
            created = 1_700_000_000 + len(self.consumers)
            arn = f"{request['StreamARN']}/consumer/{request['ConsumerName']}:{created}"
            self.consumers[arn] = {
                "ConsumerName": request["ConsumerName"],
                "ConsumerARN": arn,
                "ConsumerStatus": "ACTIVE",
                "ConsumerCreationTimestamp": created,
            }
            return {"Consumer": {**self.consumers[arn], "ConsumerStatus": "CREATING"}}

    def _DescribeStreamConsumer(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        found = self._of(request)
        if found is None:
            raise Refused("ResourceNotFoundException")
        return {"ConsumerDescription": {**found, "StreamARN": request["StreamARN"]}}

    def _ListStreamConsumers(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        found = [one for arn, one in self.consumers.items() if arn.startswith(request["StreamARN"])]
        first = int(request.get("NextToken", "0"))
        following = {"NextToken": str(first + 7)} if len(found) > first + 7 else {}
        return {"Consumers": found[first : first + 7], **following}

    def _DeregisterStreamConsumer(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        found = self._of(request)
        if found is None:
            raise Refused("ResourceNotFoundException")
        del self.consumers[found["ConsumerARN"]]
        return {}

    def _of(self, request: dict[str, Any]) -> dict[str, Any] | None:
        wanted = f"{request['StreamARN']}/consumer/{request['ConsumerName']}:"
        return next((one for arn, one in self.consumers.items() if arn.startswith(wanted)), None)

    # Subscriptions

    def _subscribe(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        arn, shard_id, start = request["ConsumerARN"], request["ShardId"], request["StartingPosition"]
        if self.refuse_next:
            raise Refused(self.refuse_next.popleft())
        if arn not in self.consumers:
            raise Refused("ResourceNotFoundException", "no such consumer")
        stream = arn.partition(":stream/")[2].partition("/")[0]
        arguments = {"StreamName": stream, "ShardId": shard_id, "ShardIteratorType": start["Type"]}
        if "SequenceNumber" in start:
            arguments["StartingSequenceNumber"] = start["SequenceNumber"]
        if "Timestamp" in start:
            arguments["Timestamp"] = start["Timestamp"]
        client = self._client()
        iterator = client.get_shard_iterator(**arguments)["ShardIterator"]
        pushing = self._begin((arn, shard_id), request)
        begin_stream(handler)
        try:
            if self._has_initial_response:
                handler.wfile.write(chunk(initial_response()))
            self._push(handler, pushing, client, iterator, start.get("SequenceNumber"))
        except OSError:
            self.counts["left by the reader"] += 1
        finally:
            handler.close_connection = True
            with self._lock:
                if self._pushing.get((arn, shard_id)) is pushing:
                    del self._pushing[arn, shard_id]

    def _begin(self, key: tuple[str, str], request: dict[str, Any]) -> Pushing:
        now = time.monotonic()
        with self._lock:
            if now - self._subscribed_at.get(key, -1e9) < self.again_after_seconds:
                self.counts["refused as in use"] += 1
                raise Refused("ResourceInUseException", "subscribed to just now")
            old = self._pushing.get(key)
            if old is not None:
                self.counts["taken over"] += 1
                old.taken_over.set()
            self._subscribed_at[key] = now
            self.subscriptions.append(request)
            pushing = self._pushing[key] = Pushing(shard_id=key[1])
            return pushing

    def _push(
        self,
        handler: BaseHTTPRequestHandler,
        pushing: Pushing,
        client: Any,
        iterator: str,
        continuation: str | None,
    ) -> None:
        begun = sent_at = time.monotonic()
        has_sent = False
        while not self.closed.is_set():
            if self._is_ended(handler, pushing, begun):
                return
            try:
                reply = json.loads(client.get_records(ShardIterator=iterator, Limit=1000)[RAW_BODY])
            except ClientError as error:
                code = error.response["Error"]["Code"]
                last = b"" if code == "ExpiredIteratorException" else chunk(exception_frame(code))
                handler.wfile.write(last + b"0\r\n\r\n")
                return
            records, following = reply["Records"], reply.get("NextShardIterator")
            if records:
                continuation = records[-1]["SequenceNumber"]
            if records or not following or time.monotonic() - sent_at >= self.heartbeat_seconds:
                if not self._send(handler, event_frame(_event(reply, continuation))):
                    return
                sent_at, has_sent = time.monotonic(), True
            pushing.is_caught_up = has_sent and not records
            if not following:
                handler.wfile.write(b"0\r\n\r\n")
                return
            iterator = following
            if not records:
                pushing.taken_over.wait(self.poll_seconds)

    def _is_ended(self, handler: BaseHTTPRequestHandler, pushing: Pushing, begun: float) -> bool:
        """End the stream, if it is time; say why, if there is a reason."""
        if pushing.taken_over.is_set():
            last = chunk(exception_frame("ResourceInUseException"))
        elif self.fail_next:
            last = chunk(exception_frame(self.fail_next.popleft()))
        elif time.monotonic() - begun > self.lasts_seconds:
            self.counts["ended in time"] += 1
            last = b""
        else:
            return False
        handler.wfile.write(last + b"0\r\n\r\n")
        return True

    def _send(self, handler: BaseHTTPRequestHandler, data: bytes) -> bool:
        fault = self._next_fault()
        match fault:
            case PushFault.CUT:
                whole = chunk(data)
                handler.wfile.write(whole[: len(whole) // 2])
                return False
            case PushFault.BAD_CHECKSUM:
                handler.wfile.write(chunk(data[:-1] + bytes([data[-1] ^ 1])))
                self.closed.wait(0.2)
                return False
            case PushFault.ENDED:
                handler.wfile.write(b"0\r\n\r\n")
                return False
            case PushFault.DRIP:
                whole = chunk(data)
                for first in range(0, len(whole), 7):
                    handler.wfile.write(whole[first : first + 7])
                    handler.wfile.flush()
            case None:
                handler.wfile.write(chunk(data))
        return True

    def _next_fault(self) -> PushFault | None:
        with self._lock:
            if self.push_faults:
                fault = self.push_faults.popleft()
            elif self._random.random() < self.cut_rate:
                fault = PushFault.CUT
            else:
                return None
            self.counts[fault.name] += 1
            return fault


def _event(reply: dict[str, Any], continuation: str | None) -> dict[str, Any]:
    is_last = not reply.get("NextShardIterator")
    return {
        "Records": reply["Records"],
        "ContinuationSequenceNumber": None if is_last else continuation,
        "MillisBehindLatest": reply.get("MillisBehindLatest"),
        "ChildShards": reply["ChildShards"] if is_last else None,
    }


def begin_stream(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response_only(200)
    handler.send_header("Content-Type", "application/vnd.amazon.eventstream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def answer_json(handler: BaseHTTPRequestHandler, status: int, reply: dict[str, Any]) -> None:
    body = json.dumps(reply).encode()
    handler.send_response_only(status)
    handler.send_header("Content-Type", _JSON)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
