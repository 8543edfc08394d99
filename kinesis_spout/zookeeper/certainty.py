"""Until when a session is certain to live, by this machine's own clock."""

import threading
import time
from collections.abc import Callable
from math import inf
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def seconds_awake_or_asleep() -> float:
    """Give seconds since some moment, those included in which the machine slept: a server does not sleep with us.

    Linux leaves them out of CLOCK_MONOTONIC, macOS out of what ``time.monotonic`` asks.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class Certainty:
    """Whether ZooKeeper has answered lately. Thread-safe.

    A process that was stopped (SIGSTOP, a laptop's lid, a long garbage collection) hears that its session is over
    only after it has asked, while another member may have its shards already. So it goes by what it knows itself:
    from each moment at which it asked, and ZooKeeper answered, the session lives on for its time-out.

    Args:
        seconds: for how long an answer makes certain: less than the time-out.
        ask: sends a question, without waiting, and says at the end whether it was answered, on any thread.
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
        """When the last question was asked that was answered."""
        self._asked_at: float | None = None
        """When the question was asked that is under way."""

    def is_certain(self) -> bool:
        """Say so without waiting; ask when half of the time has passed."""
        age = self._now() - self._heard_at
        if age >= self._seconds / 2:
            self.ask()
            age = self._now() - self._heard_at  # where the answer came at once
        return age < self._seconds

    def ask(self) -> None:
        """Ask, unless a question is under way. One that has waited for too long says nothing any more."""
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
