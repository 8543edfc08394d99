"""The records that a producer gave up and that are not yet durable in the dead letters. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.producer.ticket import GIVEN_UP, Ticket


@dataclass(slots=True, eq=False)
class Letters:
    """Records to write to the dead letters together. Mutable."""

    tickets: list[Ticket]
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

    def add(self, tickets: list[Ticket], error: KinesisSpoutError, reason: str) -> None:
        for ticket in tickets:
            ticket.place = GIVEN_UP
        self._letters.append(Letters(tickets, error, reason))

    def next(self, now: float) -> Letters | None:
        """Return what must be written now, once until the write has ended."""
        for letters in self._letters:
            if letters.repeat_at <= now and not letters.is_under_way:
                letters.is_under_way = True
                return letters
        return None

    @property
    def due_at(self) -> float:
        """When a write is to be tried again, as monotonic time."""
        return min([each.repeat_at for each in self._letters if not each.is_under_way], default=inf)

    @property
    def tickets(self) -> list[Ticket]:
        return [ticket for letters in self._letters for ticket in letters.tickets]

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
