"""What a component has done."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

from kinesis_spout.storm.components.metric import Metric

_WORDS: Final = {
    "executed": "executed",
    "emitted": "emitted",
    "acked": "acked",
    "failed": "failed",
    "timed_out": "timedOut",
    "acked_twice": "ackedTwice",
    "errors": "errors",
}
"""The counts, and what they are called in a query's progress."""
_NO_SUMS: Final = frozenset({"last_error", "metrics"})
_TIMES: Final = ("sampled", "sampled_seconds", "completed", "completing_seconds")


@dataclass(slots=True, kw_only=True)
class ComponentCounts:
    """Counts of one component. Mutable; they add up."""

    executed: int = 0
    emitted: int = 0
    acked: int = 0
    """Tuples that it acked; of a spout those that it emitted whose trees are done."""
    failed: int = 0
    """Tuples that it failed; of a spout those whose trees failed."""
    timed_out: int = 0
    """Tuples that it had when the micro-batch ended, neither acked nor failed; of a spout those whose trees were
    left over then."""
    acked_twice: int = 0
    """Acks and fails that change nothing: the second of a tuple, and those that come after its time-out."""
    errors: int = 0
    """What it reported and what it raised, but for verdicts on tuples (``FailedException``, ``Reject`` ...)."""
    sampled: int = 0
    """How many calls of ``execute`` were timed; of a query this and what follows is of its last ten minutes."""
    sampled_seconds: float = 0.0
    """What these took together, with the bolts that they called in the same process."""
    completed: int = 0
    """Of a spout: how many of its acked tuples were timed."""
    completing_seconds: float = 0.0
    """What these took together, each until its tree was done."""
    last_error: str = ""
    metrics: dict[str, Metric] = field(default_factory=dict)
    """What it reported of itself, by name."""

    @classmethod
    def from_told(cls, told: Mapping[str, Any]) -> Self:
        """Read what ``told`` gave, perhaps in another process; a count that is not there is 0.

        Raises:
            ValueError, TypeError, AttributeError: it is something else.
        """
        counts = {name: int(told.get(word, 0)) for name, word in _WORDS.items()}
        latency_ms, complete_ms = told.get("executeLatencyMs", 0.0), told.get("completeLatencyMs", 0.0)
        return cls(
            **counts,
            completed=int(complete_ms > 0),
            completing_seconds=complete_ms / 1000,
            sampled=int(latency_ms > 0),
            sampled_seconds=latency_ms / 1000,
            last_error=told.get("lastError", ""),
            metrics={name: Metric(**metric) for name, metric in told.get("metrics", {}).items()},
        )

    def add(self, other: Self) -> None:
        """Add what another has counted."""
        for each in fields(self):
            if each.name not in _NO_SUMS:
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.last_error = other.last_error or self.last_error
        for name, metric in other.metrics.items():
            self.metrics.setdefault(name, Metric()).add(metric)

    def copy(self) -> Self:
        """Give counts of their own, with the same numbers."""
        copied = type(self)()
        copied.add(self)
        return copied

    def with_times_of(self, other: Self) -> Self:
        """Give counts of their own, with the same numbers, but for what was timed, which is the other's."""
        copied = self.copy()
        for name in _TIMES:
            setattr(copied, name, getattr(other, name))
        return copied

    def add_trees(self, *, acked: int, failed: int, timed_out: int, seconds: float) -> None:
        """Add how the trees of a spout ended in a micro-batch that took so many seconds."""
        self.acked += acked
        self.failed += failed
        self.timed_out += timed_out
        self.completed += acked
        self.completing_seconds += acked * seconds

    def report(self, name: str, value: Any) -> None:
        """Take in what the component reports of itself."""
        self.metrics.setdefault(name, Metric()).report(value)

    def take(self) -> Self:
        """Give what was counted, and begin anew; whoever counts in this object goes on to."""
        taken = replace(self)
        for each in fields(self):
            if each.name != "metrics":
                setattr(self, each.name, each.default)
        self.metrics = {}
        return taken

    @property
    def latency_ms(self) -> float:
        """The mean time of a call of ``execute``, in milliseconds; 0 without any."""
        return 1000 * self.sampled_seconds / self.sampled if self.sampled else 0.0

    @property
    def complete_latency_ms(self) -> float:
        """Of a spout: how long an acked tuple took on average, in milliseconds; 0 without any."""
        return 1000 * self.completing_seconds / self.completed if self.completed else 0.0

    def told(self) -> dict[str, Any]:
        """Give the counts in the words of a query's progress."""
        return {
            **{word: getattr(self, name) for name, word in _WORDS.items()},
            "executeLatencyMs": round(self.latency_ms, 3),
            "completeLatencyMs": round(self.complete_latency_ms, 3),
            "lastError": self.last_error,
            "metrics": {name: metric.told() for name, metric in self.metrics.items()},
        }


def added(counts: Iterable[Mapping[str, ComponentCounts]]) -> dict[str, ComponentCounts]:
    """Add what the same components have counted in several places."""
    together: dict[str, ComponentCounts] = defaultdict(ComponentCounts)
    for each in counts:
        for component, of_component in each.items():
            together[component].add(of_component)
    return dict(together)
