"""A clock that stands still until the test moves it on."""

import threading


class ManualClock:
    """A ``Clock`` for tests: sleeping takes no time, but moves it. Thread-safe.

    Threads that wait for each other in real time fall behind it: a spout on it should be a ``SteppedSpout``.

    Args:
        epoch: what ``time`` says at first, in seconds since the epoch.
    """

    def __init__(self, epoch: float = 1_700_000_000.0) -> None:
        self._epoch = epoch
        self._elapsed = 0.0
        self._lock = threading.Lock()

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._epoch + self._elapsed

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Move the time on by ``seconds``, and return at once."""
        if seconds > 0:
            self.advance(seconds)

    async def pause(self, seconds: float) -> None:
        """Move the time on by ``seconds``, and return at once."""
        self.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Move the time on by ``seconds`` (0 or more)."""
        if seconds < 0:
            raise ValueError(
                f"expected seconds to move on by (0 or more), got {seconds}: time never goes back"
            )
        with self._lock:
            self._elapsed += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock by ``seconds``, forward or back, as an operator or NTP does."""
        with self._lock:
            self._epoch += seconds
