"""The frames of a subscription's event stream, and the events in them.

A frame is a length, the length of its headers, a checksum of both, the headers, the payload, and a checksum
of all: https://smithy.io/2.0/aws/amazon-eventstream.html. botocore parses the frame, msgspec decodes the
payload to the structs of GetRecords replies.

AWS begins a stream with an empty event "initial-response". Some emulators omit it.
"""

import struct
from typing import Annotated, Any, Final

import msgspec
from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError
from botocore.exceptions import ClientError

from kinesis_spout.kinesis.errors import translate
from kinesis_spout.kinesis.read.page import ChildShard, GetRecordsReply
from kinesis_spout.model.errors import KinesisSpoutError, Unavailable
from kinesis_spout.model.record import Record

OPERATION: Final = "SubscribeToShard"

_PRELUDE_BYTES: Final = 12
_LENGTH_BYTES: Final = 4
_SERVERS_FAULT: Final = 500
_BROKEN: Final = (ParserError, struct.error, KeyError, UnicodeDecodeError)
"""What botocore raises for bytes that are no frame."""


class ShardEvent(msgspec.Struct, rename="pascal"):
    records: list[Record]
    continuation_sequence_number: Annotated[str, msgspec.Meta(pattern="^[0-9]+$")] | None = None
    """Where to continue after this event, even if it has no records; None at the end of the shard."""
    millis_behind_latest: int | None = None
    child_shards: list[ChildShard] | None = None

    @property
    def at_end(self) -> bool:
        """Whether the shard is closed and nothing follows.

        Only the child shards show it: without them, the number is merely missing.
        """
        return self.continuation_sequence_number is None and bool(self.child_shards)

    def to_reply(self) -> GetRecordsReply:
        return GetRecordsReply(
            records=self.records,
            next_shard_iterator=None if self.at_end else "",
            millis_behind_latest=self.millis_behind_latest,
            child_shards=self.child_shards,
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
        except _BROKEN as error:
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
        return _decoder.decode(frame.payload)
    except msgspec.DecodeError as error:
        raise Unavailable(
            f"{call} expected the JSON of an event, got {len(frame.payload)} bytes of something else: {error}; "
            "the shard is subscribed to again"
        ) from error


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
            # Events have no status. A name that is not in the table counts as the server's fault.
            "ResponseMetadata": {"HTTPStatusCode": _SERVERS_FAULT},  # type: ignore[typeddict-item]
        },
        OPERATION,
    )
    return translate(answer, call)
