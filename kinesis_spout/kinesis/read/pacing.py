"""When a shard may be read next.

A shard gives 5 reads and 2 MB a second. Read every max(0.2 s, bytes of the last page / 2 MB/s), it is read at
its full rate and hardly ever throttles. Failures push the next read further away, each kind in its own way: see
``kinesis.patience``.
"""

from typing import Final

from kinesis_spout.errors import KinesisSpoutError
from kinesis_spout.kinesis.patience import Jitter, read_wait_seconds

MIN_INTERVAL_SECONDS: Final = 0.2
BYTES_PER_SECOND: Final = 2_000_000

FULL_REPLY_BYTES: Final = 10_000_000
"""A reply of 10 MiB makes Kinesis throttle for 5 s. A little less counts as one: JSON and keys weigh too."""


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

    def pushed(self) -> None:
        """Note that something came without a call, which no limit holds for."""
        self._failures = 0

    def failed(self, now: float, error: KinesisSpoutError) -> None:
        """Note a call that failed at ``now``."""
        self._failures += 1
        wait = read_wait_seconds(
            error,
            self._failures,
            is_after_full_reply=self._last_bytes >= FULL_REPLY_BYTES,
            jitter=self._jitter,
        )
        self.ready_at = max(self.ready_at, now + wait)
