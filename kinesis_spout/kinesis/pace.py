"""When shards may be read, so that other consumers have room: rules, counts and waiting, no calls.

**One shard** serves 5 calls and 2 MB a second to all its pollers together. We use all of that, or the part
that the user allows (`ReadPace`). After a few empty polls in a row, each further one doubles the pause, up to the
longest that the user allows; the first records restore the shortest pause (`idle_period`).

A throttle shows that another poller shares the shard's limits. So it halves our rate, in calls and in bytes
(`Pacing`), and every page adds a twentieth of the full rate again ("additive increase, multiplicative
decrease": Chiu and Jain, 1989, showed that those who share something come to equal parts by it). Other
failures delay the next read, each kind in its way: see ``kinesis.retry_policy``. All readers of a shard in a
process share its pacing (`ShardPaces`): polls, getters opened again, records read again for a retry. Reads of
executors are noted when they are done.

**All shards of a process** (`ByteBudget`). A page's size is known only after the read, so it is paid for
afterwards. The pages of a process are paid for one after the other, at the budget's rate, in the order in
which they came; a shard is read again when its last page is paid for. So

* while one shard has records, it has the whole budget; while many have, each has the same number of pages;
* an empty page costs nothing: a shard at its tip is polled, whatever the others read;
* a page larger than a second's budget is read like any other, and the pause after it is longer;
* any span of time reads at most the budget of that span and one page (on executors: one slice) of each shard.

**All members of an application** (`ApplicationBudget`). The budget is divided by the assigned shards, of all
streams to all members; this member has the part of its own shards. So a stream with many shards gets what its
shards are worth, and an idle stream leaves its part to the others of the same member. Every member knows
those numbers from the assignments, so members need not talk about it, and it holds after a failover. A member
leaves nothing to another.
"""

import random
import threading
from collections.abc import Collection
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from kinesis_spout.kinesis.retry_policy import FailuresInARow, Jitter, reaction_to, read_wait_seconds
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError

MIN_INTERVAL_SECONDS: Final = 0.2
BYTES_PER_SECOND: Final = 2_000_000
IDLE_AFTER: Final = 5
"""Empty polls in a row, before polls become rarer."""
_MAX_DOUBLINGS: Final = 30
FULL_REPLY_BYTES: Final = 10_000_000
"""A reply of 10 MiB makes Kinesis throttle for 5 s. A little less counts as full: JSON and keys weigh too."""
LEAST_THROTTLE: Final = 1 / 16
"""The smallest part of its pace that throttles leave a shard."""
RECOVERY: Final = 1 / 20
_ROUNDING_SECONDS: Final = 1e-6
"""Times this close are the same moment: sums of floats are not exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPace:
    """The rate of one shard. Can be pickled: executors get it with what they read."""

    interval_seconds: float = MIN_INTERVAL_SECONDS
    """At least, between the beginnings of two calls."""
    bytes_per_second: float = BYTES_PER_SECOND

    def seconds_for(self, size_bytes: int) -> float:
        """Return how long after the beginning of a read of this size the next one may begin."""
        return max(self.interval_seconds, size_bytes / self.bytes_per_second)


def idle_period(empty_polls: int, shortest: float, longest: float) -> float:
    """Return the seconds between polls after so many empty ones in a row."""
    return min(max(shortest, longest), shortest * _factor(empty_polls))


def aligned_idle_period(empty_polls: int, shortest: float, longest: float) -> float:
    """The same in whole ticks: ``shortest`` times a power of two, at most ``longest`` (or ``shortest``)."""
    period, slowest = shortest, shortest * _factor(empty_polls)
    while 2 * period <= min(slowest, longest):
        period *= 2
    return period


def _factor(empty_polls: int) -> float:
    return float(1 << min(_MAX_DOUBLINGS, max(0, empty_polls - IDLE_AFTER)))


class ByteBudget:
    """Bytes a second, over all shards of one process; None: no limit. Mutable, thread-safe; monotonic."""

    def __init__(self, bytes_per_second: float | None = None) -> None:
        self._whole = inf if bytes_per_second is None else bytes_per_second
        self._rate = self._whole
        self._paid_at = -inf
        """When everything read so far is paid for."""
        self._lock = threading.Lock()

    @property
    def bytes_per_second(self) -> float:
        """The rate of this process; infinite without a limit."""
        return self._rate

    def take_part(self, part: float) -> None:
        """Use this part of the application's budget from now on: more than 0, at most 1."""
        self._rate = self._whole * part

    def pay(self, size_bytes: int, since: float) -> float:
        """Charge a read that began at ``since``, of one page or more, and return when it is paid for."""
        if size_bytes == 0 or self._rate == inf:
            return since
        with self._lock:
            self._paid_at = max(self._paid_at, since) + size_bytes / self._rate
            return self._paid_at


