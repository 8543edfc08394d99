"""Rate limits for reading shards, so that other consumers have room: rules and counts, no calls.

``read`` makes the calls and waits.

**One shard** serves 5 calls and 2 MB a second to all its pollers together. We use all of that, or the part
that the user allows (`Pace`). After a few empty polls in a row, each further one doubles the pause, up to the
longest that the user allows; the first records restore the shortest pause (`idle_period`).

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

import threading
from dataclasses import dataclass
from math import inf
from typing import Final

MIN_INTERVAL_SECONDS: Final = 0.2
BYTES_PER_SECOND: Final = 2_000_000
IDLE_AFTER: Final = 5
"""Empty polls in a row, before polls become rarer."""

_MAX_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
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
