"""How long to wait before the next try: exponential, capped, and never the same for two callers.

Half of each delay is fixed and half is drawn, so that many shards that failed together do not come back
together ("equal jitter": https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
"""

from collections.abc import Callable

Jitter = Callable[[], float]
"""Draws from 0 (inclusive) to 1 (exclusive): ``random.random``, or a constant in a test."""

_MAX_DOUBLINGS = 30


def backoff_seconds(failures: int, *, first: float, cap: float, jitter: Jitter) -> float:
    """Give the wait after the ``failures``-th failure in a row (1 or more), between first / 2 and cap."""
    ceiling = min(cap, first * float(1 << min(failures - 1, _MAX_DOUBLINGS)))
    return ceiling * (1 + jitter()) / 2
