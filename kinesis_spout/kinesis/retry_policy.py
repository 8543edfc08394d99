"""One table: the meaning of each error for the work that met it, and how long that work is tried again.

``kinesis.calls`` names the API's errors. Here an error is mapped to a reaction; each caller waits in its
way. Times are those of the clock that is passed in.

| error | a consumer that has read | a query; a consumer before its first page | a list, a write |
| --- | --- | --- | --- |
| throttled | again, counted, not logged | the same | the same |
| 5xx, time-out, reset, no good reply, all that AWS does not name | again | again | again |
| a shard was subscribed to just now | again, 5 s later | again, 5 s later | again |
| KMS refuses the stream's key | again, slowly; nothing is skipped | the same | fail |
| iterator expired or refused | again | again | - |
| token of a listing expired | - | - | list from the beginning |
| not found, not verified yet | again | again | fail: there is no such stream |
| keys or clock refused that may be mended | again | again | again |
| access denied, no usable configuration | again, slowly: it may come back | fail: the set-up is wrong | fail |
| shard trimmed away | end the shard | end the shard | - |
| data loss, no such stream, a mistake of ours | fail | fail | fail |
| not of Kinesis (ZooKeeper, dead letters) | again if it is ``retriable`` | the same | the same |

A query with ``failOnDataLoss`` fails where its shard is trimmed away. A getter that meets an expired or
refused iterator requests another at once, and has the lister verify what was not found. A record that is read
again for its next delivery is given up if its data, or its shard, is gone. ``retriable`` of an error's class
agrees with the query's column.

| work | waits | for how long |
| --- | --- | --- |
| to read a shard | 0.2-0.4 s, doubled up to 10 s | without end; after 60 s, other shards do not wait for it |
| - throttled | 1-2 s (5-10 s after a full reply), doubled up to 10-20 s | the same |
| - slowly | 1-1.1 s after the first in a row, which may be a stray answer; then 30-33 s | the same |
| - subscribed to just now | 5-5.5 s | the same |
| to list, to put | 0.1-0.2 s, doubled up to 5 s | 60 s unless it is said otherwise; each shard that refuses |
| to list at a query's start, to open its progress | 0.5-1 s | without end |
| a consumer's chores | 0.5-1 s, doubled up to 10 s | without end; the last commit 30 s |

A row is of failures that are waited for alike: a stray denial behind throttles is the first of its kind.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import Final, TypeVar

from kinesis_spout.kinesis.calls import (
    ExpiredNextToken,
    ResourceInUse,
    ResourceNotFound,
    SignatureRefused,
    UnusableConfig,
)
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import (
    AccessDenied,
    ExpiredIterator,
    InvalidIterator,
    KeyUnavailable,
    KinesisError,
    KinesisSpoutError,
    ShardNotFound,
    Throttled,
    Unavailable,
)

T = TypeVar("T")

Jitter = Callable[[], float]
"""Draws from 0 (inclusive) to 1 (exclusive): ``random.random``, or a constant in a test."""

SLOW_SECONDS: Final = 30.0
"""For what only a person can repair: the stream's key, permissions. Asking more often does not help."""
STRAY_SECONDS: Final = 1.0
"""After the first of these in a row: one server may answer so while all others let the call through."""
IN_USE_SECONDS: Final = 5.0
"""AWS refuses another subscription to a shard for this long."""
OUTAGE_SECONDS: Final = 60.0
"""The time that the other shards of a query wait for one that cannot be read."""
MIN_RETRY_SECONDS: Final = 0.2
"""Between two reads of a shard, even if its getter is ready at once."""

FIRST_REMINDER_SECONDS: Final = 60.0
LONGEST_REMINDER_SECONDS: Final = 3600.0

THROTTLE_SECONDS: Final = 1.0
THROTTLE_AFTER_FULL_REPLY_SECONDS: Final = 5.0
MAX_THROTTLE_SECONDS: Final = 10.0
FIRST_READ_BACKOFF_SECONDS: Final = 0.4
MAX_READ_BACKOFF_SECONDS: Final = 10.0

_MAX_DOUBLINGS: Final = 30

_log = logging.getLogger(__name__)


class Work(Enum):
    """The work that met the error: a column of the table."""

    CONSUME = auto()
    """A consumer that has read something. It keeps its shards through every error that may pass."""
    QUERY = auto()
    """A query, or a consumer that has read nothing yet: a user watches, and can start it again."""
    CALL = auto()
    """One listing, one write: it has a deadline, and its caller decides what follows."""


