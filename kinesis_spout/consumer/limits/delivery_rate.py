"""The rate of deliveries that a consumer may make: its own, and its part of the application's.

**Granted, then counted.** A door asks for a grant before it delivers, and reports afterwards how many records
it delivered under it. Granted deliveries are taken until then; those made count from the time of the grant
for the length of the window (``rate_window``); the others are free again at once. So

* grants of any span of time are at most the rate of that span and one window's worth;
* of the grants before that span, at most one window's worth can still be under way. If a delivery follows
  its grant at once, as in plain Python, there is none: in any second at most the rate, rounded up;
* a job that outlasts the window makes others wait only until it ends.

**The application's rate** is divided by the shards that are assigned, of all its streams to all its members,
as the byte budget is (``kinesis.pace``). Every member knows those numbers from the assignments, so the sum of
the parts never exceeds the rate (in any one second: the rate and one delivery of each member, because parts
are rounded up). A part that shrinks does so at once. A part that grows, also from nothing at the start, does
so a second and a window of the whole rate later: by then the others have taken in that theirs are smaller,
and their earlier deliveries are past. A member that cannot reach ZooKeeper keeps its old part until its
session ends.

**Several streams** of one process take from one rate. A stream that got nothing has its turn before the
others: what is free is divided by the number of waiting streams.
"""

import threading
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kinesis_spout.consumer.limits.rate_window import RateWindow

_WAITS_SECONDS: Final = 1.0
"""A stream that could ask again and has not for so long has nothing to deliver any more."""
_NOTICED_SECONDS: Final = 1.0
"""The time by which others can notice a new assignment later than this member."""
_LOOK_AGAIN_SECONDS: Final = 0.02
"""A stream asks again so soon while it is another's turn."""


class Grant(NamedTuple):
    deliveries: int
    at: float
    """The time of the grant."""


class DeliveryRate:
    """One for all streams of a process. Mutable, thread-safe. Times are monotonic seconds.

    Args:
        consumer: deliveries a second of this consumer, more than 0; None: no limit.
        application: of all members together, more than 0; None: no limit.
    """

    def __init__(self, consumer: float | None = None, application: float | None = None) -> None:
        self.is_limited = consumer is not None or application is not None
        """Without a limit no one has to ask."""
        self._whole = application
        self._own = None if consumer is None else _window(consumer)
        self._part: RateWindow | None = None
        """Its part of the application's rate; None while no shard is this member's."""
        self._rising: tuple[float, float] | None = None
        """The next size of the part, and when."""
        self._out = 0
        self._assigned: dict[object, tuple[int, int]] = {}
        """By stream: the number of shards that are this member's, and of all."""
        self._waiting: dict[object, float] = {}
        """The waiting streams, in the order of their turns, and when each asked last."""
        self._lock = threading.Lock()

    # The application's parts

    def assigned(self, stream: object, ours: int, shards: int, now: float) -> None:
        """Take in that ``ours`` of the ``shards`` that are assigned of a stream are this member's."""
        with self._lock:
            if self._whole is not None and self._assigned.get(stream) != (ours, shards):
                self._assigned[stream] = ours, shards
                self._divide(self._whole, now)

    def left(self, stream: object, now: float) -> None:
        with self._lock:
            self._waiting.pop(stream, None)
            if self._assigned.pop(stream, None) is not None and self._whole is not None:
                self._divide(self._whole, now)

    def _divide(self, whole: float, now: float) -> None:
        self._grow(now)
        ours = sum(ours for ours, _ in self._assigned.values())
        shards = sum(shards for _, shards in self._assigned.values())
        if not ours or not shards:
            self._part = self._rising = None
            return
        rate = whole * min(1.0, ours / shards)
        if self._part is not None and rate <= self._part.per_second:
            self._rising = None
            self._part.change(rate)
        elif self._rising is None or rate > self._rising[0]:
            self._rising = rate, now + _NOTICED_SECONDS + max(1.0, 1 / whole)
        else:
            self._rising = rate, self._rising[1]

    def _grow(self, now: float) -> None:
        if self._rising is None or self._rising[1] > now:
            return
        rate, self._rising = self._rising[0], None
        if self._part is None:
            self._part = _window(rate)
        else:
            self._part.change(rate)

    # Deliveries

    def granted(self, stream: object, now: float, *, most: int | None = None, worth: float = 0.0) -> Grant:
        """Grant as many deliveries as are free, at most ``most``. The caller passes each grant to ``ended``.

        ``worth`` is the share of a window's worth below which none are granted: a few are not worth a job.
        """
        with self._lock:
            windows = self._windows(now)
            free = self._free(windows, now)
            turns = self._turns_before(stream, now)
            if free < _worth(windows, worth) or turns >= free:
                self._waiting[stream] = now  # a stream that waits keeps its place
                return Grant(0, now)
            self._waiting.pop(stream, None)
            count = ceil(free / (1 + len(self._waiting)))
            count = count if most is None else min(most, count)
            self._out += count
            return Grant(count, now)

    def ended(self, grant: Grant, delivered: int) -> None:
        """Free what was granted and not delivered."""
        with self._lock:
            self._out -= grant.deliveries
            for window in (self._own, self._part):
                if window is not None:
                    window.note(delivered, grant.at)

    def due_at(self, stream: object, now: float, *, worth: float = 0.0) -> float | None:
        """When to ask again; ``now``: at once. None: when a grant has ended, or shards are assigned."""
        with self._lock:
            windows = self._windows(now)
            wanted = _worth(windows, worth) + self._out
            if not windows:
                return None if self._rising is None else self._rising[1]
            if any(wanted > window.limit for window in windows):
                return None
            due = max(window.free_at(wanted, now) for window in windows)
            if due <= now and self._turns_before(stream, now) >= self._free(windows, now):
                return now + _LOOK_AGAIN_SECONDS
            return due

    # Inside

    def _windows(self, now: float) -> "list[RateWindow]":
        self._grow(now)
        if self._whole is not None and self._part is None:
            return []
        return [window for window in (self._own, self._part) if window is not None]

    def _free(self, windows: "list[RateWindow]", now: float) -> int:
        return max(0, min((window.free(now) for window in windows), default=0) - self._out)

    def _turns_before(self, stream: object, now: float) -> int:
        """Count the other waiting streams that have their turn before this one."""
        patience = _WAITS_SECONDS + max((window.seconds for window in self._windows(now)), default=0.0)
        for who, asked_at in list(self._waiting.items()):
            if asked_at < now - patience and who != stream:
                del self._waiting[who]
        line = list(self._waiting)
        return line.index(stream) if stream in line else len(line)


def _worth(windows: "list[RateWindow]", share: float) -> int:
    return max(1, int(share * min((window.limit for window in windows), default=0)))


def _window(per_second: float) -> "RateWindow":
    from kinesis_spout.consumer.limits.rate_window import RateWindow  # noqa: PLC0415 - slow, and most consumers have no rate

    return RateWindow(per_second)
