"""The warnings of all doors that records were given up, a line a second at most, and one at the end."""

import logging
from math import inf
from threading import Lock
from typing import Final

from kinesis_spout.model.logs import counted

_SECOND: Final = 1.0


class DeadLetterLines:
    """Warns of dead letters: of the first at once, then of all since in a line a second at most. Thread-safe.

    Args:
        log: of the door's module.
        end: the end of each line, after "… since the start".
    """

    def __init__(self, log: logging.Logger, end: str) -> None:
        self._log = log
        self._end = end
        self._lock = Lock()
        self._unsaid = self._in_all = 0
        self._next_at = -inf

    def written(self, count: int, now: float) -> None:
        """Count letters that are durable; monotonic time."""
        with self._lock:
            self._unsaid += count
            self._in_all += count
        self.say(now)

    def say(self, now: float = inf) -> None:
        """Log what was not said yet, if a second has passed since the last line; without ``now`` at once."""
        with self._lock:
            if not self._unsaid or now < self._next_at:
                return
            unsaid, self._unsaid, in_all = self._unsaid, 0, self._in_all
            self._next_at = now + _SECOND if now < inf else -inf  # a writer can end after the end
        # Without the lock: a handler of the log may be slow.
        self._log.warning(
            "dead-lettered %s, %s since the start%s", counted(unsaid, "record"), in_all, self._end
        )

    @property
    def due_at(self) -> float:
        """When something is to be said; monotonic, infinite: there is nothing."""
        return self._next_at if self._unsaid else inf
