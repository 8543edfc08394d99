"""A run whose records are handled several at a time: what threads and coroutines have in common.

The task's own thread oversees the run: it looks at the clock, checks whether the driver still waits for the
outcome, and ends deliveries that take too long. Threads, or coroutines, call the handler
(``concurrent_calls``). All follow the rules of the run (``record_schedule``), under the lock of the
``ConcurrentRun``, which owns it.

A delivery that timed out has failed. A coroutine is cancelled, and its place is free when it has ended. A
thread cannot be cancelled, nor can a coroutine that ignores it: these are *abandoned*. Another takes the
place, and the outcome of an abandoned one is ignored. At most as many are abandoned as may be under way, so
that they cannot grow without bound; beyond that a delivery just continues, until the whole job is ended.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition, Lock, Semaphore
from time import monotonic
from typing import Final

from kinesis_spout.model.handler import Failure, RaisedAt
from kinesis_spout.model.record import Record
from kinesis_spout.spark.concurrency.record_schedule import RecordSchedule

LOOK_UP_SECONDS: Final = 0.1
"""The interval at which a task looks up from a run."""

LookUp = Callable[[], bool]
"""Called now and then while records end. Returns whether no further record may begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    concurrency: int
    """Records at a time."""
    timeout_seconds: float | None
    """The longest time of a delivery; None: no limit."""
    abandoned: Semaphore
    """One permit for each delivery that may be abandoned, until that delivery ends."""


class ConcurrentRun(ABC):
    """One run that is carried out. Mutable; thread-safe."""

    def __init__(self, run: RecordSchedule, records: Sequence[Record], bounds: Bounds) -> None:
        self.run = run
        self.records = records
        self.timeout_seconds = bounds.timeout_seconds
        self.abandoned = bounds.abandoned
        self.lock = Lock()
        """Guards the run."""
        self.changed = Condition(self.lock)
        """Notified when waiting threads may continue, and when the run is over."""

    def oversee(self, look_up: LookUp) -> None:
        run, seen = self.run, -1
        with self.lock:
            while not run.is_over:
                self.changed.wait(self._seconds_to_look_up)
                now = monotonic()
                run.look_at_time(now)
                # A run that hangs must look like it, so nothing is noted while nothing ends.
                if run.ended_count != seen:
                    seen = run.ended_count
                    if look_up():
                        run.stop()
                if self.timeout_seconds is not None:
                    for at in run.overdue(now - self.timeout_seconds):
                        self.end_overdue(at, now)
                self.changed.notify_all()

    @abstractmethod
    def end_overdue(self, at: int, now: float) -> None:
        """End a delivery that took too long, if possible. Called under the lock, repeatedly."""

    def abandon(self, at: int, failure: Failure) -> bool:
        """Fail a record whose delivery continues; False if too many do. Called under the lock."""
        if not self.abandoned.acquire(blocking=False):
            return False
        self.run.ended(at, failure)
        return True

    def timed_out(self, raised: RaisedAt | None = None) -> Failure:
        seconds = self.timeout_seconds
        return Failure(
            error_text=f"timed out after {seconds:g} s (record_timeout_seconds)",
            timed_out=True,
            raised=raised,
        )

    @property
    def _seconds_to_look_up(self) -> float:
        if self.timeout_seconds is None or not self.run.under_way:
            return LOOK_UP_SECONDS
        oldest = next(iter(self.run.under_way.values()))
        due = oldest + self.timeout_seconds - monotonic()
        # A delivery that is overdue already ignores its end: there is no hurry.
        return min(LOOK_UP_SECONDS, due) if due > 0 else LOOK_UP_SECONDS
