"""The time of a topology, and when ticks are due: decided in one place for all copies of a bolt.

**Processing time** never runs backwards and never jumps. The driver has it, and each micro-batch takes its
time along: so all tuples of a micro-batch have one time, on every machine and in every run of it. It advances
as the machine's monotonic clock does, which nothing can set. If the wall clock differs, because it was set,
processing time follows slowly: twice as fast as time while it is behind, half as fast while it is ahead. So
one look at a wrong wall clock does no harm, and a clock that was wrong is right in the end.

**BatchTicks.** The starter of micro-batches numbers the ticks of each component. A micro-batch carries the newest
numbers to all its tasks, the same ones however often it is run. A task ticks at its end if the number is new
to it, or was new in an earlier run of that very micro-batch: what the tick did to state then is undone.

Each copy of a bolt thus gets each tick at most once, and one that missed a tick gets the newest. Yet copies
of a task with state share that state, and those of a shell bolt their process: such a task ticks only in the
first micro-batch with a new number. If what that did to state does not count, the next one is the first.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

_JUMP_SECONDS: Final = 0.1
"""Between two looks; below it is the error of reading two clocks one after the other."""

_RETRY_SECONDS: Final = 1.0

_log: Final = logging.getLogger(__name__)


class ProcessingClock:
    """Says what time it is, in seconds since the epoch. Mutable.

    Needs no lock: where there is state, and so where time matters, the micro-batches of a spout run one at a
    time. ``monotonic`` cannot be set; ``wall_clock`` can, at any time.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._monotonic = monotonic
        self._wall_clock = wall_clock
        self._looked_at = monotonic()
        self._wall = self._time = wall_clock()

    def now(self) -> float:
        """Never less than before."""
        looked_at, wall = self._monotonic(), self._wall_clock()
        elapsed = max(0.0, looked_at - self._looked_at)
        self._tell_of_jump(wall - self._wall - elapsed)
        self._looked_at, self._wall = looked_at, wall
        ahead = self._time + elapsed - wall
        self._time += elapsed - min(max(ahead, -elapsed), elapsed / 2)
        return self._time

    def not_before(self, earliest: float) -> None:
        """Take in the time when the state was stored, perhaps by another machine's clock."""
        ahead = earliest - self.now()
        if ahead > _JUMP_SECONDS:
            _log.warning(
                "processing time continues where it was, %.3f s ahead of this machine's clock, at half speed "
                "until both agree",
                ahead,
            )
        self._time = max(self._time, earliest)

    def monotonic_at(self, time: float) -> float:
        """When processing time will be that, by the monotonic clock, if nobody sets the other one."""
        return self._looked_at + time - self._time

    def _tell_of_jump(self, seconds: float) -> None:
        if abs(seconds) >= _JUMP_SECONDS:
            _log.warning(
                "the wall clock was set by %+.3f s: processing time follows %s, and windows close by that",
                seconds,
                "at twice its speed" if seconds > 0 else "at half its speed",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTicks:
    batch: str = ""
    """Tells the micro-batch from others; its runs have it in common."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """The number of the newest tick, by component; without those that had none yet."""
    new: frozenset[str] = frozenset()
    """The components whose newest tick comes with this micro-batch first."""
    time: float = 0.0
    read_to: float = -inf
    """In processing time: everything that was put before then is in this micro-batch, or was in one before."""


NO_TICKS = BatchTicks()


class TickClock:
    """Numbers the ticks of one spout's part of a topology. Mutable; one thread calls ``advance``.

    ``every``: the seconds between two ticks, by component; 0: one in each micro-batch. ``now`` is monotonic.
    ``retry_at`` says when a result is to be emitted again, in processing time; infinity: never.
    """

    def __init__(
        self,
        every: Mapping[str, float],
        now: float,
        clock: ProcessingClock | None = None,
        retry_at: Callable[[], float] | None = None,
    ) -> None:
        self.clock = clock or ProcessingClock()
        self._retry_at = retry_at or (lambda: inf)
        self._retry_not_before = now
        self._read_to = -inf
        self._every = dict(every)
        self._ticked_at = dict.fromkeys(every, now)
        self._numbers: dict[str, int] = {}
        self._new: frozenset[str] = frozenset()
        """Those that no micro-batch has brought yet. Needs no lock: where there is state, or a shell bolt, the
        micro-batches of a spout run one at a time."""

    @property
    def due_at(self) -> float | None:
        """When the next tick is due, so that a micro-batch runs for it alone if need be; None: never."""
        due = [self._ticked_at[component] + every for component, every in self._every.items() if every]
        retry_at = self._retry_at()
        if retry_at < inf:
            due.append(max(self.clock.monotonic_at(retry_at), self._retry_not_before))
        return min(due, default=None)

    def advance(self, now: float, read_to: float | None = None) -> None:
        if read_to is not None:
            self._read_to = max(self._read_to, self.clock.now() - (now - read_to))
        self._retry_not_before = now + _RETRY_SECONDS  # Also if the micro-batch that tries does not count.
        due = [name for name, every in self._every.items() if now - self._ticked_at[name] >= every]
        self._ticked_at |= dict.fromkeys(due, now)
        # Another dictionary each time: other threads read it.
        self._numbers = self._numbers | {component: self._numbers.get(component, 0) + 1 for component in due}
        self._new |= set(due)

    def ticks(self, batch: str) -> BatchTicks:
        """The ticks of a micro-batch that begins now. Any thread can call it."""
        new, self._new = self._new, frozenset()
        time_now = self.clock.now()
        return BatchTicks(batch=batch, numbers=self._numbers, new=new, time=time_now, read_to=self._read_to)

    def did_not_count(self, ticks: BatchTicks) -> None:
        self._new |= ticks.new
