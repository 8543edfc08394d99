"""The result of `KinesisProducer.put`: a promise that the record will end, and its outcome.

A record that no stream takes gets no ticket: one such record makes PutRecords refuse its whole call.
https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecordsRequestEntry.html
"""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kinesis_spout.kinesis.write.hash_key_ranges import is_hash_key
from kinesis_spout.kinesis.write.put_records import MAX_KEY_CHARACTERS, MAX_RECORD_BYTES, Entry, Puttable
from kinesis_spout.model.errors import InvalidRecord, KinesisSpoutError
from kinesis_spout.model.trace_context import TraceContext
from kinesis_spout.producer.promise import Promise

if TYPE_CHECKING:
    from kinesis_spout.producer.batch import BatchTicket

WAITS: Final = 0
IN_CALL: Final = 1
GIVEN_UP: Final = 2

_LONGEST_SHOWN: Final = 50


class PutResult(NamedTuple):
    """Where a record is."""

    shard_id: str
    sequence_number: str
    """Decimal text. Compare as integers."""
    sub_sequence_number: int | None = None
    """The record's index in the aggregated record that carries it, from 0; None: it is not aggregated."""

    @property
    def message_id(self) -> str:
        """``shardId:sequence[:sub]``, the same as a consumer's `Record.message_id`."""
        sub = "" if self.sub_sequence_number is None else f":{self.sub_sequence_number}"
        return f"{self.shard_id}:{self.sequence_number}{sub}"


class Ticket(Promise, Entry, frozen=False, gc=False, eq=False):  # type: ignore[misc] # msgspec allows it
    """A record that a producer took over. Made by `KinesisProducer.put`.

    It ends exactly once: the record is on the stream, or an error says why it is not. Every method may be
    called from any thread; ``await ticket`` gives what `result` returns, in any event loop.

    The garbage collector ignores tickets, because there are many: once ended, a ticket is in no cycle.
    """

    # ``row``: in which order the producer took it over.
    size_bytes: int = 0
    """What the record weighs against the limits: data and key."""
    number_in_spool: int | None = None
    """Its number in the producer's spool; None without a spool."""
    place: int = WAITS
    """Where it is, until it has ended: it `WAITS`, is `IN_CALL`, or is `GIVEN_UP` to the dead letters."""
    tries: int = 0
    """How many calls it was in that did not put it."""
    outcome: Any = None
    """The answer that names its place, or the error."""
    sub_sequence_number: int | None = None
    callbacks: list[Callable[["Ticket"], object]] | None = None
    batch: "BatchTicket | None" = None
    """Whose record it is, of those that were put together: it has no other ticket then."""
    reports: bool = False
    """Whether no caller has it, so that its failure is reported."""

    def result(self, timeout: float | None = None) -> PutResult:
        """Wait until the record has ended, and return where it is.

        Args:
            timeout: how many seconds at most; None: no limit but the producer's ``delivery_timeout_seconds``.

        Raises:
            TimeoutError: it has not ended in that time. It continues.
            KinesisError: Kinesis did not take it until the producer's deadline, or never will. RecordDropped,
            ProducerClosed: the producer gave it up. If it was in a call, it may be on the stream.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        answer = self.outcome
        return PutResult(
            answer.get("ShardId", ""), answer.get("SequenceNumber", ""), self.sub_sequence_number
        )

    def exception(self, timeout: float | None = None) -> KinesisSpoutError | None:
        """Wait until the record has ended, and return `result`'s error; None: it is on the stream.

        Raises:
            TimeoutError: as `result`.
        """
        self._wait(timeout)
        if not isinstance(self.outcome, KinesisSpoutError):
            return None
        error = copy.copy(self.outcome)  # each with a traceback of its own, which refers to its frames only
        error.__cause__ = self.outcome.__cause__
        return error

    def __repr__(self) -> str:
        state = "waiting"
        if self.outcome is not None:
            state = "failed" if isinstance(self.outcome, KinesisSpoutError) else self.result().message_id
        return f"<Ticket {state}>"

    @property
    def left(self) -> int:
        """How many records have not ended."""
        return int(self.outcome is None)

    @property
    def tickets(self) -> "tuple[Ticket, ...]":
        """Itself, as a `BatchTicket` has several."""
        return (self,)

    def number_from(self, row: int) -> None:
        """Give it its row."""
        self.row = row  # type: ignore[misc] # Entry's is read-only

    def spooled(self, number: int) -> None:
        """Note its number in the spool."""
        self.number_in_spool = number

    @property
    def is_gone(self) -> bool:
        """Whether it must not be sent any more."""
        return self.outcome is not None or self.place == GIVEN_UP


def held_in(put: Puttable) -> Sequence[Ticket]:
    """Return what a record carries: a producer puts nothing else."""
    return cast("Sequence[Ticket]", put.parts)


def ticket_of(
    data: bytes, partition_key: str, explicit_hash_key: str | int | None, trace: TraceContext | None = None
) -> Ticket:
    """Make the ticket of a record; quickly, for the usual types."""
    if type(data) is bytes and type(partition_key) is str and explicit_hash_key is None:
        characters = len(partition_key)
        size_bytes = len(data) + characters
        if (
            0 < characters <= MAX_KEY_CHARACTERS
            and size_bytes <= MAX_RECORD_BYTES
            and partition_key.isascii()
        ):
            return Ticket(partition_key, data, None, 0, trace, size_bytes)
    return _checked(data, partition_key, explicit_hash_key, trace)


def _checked(
    data: object, partition_key: object, explicit_hash_key: object, trace: TraceContext | None
) -> Ticket:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidRecord(f"data: expected bytes, got {type(data).__name__}; encode it first")
    if not isinstance(partition_key, str):
        raise InvalidRecord(f"partition_key: expected text, got {type(partition_key).__name__}")
    if not 0 < len(partition_key) <= MAX_KEY_CHARACTERS:
        raise InvalidRecord(
            f"partition_key: expected 1 to {MAX_KEY_CHARACTERS} characters, got {len(partition_key)}"
        )
    try:
        key_bytes = len(partition_key.encode())
    except UnicodeEncodeError as error:
        raise InvalidRecord(
            "partition_key: expected text that UTF-8 can write, got half a surrogate pair"
        ) from error
    copied = bytes(data)
    size_bytes = len(copied) + key_bytes
    if size_bytes > MAX_RECORD_BYTES:
        raise InvalidRecord(
            f"data: expected at most {MAX_RECORD_BYTES} bytes together with the key, got {size_bytes}; split it, "
            "or put it elsewhere and send where it is"
        )
    # Of a subclass, such as a StrEnum or a (str, Enum), the text itself: its ``str`` may differ.
    return Ticket(str.__str__(partition_key), copied, _hash_key(explicit_hash_key), 0, trace, size_bytes)


def _hash_key(given: object) -> str | None:
    if given is None:
        return None
    text = ""
    if isinstance(given, str):
        text = str.__str__(given)
    elif isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 128:
        text = int.__repr__(given)
    if not is_hash_key(text):
        raise InvalidRecord(
            f"explicit_hash_key: expected a number from 0 to 2^128 - 1, got {_shown(given)!r}"
        )
    return text


def _shown(given: object) -> str:
    """Show the beginning of a value. Python refuses to write numbers of thousands of digits."""
    if isinstance(given, int) and given.bit_length() > 2 * 128:
        return f"one of {given.bit_length()} bits"
    return str(given)[:_LONGEST_SHOWN]
