"""The counts of a running topology: since its start, with latencies of the last ten minutes.

A mean since the start is for long that of the start, when workers and processes begin, and hides what is slow now.
So latencies are those of a window: Storm's shortest one, in as many parts.
Source: Storm's ``LatencyStatAndMetric``; ten minutes, in 20 buckets.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from kinesis_spout.storm.running.component_counts import ComponentCounts, added

_PARTS: Final = 20
_PART_SECONDS: Final = 30.0


class RunningCounts:
    """Adds up what components have done. Mutable; for one thread at a time.

    Args:
        clock: monotonic.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._totals: dict[str, ComponentCounts] = defaultdict(ComponentCounts)
        self._parts: deque[tuple[int, dict[str, ComponentCounts]]] = deque()
        """What was timed in each part of the window, by its number, oldest first."""

    def add(self, component: str, counts: ComponentCounts) -> None:
        """Add what a component did just now."""
        self._totals[component].add(counts)
        number = self._forget_old()
        if not self._parts or self._parts[-1][0] != number:
            self._parts.append((number, defaultdict(ComponentCounts)))
        self._parts[-1][1][component].add(ComponentCounts().with_times_of(counts))

    def add_trees(self, spout: str, *, acked: int, failed: int, timed_out: int, seconds: float) -> None:
        """Add how the trees of a spout ended in a micro-batch that took so many seconds."""
        counts = ComponentCounts()
        counts.add_trees(acked=acked, failed=failed, timed_out=timed_out, seconds=seconds)
        self.add(spout, counts)

    def since_start(self) -> dict[str, ComponentCounts]:
        """Give the counts since the start; what was timed, of the last ten minutes. A copy."""
        self._forget_old()
        recent = defaultdict(ComponentCounts, added(part for _, part in self._parts))
        return {
            component: counts.with_times_of(recent[component]) for component, counts in self._totals.items()
        }

    def _forget_old(self) -> int:
        """Keep the parts of the window; give the number of the one that it is time for."""
        number = int(self._clock() // _PART_SECONDS)
        while self._parts and self._parts[0][0] <= number - _PARTS:
            self._parts.popleft()
        return number
