"""When ticks are due, and what time it is, decided in one place for all copies of a bolt.

Whoever starts micro-batches has the clock, and numbers the ticks of each component. A micro-batch carries the
newest numbers to all its tasks, the same ones however often it is run. A task ticks at its end if the number is
new to it, or was new in an earlier run of that very micro-batch: what the tick did to state then is undone.

So each copy of a bolt gets each tick at most once, and one that missed a tick gets the newest. Yet copies of a
task with state have that in common, and those of a shell bolt their process: such a task ticks in the first
micro-batch with a new number alone. If what that did to state does not count, the next one is the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from kinesis_spout.storm.running.processing_clock import ProcessingClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """What a micro-batch knows of ticks and of time."""

    batch: str = ""
    """Tells the micro-batch from others; its runs have it in common."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """The number of the newest tick, by component; without those that had none yet."""
    new: frozenset[str] = frozenset()
    """The components whose newest tick comes with this micro-batch first."""
    time: float = 0.0
    """Processing time, in seconds since the epoch: when the micro-batch began. See ``ProcessingClock``."""
    read_to: float = -inf
    """In processing time: everything that was put before then is in this micro-batch, or was in one before."""


NO_TICKS = Ticks()


class TickClock:
    """Numbers the ticks of one spout's part of a topology. Mutable; one thread calls ``advance``.

    Args:
        every: the seconds between two ticks, by component; 0: one in each micro-batch.
        now: monotonic.
        clock: of processing time.
    """

    def __init__(self, every: Mapping[str, float], now: float, clock: ProcessingClock | None = None) -> None:
        self.clock = clock or ProcessingClock()
        self._read_to = -inf
        self._every = dict(every)
        self._ticked_at = dict.fromkeys(every, now)
        self._numbers: dict[str, int] = {}
        self._new: frozenset[str] = frozenset()
        """Which no micro-batch has brought yet. Needs no lock: where there is state, or a shell bolt, the
        micro-batches of a spout run one at a time."""

    @property
    def due_at(self) -> float | None:
        """When the next tick is due, so that a micro-batch is run for it alone if need be; None: never."""
        due = (self._ticked_at[component] + every for component, every in self._every.items() if every)
        return min(due, default=None)

    def advance(self, now: float, read_to: float | None = None) -> None:
        """Have the ticks that are due come with the micro-batches that begin from now on; see ``BatchRunner``."""
        if read_to is not None:
            self._read_to = max(self._read_to, self.clock.now() - (now - read_to))
        due = [
            component for component, every in self._every.items() if now - self._ticked_at[component] >= every
        ]
        self._ticked_at |= dict.fromkeys(due, now)
        # Another dictionary each time: other threads read it.
        self._numbers = self._numbers | {component: self._numbers.get(component, 0) + 1 for component in due}
        self._new |= set(due)

    def ticks(self, batch: str) -> Ticks:
        """Say what a micro-batch is to know that begins now. May be called on any thread."""
        new, self._new = self._new, frozenset()
        return Ticks(
            batch=batch, numbers=self._numbers, new=new, time=self.clock.now(), read_to=self._read_to
        )

    def did_not_count(self, ticks: Ticks) -> None:
        """Take in that what a micro-batch did to state does not count."""
        self._new |= ticks.new
