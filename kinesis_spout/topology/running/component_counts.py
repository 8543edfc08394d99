"""What a component has done."""

from dataclasses import dataclass, fields
from typing import Self


@dataclass(slots=True, kw_only=True)
class ComponentCounts:
    """Counts of one component. Mutable; they add up."""

    executed: int = 0
    emitted: int = 0
    acked: int = 0
    failed: int = 0
    timed_out: int = 0
    """Tuples that it had when the micro-batch ended, neither acked nor failed."""
    acked_twice: int = 0
    """Second acks and fails of a tuple, which change nothing."""
    errors: int = 0
    """What it reported, and what it raised."""
    sampled: int = 0
    """How many calls of ``execute`` were timed."""
    sampled_seconds: float = 0.0
    """What these took together, with the bolts that they called in the same process."""
    last_error: str = ""

    def add(self, other: Self) -> None:
        """Add what another has counted."""
        for each in fields(self):
            if each.name != "last_error":
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.last_error = other.last_error or self.last_error

    @property
    def latency_ms(self) -> float:
        """The mean time of a call of ``execute``, in milliseconds; 0 without any."""
        return 1000 * self.sampled_seconds / self.sampled if self.sampled else 0.0

    def told(self) -> dict[str, int | float | str]:
        """Give the counts in the words of a query's progress."""
        return {
            "executed": self.executed,
            "emitted": self.emitted,
            "acked": self.acked,
            "failed": self.failed,
            "timedOut": self.timed_out,
            "ackedTwice": self.acked_twice,
            "errors": self.errors,
            "executeLatencyMs": round(self.latency_ms, 3),
            "lastError": self.last_error,
        }
