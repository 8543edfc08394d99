"""Until when a session is certain to live, by this machine's clock."""

import threading
import time
from collections.abc import Callable
from math import inf
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def seconds_awake_or_asleep() -> float:
    """Return monotonic seconds that include the machine's sleep: a server does not sleep with us.

    Linux leaves sleep out of CLOCK_MONOTONIC, macOS out of the clock of ``time.monotonic``.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class Certainty:
    """Whether ZooKeeper has answered lately. Thread-safe.

    A process that was stopped (SIGSTOP, a laptop's lid, a long garbage collection) learns that its session is
    over only after it asks, while another member may have its shards already. So it relies on its own clock:
    from each moment at which it asked, and ZooKeeper answered, the session lives for its time-out.

    Args:
        seconds: how long an answer makes certain: less than the time-out.
        ask: sends a question without waiting; calls its argument, on any thread, with whether it was answered.
        now: the time, the machine's sleep included.
    """

    def __init__(
        self, seconds: float, ask: Callable[[Callable[[bool], None]], None], now: Callable[[], float]
    ) -> None:
        self._seconds = seconds
        self._send = ask
        self._now = now
        self._lock = threading.Lock()
        self._heard_at = -inf
        """When the last answered question was asked."""
        self._asked_at: float | None = None
        """When the pending question was asked."""

    def is_certain(self) -> bool:
        """Return without waiting; asks when half of the time has passed."""
        age = self._now() - self._heard_at
        if age >= self._seconds / 2:
            self.ask()
            age = self._now() - self._heard_at  # where the answer came at once
        return age < self._seconds

    def ask(self) -> None:
        """Ask, unless a question is pending. One that has waited for too long no longer counts."""
        with self._lock:
            now = self._now()
            if self._asked_at is not None and now < self._asked_at + self._seconds:
                return
            self._asked_at = now

        def ended(answered: bool) -> None:  # noqa: FBT001 - called with the answer
            with self._lock:
                if answered:
                    self._heard_at = max(self._heard_at, now)
                if self._asked_at == now:
                    self._asked_at = None

        self._send(ended)
