"""All keys of one coordinator in one process, at the times that its shells give. Pure.

No clock, no threads, no waiting: ``now`` is an argument, and a shell wakes the request that an answer
promotes. An idle key leaves at once; one whose worker never ends leaves when its lease is over, with the next
request of any key.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kinesis_spout.recipes.coalescing.line import Answer, Event, Line, Move, end, request, withdraw

Key = Hashable
Token = int


@dataclass(slots=True, kw_only=True)
class CoalescingCounts:
    """Since the start, of one coordinator in one process. Mutable.

    They add up: every request was accepted, waited or was declined; every one that waited was promoted, gave
    up, or waits; and every turn (accepted, promoted or continued) has completed, failed, expired, or is under way.
    """

    accepted: int = 0
    """Requests whose turn came at once."""
    waited: int = 0
    """Requests that waited for the one before them."""
    declined: int = 0
    """Requests whose payload a waiting one took over."""
    promoted: int = 0
    """Waiting requests whose turn came."""
    gave_up: int = 0
    """Waiting requests whose time-out was over, or whose task was cancelled."""
    continued: int = 0
    """Turns that continued with a payload left by a request that had given up."""
    completed: int = 0
    failed: int = 0
    """Turns that ended with an exception."""
    expired: int = 0
    """Turns that others took over, as their lease was over."""
    refused: int = 0
    """Ends that were reported by a turn that had expired."""
    handed_back: int = 0
    """Payloads that others had relied on and that no request handled: they were given to ``unhandled``."""

    @property
    def requested(self) -> int:
        return self.accepted + self.waited + self.declined


class Ended(NamedTuple):
    """The answer to the end of a turn, or of waiting."""

    key: Key
    answer: Answer
    """LEAVE, PROMOTE, GO_ON, HAND_BACK or REFUSE."""
    token: Any = None
    """With PROMOTE: of the one that waited, to be woken. With GO_ON: of the new turn."""
    payload: Any = None
    """With PROMOTE, GO_ON and HAND_BACK: the newest."""
    declined: int = 0
    """The number of requests that rely on that payload."""


class Requested(NamedTuple):
    answer: Answer
    """ACCEPT, WAIT or DECLINE."""
    token: Token
    ended: tuple[Ended, ...] = ()
    """The turns, of any key, whose leases were found over."""


class KeyLines:
    """Mutable; not thread-safe. A turn is exclusive for ``lease_seconds`` from its start or last renewal."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._lines: dict[Key, Line[Token, Any]] = {}
        self._deadlines: dict[Token, tuple[float, Key]] = {}
        """When the lease of each turn is over; the soonest first, because all leases are equally long."""
        self._last_token = 0
        self.counts = CoalescingCounts()

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, key: Key) -> Line[Token, Any] | None:
        """Return the state of a key; None: it is idle."""
        return self._lines.get(key)

    def deadline(self, key: Key) -> float | None:
        """When the lease of the current turn at a key is over."""
        line = self._lines.get(key)
        return None if line is None else self._deadlines[line.worker][0]

    def request(self, key: Key, payload: Any, now: float, *, move: Move = request) -> Requested:
        """Take in a request; ``move``: `request`, or `request_own` of the one that works there."""
        ended = self._overdue(key, now) if self._deadlines else ()
        token = self._next_token()
        line, answer = move(self._lines.get(key), token, payload)
        assert line is not None
        self._lines[key] = line
        if answer is Answer.ACCEPT:
            self.counts.accepted += 1
            self._deadlines[token] = now + self._lease_seconds, key
        elif answer is Answer.WAIT:
            self.counts.waited += 1
        else:
            self.counts.declined += 1
        return Requested(answer, token, ended)

    def end(self, key: Key, token: Token, event: Event, now: float) -> Ended:
        """Take in that a turn has ended: DONE, FAILED or EXPIRED."""
        before = self._lines.get(key)
        fresh = self._next_token()
        line, answer = end(before, token, event, fresh)
        if answer is Answer.REFUSE:
            self.counts.refused += 1
            return Ended(key, answer)
        assert before is not None
        self._count_end(event)
        del self._deadlines[token]
        if line is None:
            del self._lines[key]
        else:
            self._lines[key] = line
            self._deadlines[line.worker] = now + self._lease_seconds, key
        if answer is Answer.LEAVE:
            return Ended(key, answer)
        self.counts.promoted += answer is Answer.PROMOTE
        self.counts.continued += answer is Answer.GO_ON
        turn = None if line is None else line.worker
        return Ended(key, answer, turn, before.newest, before.declined)

    def renew(self, key: Key, token: Token, now: float) -> bool:
        """Restart the lease of a turn; False if it is over, and the turn is another request's."""
        if self._deadlines.pop(token, None) is None:
            return False
        self._deadlines[token] = now + self._lease_seconds, key
        return True

    def expire(self, key: Key, now: float) -> Ended | None:
        deadline = self.deadline(key)
        if deadline is None or now < deadline:
            return None
        return self.end(key, self._lines[key].worker, Event.EXPIRED, now)

    def _overdue(self, wanted: Key, now: float) -> tuple[Ended, ...]:
        """End all turns whose leases are over, as a request comes for a key."""
        found = []
        while self._deadlines:
            deadline, key = next(iter(self._deadlines.values()))
            if now < deadline:
                break
            ended = self.expire(key, now)
            assert ended is not None
            if not (
                key == wanted and ended.answer is Answer.HAND_BACK
            ):  # the new payload replaces what was left
                found.append(ended)
        return tuple(found)

    def withdraw(self, key: Key, token: Token) -> bool:
        """Take in that one gives up waiting; False if it does not wait: its turn has come."""
        line, answer = withdraw(self._lines.get(key), token)
        if answer is Answer.REFUSE:
            return False
        assert line is not None
        self._lines[key] = line
        self.counts.gave_up += 1
        return True

    def _next_token(self) -> Token:
        self._last_token += 1
        return self._last_token

    def _count_end(self, event: Event) -> None:
        counts = self.counts
        if event is Event.DONE:
            counts.completed += 1
        elif event is Event.FAILED:
            counts.failed += 1
        else:
            counts.expired += 1
