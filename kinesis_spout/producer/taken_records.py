"""The records that a producer took in and that have not ended, by expiry."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from kinesis_spout.producer.tickets import IN_CALL, WAITS, Ticket

_KEPT_ENDED: Final = 8
"""The number of ended records that may be kept; more only if as many wait."""


@dataclass(slots=True, eq=False)
class _Taken:
    expire_at: float
    tickets: list[Ticket]
    ended: int = 0
    """The number at its beginning that have ended."""


class TakenRecords:
    """Mutable; for one thread at a time. Times are monotonic, and grow from ``add`` to ``add``.

    ``drops``: whether the oldest are ever requested.
    """

    def __init__(self, *, drops: bool) -> None:
        self._taken: deque[_Taken] = deque()
        self._count = 0
        """The number held there, including the ended ones."""
        self._overdue: list[Ticket] = []
        """Those whose time ended while they were in a call."""
        self._line: deque[Ticket] | None = deque() if drops else None
        """Oldest first: all that wait in no call, and others."""
        self._longest_line = _KEPT_ENDED

    def __bool__(self) -> bool:
        """Return whether some may not have ended, without the overdue ones."""
        return bool(self._taken)

    @property
    def next_expiry(self) -> float:
        return self._taken[0].expire_at if self._taken else inf

    def add(self, tickets: list[Ticket], expire_at: float) -> None:
        self._taken.append(_Taken(expire_at, tickets))
        self._count += len(tickets)
        if self._line is not None:
            self._line.extend(tickets)
            self._shorten_line()

    def expire(self, now: float) -> list[Ticket]:
        """Return and forget those whose time is over. Those in calls are overdue from now on."""
        expired: list[Ticket] = []
        while self.next_expiry <= now:
            taken = self._taken.popleft()
            self._count -= len(taken.tickets)
            for ticket in taken.tickets:
                if not ticket.is_gone:
                    (self._overdue if ticket.place == IN_CALL else expired).append(ticket)
        return expired

    def expire_overdue(self) -> list[Ticket]:
        """Return the overdue ones that are no longer in a call."""
        if not self._overdue:
            return []
        left = [ticket for ticket in self._overdue if not ticket.is_gone]
        self._overdue = [ticket for ticket in left if ticket.place == IN_CALL]
        return [ticket for ticket in left if ticket.place == WAITS]

    def overdue_among(self, held: Iterable[Ticket]) -> list[Ticket]:
        overdue = set(map(id, self._overdue))
        return [each for each in held if id(each) in overdue] if overdue else []

    def take_oldest(self, records: int, size_bytes: int) -> list[Ticket]:
        """Return the oldest that wait in no call: so many records and bytes, or none if there are too few."""
        line = self._line
        assert line is not None, "only a producer that drops asks for it"
        oldest: dict[Ticket, None] = {}  # one that was refused may be in the line twice
        while line and (records > 0 or size_bytes > 0):
            first = line.popleft()
            if first.place == WAITS and not first.done() and first not in oldest:
                oldest[first] = None
                records -= 1
                size_bytes -= first.size_bytes
        if records > 0 or size_bytes > 0:
            line.extendleft(reversed(oldest))
            return []
        return list(oldest)

    def wait_again(self, held: list[Ticket]) -> None:
        """Note that these were in a call, and wait again: they may be the oldest, and be there twice."""
        if self._line is not None:
            self._line.extendleft(reversed(held))
            self._shorten_line()

    def _shorten_line(self) -> None:
        assert self._line is not None, "only a producer that drops has a line"
        if len(self._line) > self._longest_line:
            self._line = deque(dict.fromkeys(each for each in self._line if not each.is_gone))
            self._longest_line = 2 * len(self._line) + _KEPT_ENDED

    def not_ended(self) -> list[Ticket]:
        """Return all that have not ended, except those given up and no longer held."""
        lists = [*(taken.tickets for taken in self._taken), self._overdue]
        return [ticket for tickets in lists for ticket in tickets if ticket.outcome is None]

    def forget_ended(self, waiting: int) -> None:
        """Drop what has ended. A few of all that are ``waiting`` may keep others that came with them."""
        while self._taken:
            taken = self._taken[0]
            tickets = taken.tickets
            at = taken.ended
            while at < len(tickets) and tickets[at].outcome is not None:
                at += 1
            taken.ended = at
            if at < len(tickets):
                break
            self._count -= len(tickets)
            self._taken.popleft()
        if self._count > 2 * waiting + _KEPT_ENDED:
            self._leave_out_ended()

    def _leave_out_ended(self) -> None:
        for taken in self._taken:
            taken.tickets = [ticket for ticket in taken.tickets if ticket.outcome is None]
            taken.ended = 0
        self._taken = deque(taken for taken in self._taken if taken.tickets)
        self._count = sum(len(taken.tickets) for taken in self._taken)