class Action(Enum):
    RETRY = "retry"
    END_SHARD = "end shard"
    """Retention removed it. Its unread records are lost; its children continue."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    action: Action
    wait_seconds: float = 0.0
    """Before the next try, at least. The pacing of a shard may demand more."""
    first_wait_seconds: float | None = None
    """After the first failure in a row, if that is another wait."""
    is_throttle: bool = False
    """Counted as a throttle; normal, and not worth a warning."""

    def wait_after(self, failures: int) -> float:
        """Return the least wait before the next try, after so many failures of this kind in a row."""
        first = self.first_wait_seconds
        return first if failures == 1 and first is not None else self.wait_seconds


_AGAIN: Final = Reaction(action=Action.RETRY)
_SLOWLY: Final = Reaction(action=Action.RETRY, wait_seconds=SLOW_SECONDS, first_wait_seconds=STRAY_SECONDS)
_THROTTLED: Final = Reaction(action=Action.RETRY, is_throttle=True)
_IN_USE: Final = Reaction(action=Action.RETRY, wait_seconds=IN_USE_SECONDS)
_END: Final = Reaction(action=Action.END_SHARD)
_FAIL: Final = Reaction(action=Action.FAIL)

_MEANINGS: Final[tuple[tuple[type[KinesisSpoutError], dict[Work, Reaction]], ...]] = tuple(
    (kind, dict(zip((Work.CONSUME, Work.QUERY, Work.CALL), reactions, strict=True)))
    for kind, *reactions in (
        (Throttled, _THROTTLED, _THROTTLED, _THROTTLED),
        (ResourceNotFound, _AGAIN, _AGAIN, _FAIL),
        (ResourceInUse, _IN_USE, _IN_USE, _AGAIN),
        (Unavailable, _AGAIN, _AGAIN, _AGAIN),
        (KeyUnavailable, _SLOWLY, _SLOWLY, _FAIL),
        (ExpiredIterator, _AGAIN, _AGAIN, _FAIL),
        (InvalidIterator, _AGAIN, _AGAIN, _FAIL),
        (ExpiredNextToken, _AGAIN, _AGAIN, _AGAIN),
        (SignatureRefused, _AGAIN, _AGAIN, _AGAIN),
        (AccessDenied, _SLOWLY, _FAIL, _FAIL),
        (UnusableConfig, _SLOWLY, _FAIL, _FAIL),
        (ShardNotFound, _END, _END, _FAIL),
        (KinesisError, _FAIL, _FAIL, _FAIL),
    )
)
"""The first matching class counts."""

ITERATOR_REFUSED: Final = (ExpiredIterator, InvalidIterator)
"""A new iterator repairs these, at once; if that is refused too, it is an error like any other."""


class FailuresInARow:
    """Counts failures of one kind in a row: those that have the same reaction. Mutable."""

    def __init__(self) -> None:
        self._reaction: Reaction | None = None
        self._count = 0

    def failed(self, reaction: Reaction) -> int:
        """Note a failure, and return how many of its kind came in a row."""
        self._count = self._count + 1 if reaction == self._reaction else 1
        self._reaction = reaction
        return self._count

    def succeeded(self) -> None:
        self._reaction = None


def reaction_to(error: BaseException, work: Work = Work.CONSUME) -> Reaction:
    for kind, by_work in _MEANINGS:
        if isinstance(error, kind):
            return by_work[work]
    return _AGAIN if isinstance(error, KinesisSpoutError) and error.retriable else _FAIL


class Told:
    """The errors of one piece of work that were logged. Mutable; a new one when the work succeeds.

    An error is logged when its kind first occurs, and again after 1, 2, 4... minutes, up to an hour, while it
    stays. Throttles are normal and not logged.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reminders: dict[type[KinesisSpoutError], tuple[float, float]] = {}
        """By kind: when it is logged again, and how long after the last time."""

    @property
    def has_told(self) -> bool:
        return bool(self._reminders)

    def is_news(self, error: KinesisSpoutError) -> bool:
        """Return whether to log an error. Each is asked about once."""
        if reaction_to(error).is_throttle:
            return False
        now = self._clock.monotonic()
        at, period = self._reminders.get(type(error), (now, FIRST_REMINDER_SECONDS / 2))
        if now < at:
            return False
        period = min(LONGEST_REMINDER_SECONDS, 2 * period)
        self._reminders[type(error)] = now + period, period
        return True


def tried_again(error: KinesisSpoutError, told: Told) -> None:
    """Log an error of a query's read, unless that was logged before; raises it if a retry cannot help."""
    if reaction_to(error, Work.QUERY).action is not Action.RETRY:
        raise error
    if told.is_news(error):
        _log.warning("%s; it is read again", error)


