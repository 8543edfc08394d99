"""When a shard may be read next.

At one read every max(0.2 s, bytes of the last page / 2 MB/s), a shard is read at its full rate and hardly
throttles. Failures delay the next read, each kind in its way: see ``kinesis.retry_policy``.

A throttle shows that another poller shares the shard's limits. So it halves our rate, in calls and in bytes,
and every page adds a twentieth of the full rate again ("additive increase, multiplicative decrease": Chiu and
Jain, 1989, showed that those who share something come to equal parts by it).
"""

import threading
from typing import Final

from kinesis_spout.kinesis.pace import ByteBudget, Pace
from kinesis_spout.kinesis.retry_policy import Jitter, reaction_to, read_wait_seconds
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError

FULL_REPLY_BYTES: Final = 10_000_000
"""A reply of 10 MiB makes Kinesis throttle for 5 s. A little less counts as full: JSON and keys weigh too."""

LEAST_THROTTLE: Final = 1 / 16
"""The smallest part of its pace that throttles leave a shard."""
RECOVERY: Final = 1 / 20

_ROUNDING_SECONDS: Final = 1e-6
"""Times this close are the same moment: sums of floats are not exact."""


class Pacing:
    """The read rate of one shard, in one process. Mutable, thread-safe; monotonic times.

    ``throttled_to`` is the part of the full rate that throttles have left, including those of an earlier process.
    """

    def __init__(
        self,
        *,
        ready_at: float,
        jitter: Jitter,
        pace: Pace | None = None,
        budget: ByteBudget | None = None,
        throttled_to: float = 1.0,
    ) -> None:
        self.ready_at = ready_at
        self.throttled_to = throttled_to
        """The part of the pace that throttles have left: 1 is all of it."""
        self._jitter = jitter
        self._pace = pace or Pace()
        self._budget = budget or ByteBudget()
        self._last_bytes = 0
        self._failures = 0
        self._lock = threading.Lock()

    def await_turn(self, clock: Clock) -> float:
        """Wait until a read may begin, and return the time at which this one begins.

        Whatever its outcome, the call counts against five a second: no other begins before the interval is over.
        """
        while True:
            with self._lock:
                now = clock.monotonic()
                wait = self.ready_at - now
                if wait < _ROUNDING_SECONDS:
                    self.ready_at = now + self._pace.seconds_for(0) / self.throttled_to
                    return now
            clock.sleep(wait)

    def succeeded(self, started: float, size_bytes: int) -> None:
        with self._lock:
            self._failures = 0
            self._last_bytes = size_bytes
            self.throttled_to = min(1.0, self.throttled_to + RECOVERY)
            paced = started + self._pace.seconds_for(size_bytes) / self.throttled_to
            self.ready_at = max(self.ready_at, paced, self._budget.pay(size_bytes, started))

    def pushed(self) -> None:
        """Note that data came without a call; no limit applies."""
        self._failures = 0

    def failed(self, now: float, error: KinesisSpoutError) -> None:
        with self._lock:
            self._failures += 1
            if reaction_to(error).is_throttle:
                self.throttled_to = max(LEAST_THROTTLE, self.throttled_to / 2)
            wait = read_wait_seconds(
                error,
                self._failures,
                is_after_full_reply=self._last_bytes >= FULL_REPLY_BYTES,
                jitter=self._jitter,
            )
            self.ready_at = max(self.ready_at, now + wait)

    def read_elsewhere(self, since: float, size_bytes: int, *, ready_at: float, throttled_to: float) -> None:
        """Note a read of another process since a time, and the pacing that it ended with."""
        with self._lock:
            self.throttled_to = throttled_to
            self.ready_at = max(self.ready_at, ready_at, self._budget.pay(size_bytes, since))