class ApplicationBudget:
    """One for all streams of a process; None: no limit. Mutable, thread-safe."""

    def __init__(self, bytes_per_second: float | None = None) -> None:
        self.bytes = ByteBudget(bytes_per_second)
        """The budget that the readers of all streams' shards pay from."""
        self._assigned: dict[object, tuple[int, int]] = {}
        """For each stream: how many shards are this member's, and how many there are."""
        self._lock = threading.Lock()

    def assigned(self, stream: object, ours: int, shards: int) -> None:
        """Note that ``shards`` of a stream are assigned to all members, and ``ours`` of them to this one."""
        with self._lock:
            self._assigned[stream] = ours, shards
            self._divide()

    def left(self, stream: object) -> None:
        with self._lock:
            if self._assigned.pop(stream, None) is not None:
                self._divide()

    def _divide(self) -> None:
        ours, shards = map(sum, zip(*self._assigned.values(), strict=True)) if self._assigned else (0, 0)
        if ours and shards:  # else nothing is read, or nothing is known yet
            self.bytes.take_part(min(1.0, ours / shards))


class Pacing:
    """The read rate of one shard, in one process. Mutable, thread-safe; monotonic times.

    ``throttled_to`` is the part of the full rate that throttles have left, including those of an earlier process.
    """

    def __init__(
        self,
        *,
        ready_at: float,
        jitter: Jitter,
        pace: ReadPace | None = None,
        budget: ByteBudget | None = None,
        throttled_to: float = 1.0,
    ) -> None:
        self.ready_at = ready_at
        self.throttled_to = throttled_to
        """The part of the pace that throttles have left: 1 is all of it."""
        self._jitter = jitter
        self._pace = pace or ReadPace()
        self._budget = budget or ByteBudget()
        self._last_bytes = 0
        self._failures = FailuresInARow()
        self._lock = threading.Lock()

    def take_turn(self, now: float) -> float:
        """Begin a read now, or return the later time at which to ask again; ``now`` says that it has begun.

        The call counts against five a second, whatever its outcome: no other begins before the interval is over.
        """
        with self._lock:
            if self.ready_at - now >= _ROUNDING_SECONDS:
                return self.ready_at
            self.ready_at = now + self._pace.seconds_for(0) / self.throttled_to
            return now

    def await_turn(self, clock: Clock) -> float:
        """Wait until a read may begin, and return the time at which this one begins; see ``take_turn``."""
        while (begins_at := self.take_turn(now := clock.monotonic())) > now:
            clock.sleep(begins_at - now)
        return now

    def succeeded(self, started: float, size_bytes: int) -> None:
        with self._lock:
            self._last_bytes = size_bytes
            self.throttled_to = min(1.0, self.throttled_to + RECOVERY)
            paced = started + self._pace.seconds_for(size_bytes) / self.throttled_to
            self.ready_at = max(self.ready_at, paced, self._budget.pay(size_bytes, started))

    def answered(self) -> None:
        """Note that a page was what was asked for: only now a row of failures is over."""
        self._failures.succeeded()

    def failed(self, now: float, error: KinesisSpoutError) -> None:
        with self._lock:
            reaction = reaction_to(error)
            if reaction.is_throttle:
                self.throttled_to = max(LEAST_THROTTLE, self.throttled_to / 2)
            wait = read_wait_seconds(
                reaction,
                self._failures.failed(reaction),
                is_after_full_reply=self._last_bytes >= FULL_REPLY_BYTES,
                jitter=self._jitter,
            )
            self.ready_at = max(self.ready_at, now + wait)

    def read_elsewhere(self, since: float, size_bytes: int, *, ready_at: float, throttled_to: float) -> None:
        """Note a read of another process since a time, and the pacing that it ended with."""
        with self._lock:
            self.throttled_to = throttled_to
            self.ready_at = max(self.ready_at, ready_at, self._budget.pay(size_bytes, since))


_NO_SHARDS: Final = frozenset[str]()


class ShardPaces:
    """Mutable, thread-safe. The application's other streams in this process share the ``budget``."""

    def __init__(
        self,
        clock: Clock,
        *,
        pace: ReadPace | None = None,
        budget: ApplicationBudget | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._clock = clock
        self._pace = pace or ReadPace()
        self._budget = budget or ApplicationBudget()
        self._jitter = jitter
        self._pacings: dict[str, Pacing] = {}
        self._assigned: tuple[Collection[str], int] = _NO_SHARDS, 0
        self._lock = threading.Lock()

    def of(self, shard_id: str) -> Pacing:
        with self._lock:
            pacing = self._pacings.get(shard_id)
            if pacing is None:
                ready_at = self._clock.monotonic()
                pacing = Pacing(
                    ready_at=ready_at, jitter=self._jitter, pace=self._pace, budget=self._budget.bytes
                )
                self._pacings[shard_id] = pacing
            return pacing

    @property
    def elsewhere(self) -> ReadPace:
        """The pace of a shard that an executor reads: no shard alone may exceed this member's rate."""
        rate = min(self._pace.bytes_per_second, self._budget.bytes.bytes_per_second)
        return replace(self._pace, bytes_per_second=rate)

    def wait_seconds(self, shard_id: str) -> float:
        """Return how long a shard must not be read from now on, for another process."""
        return max(0.0, self.of(shard_id).ready_at - self._clock.monotonic())

    def assigned(self, ours: Collection[str], shards: int) -> None:
        """Note that ``shards`` shards are assigned to all members, and ``ours`` of them to this one."""
        if (ours, shards) == self._assigned:
            return
        self._assigned = ours, shards
        self._budget.assigned(self, len(ours), shards)
        with self._lock:
            for shard_id in self._pacings.keys() - set(ours):
                del self._pacings[shard_id]

    def close(self) -> None:
        """Leave the budget to the application's other streams. Idempotent."""
        self._budget.left(self)
