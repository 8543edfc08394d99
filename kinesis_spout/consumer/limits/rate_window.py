"""A bound of what is done in any span of time: a sliding window, which PyrateLimiter keeps.

The window is one second long and holds the rate of a second. A fractional rate has a longer window: that of
the next whole number. So in any second there is at most the rate, rounded up, and over time the rate.
"""

from math import ceil, floor

from pyrate_limiter import InMemoryBucket, Rate, RateItem

_WHO = "deliveries"


class RateWindow:
    """Mutable; not thread-safe. Times are seconds that never go back."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._rate = _rate(per_second)
        self._bucket = InMemoryBucket([self._rate])
        self._newest = 0
        self._owed = 0
        """Done, and not in the bucket: it had no room, because the rate had just become less."""

    @property
    def limit(self) -> int:
        """The most of any span of time that is as long as the window."""
        return self._rate.limit

    @property
    def seconds(self) -> float:
        return self._rate.interval / 1000

    def free(self, now: float) -> int:
        at = self._at(now)
        self._bucket.leak(at)
        room = max(0, self.limit - self._bucket.count())
        if self._owed and room:
            paid = min(self._owed, room)
            self._owed -= paid
            self._bucket.put(RateItem(_WHO, at, paid))
            room -= paid
        return room

    def note(self, count: int, at: float) -> None:
        if count and not self._bucket.put(RateItem(_WHO, self._at(at), count)):
            self._owed += count

    def free_at(self, wanted: int, now: float) -> float:
        """When ``wanted`` more may be done (at most ``limit``), if nothing else is done until then."""
        short = wanted - self.free(now)
        if short <= 0:
            return now
        leaves = self._bucket.peek(self._bucket.count() - min(short, self._bucket.count()))
        if leaves is None:
            return now + self.seconds
        return (leaves.timestamp + self._rate.interval + 1) / 1000

    def change(self, per_second: float) -> None:
        self.per_second = per_second
        self._rate = _rate(per_second)
        self._bucket.rates = [self._rate]

    def _at(self, now: float) -> int:
        # The bucket is in order of time: a late entry counts from the time of the newest one before it.
        self._newest = max(self._newest, floor(now * 1000))
        return self._newest


def _rate(per_second: float) -> Rate:
    limit = ceil(per_second)
    return Rate(limit, max(1, ceil(1000 * limit / per_second)))
