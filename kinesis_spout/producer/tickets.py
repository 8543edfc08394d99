"""Tickets, as `KinesisProducer.put` and ``put_many`` return them: promises that records will end.

A record that a producer took over is its `Ticket`, from the put to its end.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

from kinesis_spout.kinesis.write.put_records import Entry, Puttable
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.producer.promise import Promise

WAITS: Final = 0
IN_CALL: Final = 1
GIVEN_UP: Final = 2


class PutResult(NamedTuple):
    """The place of a record on its stream."""

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
    """The record's size against the limits: data and key."""
    number_in_spool: int | None = None
    """Its number in the producer's spool; None without a spool."""
    place: int = WAITS
    """Its place until it has ended: it `WAITS`, is `IN_CALL`, or is `GIVEN_UP` to the dead letters."""
    tries: int = 0
    """The number of calls it was in that did not put it."""
    outcome: Any = None
    """The answer that names its place, or the error."""
    sub_sequence_number: int | None = None
    callbacks: list[Callable[["Ticket"], object]] | None = None
    batch: "BatchTicket | None" = None
    """The batch of a record that was put together with others: it has no other ticket then."""
    reports: bool = False
    """True if no caller has it, so that its failure is reported."""

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

    # For the producer.

    @property
    def left(self) -> int:
        """The number of records that have not ended."""
        return int(self.outcome is None)

    @property
    def tickets(self) -> "tuple[Ticket, ...]":
        """Itself, as a `BatchTicket` has several."""
        return (self,)

    @property
    def promise(self) -> "AnyTicket":
        """The ticket that its caller has."""
        return self.batch or self

    def handed_over(self, row: int) -> "Sequence[Ticket]":
        """Give it its row, and return it."""
        self.row = row  # type: ignore[misc] # Entry's is read-only
        return (self,)

    @property
    def is_gone(self) -> bool:
        """True if it must not be sent any more."""
        return self.outcome is not None or self.place == GIVEN_UP


class FailedRecord(NamedTuple):
    """A record put by ``send`` that is not on the stream, and why."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    error: KinesisSpoutError


class BatchTicket(Promise):
    """Records that a producer took over together. Made by `KinesisProducer.put_many`.

    It ends exactly once, when all of its records have ended: on the stream, or with an error that says why not.
    Every method may be called from any thread; ``await ticket`` gives what `result` returns, in any event loop.
    """

    __slots__ = ("callbacks", "count", "failed", "first_row", "left", "outcome", "size_bytes", "tickets")

    def __init__(self, tickets: list[Ticket]) -> None:
        self.tickets = tickets
        """Its records, until they are handed over. No caller has these tickets."""
        self.count = self.left = len(tickets)
        """The number of records put, and of those that have not ended."""
        self.size_bytes = sum([ticket.size_bytes for ticket in tickets])
        """Its records' size against the limits: data and keys."""
        self.failed: dict[int, KinesisSpoutError] = {}
        self.first_row = 0
        self.outcome: dict[int, KinesisSpoutError] | None = None if tickets else {}
        self.callbacks: list[Callable[[BatchTicket], object]] | None = None

    def failures(self, timeout: float | None = None) -> dict[int, KinesisSpoutError]:
        """Wait until all of its records have ended, and return the errors of those that are not on the stream.

        Args:
            timeout: how many seconds at most; None: no limit but the producer's ``delivery_timeout_seconds``.

        Returns:
            The errors by the places of their records in what was put, from 0; empty if all are on the stream. A
            record that was in a call when it was given up may be there nevertheless.

        Raises:
            TimeoutError: some have not ended in that time. They continue.
        """
        self._wait(timeout)
        return {place: self.failed[place] for place in sorted(self.failed)}

    def result(self, timeout: float | None = None) -> None:
        """Wait until all of its records are on the stream.

        Raises:
            TimeoutError: some have not ended in that time. They continue.
            KinesisError, RecordDropped, ProducerClosed: some failed: how many, and the error of the first. See
                `failures`.
        """
        failures = self.failures(timeout)
        for place, error in failures.items():
            raise type(error)(
                f"{len(failures)} of {self.count} records failed, first the one at {place}: {error}"
            ) from error

    def __repr__(self) -> str:
        state = f"{self.left} of {self.count} records waiting" if self.left else f"{self.count} records ended"
        return f"<BatchTicket {state}, {len(self.failed)} failed>"

    # For the producer.

    def handed_over(self, row: int) -> Sequence[Ticket]:
        """Give its records their rows, from this one on, and return them. It does not keep them."""
        tickets, self.tickets = self.tickets, []
        self.first_row = row
        for each, ticket in enumerate(tickets, row):
            ticket.batch = self
            ticket.row = each  # type: ignore[misc] # Entry's is read-only
        return tickets

    def ended(self, ticket: Ticket, error: KinesisSpoutError | None) -> None:
        """Note how a record ended; with the last one it ends."""
        if error is not None:
            self.failed[ticket.row - self.first_row] = error
        self.left -= 1
        if not self.left:
            self.outcome = self.failed


AnyTicket = Ticket | BatchTicket
"""The caller's ticket of the records that it put together."""


def tickets_in(put: Puttable) -> Sequence[Ticket]:
    """Return what a record carries: a producer puts nothing else."""
    return cast("Sequence[Ticket]", put.parts)
