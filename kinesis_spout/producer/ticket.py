"""The result of `KinesisProducer.put`: a promise that the record will end, and its outcome.

A record that no stream takes gets no ticket: one such record makes PutRecords refuse its whole call.
https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecordsRequestEntry.html
"""

import asyncio
import copy
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from kinesis_spout.kinesis.write.hash_key_ranges import is_hash_key
from kinesis_spout.kinesis.write.put_records import MAX_KEY_CHARACTERS, MAX_RECORD_BYTES, Entry
from kinesis_spout.model.errors import InvalidRecord, KinesisSpoutError
from kinesis_spout.model.trace_context import TraceContext
from kinesis_spout.model.unfinished_work import refuse_unfinished

_log = logging.getLogger(__name__)
WAITS: Final = 0
IN_CALL: Final = 1
GIVEN_UP: Final = 2

_LONGEST_SHOWN: Final = 50

_lock = threading.Lock()
"""Guards the lists of callbacks of all tickets: few have one."""


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


class Ticket(Entry, frozen=False, gc=False, eq=False):  # type: ignore[misc] # msgspec allows it
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

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.outcome is not None

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
        if self.outcome is None:
            ended = threading.Event()

            def tell(_: Ticket) -> None:
                ended.set()

            self.add_done_callback(tell)
            try:
                is_over = ended.wait(timeout)
            finally:
                self._forget(tell)
            if not is_over:
                raise TimeoutError(f"expected the record to end within {timeout} s; it is still waiting")
        if not isinstance(self.outcome, KinesisSpoutError):
            return None
        error = copy.copy(self.outcome)  # each with a traceback of its own, which refers to its frames only
        error.__cause__ = self.outcome.__cause__
        return error

    def add_done_callback(self, callback: Callable[["Ticket"], object]) -> None:
        """Have ``callback(ticket)`` called once when it has ended: at once if it has.

        It is called on a thread of the producer, and should be quick: other records wait for it. It may put
        records, and close the producer, neither of which waits there; it must not wait for other tickets.
        What it raises is logged, and changes nothing.
        """
        with _lock:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append(callback)
        if self.outcome is not None:
            self.tell()

    def __await__(self) -> Generator[Any, None, PutResult]:
        if self.outcome is None:
            loop = asyncio.get_running_loop()
            ended: asyncio.Future[None] = loop.create_future()

            def tell(_: Ticket) -> None:
                _wake(loop, ended)

            self.add_done_callback(tell)
            try:
                yield from ended
            finally:
                self._forget(tell)
        return self.result()

    def __repr__(self) -> str:
        state = "waiting"
        if self.outcome is not None:
            state = "failed" if isinstance(self.outcome, KinesisSpoutError) else self.result().message_id
        return f"<Ticket {state}>"

    def tell(self) -> None:
        """Call the callbacks, each once. For the producer, after it has set the ``outcome``."""
        callbacks = self.callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # another thread calls them, too
                return
            try:
                returned = callback(self)
                if returned is not None:
                    refuse_unfinished(returned)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - a user's own, perhaps `sys.exit`; the others must be called
                _log.exception("A callback of a record that was put failed; the record is not concerned")

    def _forget(self, callback: Callable[["Ticket"], object]) -> None:
        """Stop calling it: a caller that asks repeatedly would leave many."""
        with _lock:
            if self.callbacks and callback in self.callbacks:
                self.callbacks.remove(callback)

    @property
    def is_gone(self) -> bool:
        """Whether it must not be sent any more."""
        return self.outcome is not None or self.place == GIVEN_UP


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


def _wake(loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]") -> None:
    try:
        loop.call_soon_threadsafe(_set, ended)
    except RuntimeError:  # the loop was closed, and with it the wait
        return


def _set(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
