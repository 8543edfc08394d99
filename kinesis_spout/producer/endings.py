"""Ends the records of a producer: counted once, confirmed to the spool if due.

Records that failed for their time-out or their content go first to the dead letters, if there are any.

**The spool.** A record is confirmed when it is sent, dropped, durable in the dead letters, or refused for its
content: sending it again would change nothing. One that failed for lack of time or permission stays in the
spool, and is sent again when a producer opens it the next time: once for each start, never in a loop.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.producer.buffer import Buffer
from kinesis_spout.producer.taken_records import TakenRecords
from kinesis_spout.producer.tickets import GIVEN_UP, AnyTicket, Ticket, tickets_in

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

    from kinesis_spout.kinesis.write.put_records import Puttable


@dataclass(slots=True, eq=False)
class Letters:
    """Records to write to the dead letters together. Mutable."""

    held: list[Ticket]
    error: KinesisSpoutError
    reason: str
    """As `DeadLetter.reason`."""
    is_under_way: bool = False
    failures: int = 0
    repeat_at: float = -inf
    give_up_at: float = inf


class UnwrittenLetters:
    """Mutable; for one thread at a time. A write is tried for ``timeout_seconds`` after it first failed."""

    def __init__(self, timeout_seconds: float, backoff_seconds: Callable[[int], float]) -> None:
        self._timeout_seconds = timeout_seconds
        self._backoff_seconds = backoff_seconds
        self._letters: list[Letters] = []

    def add(self, held: list[Ticket], error: KinesisSpoutError, reason: str) -> None:
        for each in held:
            each.place = GIVEN_UP
        self._letters.append(Letters(held, error, reason))

    def next(self, now: float) -> Letters | None:
        """Return what must be written now, once until the write has ended."""
        for letters in self._letters:
            if letters.repeat_at <= now and not letters.is_under_way:
                letters.is_under_way = True
                return letters
        return None

    @property
    def due_at(self) -> float:
        return min([each.repeat_at for each in self._letters if not each.is_under_way], default=inf)

    @property
    def held(self) -> list[Ticket]:
        return [each for letters in self._letters for each in letters.held]

    def written(self, letters: Letters) -> None:
        self._letters.remove(letters)

    def not_written(self, letters: Letters, error: Exception, now: float) -> KinesisSpoutError | None:
        """Note that a write failed; returns the records' error if it is not tried again."""
        if letters.failures == 0:
            letters.give_up_at = now + self._timeout_seconds
        letters.failures += 1
        letters.repeat_at = now + self._backoff_seconds(letters.failures)
        letters.is_under_way = False
        if letters.repeat_at < letters.give_up_at:
            return None
        self._letters.remove(letters)
        failure = type(letters.error)(f"{letters.error}; nor did the dead letters take it: {error}")
        failure.__cause__ = error
        return failure


@dataclass(slots=True)
class Notices:
    """Records that ended since the shell last looked. Mutable."""

    count: int = 0
    to_tell: list[AnyTicket] = field(default_factory=list)
    """Those with callbacks."""
    to_report: list[tuple[Ticket, KinesisSpoutError]] = field(default_factory=list)
    """Those that failed, of records without a ticket."""
    to_confirm: list[int] = field(default_factory=list)
    failures: list[tuple[int, KinesisSpoutError]] = field(default_factory=list)
    """The number that failed, and why."""


class Endings:
    """Mutable; for one thread at a time. Ignores a record that has ended already."""

    def __init__(self, buffer: Buffer, taken: TakenRecords, letters: UnwrittenLetters | None) -> None:
        self._buffer = buffer
        self._taken = taken
        self._letters = letters
        self._ended = Notices()

    def take(self) -> Notices:
        ended = self._ended
        if ended.count:
            self._ended = Notices()
        return ended

    def sent(self, taken: "Sequence[tuple[Puttable, Result]]") -> None:
        sent = size_bytes = 0
        for put, answer in taken:
            is_aggregate = not isinstance(put, Ticket)
            for index, ticket in enumerate(tickets_in(put)):
                if ticket.outcome is not None:
                    continue
                sent += 1
                size_bytes += ticket.size_bytes
                if is_aggregate:
                    ticket.sub_sequence_number = index
                ticket.outcome = answer
                batch = ticket.batch
                if batch is not None and batch.left > 1 and ticket.number_in_spool is None:
                    batch.left -= 1  # as `ended` does, for most of them
                elif ticket.callbacks or ticket.number_in_spool is not None or batch is not None:
                    self._note(ticket, is_over=True)
        self._count(sent=sent, size_bytes=size_bytes)

    def give_up(self, held: Iterable[Ticket], error: KinesisSpoutError, *, is_over: bool) -> None:
        """Fail records, by way of the dead letters if there are some; ``is_over`` as in ``failed``."""
        left = [each for each in held if not each.is_gone]
        if left and self._letters is not None:
            self._letters.add(left, error, "rejected" if is_over else "exhausted")
        elif left:
            self.failed(left, error, is_over=is_over)

    def failed(
        self,
        held: Iterable[Ticket],
        error: KinesisSpoutError,
        *,
        is_over: bool,
        dead_lettered: bool = False,
    ) -> None:
        """End records with an error.

        ``is_over``: sending them again would change nothing, so the spool forgets them.
        """
        count, size_bytes = self._end(held, error, is_over=is_over)
        if count:
            self._ended.failures.append((count, error))
        self._count(failed=count, dead_lettered=count * dead_lettered, size_bytes=size_bytes)

    def dropped(self, held: Sequence[Ticket], error: KinesisSpoutError) -> int:
        """End records to make room, and return their number."""
        count, size_bytes = self._end(held, error, is_over=True)
        self._count(dropped=count, size_bytes=size_bytes)
        return count

    def _count(
        self, *, sent: int = 0, failed: int = 0, dropped: int = 0, dead_lettered: int = 0, size_bytes: int
    ) -> None:
        self._ended.count += sent + failed + dropped
        self._buffer.ended(
            sent=sent, failed=failed, dropped=dropped, dead_lettered=dead_lettered, size_bytes=size_bytes
        )
        self._taken.forget_ended(self._buffer.waiting)

    def _end(self, held: Iterable[Ticket], error: KinesisSpoutError, *, is_over: bool) -> tuple[int, int]:
        """Give records their error; returns their number and their size in bytes."""
        count = size_bytes = 0
        for each in held:
            if each.outcome is None:
                each.outcome = error
                count += 1
                size_bytes += each.size_bytes
                self._note(each, is_over=is_over, error=error)
        return count, size_bytes

    def _note(self, ticket: Ticket, *, is_over: bool, error: KinesisSpoutError | None = None) -> None:
        if is_over and ticket.number_in_spool is not None:
            self._ended.to_confirm.append(ticket.number_in_spool)
        if error is not None and ticket.reports:
            self._ended.to_report.append((ticket, error))
        if ticket.batch is not None:
            ticket.batch.ended(ticket, error)
        promise = ticket.promise
        if promise.outcome is not None and promise.callbacks is not None:
            self._ended.to_tell.append(promise)
