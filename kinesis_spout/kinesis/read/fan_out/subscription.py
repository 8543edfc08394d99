"""One shard's subscription, for its reader and the I/O thread: the events that came, the place after them.

A subscription lasts at most 5 minutes, and its connections can break. The *place* lasts: the continuation
number of the last complete event. Every connection begins after it, and a partial event of a broken
connection is dropped. So nothing is lost and nothing comes twice; if a server begins too early, records that
came before are left out.

Events wait in a queue that is bounded in bytes. While it is full the socket is not read, and Kinesis stops
sending; a connection that does not survive the pause is replaced when there is room again.

An event comes in a frame: a length, the length of its headers, a checksum of both, the headers, the payload, and
a checksum of all: https://smithy.io/2.0/aws/amazon-eventstream.html. botocore parses the frame. The
payload is decoded as a GetRecords reply is. AWS begins a stream with an empty event "initial-response".
Some emulators omit it.
"""

import math
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from botocore.eventstream import EventStreamBuffer, EventStreamMessage
from botocore.exceptions import ClientError

from kinesis_spout.kinesis import native
from kinesis_spout.kinesis.calls import translate
from kinesis_spout.kinesis.read.page import ChildShard, GetRecordsReply, Millis, check_children, check_records
from kinesis_spout.model.errors import KinesisSpoutError, Unavailable
from kinesis_spout.model.record import Record
from shard_state import Position, SequenceNumber

DEFAULT_QUEUE_BYTES: Final = 4 * 1024 * 1024
"""In base64, as events come: what a shard pushes in 1.5 s. One event may exceed it."""
OPERATION: Final = "SubscribeToShard"

_PRELUDE_BYTES: Final = 12
_LENGTH_BYTES: Final = 4


class ShardEvent(msgspec.Struct, rename="pascal"):
    records: list[Record]
    continuation_sequence_number: Annotated[str, msgspec.Meta(pattern="^[0-9]+$")] | None = None
    """The number to continue after, even if it has no records; None at the end of the shard."""
    millis_behind_latest: Millis | None = None
    child_shards: list[ChildShard] | None = None

    @property
    def at_end(self) -> bool:
        """Return whether the shard is closed and nothing follows.

        Only the child shards show it: without them, the number is merely missing.
        """
        return self.continuation_sequence_number is None and bool(self.child_shards)

    def to_reply(self) -> GetRecordsReply:
        return GetRecordsReply(
            records=self.records,
            next_shard_iterator=None if self.at_end else "",
            millis_behind_latest=self.millis_behind_latest,
            announced=self.child_shards,
        )


