"""Records that were put together and share one ticket.

They are held as columns, because an object for each would cost more than sending it.

A batch has *parts*, each of which ends as one: records that travel in one aggregated record, or single records.
What must be sent in another way is split into tickets of single records, which no caller has.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from kinesis_spout.kinesis.write.put_records import (
    COMMON_RECORD_BYTES,
    MAX_KEY_CHARACTERS,
    Bundle,
    Entry,
)
from kinesis_spout.model.errors import InvalidRecord, KinesisSpoutError
from kinesis_spout.model.trace_context import TraceContext
from kinesis_spout.producer.promise import Promise
from kinesis_spout.producer.ticket import GIVEN_UP, WAITS, Ticket, ticket_of

_SPLIT: Final = object()
"""The outcome of a part whose records go on one by one."""

PutRecord = tuple[bytes, str] | tuple[bytes, str, str | int | None]
"""A record for ``put_many``: its data, its partition key, and perhaps its explicit hash key."""


class FailedRecord(NamedTuple):
    """A record put by ``send`` that is not on the stream, and why."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    error: KinesisSpoutError


class Part(Bundle):
    """Records of a batch that travel in one aggregated record. Mutable; has the states of a `Ticket`."""

    __slots__ = ("batch", "outcome", "place", "size_bytes", "tickets", "tries")
    trace = None

    def __init__(
        self,
        batch: "BatchTicket",
        places: Sequence[int],
        keys: Sequence[str],
        data: Sequence[bytes],
        size_bytes: int,
    ) -> None:
        super().__init__(places, keys, data, batch.first_row)
        self.batch = batch
        self.size_bytes = size_bytes
        self.place = WAITS
        self.tries = 0
        self.outcome: Any = None
        self.tickets: Sequence[Ticket] = ()
        """Those into which it was split."""

    @property
    def pieces(self) -> "Sequence[Held]":
        """What became of it: itself, or its tickets."""
        return self.tickets or (self,)

    def done(self) -> bool:
        """Return whether its records have ended, or go on without it."""
        return self.outcome is not None

    @property
    def is_gone(self) -> bool:
        """Whether it must not be sent any more."""
        return self.outcome is not None or self.place == GIVEN_UP

    @property
    def numbers_in_spool(self) -> Sequence[int]:
        """The numbers of its records; none without a spool."""
        first = self.batch.first_in_spool
        return () if first is None else [first + place for place in self.places]

    def split(self) -> Sequence[Ticket]:
        """Return its records, which are sent in its place and end one by one; none if they have ended."""
        if self.is_gone:
            return ()
        tickets = self.batch.tickets_of(self.places, self.partition_keys, self.data)
        for ticket in tickets:
            ticket.place, ticket.tries = self.place, self.tries
        self.tickets, self.outcome = tickets, _SPLIT
        return tickets


class BatchTicket(Promise):
    """Records that a producer took over together. Made by `KinesisProducer.put_many`.

    It ends exactly once, when all of its records have ended: on the stream, or with an error that says why not.
    Every method may be called from any thread; ``await ticket`` gives what `result` returns, in any event loop.
    """

    __slots__ = (
        "callbacks",
        "count",
        "data",
        "failed",
        "first_in_spool",
        "first_row",
        "left",
        "let_go_at",
        "outcome",
        "partition_keys",
        "parts",
        "reports",
        "size_bytes",
    )

    def __init__(self, *, reports: bool = False) -> None:
        self.data: list[bytes] = []
        self.partition_keys: list[str] = []
        self.parts: list[Held] | None = None
        """None while it is as it was put."""
        self.count = 0
        """How many records were put."""
        self.size_bytes = 0
        """What its records weigh against the limits: data and keys."""
        self.left = 0
        """How many have not ended."""
        self.let_go_at = 0
        """How few are left when it lets go of those that have ended: the buffer has room for others then."""
        self.failed: dict[int, KinesisSpoutError] = {}
        self.reports = reports
        """Whether no caller has it, so that failures are reported one by one."""
        self.first_row = 0
        self.first_in_spool: int | None = None
        """The number of its first record in the producer's spool; None without a spool."""
        self.outcome: dict[int, KinesisSpoutError] | None = None
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

    @property
    def is_in_columns(self) -> bool:
        """Whether none of its records was made a ticket so far."""
        return self.parts is None

    @property
    def pieces(self) -> "Sequence[Held]":
        """All parts, as they are now."""
        parts = self.split() if self.parts is None else self.parts
        return list(chain.from_iterable([part.pieces for part in parts]))

    def number_from(self, row: int) -> None:
        """Give its records their rows, from this one on."""
        if self.parts is not None:
            for part in self.parts:
                if isinstance(part, Ticket):
                    part.row += row - self.first_row  # type: ignore[misc] # Entry's is read-only
        self.first_row = row

    def split(self) -> Sequence[Ticket]:
        """Return its records one by one. Before any of them was bundled."""
        if self.parts is None:
            self.parts = list(self.tickets_of(range(self.count), self.partition_keys, self.data))
        return self.parts  # type: ignore[return-value] # nothing is bundled yet

    def bundle(
        self, places: Sequence[int], partition_keys: Sequence[str], data: Sequence[bytes], size_bytes: int
    ) -> Part:
        """Let the records at these places end together. They are given, too, and the bytes of data and keys."""
        part = Part(self, places, partition_keys, data, size_bytes)
        if self.parts is None:
            self.parts = []
        self.parts.append(part)
        return part

    def tickets_of(self, places: Iterable[int], keys: Iterable[str], data: Iterable[bytes]) -> list[Ticket]:
        """Make the records at these places tickets, which no caller has."""
        row, in_spool = self.first_row, self.first_in_spool
        return [
            Ticket(
                key,
                each,
                None,
                row + place,
                None,
                len(each) + len(key),
                None if in_spool is None else in_spool + place,
                WAITS,
                0,
                None,
                None,
                None,
                self,
            )
            for place, key, each in zip(places, keys, data, strict=True)
        ]

    def spooled(self, first: int) -> None:
        """Note the number of its first record in the spool; the others follow."""
        self.first_in_spool = first
        for place, part in enumerate(self.parts or ()):
            if isinstance(part, Ticket):
                part.number_in_spool = first + place

    @property
    def user_records(self) -> Sequence[Entry]:
        """Its records, to look at. Before any of them was bundled."""
        if self.parts is None:
            return Bundle(range(self.count), self.partition_keys, self.data, 0).user_records
        return self.split()

    def add(self, data: bytes, partition_key: str, size_bytes: int) -> None:
        """Add a record; see ``is_plain``."""
        self.data.append(data)
        self.partition_keys.append(partition_key)
        self.size_bytes += size_bytes
        self.count += 1
        self.left += 1

    def held(self) -> None:
        """Note that its parts are held, which have its records."""
        self.data, self.partition_keys = [], []
        self.let_go_at = self.left // 4

    def ended(self, part: "Held", error: KinesisSpoutError | None) -> None:
        """Note how a part ended; with the last one it ends."""
        if error is not None:
            self.failed |= dict.fromkeys(part.places, error)
        self.left -= part.count
        if not self.left:
            self.outcome = self.failed
            self.parts = []
        elif self.left <= self.let_go_at:
            parts = [part for part in self.parts or () if part.outcome is None or part.outcome is _SPLIT]
            self.parts = [piece for part in parts for piece in part.pieces if piece.outcome is None]
            self.let_go_at = self.left // 4