def backoff_seconds(failures: int, *, first: float, cap: float, jitter: Jitter) -> float:
    """Return the wait after the ``failures``-th failure in a row (1 or more), between first / 2 and cap.

    Half of each wait is fixed and half is drawn, so that shards that failed together do not come back
    together ("equal jitter": https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """
    ceiling = min(cap, first * float(1 << min(failures - 1, _MAX_DOUBLINGS)))
    return ceiling * (1 + jitter()) / 2


def read_again_at(now: float, ready_at: float) -> float:
    """Return when a shard is read again whose getter failed and is ready at ``ready_at``; monotonic times."""
    return max(ready_at, now + MIN_RETRY_SECONDS)


def read_wait_seconds(
    reaction: Reaction, failures: int, *, is_after_full_reply: bool, jitter: Jitter
) -> float:
    if reaction.is_throttle:
        floor = THROTTLE_AFTER_FULL_REPLY_SECONDS if is_after_full_reply else THROTTLE_SECONDS
        # Twice, because half of the back-off is drawn: the floor must hold for every draw.
        return backoff_seconds(failures, first=2 * floor, cap=2 * MAX_THROTTLE_SECONDS, jitter=jitter)
    if reaction.wait_seconds:
        return reaction.wait_after(failures) * (1 + jitter() / 10)
    return backoff_seconds(
        failures, first=FIRST_READ_BACKOFF_SECONDS, cap=MAX_READ_BACKOFF_SECONDS, jitter=jitter
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetryPolicy:
    deadline_seconds: float = 60.0
    """The time that one piece of work may keep failing; see ``Tries``."""
    first_backoff_seconds: float = 0.2
    backoff_cap_seconds: float = 5.0
    clock: Clock = field(default_factory=SystemClock)
    jitter: Jitter = random.random

    @classmethod
    def without_end(cls, clock: Clock, *, first: float, cap: float) -> "CallRetryPolicy":
        return cls(deadline_seconds=inf, first_backoff_seconds=first, backoff_cap_seconds=cap, clock=clock)


class Tries:
    """The tries at one piece of work, named ``what`` in messages. Mutable: counts failures.

    The deadline counts from its creation: make it when the work begins, and a new one for the next work.
    """

    def __init__(self, policy: CallRetryPolicy, what: str, work: Work = Work.CALL) -> None:
        self._policy = policy
        self._what = what
        self._work = work
        self._deadline = policy.clock.monotonic() + policy.deadline_seconds
        self.failures = 0
        """In a row."""
        self._of_one_kind = FailuresInARow()
        self.until = 0.0
        """When the next try may be made; the clock's monotonic time."""

    def failed(self, failure: KinesisSpoutError) -> float:
        """Note a failure, and return how many seconds to wait before the next try.

        Raises:
            failure: trying again does not help.
            KinesisSpoutError: of the failure's kind and cause: the deadline would pass.
        """
        reaction = reaction_to(failure, self._work)
        if reaction.action is not Action.RETRY:
            raise failure
        policy = self._policy
        self.failures += 1
        of_one_kind = self._of_one_kind.failed(reaction)
        wait = backoff_seconds(
            of_one_kind,
            first=policy.first_backoff_seconds,
            cap=policy.backoff_cap_seconds,
            jitter=policy.jitter,
        )
        wait = max(wait, reaction.wait_after(of_one_kind))
        self.until = policy.clock.monotonic() + wait
        if self.until > self._deadline:
            raise type(failure)(
                f"expected {self._what} to succeed within {policy.deadline_seconds:g} s, got {self.failures} "
                f"failures in a row; the last: {failure}"
            ) from (failure.__cause__ or failure)
        return wait

    def succeeded(self) -> None:
        self.failures, self.until = 0, 0.0
        self._of_one_kind.succeeded()

    def call(self, function: Callable[[], T]) -> T:
        """Call until there is an answer, waiting in between; logs what ``Told`` says.

        Raises:
            KinesisSpoutError: see ``failed``.
        """
        told = Told(self._policy.clock)
        while True:
            try:
                return function()
            except KinesisSpoutError as error:
                failure = error
            wait = self.failed(failure)
            if told.is_news(failure):
                _log.warning("%s is tried again in %.1f s: %s", self._what, wait, failure)
            self._policy.clock.sleep(wait)


def persistently(function: Callable[[], T], what: str, clock: Clock) -> T:
    """Make a call that a query's start depends on, again and again while its failure may pass."""
    return Tries(CallRetryPolicy.without_end(clock, first=1.0, cap=1.0), what, Work.QUERY).call(function)