class FrameBuffer:
    """Cuts the bytes of a stream into frames. Mutable."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._frame: EventStreamBuffer | None = None
        """The frame under way, once its beginning was valid."""

    def feed(self, data: bytes) -> list[EventStreamMessage]:
        """Return the complete frames. Raises Unavailable for damaged bytes: the stream is then over."""
        self._bytes += data
        frames = []
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
        except Exception as error:
            raise Unavailable(
                f"expected a frame of an event stream, got damaged bytes: {error!r}; the shard is "
                "subscribed to again"
            ) from error
        return frames

    def _next(self) -> EventStreamMessage | None:
        if self._frame is None:
            if len(self._bytes) < _PRELUDE_BYTES:
                return None
            self._frame = EventStreamBuffer()
            self._frame.add_data(bytes(self._bytes[:_PRELUDE_BYTES]))
            next(self._frame, None)  # checks the lengths, before we wait for so many bytes
        whole = int.from_bytes(self._bytes[:_LENGTH_BYTES], "big")
        if len(self._bytes) < whole:
            return None
        self._frame.add_data(bytes(memoryview(self._bytes)[_PRELUDE_BYTES:whole]))
        del self._bytes[:whole]
        message: EventStreamMessage = next(self._frame)
        self._frame = None
        return message


_decoder = msgspec.json.Decoder(ShardEvent)


def event_of(frame: EventStreamMessage, call: str) -> ShardEvent | None:
    """Decode a frame; None if it has no event of the shard. Raises the error of an error frame."""
    headers: Any = frame.headers  # botocore-stubs types it as a number
    kind = headers.get(":message-type", "event")
    if kind in {"exception", "error"}:
        raise _error_in(frame, call)
    if headers.get(":event-type") != "SubscribeToShardEvent":
        return None
    try:
        return _decoded(frame.payload)
    except Exception as error:
        raise Unavailable(
            f"{call} expected the JSON of an event, got {len(frame.payload)} bytes of something else: {error}; "
            "the shard is subscribed to again"
        ) from error


def _decoded(payload: bytes) -> ShardEvent:
    taken = None if native.decoder is None else native.decoder.records(payload, Record, "", "")
    if taken is not None:
        records, _, _, rest = taken
        event = _decoder.decode(rest)
        event.records = records
    else:
        event = _decoder.decode(payload)
        check_records(event.records)
    check_children(event.child_shards)
    return event


def _message_in(payload: bytes) -> str:
    try:
        said = msgspec.json.decode(payload, type=dict[str, Any])
    except msgspec.DecodeError:
        return payload.decode(errors="replace")
    return str(said.get("message") or said.get("Message") or said)


def _error_in(frame: EventStreamMessage, call: str) -> KinesisSpoutError:
    headers: Any = frame.headers  # botocore-stubs types it as a number
    code = headers.get(":exception-type") or headers.get(":error-code") or "InternalFailureException"
    said = headers.get(":error-message") or _message_in(frame.payload)
    answer = ClientError(
        {
            "Error": {"Code": str(code), "Message": str(said)},
        },
        OPERATION,
    )
    return translate(answer, call)


@dataclass(slots=True, kw_only=True)
class _Waiting:
    event: ShardEvent
    size_bytes: int


class ShardSubscription:
    """Mutable. Thread-safe: one thread takes events out, the I/O thread adds them.

    ``ready`` is called on the I/O thread when events, or a failure, come after there were none.
    """

    def __init__(
        self, shard_id: str, position: Position, *, max_bytes: int, ready: Callable[[], None]
    ) -> None:
        self.shard_id = shard_id
        self._place = position
        self._max_bytes = max_bytes
        self._ready = ready
        self._lock = threading.Lock()
        self._events: deque[_Waiting] = deque()
        self._bytes = 0
        self._has_news = False
        """There are events with records, or the shard's end."""
        self._last_number = -1
        """The number of the last record added."""
        self._failure: KinesisSpoutError | None = None
        self._closed = False
        self._heard_at = -math.inf
        self.taken_up_to = -math.inf
        """When the newest event that was taken out came; monotonic."""
        self.at_end = False

    @property
    def place(self) -> Position:
        with self._lock:
            return self._place

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._max_bytes

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    # Called on the I/O thread.

    def take_in(self, event: ShardEvent, size_bytes: int, now: float) -> None:
        """Queue an event that came at ``now`` (monotonic)."""
        if event.records and int(event.records[0].sequence_number) <= self._last_number:
            first = bisect_right(
                event.records, self._last_number, key=lambda record: int(record.sequence_number)
            )
            event.records = event.records[first:]
        with self._lock:
            if event.records:
                self._last_number = int(event.records[-1].sequence_number)
            if event.continuation_sequence_number is not None:
                self._place = Position.after(SequenceNumber.parse(event.continuation_sequence_number))
            elif event.records:
                self._place = Position.after(SequenceNumber(self._last_number))
            self.at_end = event.at_end
            self._heard_at = now
            if self._events and not event.records and not event.at_end and not self._events[-1].event.records:
                # The newest of events that only tell the lag counts.
                self._events[-1].event = event
                return
            self._events.append(_Waiting(event=event, size_bytes=size_bytes))
            self._bytes += size_bytes
            is_news = not self._has_news and (bool(event.records) or event.at_end)
            self._has_news |= is_news
        if is_news:
            self._ready()

    def fail(self, failure: KinesisSpoutError) -> None:
        with self._lock:
            self._failure = failure
        self._ready()

    # Called by the reader.

    def take_out(self, limit: int) -> tuple[list[ShardEvent], bool]:
        """Return the oldest events, of at most ``limit`` records together, and whether that made room.

        Raises:
            KinesisSpoutError: there is no connection. Raised once, after the events before it.
        """
        with self._lock:
            if not self._events and self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            was_full = self.is_full
            taken: list[ShardEvent] = []
            while self._events and limit > 0:
                waiting = self._events[0]
                event = waiting.event
                if len(event.records) > limit:
                    taken.append(ShardEvent(records=event.records[:limit]))
                    taken[-1].millis_behind_latest = event.millis_behind_latest
                    event.records = event.records[limit:]
                    break
                limit -= len(event.records)
                taken.append(event)
                self._events.popleft()
                self._bytes -= waiting.size_bytes
            self._has_news &= bool(self._events)
            self.taken_up_to = self._heard_at
            return taken, was_full and not self.is_full

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._events.clear()
            self._bytes = 0
