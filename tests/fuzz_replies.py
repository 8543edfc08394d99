"""Gives the clients replies of any status, any header and any body to any operation, over real connections.

No reply whatever may end a consumer or decide a producer's record, unless it is a well-formed error of AWS that
the table of errors names as final. After each the right one comes: nothing may be missing then, or come twice.

``make fuzz`` gives a million; a failure prints its seed. The unit tests take fewer.
"""

import argparse
import base64
import contextlib
import json
import logging
import random
import re
import socketserver
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from kinesis_spout.kinesis import KinesisClientSettings, KinesisShardLister, PollingShardGetter
from kinesis_spout.kinesis.calls import ERRORS_BY_CODE, INVALID_ARGUMENT_BY_OPERATION
from kinesis_spout.kinesis.read.fan_out.subscribe_call import subscribe
from kinesis_spout.kinesis.read.fan_out.subscription import FrameBuffer, event_of
from kinesis_spout.kinesis.retry_policy import Action, Work, reaction_to
from kinesis_spout.kinesis.wire.ways import Opened
from kinesis_spout.model.errors import KinesisError, KinesisSpoutError
from kinesis_spout.testing import SteppedProducer
from shard_state import Position, SequenceNumber
from tests.fuzz_native import seed_of_the_day
from tests.support.kinesis.streams_under_test import QuickClock
from tests.support.kinesis.unkind.frames import chunk, event_frame, exception_frame, initial_response

SHARD: Final = "shardId-000000000000"
_ARN: Final = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
_CONSUMER: Final = f"{_ARN}/consumer/app:1700000000"
_FIRST: Final = 49_590_338 * 10**48
_JSON: Final = "application/x-amz-json-1.1"
_OPERATIONS: Final = {
    # By how often each is given a reply: botocore makes the calls of the rare ones, at ten times the price.
    "GetRecords": 45,
    "PutRecords": 20,
    "frames": 27,
    "SubscribeToShard": 2,
    "GetShardIterator": 2,
    "ListShards": 2,
    "DescribeStreamSummary": 2,
}
_STATUSES: Final = (
    200, 200, 200, 201, 204, 206, 300, 301, 302, 303, 304, 307, 308, 400, 400, 400, 401, 403, 404, 405, 407, 408,
    409, 410, 411, 413, 414, 415, 417, 421, 425, 426, 429, 431, 451, 499, 500, 500, 501, 502, 503, 503, 504, 505,
    509, 520, 525, 530, 599, 600, 999, 100, 103,
)  # fmt: skip
_TYPES: Final = (
    _JSON, _JSON, _JSON, "application/json", "application/json; charset=latin-1", "text/html", "text/plain", "",
    "application/x-amz-cbor-1.1", "application/xml", "application/vnd.amazon.eventstream", "\xff\xfe", "cbor;json",
)  # fmt: skip
_HEADERS: Final = (
    "", "", "", "", "", "Connection: close\r\n", "Location: http://127.0.0.1:9/x\r\n", "Retry-After: x\r\n",
    "x-amzn-query-error: AccessDenied;Sender\r\n", "x-amzn-query-error: ;\r\n", "Date: yesterday\r\n",
    "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "x-amzn-ErrorType: ValidationException\r\n",
    "Content-Encoding: gzip\r\n", "x-amz-crc32: 1\r\n", "x-amzn-RequestId: \xff\r\n", "Set-Cookie: a=b\r\n",
    "Trailer: x\r\n", "Upgrade: h2c\r\n", "x-amz-retry-after: -1\r\n",
)  # fmt: skip
_CODES: Final = (
    *sorted(ERRORS_BY_CODE), "InvalidArgumentException", "ValidationException", "SerializationException",
    "UnknownOperationException", "SomethingNew", "", "#", ":", "a#b:c", "\U0001f600", "RequestTimeTooSkewed",
    "TransactionInProgressException", "BandwidthLimitExceeded", "PriorRequestNotComplete", "x" * 5000,
)  # fmt: skip
_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 5, 2**63, 2**70, 10**400, -0.0, 1e300, -1e300, float("nan"), float("inf"),
    "", "x", "abc", "-1", "1" * 200, "9" * 6000, "\u0661", "\x00", "\ud800", "x\r\nY: z", [],
    [None], [[]], [5], ["x"], [{}], {}, {"x": None}, {"message": 5},
)  # fmt: skip
_NO_JSON: Final = (
    b"", b"", b"\x00", b"null", b"true", b"5", b'"text"', b"[]", b"[{}]", b"{", b"}", b"{}", b"nan", b"-",
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}", b"<html><body><h1>It works</h1></body></html>",
    b"<?xml version='1.0'?><Error><Code>x</Code></Error>",
    b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>", b"upstream connect error",
    b"[" * 3000,
    b'{"a":' * 3000, b"[" * 100_000, b'{"__type":"ValidationException"', b"1e999999", b"9" * 5000, b"{'a': 1}",
    b'{"Records":[', b"\xa1gRecords\x05", b"\x1f\x8b\x08\x00", b"HTTP/1.1 200 OK\r\n\r\n", b"\xbf\xff",
    b'{"a":1}{"a":1}',
)  # fmt: skip


