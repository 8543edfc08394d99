"""Wait for a condition, as long as a busy machine may need."""

import time
from collections.abc import Callable

DEADLINE_SECONDS = 30
STARTING_SECONDS = 120
"""For what a JVM with Spark does that has to start first, or a driver of its own."""


def wait_until(
    condition: Callable[[], object],
    what: str,
    *,
    seconds: float = DEADLINE_SECONDS,
    every_seconds: float = 0.01,
) -> None:
    """Return once the condition holds; fail when it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(every_seconds)
