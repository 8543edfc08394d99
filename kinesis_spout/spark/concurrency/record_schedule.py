"""The next record to hand over while others are under way: the rules of concurrency, without a thread.

A run is a number of consecutive records. They begin in their order, and at most so many are under way at a
time. A run ends when all that began have ended; what did not begin by then was not reached, but for two
kinds, which are *held*:

* With an order of keys a record waits until the one before it of its key has ended, while records of other
  keys pass it. If that one fails, all that wait for the key are held.
* When the time is over, records that wait for their key have a moment more. Those that still wait then are
  held.

The records reached are thus a prefix of the run, and each of them has ended or is held.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final, Protocol

from kinesis_spout.model.handler import Failure

NOT_BEGUN: Final = 0
UNDER_WAY: Final = 1
ENDED: Final = 2

Marks = memoryview | bytearray
"""A byte for each record of a run: ``NOT_BEGUN`` (at first), ``UNDER_WAY`` or ``ENDED``."""

MOST_WAITING_FOR_A_KEY: Final = 16
"""When so many records wait for one key, no later record begins, whatever its key."""


class Verdict(Enum):
    DELIVER = auto()
    PASS = auto()
    """It is not handed over, and finished."""
    UNFINISHED = auto()
    """It is not handed over, and not finished."""


class RunNotes(Protocol):
    """Notes each event as it happens, so that it survives the death of the process."""

    def failed(self, at: int, failure: Failure) -> bool:
        """Keep a failure, before its record is marked as ended. True: no further record may begin."""
        ...

    def held(self, at: int) -> None:
        """Keep that a record is held, although none of its key has failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """Times are monotonic."""

    concurrency: int
    """The most records under way at a time."""
    until: float = inf
    """No record begins later, except those that wait for their key, and the first of a run."""
    waits_until: float = inf
    """These do not begin later either: they are held."""
    max_unfinished: int | None = None
    """The most records that fail or are held. No record begins that could exceed it, because all can fail."""
    max_deliveries: int | None = None
    stops_at_failure: bool = False
    """After a failure none begins."""


class RecordSchedule:
    """Mutable; its ``ConcurrentRun`` owns the lock.

    ``marks`` has a mark for each record, all NOT_BEGUN. ``key_of`` names a record's key by its index; None:
    it waits for no other. ``verdict`` is asked once about each record, in order; without it all are
    delivered.
    """

    def __init__(
        self,
        size: int,
        rules: RunRules,
        notes: RunNotes,
        marks: Marks,
        *,
        key_of: Callable[[int], str | None] | None = None,
        verdict: Callable[[int], Verdict] | None = None,
    ) -> None:
        self._size = size
        self._rules = rules
        self._notes = notes
        self._marks = marks
        self._key_of = key_of
        self._verdict = verdict
        self._lines: dict[str, deque[int]] = {}
        """The records that wait for each key of a record under way."""
        self._ready: deque[int] = deque()
        """Records that may begin, because the one before of their key has ended well."""
        self._failed_keys: set[str] = set()
        self._waiting = self._given_up = 0
        self.reached = 0
        """The number of records, from the first, that have begun, wait, or were dealt with otherwise."""
        self.begun = 0
        self.ended_count = 0
        self.under_way: dict[int, float] = {}
        """When each record that is under way began; the oldest comes first."""
        self.failures: dict[int, Failure] = {}
        self.held: list[int] = []
        self.is_closed = False
        """True if no record begins any more, but those that wait for their key."""

    @property
    def may_give_more(self) -> bool:
        return not self.is_closed and self.reached < self._size

    @property
    def is_over(self) -> bool:
        return not (self.under_way or self._ready or self.may_give_more)

    def take(self, now: float) -> int | None:
        if len(self.under_way) >= self._rules.concurrency:
            return None
        self.look_at_time(now)
        if self._ready:
            return self._begin(self._ready.popleft(), now)
        while self.may_give_more:
            if self._is_full:
                if not self.under_way:
                    self.is_closed = True  # nothing will make room
                return None
            at = self.reached
            key = None if self._key_of is None else self._key_of(at)
            line = None if key is None else self._lines.get(key)
            if line is not None and len(line) >= MOST_WAITING_FOR_A_KEY:
                return None
            self.reached += 1
            if self._is_dealt_with(at, key):
                continue
            if line is not None:
                line.append(at)
                self._waiting += 1
                continue
            if key is not None:
                self._lines[key] = deque()
            return self._begin(at, now)
        return None

    def ended(self, at: int, failure: Failure | None) -> bool:
        """Take in how a record ended. False, without effect, if it is not under way (any more)."""
        if self.under_way.pop(at, None) is None:
            return False
        self.ended_count += 1
        if failure is not None:
            self.failures[at] = failure
            if self._notes.failed(at, failure):
                self.stop()
            elif self._rules.stops_at_failure:
                self.is_closed = True
        self._marks[at] = ENDED
        if self._key_of is not None:
            self._free(self._key_of(at), failure)
        return True

    def overdue(self, began_before: float) -> list[int]:
        found = []
        for at, began in self.under_way.items():
            if began >= began_before:
                break
            found.append(at)
        return found

    def look_at_time(self, now: float) -> None:
        """Let nothing begin that the time does not allow. Call it regularly, also while nothing ends."""
        if now < self._rules.until or not self.begun:
            return
        self.is_closed = True
        if now >= self._rules.waits_until:
            self._hold_what_waits()

    def stop(self) -> None:
        self.is_closed = True
        self._hold_what_waits()

    @property
    def _is_full(self) -> bool:
        rules = self._rules
        if rules.max_deliveries is not None and self.begun >= rules.max_deliveries:
            self.is_closed = True
            return True
        if rules.max_unfinished is None:
            return False
        maybe = len(self.under_way) + self._waiting + len(self.failures) + len(self.held) + self._given_up
        return maybe >= rules.max_unfinished

    def _is_dealt_with(self, at: int, key: str | None) -> bool:
        verdict = Verdict.DELIVER if self._verdict is None else self._verdict(at)
        if verdict is not Verdict.DELIVER:
            self._given_up += verdict is Verdict.UNFINISHED
            return True
        if key is not None and key in self._failed_keys:
            self.held.append(at)
            return True
        return False

    def _begin(self, at: int, now: float) -> int:
        self._marks[at] = UNDER_WAY
        self.under_way[at] = now
        self.begun += 1
        return at

    def _free(self, key: str | None, failure: Failure | None) -> None:
        if key is None:
            return
        line = self._lines[key]
        if failure is not None:
            self._failed_keys.add(key)
            self.held.extend(line)
            self._waiting -= len(line)
            del self._lines[key]
        elif line:
            self._ready.append(line.popleft())
            self._waiting -= 1
        else:
            del self._lines[key]

    def _hold_what_waits(self) -> None:
        for at in self._ready:
            self._hold(at)
        self._ready.clear()
        for line in self._lines.values():
            for at in line:
                self._hold(at)
            line.clear()
        self._waiting = 0

    def _hold(self, at: int) -> None:
        self.held.append(at)
        self._notes.held(at)
