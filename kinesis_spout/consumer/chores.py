"""When the consumer's chores are due, and how long to wait after one that failed."""

import random
from dataclasses import dataclass, field
from typing import Final

FIRST_SECONDS: Final = 1.0
CAP_SECONDS: Final = 10.0


@dataclass(slots=True)
class Backoff:
    """The waits between tries of one chore. Mutable; times are the clock's monotonic ones."""

    failures: int = 0
    """In a row."""
    until: float = 0.0
    """When the next try may be made."""

    def failed(self, now: float, at_least_seconds: float = 0.0) -> None:
        """Note a try that failed at ``now``."""
        delay = min(CAP_SECONDS, FIRST_SECONDS * 2 ** min(self.failures, 8))
        delay *= 1 - random.random() / 2  # noqa: S311 - jitter, no secret
        self.failures += 1
        self.until = now + max(delay, at_least_seconds)

    def passed(self) -> None:
        """Note a try that succeeded."""
        self.failures, self.until = 0, 0.0


@dataclass(slots=True)
class Chores:
    """When each chore is due. Mutable."""

    list_at: float = 0.0
    commit_at: float = 0.0
    listing: Backoff = field(default_factory=Backoff)
    committing: Backoff = field(default_factory=Backoff)
    burying: Backoff = field(default_factory=Backoff)
    pausing: Backoff = field(default_factory=Backoff)
