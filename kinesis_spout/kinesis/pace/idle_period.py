"""How often a shard is polled that has nothing new.

A few polls in a row that bring nothing are normal; after them, each makes the next pause twice as long, up to the
longest that a user allows. The first records bring the shortest pause back.
"""

from typing import Final

IDLE_AFTER: Final = 5
"""Empty polls in a row, before polls become rarer."""

_MAX_DOUBLINGS: Final = 30


def idle_period(empty_polls: int, shortest: float, longest: float) -> float:
    """Tell how many seconds polls are apart after so many in a row that brought nothing."""
    return min(max(shortest, longest), shortest * _factor(empty_polls))


def aligned_idle_period(empty_polls: int, shortest: float, longest: float) -> float:
    """The same in whole ticks: ``shortest`` times a power of two, at most ``longest`` (but for ``shortest``)."""
    period, slowest = shortest, shortest * _factor(empty_polls)
    while 2 * period <= min(slowest, longest):
        period *= 2
    return period


def _factor(empty_polls: int) -> float:
    return float(1 << min(_MAX_DOUBLINGS, max(0, empty_polls - IDLE_AFTER)))
