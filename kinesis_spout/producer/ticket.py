"""What `KinesisProducer.put` gives: the promise that a record will end, and how it did."""

import asyncio
import copy
import logging
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from kinesis_spout.kinesis.write.hash_key_ranges import hash_key
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.unfinished_work import refuse_unfinished

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsRequestEntryTypeDef

_log = logging.getLogger(__name__)
WAITS: Final = 0
IN_CALL: Final = 1
GIVEN_UP: Final = 2

_lock = threading.Lock()
"""Of the lists of callbacks: few tickets have one."""


class PutResult(NamedTuple):
    """Where a record is."""

    shard_id: str
    sequence_number: str
    """Decimal text. Compare as integers."""
    sub_sequence_number: int | None = None
    """The record's index in the aggregated record that carries it, from 0; None: it is by itself."""

    @property
    def message_id(self) -> str:
        """``shardId:sequence[:sub]``, as a consumer's `Record.message_id` says."""
        sub = "" if self.sub_sequence_number is None else f":{self.sub_sequence_number}"
        return f"{self.shard_id}:{self.sequence_number}{sub}"


class Ticket(msgspec.Struct, gc=False, eq=False):
    """A record that a producer took over. Made by `KinesisProducer.put`.

    It ends exactly once: the record is on the stream, or it is not and an error says why. Every method may be
    called from any thread; ``await ticket`` gives what `result` gives, in any event loop.

    The garbage collector passes over tickets, for there are many: it holds nothing that refers to it, once ended.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    size_bytes: int
    """What the record weighs against the limits: data and key."""
    row: int = 0
    """In which order the producer took it over."""
    number_in_spool: int | None = None
    """How the producer's spool names it; None without a spool."""
    place: int = WAITS
    """Where it is, as long as it has not ended: it `WAITS`, is `IN_CALL`, or is `GIVEN_UP` to the dead letters."""
    tries: int = 0
    """How many calls it was in that did not put it."""
    outcome: Any = None
    """Of the answer that names its place, or the error."""
    sub_sequence_number: int | None = None
    callbacks: list[Callable[["Ticket"], object]] | None = None

    def done(self) -> bool:
        """Say whether it has ended."""
        return self.outcome is not None

    def result(self, timeout: float | None = None) -> PutResult:
        """Wait until the record has ended, and say where it is.

        Args:
            timeout: how many seconds at most; None: as long as it takes, which the producer's
                ``delivery_timeout_seconds`` bounds.

        Raises:
            TimeoutError: it has not ended in that time. It goes on.
            KinesisError: Kinesis did not take it until the producer's deadline, or never will.
            RecordDropped, ProducerClosed: the producer gave it up. It may be on the stream if it was on its way.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        answer = self.outcome
        return PutResult(
            answer.get("ShardId", ""), answer.get("SequenceNumber", ""), self.sub_sequence_number
        )

    def exception(self, timeout: float | None = None) -> KinesisSpoutError | None:
        """Wait until the record has ended, and give the error that `result` raises; None: it is on the stream.

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
        records, and close the producer, neither of which waits there; it must not wait for other tickets. What it
        raises is logged, and changes nothing.
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

    def end(self, outcome: Any, sub_sequence_number: int | None = None) -> bool:
        """Say how it ended. For the producer, which then has it ``tell``. Gives whether somebody wants to know."""
        self.sub_sequence_number = sub_sequence_number
        self.outcome = outcome
        return self.callbacks is not None

    def tell(self) -> None:
        """Call those who want to know, each once. For the producer."""
        callbacks = self.callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # another thread tells them, too
                return
            try:
                returned = callback(self)
                if returned is not None:
                    refuse_unfinished(returned)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - a user's own, perhaps `sys.exit`; the others are to be told
                _log.exception("A callback of a record that was put failed; the record is not concerned")

    def _forget(self, callback: Callable[["Ticket"], object]) -> None:
        """Call it no more: who asks again and again would leave many."""
        with _lock:
            if self.callbacks and callback in self.callbacks:
                self.callbacks.remove(callback)

    @property
    def is_gone(self) -> bool:
        """Whether it is not to be sent any more."""
        return self.outcome is not None or self.place == GIVEN_UP

    # What `kinesis.write` asks of a record.

    @property
    def hash_key(self) -> int:
        """Where in the stream's range it lies."""
        return hash_key(self.partition_key, self.explicit_hash_key)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Its key."""
        return (self.partition_key,)

    @property
    def user_records(self) -> "tuple[Ticket, ...]":
        """Itself."""
        return (self,)

    @property
    def entry(self) -> Entry:
        """The record alone."""
        return Entry(self.partition_key, self.data, self.explicit_hash_key)

    def request(self) -> "PutRecordsRequestEntryTypeDef":
        """Give it as PutRecords takes it."""
        if self.explicit_hash_key is None:
            return {"Data": self.data, "PartitionKey": self.partition_key}
        return self.entry.request()


def _wake(loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]") -> None:
    try:
        loop.call_soon_threadsafe(_set, ended)
    except RuntimeError:  # the loop was closed: nobody waits any more
        return


def _set(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
