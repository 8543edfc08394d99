"""The pace at which records go to a shard that refuses some: AWS's limits at first, then what the shard takes.

AWS takes 1,000 records and 1 MiB a second for each shard, from all producers together. A pace is a part of
that, or a multiple for a service that takes more: two token buckets, of records and of bytes, that fill at
``scale`` times AWS's rates.

It learns from the answers, a second at a time. A shard that refuses more than usual is slowed down to what it
took. If it takes everything for a while, the pace is raised: a little first, then more with each second,
until something is refused. Then it goes back, and waits longer before the next try. So a shard at its limit
refuses a record now and then, and a raised limit is found within seconds.

*Usual refusals*: where other producers fill the shard, it may refuse a part of the records at any pace.
Slowing down would only leave them more. So what counts is the share above the smallest of the last seconds,
or above what is still refused after the shard was slowed down.
"""

from collections import deque
from math import inf, sqrt
from typing import Final

from kinesis_spout.kinesis.retry_policy import Tries
from kinesis_spout.model.errors import KinesisError

RECORDS_PER_SECOND: Final = 1_000
BYTES_PER_SECOND: Final = 1024 * 1024
"""https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html"""

_BEGIN_AT: Final = 0.98
"""The share of AWS's rates to begin with: clocks and calls are not quite even."""
_SLOWEST: Final = 0.02
_FASTEST: Final = 100.0
_HELD_SECONDS: Final = 0.5
"""Capacity of a bucket: a call may be this late without loss of rate."""
_CALL_SECONDS: Final = 0.1
"""The time for which records are gathered for a call, or half of it for a call that is made anyway."""
_WINDOW_SECONDS: Final = 1.0
_IN_FLIGHT_SECONDS: Final = 0.25
"""The time for which, roughly, answers still come for calls made before a change."""
_BASE_WINDOWS: Final = 5
_STRAY: Final = 10
_STRAY_SHARE: Final = 0.1
"""Refusals that say nothing of the rate of a shard that was free."""
_A_RECORD: Final = 0.9
"""The part of a token that is enough: sums of times are not exact."""
_FIRST_STEP: Final = 0.01
_NOW_SECONDS: Final = 1e-9
_BOLD_STEP: Final = 0.125
_NOT_SLOWED: Final = (1.0, inf, inf)
"""The factor by which it was last slowed down, the share refused then, and the share hoped for."""
_SHORTEST_HOLD: Final = 4
_LONGEST_HOLD: Final = 32


