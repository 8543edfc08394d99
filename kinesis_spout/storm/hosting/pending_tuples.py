"""The tuples that a child got: under which ids, and for which of them it still owes an answer.

Ids begin with the number of the lease. So a late answer, of a tuple of an earlier micro-batch or of a Python
worker that is gone, is known as late: it is dropped and counted.

The child can have read some pending tuples and hold them back, such as a batch. They do not crowd its input.
A heart-beat shows which: the child answers messages in order, so it has read all that was sent before.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.storm.components.tuples import Tuple

_IDS: Final = 10**12
"""Ids of one lease."""


class UnknownTuple(Exception):  # noqa: N818 - the name says what happened; it never leaves this room
    """The child named a tuple that it cannot have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    begun: list[Tuple]
    """It has emitted something that is anchored to them. If they were sent again, that would come twice."""
    untouched: list[Tuple]
    oldest: Tuple | None
    """The tuple it was working on, if it takes them in order: the first that it had begun; else the first that it
    does not hold back; else the first."""


class PendingTuples:
    """Those of one lease; late answers can be of earlier ones. Mutable.

    ``count`` takes ``late``, ``answered_twice`` and ``overdue``, and how often.
    """

    def __init__(self, lease_number: int, count: Callable[[str, int], None]) -> None:
        self._count = count
        self.pending: dict[str, Tuple] = {}
        """Given and neither answered nor given up, by id. Always this same mapping."""
        self._issued = self._taken = self._forgotten = self._last_tick = lease_number * _IDS
        self._held = 0
        self._ticks: set[str] = set()
        self._begun: set[str] = set()
        self._taken_out: set[str] = set()

    def next_id(self) -> str:
        self._issued += 1
        return str(self._issued)

    def give_tick(self) -> str:
        tuple_id = self.next_id()
        self._ticks.add(tuple_id)
        self._last_tick = self._issued
        return tuple_id

    @property
    def crowd(self) -> int:
        """The number of tuples that can wait unread in the child's input."""
        return len(self.pending) - self._held

    @property
    def has_untaken(self) -> bool:
        return self._taken < self._issued

    @property
    def is_finished(self) -> bool:
        return not self.pending and self._taken >= self._last_tick

    def took_in(self, heartbeat_id: str) -> None:
        self._taken = int(heartbeat_id)
        self._held = self._count_held()

    def answered(self, tuple_id: Any) -> Tuple | None:
        """Remove a tuple that was acked or failed. None: a tick, or not pending for a reason that is counted.

        UnknownTuple: no such id was ever given.
        """
        if type(tuple_id) is not str:
            raise UnknownTuple(_unknown(tuple_id))
        tup = self.pending.pop(tuple_id, None)
        if tup is None:
            if tuple_id in self._ticks:
                self._ticks.discard(tuple_id)
            else:
                self._count("late" if self._is_late(tuple_id) else "answered_twice", 1)
            return None
        self._begun.discard(tuple_id)
        if self._held and int(tuple_id) <= self._taken:
            self._held -= 1
        return tup

    def anchors(self, ids: list[str]) -> list[Tuple] | None:
        """The tuples of these ids, no ticks. None: they are late, and what came from them is dropped.

        UnknownTuple: one was acked or failed before, or never given.
        """
        pending = self.pending
        found = [pending[each] for each in ids if each in pending]
        if len(found) == len(ids):
            self._begun.update(ids)
            return found
        late = 0
        for each in ids:
            if each in pending or each in self._ticks:
                continue
            if not self._is_late(each):
                raise UnknownTuple(f"it anchored a tuple to {each:.100}, which it had acked or failed before")
            late += 1
        if late:
            self._count("late", late)
        self._begun.update(each for each in ids if each in pending)
        return found if found or not late else None

    def take_out(self, tuples: Iterable[Tuple]) -> list[Tuple]:
        """Remove those of these tuples that are pending, and give them. Answers to them are late from now on."""
        every = {id(tup) for tup in tuples}
        ids = [each for each, tup in self.pending.items() if id(tup) in every]
        self._taken_out.update(ids)
        return self._without(ids)

    def take_back(self) -> Unanswered:
        ids = list(self.pending)
        begun = [each for each in ids if each in self._begun]
        untaken = [each for each in ids if int(each) > self._taken]
        oldest = next(iter(begun or untaken or ids), None)
        taken_back = Unanswered(
            begun=[self.pending[each] for each in begun],
            untouched=[self.pending[each] for each in ids if each not in self._begun],
            oldest=None if oldest is None else self.pending[oldest],
        )
        self._without(ids)
        return taken_back

    def forget(self, ids: Iterable[str]) -> list[Tuple]:
        """Give up tuples: answers to them are late from now on. Gives them."""
        every = list(ids)
        if not every:
            return []
        self._count("overdue", len(every))
        self._forgotten = self._issued
        return self._without(every)

    def forget_all(self) -> list[Tuple]:
        self._last_tick = self._taken
        return self.forget(self.pending)

    def _without(self, ids: Iterable[str]) -> list[Tuple]:
        found = [self.pending.pop(each) for each in ids]
        self._begun.intersection_update(self.pending)
        self._held = self._count_held()
        return found

    def _count_held(self) -> int:
        return sum(int(each) <= self._taken for each in self.pending)

    def _is_late(self, tuple_id: str) -> bool:
        """True if an id was given up or taken out, or else answered before. UnknownTuple: it was never given."""
        try:
            number = int(tuple_id)
        except ValueError:
            raise UnknownTuple(_unknown(tuple_id)) from None
        if number > self._issued:
            raise UnknownTuple(_unknown(tuple_id))
        return number <= self._forgotten or tuple_id in self._taken_out


def _unknown(tuple_id: Any) -> str:
    return f"it named a tuple that it was never given: {tuple_id!r:.100}"
