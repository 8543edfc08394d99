"""``KeyedRate``: how often something may be done for one key, in handlers and in any program.

The rule is the generic cell rate algorithm, by PyrateLimiter: one number is kept for a key, and only until
that key could do its whole burst again. So an idle key costs nothing.
"""

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Hashable
from math import ceil, floor, inf, isfinite
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.model.errors import InvalidConfig

if TYPE_CHECKING:
    from pyrate_limiter import GCRA, Rate

_PRECISION: Final = 1_000
"""The library counts whole units of time: the time of so many calls is a whole number of them."""
_UNITS: Final = 1_000_000
"""In a second. The library takes them for milliseconds, and keeps its state in thousandths."""
_STATES: Final = 1_000 * _UNITS


class KeyedRate:
    """At most ``per_second`` for each key, over time: in any span of T seconds ``per_second * T + burst``.

    With a ``burst`` of 1, two calls for one key are at least 1 / ``per_second`` apart. Mutable; thread-safe,
    and for any number of event loops. It counts in one process: on Spark every Python worker that gets the
    handler has its own. Can be pickled: the copy has counted nothing yet.

    Args:
        per_second: for one key; more than 0.
        burst: how many calls for one key may come at once; at least 1.
        max_keys: the most keys whose calls are remembered. While there are as many, another key waits for one
            to become idle: the rate always holds.
        clock: returns monotonic seconds. With one that does not advance, use ``try_acquire``.

    Raises:
        InvalidConfig: for numbers outside of these ranges.
    """

    def __init__(
        self,
        per_second: float,
        *,
        burst: int = 1,
        max_keys: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value, least in (("burst", burst, 1), ("max_keys", max_keys, 1)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidConfig(f"{name}: expected an int >= {least}, got {value!r}")
        is_number = isinstance(per_second, (int, float)) and not isinstance(per_second, bool)
        if not (is_number and isfinite(per_second) and per_second > 0):
            raise InvalidConfig(f"per_second: expected a finite number > 0, got {per_second!r}")
        self.per_second = per_second
        self.burst = burst
        self.max_keys = max_keys
        self._clock = clock
        self._rule: GCRA | None = None
        self._rates: list[Rate] = []
        self._states: dict[Hashable, tuple[float, ...]] = {}
        self._idle_at: list[tuple[float, int, Hashable]] = []
        """When a key will be idle, at the soonest; each of ``_states`` is in it once."""
        self._pushed = 0
        self._lock = threading.Lock()

    def try_acquire(self, key: Hashable) -> bool:
        """Take one call for a key, if its rate allows it now. Never waits."""
        return self._taken(key) is None

    def wait_seconds(self, key: Hashable) -> float:
        """Return how long a key must wait for its next call, if no other caller takes it; 0.0: not at all."""
        with self._lock:
            return self._asked(key, takes=False) or 0.0

    def acquire(self, key: Hashable, timeout: float | None = None) -> bool:
        """Take one call for a key, and wait until its rate allows it.

        Args:
            key: the key of the rate.
            timeout: the longest wait, in seconds; None: no limit.

        Returns:
            False if the rate does not allow it in that time; at once, if that is known.
        """
        until = inf if timeout is None else self._clock() + timeout
        while (wait := self._taken(key)) is not None:
            if self._clock() + wait > until:
                return False
            time.sleep(wait)
        return True

    async def acquire_async(self, key: Hashable, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as acquire
        """Do what ``acquire`` does, without blocking the event loop."""
        until = inf if timeout is None else self._clock() + timeout
        while (wait := self._taken(key)) is not None:
            if self._clock() + wait > until:
                return False
            await asyncio.sleep(wait)
        return True

    def __len__(self) -> int:
        """Count the keys that are not idle."""
        with self._lock:
            self._forget_idle(self._clock())
            return len(self._states)

    def __repr__(self) -> str:
        return f"KeyedRate({self.per_second!r}, burst={self.burst!r}, max_keys={self.max_keys!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.per_second, self.burst, self.max_keys)

    # Inside

    def _taken(self, key: Hashable) -> float | None:
        with self._lock:
            return self._asked(key, takes=True)

    def _asked(self, key: Hashable, *, takes: bool) -> float | None:
        """Take a call for a key; returns how long to wait if that is not allowed now."""
        now = self._clock()
        self._forget_idle(now)
        state = self._states.get(key)
        if state is None and len(self._states) >= self.max_keys:
            return max(1 / _UNITS, self._idle_at[0][0] - now)
        rule, at = self._rule or self._begin(), floor(now * _UNITS)
        before = rule.initial(self._rates) if state is None else state
        _, decision = rule.step(self._rates, before, at, 1)
        if not decision.allowed:
            return (at + (decision.retry_after_ms or 1)) / _UNITS - now + 1 / _UNITS
        if takes:
            # Allowed by the unit that has begun, and counted from the next: never too early by a part of one.
            after, _ = rule.step(self._rates, before, ceil(now * _UNITS), 1)
            self._states[key] = after
            if state is None:
                self._remember(key, after)
        return None

    def _begin(self) -> "GCRA":
        from pyrate_limiter import GCRA, Rate  # noqa: PLC0415 - where handlers are only imported it is not needed

        self._rule = GCRA()
        interval = max(1, ceil(_PRECISION * _UNITS / self.per_second))
        self._rates = [Rate(_PRECISION, interval, burst=self.burst)]
        return self._rule

    def _forget_idle(self, now: float) -> None:
        while self._idle_at and self._idle_at[0][0] <= now:
            _, _, key = heapq.heappop(self._idle_at)
            if self._states[key][0] <= now * _STATES:
                del self._states[key]
            else:
                self._remember(key, self._states[key])

    def _remember(self, key: Hashable, state: tuple[float, ...]) -> None:
        self._pushed += 1  # distinguishes entries of one time: keys need not be ordered
        heapq.heappush(self._idle_at, (state[0] / _STATES, self._pushed, key))


def _made(per_second: float, burst: int, max_keys: int) -> KeyedRate:
    return KeyedRate(per_second, burst=burst, max_keys=max_keys)
