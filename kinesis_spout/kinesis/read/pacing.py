"""When a shard may be read next.

A shard gives 5 reads and 2 MB a second. Read every max(0.2 s, bytes of the last page / 2 MB/s), it is read at
its full rate and hardly ever throttles. Failures push the next read further away, each kind in its own way.
"""

from typing import Final

from kinesis_spout.errors import KinesisSpoutError, Throttled
from kinesis_spout.kinesis.backoff import Jitter, backoff_seconds
from kinesis_spout.kinesis.reactions import reaction_to

MIN_INTERVAL_SECONDS: Final = 0.2
BYTES_PER_SECOND: Final = 2_000_000

THROTTLE_SECONDS: Final = 1.0
THROTTLE_AFTER_FULL_REPLY_SECONDS: Final = 5.0
FULL_REPLY_BYTES: Final = 10_000_000
"""A reply of 10 MiB makes Kinesis throttle for 5 s. A little less counts as one: JSON and keys weigh too."""
MAX_THROTTLE_SECONDS: Final = 10.0

FIRST_BACKOFF_SECONDS: Final = 0.4
MAX_BACKOFF_SECONDS: Final = 10.0


class Pacing:
    """The read rate of one shard, one poller. Mutable; times are the clock's monotonic ones.

    Args:
        ready_at: when the first read may be made.
        jitter: see ``backoff_seconds``.
    """

    def __init__(self, *, ready_at: float, jitter: Jitter) -> None:
        self.ready_at = ready_at
        self._jitter = jitter
        self._last_bytes = 0
        self._failures = 0

    def started(self, now: float) -> None:
        """Note that a call is being made: whatever becomes of it, it counts against five a second."""
        self.ready_at = now + MIN_INTERVAL_SECONDS

    def succeeded(self, started: float, size_bytes: int) -> None:
        """Note a page of ``size_bytes``, asked for at ``started``."""
        self._failures = 0
        self._last_bytes = size_bytes
        self.ready_at = started + max(MIN_INTERVAL_SECONDS, size_bytes / BYTES_PER_SECOND)

    def failed(self, now: float, error: KinesisSpoutError) -> None:
        """Note a call that failed at ``now``."""
        self._failures += 1
        self.ready_at = max(self.ready_at, now + self._wait(error))

    def _wait(self, error: KinesisSpoutError) -> float:
        if isinstance(error, Throttled):
            full = self._last_bytes >= FULL_REPLY_BYTES
            floor = THROTTLE_AFTER_FULL_REPLY_SECONDS if full else THROTTLE_SECONDS
            # Twice, because half of the back-off is drawn: the floor must hold for every draw.
            return backoff_seconds(
                self._failures, first=2 * floor, cap=2 * MAX_THROTTLE_SECONDS, jitter=self._jitter
            )
        slow_seconds = reaction_to(error).wait_seconds
        if slow_seconds:
            return slow_seconds * (1 + self._jitter() / 10)
        return backoff_seconds(
            self._failures, first=FIRST_BACKOFF_SECONDS, cap=MAX_BACKOFF_SECONDS, jitter=self._jitter
        )