class ShardPace:
    """Mutable; made when the shard refuses for the first time. Times are monotonic."""

    def __init__(self, now: float) -> None:
        self.scale = inf
        """The pace, as a multiple of AWS's rates; infinite: it refused too little to be slowed down."""
        self._filled_at = now
        self._records = 0.0
        self._bytes = 0.0
        self._window_from = now
        self._taken = self._refused = 0
        self._shares: deque[float] = deque(maxlen=_BASE_WINDOWS)
        self._was_short = False
        """True if records had to wait for tokens in this window."""
        self._hold = _SHORTEST_HOLD
        self._held = 0
        self._step = 0.0
        self._slowed = _NOT_SLOWED
        self._idle_windows = 0

    @property
    def is_over(self) -> bool:
        """True if the shard can be free again: all was taken lately, and nothing had to wait."""
        return self._idle_windows > (0 if self.scale == inf else _BASE_WINDOWS)

    def allows(self, now: float) -> bool:
        """Return whether a record may go now, if none waits before it."""
        if self.scale == inf:
            return True
        self._fill(now)
        if self._records >= _A_RECORD and self._bytes > 0:
            return True
        self._was_short = True
        return False

    def is_worth_a_call(self, waiting: int, now: float) -> bool:
        """Return whether so many waiting records may join a call made now; they go while the pace ``allows``."""
        return self.scale == inf or self.ready_at(waiting, now, part=0.5) == -inf

    def ready_at(self, waiting: int, now: float, part: float = 1.0) -> float:
        """Return when a call is worth making for so many, or a part of them: minus infinity for now."""
        if self.scale == inf:
            return -inf
        self._fill(now)
        rate = self.scale * RECORDS_PER_SECOND
        records = max(1.0, min(waiting, part * _CALL_SECONDS * rate))
        least_bytes = 1.0
        short_seconds = max(
            (records - self._records) / rate, (least_bytes - self._bytes) / (self.scale * BYTES_PER_SECOND)
        )
        return now + short_seconds if short_seconds > _NOW_SECONDS else -inf

    def spend(self, size_bytes: int) -> None:
        self._records -= 1
        self._bytes -= size_bytes

    def rest(self, until: float) -> None:
        """Note that the shard took nothing, and rests: no tokens come meanwhile."""
        self._records = self._bytes = 0.0
        self._filled_at = until

    def ran_short(self) -> None:
        self._was_short = True

    def answered(self, taken: int, refused: int, now: float, *, shards: int) -> None:
        """Note how many records of a call the shard took and refused, or ``shards`` shards as one.

        A shard that refuses all of a call rests: that says nothing of its pace, once it has one.
        """
        if now < self._window_from or (not taken and self.scale < inf):
            return  # or the call was made at the pace before
        self._taken += taken
        self._refused += refused
        answers = self._taken + self._refused
        if self.scale == inf and self._refused > _STRAY + _STRAY_SHARE * answers:
            self._set(_BEGIN_AT * shards, now)
        else:
            self._learn(now)

    def _learn(self, now: float) -> None:
        if self._step and self._is_clearly_too_fast:
            self._go_back(now)
        elif now >= self._window_from + _WINDOW_SECONDS:
            self._end_window(now)

    def _end_window(self, now: float) -> None:
        share, base = self._share, self._base
        was_short, is_clean = self._was_short, not self._refused
        self._idle_windows = self._idle_windows + 1 if is_clean and not was_short else 0
        self._shares.append(share)
        self._begin_window(now)
        if self.scale == inf:
            return
        if share > base + _tolerance(base):
            self._slow_down(share, base, now)
            return
        self._slowed = _NOT_SLOWED
        if was_short:
            self._held += 1
            if self._held == self._hold and base:
                self._held = 0
                self._shares.clear()  # is it still the others? Slowing down shows it.
            elif self._held >= self._hold:
                self._step = 2 * self._step if self._step else _FIRST_STEP
                self.scale = min(_FASTEST, self.scale * (1 + min(1.0, self._step)))

    def _slow_down(self, share: float, base: float, now: float) -> None:
        factor, as_usual, as_hoped = self._slowed
        self._held, self._step = 0, 0.0
        if (3 * as_usual + as_hoped) / 4 < share < 1.25 * as_usual:
            # Slowing down did not help: it is the others. Back, and faster soon.
            self._shares.extend([share] * _BASE_WINDOWS)
            self._slowed = _NOT_SLOWED
            self._held, self._step = self._hold + 1, _BOLD_STEP
            self._set(self.scale / factor, now)
            return
        factor = max(0.5, 1 - share + base) * _BEGIN_AT
        self._slowed = factor, share, max(base, 1 - (1 - share) / factor)
        self._set(self.scale * factor, now)

    def _go_back(self, now: float) -> None:
        """Undo the last step up, and wait longer for the next."""
        self._set(self.scale / (1 + min(1.0, self._step)), now)
        self._hold, self._held, self._step = min(2 * self._hold, _LONGEST_HOLD), 0, 0.0

    def _set(self, scale: float, now: float) -> None:
        if self.scale == inf:
            self._records = self._bytes = 0.0
            self._filled_at = max(now, self._filled_at)
        else:
            self._fill(now)
        self.scale = min(_FASTEST, max(_SLOWEST, scale))
        self._begin_window(now + _IN_FLIGHT_SECONDS)

    def _begin_window(self, at: float) -> None:
        self._window_from = at
        self._taken = self._refused = 0
        self._was_short = False

    @property
    def _is_clearly_too_fast(self) -> bool:
        answers = self._taken + self._refused
        usual = (self._base + _tolerance(self._base)) * answers
        return self._refused > usual + 2 * sqrt(usual)

    @property
    def _share(self) -> float:
        return self._refused / max(1, self._taken + self._refused)

    @property
    def _base(self) -> float:
        return min(self._shares) if len(self._shares) == _BASE_WINDOWS else 0.0

    def _fill(self, now: float) -> None:
        seconds = now - self._filled_at
        if seconds <= 0:
            return
        self._filled_at = now
        records, size_bytes = self.scale * RECORDS_PER_SECOND, self.scale * BYTES_PER_SECOND
        self._records = min(max(1.0, _HELD_SECONDS * records), self._records + seconds * records)
        self._bytes = min(_HELD_SECONDS * size_bytes, self._bytes + seconds * size_bytes)


def _tolerance(base: float) -> float:
    return 0.01 + base / 4


class RefusingShard:
    """A shard that refused lately. ``tries`` limit how long it takes nothing. Mutable."""

    def __init__(self, tries: Tries, now: float) -> None:
        self.tries = tries
        self.pace = ShardPace(now)
        self.rests_until = -inf

    def refused(self, records: int, failure: KinesisError, now: float, *, taken: int, shards: int) -> None:
        """Note refused records, of ``shards`` as one; rest, if nothing else of the call was taken.

        Raises:
            KinesisError: trying again does not help, or has not for too long.
        """
        if taken or self.rests_until <= now:  # of calls that were under way together, one is enough
            wait_seconds = self.tries.failed(failure)
            if not taken:
                self.rests_until = now + wait_seconds
                self.pace.rest(self.rests_until)
        self.pace.answered(taken, records, now, shards=shards)

    def takes_all(self, now: float) -> bool:
        """Return whether it neither rests nor has a pace: it refused too little."""
        return self.rests_until <= now and self.pace.scale == inf

    def ready_at(self, now: float, records: int) -> float:
        """Return when a call is worth making for so many; infinity for none."""
        if not records:
            return inf
        return max(self.rests_until, self.pace.ready_at(records, now))
