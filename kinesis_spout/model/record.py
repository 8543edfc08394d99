"""A Kinesis record as the user sees it, and as GetRecords sends it; its trace context; its dead letter.

The decoder fills the fields that come over the wire in place; the getter adds ``stream``, ``shard_id`` and
``attempt``. One object per record, no copy in between.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec

from shard_state import SequenceNumber
from shard_state.sequence_number import WHOLE

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MAX_TRACESTATE_CHARACTERS: Final = 512
"""A longer one is left out: the standard asks for no more to be passed on."""

_FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)
_SAMPLED: Final = 0x01
_USER_RECORD_BYTES: Final = 200
"""The memory of a user record's objects, roughly."""
_sequence_number: Final = partial(tuple.__new__, SequenceNumber)
"""Makes one of its fields, as a tuple: without the call of Python that the class itself makes."""


class Record(msgspec.Struct, gc=False):
    """One record of a shard. Not frozen, because that is faster to decode; a handler gets a copy.

    The garbage collector ignores it: it holds no containers, and there are millions of it.
    """

    data: bytes = msgspec.field(name="Data")
    """The payload, at most 10 MiB."""
    sequence_number: str = msgspec.field(name="SequenceNumber")
    """Decimal text of up to 129 digits. Compare as integers: ``record.sequence``."""
    partition_key: str | None = msgspec.field(name="PartitionKey", default=None)
    """At most 256 characters; None if the stream distributes the records (strategy AUTO)."""
    arrival_timestamp: float | None = msgspec.field(name="ApproximateArrivalTimestamp", default=None)
    """Seconds since the epoch. Not guaranteed to grow from record to record."""
    encryption_type: str | None = msgspec.field(name="EncryptionType", default=None)
    """"KMS", "NONE", or None if the endpoint does not say."""
    stream: str = ""
    shard_id: str = ""
    attempt: int = 1
    """The number of this delivery: 1 at first, 2 for the first retry."""
    sub_sequence_number: int | None = None
    """The index inside the aggregated record that carried it (the KPL's format), from 0; None for a record
    that was not aggregated."""
    explicit_hash_key: str | None = None
    """The hash key that its producer gave to choose the shard, as decimal text. Only records of aggregates have
    it."""

    if TYPE_CHECKING:  # every struct has it, but msgspec's stubs do not

        def __copy__(self) -> Self: ...

    @property
    def sequence(self) -> SequenceNumber:
        """The sequence number, in its order."""
        sub = self.sub_sequence_number
        return _sequence_number((int(self.sequence_number), WHOLE if sub is None else sub))

    @property
    def sequence_text(self) -> str:
        """The same as ``str(self.sequence)``: ``"123"``, or ``"123:4"`` of a user record in an aggregate."""
        if self.sub_sequence_number is None:
            return self.sequence_number
        return f"{self.sequence_number}:{self.sub_sequence_number}"

    @property
    def size_bytes(self) -> int:
        """Its size in a buffer: its data and key, and of a user record also the objects around them.

        A page may hold hundreds of thousands of user records, which weigh little else.
        """
        size = len(self.data) + len(self.partition_key or "")
        return size if self.sub_sequence_number is None else size + _USER_RECORD_BYTES

    @property
    def message_id(self) -> str:
        """``shardId:sequence``: unique within the stream, the same at every delivery, and in a dead letter.

        For a user record in an aggregate: ``shardId:sequence:sub``. ``RecordSpout.next_tuple`` adds the
        number of the delivery.
        """
        if self.sub_sequence_number is None:
            return f"{self.shard_id}:{self.sequence_number}"
        return f"{self.shard_id}:{self.sequence_number}:{self.sub_sequence_number}"

    @property
    def arrival(self) -> datetime | None:
        """The approximate arrival as an aware UTC datetime."""
        return None if self.arrival_timestamp is None else datetime.fromtimestamp(self.arrival_timestamp, UTC)


def sizes_of(records: Iterable[Record]) -> list[int]:
    """Return ``size_bytes`` of each, for half the price."""
    return [
        len(each.data)
        + len(each.partition_key or "")
        + (0 if each.sub_sequence_number is None else _USER_RECORD_BYTES)
        for each in records
    ]


class TracedRecord(Record, gc=False):
    """A user record with the trace context that its producer gave it; made only where `tracing` is on.

    A class of its own, so that no other record has room for what few of them have.
    """

    traceparent: str = ""
    """As in the header of that name: ``00-trace id-span id-flags``. The trace is sampled."""
    tracestate: str = ""


class TraceContext(NamedTuple):
    """A span of a trace, as the two headers of W3C, https://www.w3.org/TR/trace-context/.

    It is in the tags of a user record inside an aggregated record, so that its payload stays as it is.
    """

    traceparent: str
    """``00-trace id-span id-flags``, in hexadecimal."""
    tracestate: str = ""
    """Added by the tracing systems; empty: nothing."""

    @property
    def is_sampled(self) -> bool:
        """True if it is valid, and its trace is recorded."""
        parent = self.traceparent
        return _FORM.fullmatch(parent) is not None and bool(int(parent[-2:], 16) & _SAMPLED)


LetterId = tuple[str, float]
"""The message id of a letter and when it died: its copies have both; a record that dies again has another."""


class LetterOutcome(StrEnum):
    """Why a letter is listed no more. One that has both outcomes is on its stream again."""

    REDRIVEN = "redriven"
    DISMISSED = "dismissed"

    def after(self, earlier: "LetterOutcome | None") -> "LetterOutcome":
        """Return the outcome of a letter that has both, in whichever order they were stored."""
        return earlier if earlier is LetterOutcome.REDRIVEN else self


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was given up, with everything needed to examine it and to send it again.

    As JSON, ``data`` is base64 and times are seconds since the epoch.
    """

    application: str
    stream: str
    shard_id: str
    sequence_number: str
    """``"123"``, or ``"123:4"`` for a user record inside an aggregate."""
    partition_key: str | None
    arrival_timestamp: float | None
    data: bytes
    attempts: int
    """The number of its deliveries, including the last."""
    error: str
    """The last attempt's failure: the exception's type and text, or the handler's reason."""
    reason: str
    """Why: "exhausted" (the retry limit), "rejected" (the handler said so), "expired" (too old to be
    retried)."""
    died_at: float
    traceback: str | None = None
    """The place where the last attempt raised, without the text of the exceptions. None: it did not raise, or
    the letter is older than this field."""
    explicit_hash_key: str | None = None
    """The hash key that the record's producer gave to choose the shard, unchanged; a redrive gives it again.
    Only user records inside aggregated ones have it. None: there is none, or the letter is older than this
    field."""

    @property
    def message_id(self) -> str:
        """``shardId:sequence``, which `show`, `redrive` and `dismiss` accept."""
        return f"{self.shard_id}:{self.sequence_number}"

    @property
    def letter_id(self) -> LetterId:
        """The id that its copies share."""
        return self.message_id, self.died_at
