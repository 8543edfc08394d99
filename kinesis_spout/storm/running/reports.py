"""What a running topology reports to people: the errors of its tasks, and counts since its start."""

import logging
from collections import defaultdict, deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from kinesis_spout.model.handler import failure_of
from kinesis_spout.model.logs import Allowance
from kinesis_spout.storm.running.counts import ComponentCounts, added

MOST_LINES: Final = 10
"""Errors of a task in the log, a minute."""
_PARTS: Final = 20
_PART_SECONDS: Final = 30.0

_log: Final = logging.getLogger(__name__)


class ReportedErrors:
    """The errors of one task: all are counted, as many logged as a person can read. Mutable; for one thread."""

    def __init__(self, who: str, counts: ComponentCounts, clock: Callable[[], float]) -> None:
        self._who = who
        self._counts = counts
        self._clock = clock
        self._lines = Allowance(MOST_LINES)

    def report(self, error: BaseException) -> None:
        self.count(failure_of(error).error_text)
        self.log(self._counts.last_error)

    def count(self, text: str) -> None:
        self._counts.errors += 1
        self._counts.last_error = text

    def log(self, text: str) -> None:
        """Log a line, unless there were too many in this minute; the next one then says how many were left out."""
        if self._lines.takes_one(self._clock()):
            left_out = self._lines.take_left_out()
            more = f" ({left_out} errors before it were left out of the log)" if left_out else ""
            _log.warning("%s: %s%s", self._who, text, more)
        elif self._lines.is_just_used_up:
            _log.warning(
                "%s has more than %d errors a minute; the others are only counted", self._who, MOST_LINES
            )


class RunningCounts:
    """Counts since the start, with latencies of the last ten minutes. Mutable; for one thread at a time.

    For long, a mean since the start is that of the start, when workers and processes begin, and hides what is
    slow now. So latencies are those of a window: Storm's shortest one, in as many parts. Source: Storm's
    ``LatencyStatAndMetric``; ten minutes, in 20 buckets.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._totals: dict[str, ComponentCounts] = defaultdict(ComponentCounts)
        self._parts: deque[tuple[int, dict[str, ComponentCounts]]] = deque()
        """What was timed in each part of the window, by its number, oldest first."""

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
