"""Records that were put together and share one promise."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kinesis_spout.model.errors import InvalidRecord, KinesisSpoutError
from kinesis_spout.model.trace_context import TraceContext
from kinesis_spout.producer.promise import Promise
from kinesis_spout.producer.ticket import Ticket, ticket_of

PutRecord = tuple[bytes, str] | tuple[bytes, str, str | int | None]
"""A record for ``put_many``: its data, its partition key, and perhaps its explicit hash key."""


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

    __slots__ = (
        "callbacks",
        "count",
        "failed",
        "first_row",
        "left",
        "let_go_at",
        "outcome",
        "size_bytes",
        "tickets",
    )

    def __init__(self, tickets: list[Ticket]) -> None:
        self.tickets = tickets
        """Those that have not ended, and perhaps others. No caller has them."""
        self.count = self.left = len(tickets)
        """How many records were put, and how many have not ended."""
        self.size_bytes = sum([ticket.size_bytes for ticket in tickets])
        """What its records weigh against the limits: data and keys."""
        self.let_go_at = self.left // 4
        """How few are left when it lets go of those that have ended: the buffer has room for others then."""
        self.failed: dict[int, KinesisSpoutError] = {}
        self.first_row = 0
        self.outcome: dict[int, KinesisSpoutError] | None = None if tickets else {}
        self.callbacks: list[Callable[[BatchTicket], object]] | None = None
        for ticket in tickets:
            ticket.batch = self
        self.number_from(0)

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

    def number_from(self, row: int) -> None:
        """Give its records their rows, from this one on."""
        self.first_row = row
        for each, ticket in enumerate(self.tickets, row):
            ticket.row = each  # type: ignore[misc] # Entry's is read-only

    def spooled(self, first: int) -> None:
        """Note the number of its first record in the spool; the others follow."""
        for number, ticket in enumerate(self.tickets, first):
            ticket.number_in_spool = number

    def ended(self, ticket: Ticket, error: KinesisSpoutError | None) -> None:
        """Note how a record ended; with the last one it ends."""
        if error is not None:
            self.failed[ticket.row - self.first_row] = error
        self.left -= 1
        if not self.left:
            self.outcome = self.failed
            self.tickets = []
        elif self.left <= self.let_go_at:
            self.tickets = [ticket for ticket in self.tickets if ticket.outcome is None]
            self.let_go_at = self.left // 4


Put = Ticket | BatchTicket
"""What was put: its records have one promise."""


def put_of(ticket: Ticket) -> Put:
    """Return what was put with a record, which has no promise of its own then."""
    return ticket.batch or ticket


def batch_of(records: Iterable[PutRecord], trace: TraceContext | None = None) -> BatchTicket:
    """Make the ticket of several records.

    Raises:
        InvalidRecord: no stream takes one of them. Names its place.
    """
    given = list(records)
    tickets = []
    for place, record in enumerate(given):
        try:
            tickets.append(ticket_of(*_three(record), trace))
        except InvalidRecord as error:
            raise InvalidRecord(f"record {place} of {len(given)}, counted from 0: {error}") from error
    return BatchTicket(tickets)


def _three(record: PutRecord) -> tuple[bytes, str, str | int | None]:
    match record:
        case (data, partition_key):
            return data, partition_key, None
        case (data, partition_key, explicit_hash_key):
            return data, partition_key, explicit_hash_key
    raise InvalidRecord(
        f"expected data and partition key, and perhaps explicit hash key, got {type(record).__name__}"
    )