class Reply(NamedTuple):
    """What is sent in the place of the right reply."""

    raw: bytes
    closes: bool
    """Whether the connection ends with it."""
    status: int
    body: bytes
    header: str
    is_whole: bool
    """Whether it is one reply of HTTP, from the first byte to the last."""


class Found(NamedTuple):
    """What came of the replies."""

    replies: int
    accepted: int
    """As good ones, which some are."""
    final: int
    """Well-formed errors that the table names as final."""


class Service(socketserver.ThreadingTCPServer):
    """Answers rightly, but for what is next for an operation. Mutable; one shard, and a record in each page."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.next: dict[str, deque[Reply]] = {name: deque() for name in _OPERATIONS}
        self.puts: list[bytes] = []
        """What was put with a right answer."""
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def right(self, operation: str, body: bytes) -> bytes:
        request = json.loads(body)
        if operation == "PutRecords":
            data = [base64.b64decode(each["Data"]) for each in request["Records"]]
            self.puts += data
            return right_body(operation, len(data))
        if operation == "GetRecords":
            at = request["ShardIterator"]
            if not (isinstance(at, str) and re.fullmatch("at-[0-9]{1,9}", at)):
                raise _Refused
            return right_body(operation, int(at[3:]))
        if operation == "GetShardIterator":
            at = int(request["StartingSequenceNumber"]) - _FIRST
            return right_body(operation, at + (request["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"))
        return right_body(operation, 0)


class _Refused(Exception):  # noqa: N818 - an answer
    """An iterator that is not ours: a reply that was taken for a good one gave it."""


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        service = self.server
        assert isinstance(service, Service)
        with contextlib.suppress(OSError):
            while self.rfile.readline():
                operation, length = "", 0
                while (line := self.rfile.readline()) not in {b"\r\n", b""}:
                    name, _, value = line.partition(b":")
                    match name.lower():
                        case b"content-length":
                            length = int(value)
                        case b"x-amz-target":
                            operation = value.strip().decode().partition(".")[2]
                body = self.rfile.read(length)
                if service.next[operation]:
                    reply = service.next[operation].popleft()
                    self.request.sendall(reply.raw)
                    if reply.closes:
                        return
                    continue
                if operation == "SubscribeToShard":
                    self.request.sendall(stream_of([initial_response()]))
                    return
                try:
                    self.request.sendall(whole(200, service.right(operation, body)))
                except _Refused:
                    self.request.sendall(whole(400, _error("InvalidArgumentException")))


@lru_cache(maxsize=4096)
def right_body(operation: str, number: int) -> bytes:
    match operation:
        case "GetRecords":
            record = {
                "ApproximateArrivalTimestamp": 1.7e9,
                "Data": base64.b64encode(b"%d" % number).decode(),
                "PartitionKey": "k",
                "SequenceNumber": str(_FIRST + number),
            }
            reply: Any = {
                "MillisBehindLatest": 5,
                "NextShardIterator": f"at-{number + 1}",
                "Records": [record],
            }
        case "GetShardIterator":
            reply = {"ShardIterator": f"at-{number}"}
        case "ListShards":
            reply = {
                "Shards": [
                    {
                        "ShardId": SHARD,
                        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str((1 << 128) - 1)},
                        "SequenceNumberRange": {"StartingSequenceNumber": str(_FIRST)},
                    }
                ]
            }
        case "DescribeStreamSummary":
            reply = {
                "StreamDescriptionSummary": {
                    "StreamName": "s",
                    "StreamARN": _ARN,
                    "StreamStatus": "ACTIVE",
                    "RetentionPeriodHours": 24,
                    "StreamCreationTimestamp": 1.7e9,
                    "EnhancedMonitoring": [],
                    "OpenShardCount": 1,
                }
            }
        case _:
            answer = {"ShardId": SHARD, "SequenceNumber": str(_FIRST)}
            reply = {"FailedRecordCount": 0, "Records": [answer] * number}
    return json.dumps(reply).encode()


def whole(status: int, body: bytes, content_type: str = _JSON, header: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Whatever\r\n{header}"
    if content_type:
        head += f"Content-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


def stream_of(frames: list[bytes]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(map(chunk, frames)) + b"0\r\n\r\n"


def _error(code: str) -> bytes:
    return json.dumps({"__type": code, "message": "as told"}).encode()


# Replies


def drawn_reply(source: random.Random, operation: str) -> Reply:
    status, header = source.choice(_STATUSES), source.choice(_HEADERS)
    if source.random() < 0.02:
        status = source.randrange(100, 1000)
    body = _drawn_body(source, operation)
    content_type = source.choice(_TYPES)
    raw = whole(status, body, content_type, header)
    is_whole = True
    if source.random() < 0.15:
        raw, is_whole = _unframed(source, raw), False
    closes = not is_whole or status < 200 or "close" in header or source.random() < 0.05
    return Reply(raw, closes, status, body, header, is_whole)


def _drawn_body(source: random.Random, operation: str) -> bytes:
    match source.randrange(5):
        case 0:
            return source.choice(_NO_JSON)
        case 1:
            return _drawn_error(source)
        case 2:
            return _damaged(right_body(operation, 2), source)
        case 3:
            document = json.loads(right_body(operation, 2))
            for _ in range(source.randrange(1, 3)):
                _change(document, source)
            return json.dumps(document, ensure_ascii=source.random() < 0.9).encode(errors="surrogatepass")
        case _:
            return source.randbytes(source.randrange(200))


def _drawn_error(source: random.Random) -> bytes:
    code: Any = source.choice(_CODES)
    if source.random() < 0.2:
        code = source.choice(_VALUES)
    elif source.random() < 0.1:
        code = f"com.amazonaws.kinesis.v20131202#{code}:http://internal/"
    document: dict[str, Any] = {source.choice(("__type", "__type", "__type", "code", "Code", "Error")): code}
    if source.random() < 0.8:
        said = "as told" if source.random() < 0.7 else source.choice(_VALUES)
        document[source.choice(("message", "Message", "errorMessage"))] = said
    if source.random() < 0.1:
        document[source.choice(("__type", "Records", "Shards", "ResponseMetadata"))] = source.choice(_VALUES)
    return json.dumps(document).encode()


def _change(document: Any, source: random.Random) -> None:
    """Change a member somewhere inside: it is another value, or gone."""
    places: list[tuple[Any, Any]] = []

    def gather(value: Any) -> None:
        inside = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for name, each in inside:
            places.append((value, name))
            gather(each)

    gather(document)
    if not places:
        return
    container, name = source.choice(places)
    if source.random() < 0.2:
        del container[name]
    else:
        container[name] = deepcopy(source.choice(_VALUES))  # which is changed next, perhaps


def _damaged(body: bytes, source: random.Random) -> bytes:
    damaged = bytearray(body)
    for _ in range(source.randrange(1, 4)):
        at = source.randrange(len(damaged) + 1)
        match source.randrange(4):
            case 0:
                damaged[at : at + 1] = source.randbytes(1)
            case 1:
                del damaged[at : at + source.randrange(1, 40)]
            case 2:
                del damaged[at:]
            case _:
                damaged[at:at] = source.choice((b'"', b"{", b"[", b"null", b"\\", b"1e5", b",", b"\\ud800"))
    return bytes(damaged)


def _unframed(source: random.Random, raw: bytes) -> bytes:
    """Break the framing of HTTP. The connection ends behind it."""
    head, _, body = raw.partition(b"\r\n\r\n")
    at = source.randrange(len(raw) + 1)
    return source.choice(
        (
            raw[:at],
            raw[:at] + source.randbytes(3) + raw[at:],
            raw.replace(b"\r\n", b"\n"),
            head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
            head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(body),
            head + b"\r\nContent-Length: 5\r\n\r\n" + body,
            head.replace(b"Content-Length: ", b"Content-Length: 9") + b"\r\n\r\n" + body,
            head.replace(b"Content-Length: ", b"Content-Length: -") + b"\r\n\r\n" + body,
            head.replace(b"Content-Length: ", b"X: ") + b"\r\n\r\n" + body,
            raw.replace(b"HTTP/1.1", b"HTTP/1.0"),
            raw.replace(b"HTTP/1.1", source.choice((b"HTTP/2", b"HTTP", b"SSH-2.0", b"ICY"))),
            b"HTTP/1.1 100 Continue\r\n\r\n" * source.randrange(5) + raw,
            raw + raw,
            raw + b"HTTP/1.1 408 Request Time-out\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            source.randbytes(100),
        )
    )


# What a reply may do


def final_code(operation: str, reply: Reply, work: Work) -> str | None:
    """Return the code of a well-formed error of AWS that the table names as final; None: it is none."""
    if reply.status < 400:
        return None
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        document = {}
    codes = [document.get(name) for name in ("__type", "code", "Code")]
    codes += [line.partition(": ")[2].partition(";")[0].strip() for line in (reply.header,)]
    for code in codes:
        if isinstance(code, str) and is_final(operation, code.rpartition("#")[2].partition(":")[0], work):
            return code
    return None


def is_final(operation: str, code: str, work: Work) -> bool:
    kind = ERRORS_BY_CODE.get(code)
    if code == "InvalidArgumentException":
        kind = INVALID_ARGUMENT_BY_OPERATION.get(operation, KinesisError)
    return kind is not None and reaction_to(kind(""), work).action is not Action.RETRY


class Violation(AssertionError):  # noqa: N818 - of the rule
    """A reply ended a consumer, or decided a record."""


class Fuzz:
    """The clients, and their service. Mutable; close it by ``with``."""

    def __init__(self) -> None:
        self.accepted = self.final = 0

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self.service = opened.enter_context(Service())
            settings = KinesisClientSettings(
                region="us-east-1",
                endpoint_url=self.service.url,
                aws_access_key_id="test",
                aws_secret_access_key="test",
                read_timeout_seconds=5.0,
            )
            self.client = settings.create()
            opened.callback(self.client.close)
            self.clock = QuickClock()
            self.lister = KinesisShardLister(self.client, "s", clock=self.clock, jitter=lambda: 0.0)
            self._opened = opened.pop_all()
        self._begin_reading(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def check(self, operation: str, replies: list[Reply], source: random.Random) -> None:
        """Give an operation these replies, one after the other, and then the right one."""
        self.service.next[operation].extend(replies)
        match operation:
            case "GetRecords":
                self._check_reads(operation, replies, in_columns=source.random() < 0.2)
            case "GetShardIterator":
                self._begin_reading(self._at)
                self._check_reads(operation, replies)
            case "ListShards" | "DescribeStreamSummary":
                self._check_lists(operation, replies)
            case "PutRecords":
                self._check_puts(replies)
            case "SubscribeToShard":
                for reply in replies:
                    self._check_subscription(reply)
        self.service.next[operation].clear()

    def _begin_reading(self, at: int) -> None:
        self._at = at
        self._getter = PollingShardGetter(
            self.client,
            stream="s",
            shard_id=SHARD,
            position=Position.at(SequenceNumber(_FIRST + at)),
            lister=self.lister,
            clock=self.clock,
            jitter=lambda: 0.0,
        )

    def _check_reads(self, operation: str, replies: list[Reply], *, in_columns: bool = False) -> None:
        """Read until the right page has come."""
        waiting = self.service.next[operation]
        for _ in range(3 * len(replies) + 3):
            was_fuzzed = bool(waiting)
            with self._judged(operation, replies, Work.CONSUME) as outcome:
                page = self._getter.read_arrow(100) if in_columns else self._getter.read(100)
            if outcome.is_final:
                self._begin_reading(self._at)
                continue
            if outcome.error is not None:
                continue
            if page.at_end and not any(map(_names_children, replies)):
                raise Violation(f"the shard ended with {replies}")
            data = self._data(page, in_columns=in_columns)
            if not was_fuzzed and data == [b"%d" % self._at] and not page.at_end:
                self._at += 1
                return
            may_be_a_page = any(map(_may_be_a_page, replies))
            if not data and not may_be_a_page:
                continue  # the record must follow
            if not may_be_a_page and data != [b"%d" % self._at]:
                raise Violation(f"expected record {self._at}, got {data} with {replies}")
            self.accepted += 1
            self._begin_reading(self._at)
        raise Violation(f"no right page came after {replies}")

    @staticmethod
    def _data(page: Any, *, in_columns: bool) -> list[bytes]:
        return (
            page.batch.column("data").to_pylist() if in_columns else [record.data for record in page.records]
        )

    def _check_lists(self, operation: str, replies: list[Reply]) -> None:
        with self._judged(operation, replies, Work.CALL):
            if operation == "ListShards":
                listed = [shard.shard_id for shard in self.lister.list_shards()]
                if listed != [SHARD] and not any(b'"Shards"' in reply.body for reply in replies):
                    raise Violation(f"listed {listed} with {replies}")
            else:
                self.lister.summary()

    def _check_puts(self, replies: list[Reply]) -> None:
        self.service.puts.clear()
        waiting = self.service.next["PutRecords"]
        with SteppedProducer("s", client=self.client) as producer:
            # One that was answered takes access denied for what may pass.
            del self.service.next["PutRecords"]
            self.service.next["PutRecords"] = deque()
            first = producer.put(b"first", "k")
            producer.flush()
            self.service.next["PutRecords"] = waiting
            tickets = [producer.put(b"%d" % number, "k") for number in range(2)]
            producer.flush()
            ends = [ticket.outcome for ticket in (first, *tickets)]
        for end in ends:
            if isinstance(end, KinesisSpoutError):
                if any(final_code("PutRecords", reply, Work.CONSUME) for reply in replies):
                    self.final += 1
                    return
                raise Violation(f"a record failed: {end!r} with {replies}") from end
        missing = {b"first", b"0", b"1"} - set(self.service.puts)
        if missing and not any(_may_be_taken(reply) for reply in replies):
            raise Violation(f"records {missing} were taken for put with {replies}")
        self.accepted += bool(missing)

    def _check_subscription(self, reply: Reply) -> None:
        with self._judged("SubscribeToShard", [reply], Work.CONSUME):
            pushed = subscribe(
                self.client,
                consumer_arn=_CONSUMER,
                shard_id=SHARD,
                position=Position.trim_horizon(),
                call="SubscribeToShard",
            )
            try:
                pushed.connection.settimeout(5.0)
                frames = FrameBuffer()
                data = pushed.begun_with or _received(pushed.connection)
                while data:
                    for frame in frames.feed(pushed.body_in(data)):
                        event_of(frame, "SubscribeToShard")
                    data = b"" if pushed.ended else _received(pushed.connection)
            finally:
                pushed.close()

    def check_frames(self, source: random.Random) -> None:
        """Give a subscription's reader damaged frames."""
        body = json.loads(right_body("GetRecords", 2))
        event = {
            "Records": body["Records"],
            "ContinuationSequenceNumber": str(_FIRST),
            "MillisBehindLatest": 0,
        }
        code = source.choice(_CODES)
        if source.random() < 0.5:
            _change(event, source)
        frames = [initial_response(), event_frame(event), exception_frame(code)]
        data = source.choice(frames)
        if source.random() < 0.5:
            data = _damaged(data, source)
        reply = Reply(data, True, 500, _error(code), "", is_whole=False)
        with self._judged("SubscribeToShard", [reply], Work.CONSUME):
            for frame in FrameBuffer().feed(data):
                event_of(frame, "SubscribeToShard")

    @contextmanager
    def _judged(self, operation: str, replies: list[Reply], work: Work) -> Iterator["_Outcome"]:
        outcome = _Outcome()
        try:
            yield outcome
        except Violation:
            raise
        except KinesisSpoutError as error:
            outcome.error = error
            if reaction_to(error, work).action is Action.RETRY and work is not Work.CALL:
                return
            if not any(final_code(operation, reply, work) for reply in replies):
                raise Violation(f"{type(error).__name__}: {error} is final with {replies}") from error
            outcome.is_final = True
            self.final += 1
        except Exception as error:
            raise Violation(f"{error!r} with {replies}") from error


