"""Distributions count values by ranges, at the cost of a bisection: the histograms of monitors."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

ATTEMPTS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0)
AGES: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
"""Seconds, up to a day."""
HANDLING: Final = (0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
"""Seconds of user code for one record."""
CALLS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds of a call over the network: the buckets that OpenTelemetry's conventions advise."""

_SAMPLES: Final = 8


class Counted(NamedTuple):
    """The counts of a distribution at one moment."""

    bounds: Sequence[float]
    """The upper bound of each range but the last, which has none; a value at a bound is below it."""
    counts: Sequence[int]
    total: float
    """The sum of the values."""


class Distribution:
    """Mutable; not thread-safe."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float, weight: int = 1) -> None:
        """Count a value, as often as ``weight`` says."""
        self._counts[bisect_left(self._bounds, value)] += weight
        self._total += value * weight

    def add_counted(self, counted: Counted) -> None:
        """Add what another one of the same bounds has counted."""
        assert len(counted.counts) == len(self._counts), "the two have the same bounds"
        for at, count in enumerate(counted.counts):
            self._counts[at] += count
        self._total += counted.total

    def counted(self) -> Counted:
        """Return what was counted so far; a copy."""
        return Counted(self._bounds, tuple(self._counts), self._total)


def sampled(count: int) -> list[tuple[int, int]]:
    """Choose at most eight of ``count`` values in a row, evenly, each with the number it stands for."""
    step = max(1, -(-count // _SAMPLES))
    return [(at, min(step, count - at)) for at in range(0, count, step)]
