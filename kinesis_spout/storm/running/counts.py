"""Counts of what a component has done, and its own metrics. Pure."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Final, Self

import msgspec

_WORDS: Final = {
    "executed": "executed",
    "emitted": "emitted",
    "acked": "acked",
    "failed": "failed",
    "timed_out": "timedOut",
    "acked_twice": "ackedTwice",
    "errors": "errors",
}
_NO_SUMS: Final = frozenset({"last_error", "metrics"})
_TIMES: Final = ("sampled", "sampled_seconds", "completed", "completing_seconds")
_LARGEST: Final = 10**300
"""The largest number that is summed, so that no sum is more than a float can be."""
_PARTS: Final = 20
_PART_SECONDS: Final = 30.0
_MAX_BYTES: Final = 2_000
"""The size of a value that is shown as it is; a longer one is shown as text, and cut."""


@dataclass(slots=True, kw_only=True)
class ComponentMetric:
    """A metric that a component reports. Mutable; several add up."""

    count: int = 0
    total: float = 0
    last: Any = None
    """The newest value, as JSON has it: it travels from task to task, whatever was reported."""

    def report(self, value: Any) -> None:
        """Never raises: a report fails no tuple."""
        self.count += 1
        number = _number(value)
        if number is None:
            self.last = _as_json(value)
        else:
            self.last = number
            self.total += number

    def add(self, later: Self) -> None:
        if later.count:
            self.count += later.count
            self.total += later.total
            self.last = later.last


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = int(value) if isinstance(value, Integral) else float(value)
    except OverflowError:
        return None
    return number if abs(number) < _LARGEST else None


def _as_json(value: Any) -> Any:
    try:
        encoded = msgspec.json.encode(value, enc_hook=repr)
    except Exception:  # noqa: BLE001 - JSON has no such thing
        return _as_text(value)
    return msgspec.json.decode(encoded) if len(encoded) <= _MAX_BYTES else _as_text(value)


def _as_text(value: Any) -> str:
    try:
        return repr(value)[:_MAX_BYTES]
    except Exception:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"a {type(value).__name__}"


@dataclass(slots=True, kw_only=True)
class ComponentCounts:
    """Counts of one component. Mutable; they add up."""

    executed: int = 0
    emitted: int = 0
    acked: int = 0
    """Tuples that it acked; for a spout, emitted ones whose trees are done."""
    failed: int = 0
    """Tuples that it failed; for a spout, those whose trees failed."""
    timed_out: int = 0
    """Tuples that it had when the micro-batch ended, neither acked nor failed; for a spout, those whose trees
    were left over then."""
    acked_twice: int = 0
    """Acks and fails that change nothing: the second of a tuple, and those that come after its time-out."""
    errors: int = 0
    """Errors that it reported or raised, but for verdicts on tuples (``FailedException``, ``Reject`` ...)."""
    sampled: int = 0
    """Timed calls of ``execute``. In a query this count and the following are of its last ten minutes."""
    sampled_seconds: float = 0.0
    """The time these took together, with the bolts that they called in the same process."""
    completed: int = 0
    """Timed tuples of a spout, among the acked ones."""
    completing_seconds: float = 0.0
    """The time these took together, each until its tree was done."""
    last_error: str = ""
    metrics: dict[str, ComponentMetric] = field(default_factory=dict)

    @classmethod
    def of_trees(cls, count: int, *, unfinished: int, timed_out: int, seconds: float) -> Self:
        acked = count - unfinished
        return cls(
            acked=acked,
            failed=unfinished - timed_out,
            timed_out=timed_out,
            completed=acked,
            completing_seconds=acked * seconds,
        )

    def add(self, other: Self) -> None:
        for each in fields(self):
            if each.name not in _NO_SUMS:
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.last_error = other.last_error or self.last_error
        for name, metric in other.metrics.items():
            self.metrics.setdefault(name, ComponentMetric()).add(metric)

    def with_times_of(self, other: Self) -> Self:
        metrics = {name: replace(metric) for name, metric in self.metrics.items()}
        return replace(self, metrics=metrics, **{name: getattr(other, name) for name in _TIMES})

    def report(self, name: str, value: Any) -> None:
        self.metrics.setdefault(name, ComponentMetric()).report(value)

    def take(self) -> Self:
        """Give a copy and reset; counting in this object continues."""
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
        """The mean time until a spout's tuple was acked, in milliseconds; 0 without any."""
        return 1000 * self.completing_seconds / self.completed if self.completed else 0.0

    def told(self) -> dict[str, Any]:
        return {
            **{word: getattr(self, name) for name, word in _WORDS.items()},
            "executeLatencyMs": round(self.latency_ms, 3),
            "completeLatencyMs": round(self.complete_latency_ms, 3),
            "lastError": self.last_error,
            "metrics": {name: asdict(metric) for name, metric in self.metrics.items()},
        }


def added(counts: Iterable[Mapping[str, ComponentCounts]]) -> dict[str, ComponentCounts]:
    together: dict[str, ComponentCounts] = defaultdict(ComponentCounts)
    for each in counts:
        for component, of_component in each.items():
            together[component].add(of_component)
    return dict(together)


class RunningCounts:
    """Counts since the start, with latencies of the last ten minutes. Mutable; for one thread at a time.

    For long, a mean since the start is that of the start, when workers and processes begin, and hides what is
    slow now. So latencies are those of a window: Storm's shortest one, in as many parts. Source: Storm's
    ``LatencyStatAndMetric``; ten minutes, in 20 buckets.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._totals: dict[str, ComponentCounts] = defaultdict(ComponentCounts)
        self._parts: deque[tuple[int, dict[str, ComponentCounts]]] = deque()
        """The timed calls in each part of the window, by its number, oldest first."""

    def add(self, component: str, counts: ComponentCounts) -> None:
        self._totals[component].add(counts)
        number = self._forget_old()
        if not self._parts or self._parts[-1][0] != number:
            self._parts.append((number, defaultdict(ComponentCounts)))
        self._parts[-1][1][component].add(ComponentCounts().with_times_of(counts))

    def since_start(self) -> dict[str, ComponentCounts]:
        """A copy."""
        self._forget_old()
        recent = defaultdict(ComponentCounts, added(part for _, part in self._parts))
        return {
            component: counts.with_times_of(recent[component]) for component, counts in self._totals.items()
        }

    def _forget_old(self) -> int:
        number = int(self._clock() // _PART_SECONDS)
        while self._parts and self._parts[0][0] <= number - _PARTS:
            self._parts.popleft()
        return number