class _Outcome:
    def __init__(self) -> None:
        self.error: KinesisSpoutError | None = None
        self.is_final = False


def _received(connection: Opened) -> bytes:
    try:
        return connection.recv(65_536)
    except OSError:
        return b""


def _document(reply: Reply) -> dict[str, Any]:
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _names_children(reply: Reply) -> bool:
    return bool(_document(reply).get("ChildShards"))


def _may_be_a_page(reply: Reply) -> bool:
    """Whether it is one, or an iterator that leads to one."""
    return b"Records" in reply.body or b"at-" in reply.body


def _may_be_taken(reply: Reply) -> bool:
    return b"Records" in reply.body and b"SequenceNumber" in reply.body


def check_replies(seed: int, count: int) -> Found:
    """Check ``count`` replies that follow from a seed. Raises AssertionError, with the seed of the reply."""
    number, end = seed, seed + count
    names, weights = list(_OPERATIONS), list(_OPERATIONS.values())
    with Fuzz() as fuzz:
        while number < end:
            source = random.Random(f"replies {number}")
            operation = source.choices(names, weights)[0]
            several = min(end - number, source.choice((1, 1, 2, 4, 8)))
            try:
                if operation == "frames":
                    several = 1
                    fuzz.check_frames(source)
                else:
                    fuzz.check(operation, [drawn_reply(source, operation) for _ in range(several)], source)
            except Violation as violation:
                raise AssertionError(f"seed {number}, {operation}: {violation}") from violation
            number += several
        return Found(count, fuzz.accepted, fuzz.final)


def main() -> None:
    """Check as many replies as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=seed_of_the_day())
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # each bad reply is told of
    found = check_replies(arguments.seed, arguments.replies)
    print(
        f"{found.replies:,} replies: {found.accepted:,} good ones, {found.final:,} final errors of AWS, "
        "0 consumers ended and 0 records decided by others"
    )


if __name__ == "__main__":
    main()