Held = Part | Ticket
"""What ends as one. Either a record that was put alone, or a part of a batch."""


def put_of(held: Held) -> Ticket | BatchTicket:
    """Return what was put: the batch of a part or of a record that has no other ticket."""
    return held.batch or cast("Ticket", held)


def batch_of(
    records: Iterable[PutRecord], trace: TraceContext | None = None, *, reports: bool = False
) -> BatchTicket:
    """Make the ticket of several records; quickly, for the usual types.

    Raises:
        InvalidRecord: no stream takes one of them. Names its place.
    """
    given = list(records)
    batch = BatchTicket(reports=reports)
    batch.count = batch.left = len(given)
    if not given:
        batch.outcome = {}
    if trace is None and _has_taken(batch, given):
        return batch
    parts = []
    for place, record in enumerate(given):
        try:
            ticket = ticket_of(*_three(record), trace)
        except InvalidRecord as error:
            raise InvalidRecord(f"record {place} of {len(given)}, counted from 0: {error}") from error
        ticket.row, ticket.batch = place, batch  # type: ignore[misc] # Entry's is read-only
        parts.append(ticket)
    batch.parts = parts  # type: ignore[assignment] # of tickets only
    batch.size_bytes = sum([ticket.size_bytes for ticket in parts])
    return batch


def _three(record: PutRecord) -> tuple[bytes, str, str | int | None]:
    match record:
        case (data, partition_key):
            return data, partition_key, None
        case (data, partition_key, explicit_hash_key):
            return data, partition_key, explicit_hash_key
    raise InvalidRecord(
        f"expected data and partition key, and perhaps explicit hash key, got {type(record).__name__}"
    )


def _has_taken(batch: BatchTicket, records: list[PutRecord]) -> bool:
    """Hold records as columns, if all are bytes with ASCII keys that every stream takes."""
    try:
        data = [each for each, _ in records]  # type: ignore[misc] # what is not a pair raises
        keys = [key for _, key in records]  # type: ignore[misc]
    except (TypeError, ValueError):
        return False
    if set(map(type, data)) != {bytes} or set(map(type, keys)) != {str}:
        return False
    # Each walk over the records costs as much as sending a fifth of them.
    text, lengths, sizes = "".join(keys), set(map(len, keys)), list(map(len, data))
    if not (text.isascii() and min(lengths) > 0 and max(lengths) <= MAX_KEY_CHARACTERS):
        return False
    batch.data, batch.partition_keys, batch.size_bytes = data, keys, sum(sizes) + len(text)
    return max(sizes) + MAX_KEY_CHARACTERS <= COMMON_RECORD_BYTES


def is_plain(data: object, partition_key: object, explicit_hash_key: object) -> bool:
    """Whether a record can be held in columns."""
    return (
        type(data) is bytes
        and type(partition_key) is str
        and explicit_hash_key is None
        and 0 < len(partition_key) <= MAX_KEY_CHARACTERS
        and len(data) + MAX_KEY_CHARACTERS <= COMMON_RECORD_BYTES
        and partition_key.isascii()
    )
