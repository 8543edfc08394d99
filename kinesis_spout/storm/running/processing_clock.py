"""Processing time: one clock for all tasks of a topology, which never runs backwards and never jumps.

The driver has it, and each micro-batch takes its time along: so all tuples of a micro-batch have one time, on
every machine and in every run of it. It goes on as the machine's monotonic clock does, which nobody can set.
Where the wall clock says something else, because it was set, it follows slowly: twice as fast as time while it is
behind, half as fast while it is ahead. So one look at a wall clock that is wrong does no harm, and a clock that
was wrong is right in the end.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

_JUMP_SECONDS: Final = 0.1
"""Between two looks; less is how exactly two clocks can be read one after the other."""

_log: Final = logging.getLogger(__name__)


class ProcessingClock:
    """Says what time it is, in seconds since the epoch. Mutable.

    Needs no lock: where there is state, and so where time matters, the micro-batches of a spout run one at a time.

    Args:
        monotonic: a clock that nobody sets.
        wall_clock: seconds since the epoch; it may be set at any time.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._monotonic = monotonic
        self._wall_clock = wall_clock
        self._looked_at = monotonic()
        self._wall = self._time = wall_clock()

    def now(self) -> float:
        """Give the time; never less than before."""
        looked_at, wall = self._monotonic(), self._wall_clock()
        elapsed = max(0.0, looked_at - self._looked_at)
        self._tell_of_jump(wall - self._wall - elapsed)
        self._looked_at, self._wall = looked_at, wall
        ahead = self._time + elapsed - wall
        self._time += elapsed - min(max(ahead, -elapsed), elapsed / 2)
        return self._time

    def not_before(self, earliest: float) -> None:
        """Take in what time it was before, perhaps by another machine's clock: when the state was stored."""
        ahead = earliest - self.now()
        if ahead > _JUMP_SECONDS:
            _log.warning(
                "processing time goes on where it was, %.3f s ahead of this machine's clock, at half speed "
                "until both agree",
                ahead,
            )
        self._time = max(self._time, earliest)

    def _tell_of_jump(self, seconds: float) -> None:
        if abs(seconds) >= _JUMP_SECONDS:
            _log.warning(
                "the wall clock was set by %+.3f s: processing time follows %s, and windows close by that",
                seconds,
                "at twice its speed" if seconds > 0 else "at half its speed",
            )
