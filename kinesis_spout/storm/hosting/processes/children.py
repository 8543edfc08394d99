"""The children on this machine, by component and task, and who may speak with each.

A child is leased: one bolt at a time has it, from the first tuple of a micro-batch to the last, and reads and
writes its pipes itself. So nothing stands between a bolt and its child, wherever the child was started. The
memory of a child stays with its task, although each time another Python worker can have the bolt that leases
it.

A child that fails is started again with back-off: at once at first, then after 0.1 s, doubled up to 10 s,
until it has acked a tuple.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.storm.hosting.pipes import DistantPipes
from kinesis_spout.storm.hosting.processes.child_process import ChildProcess, ChildSettings, find_resources

BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 10.0
UNUSED_SECONDS: Final = 300.0
"""A child of another run of the topology ends after this long without a lease."""

_TICK_SECONDS: Final = 0.05
"""The time between two looks of a back-off at the clock."""
_log = logging.getLogger(__name__)


class ChildKey(msgspec.Struct, frozen=True, kw_only=True):
    topology: str
    run: str
    """The run of the topology: a new one begins with new children."""
    spout: str = ""
    """The spout whose tuples it gets, where each spout of a topology has its own bolts."""
    component: str
    task: int

    def __str__(self) -> str:
        return f"component {self.component!r}, task {self.task}"


class Lease(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    key: ChildKey
    number: int
    """Grows with each lease of the child. Tuple ids begin with it, so that no two leases have one in common."""
    pid: int
    stdin: int
    stdout: int
    """Descriptors to write to and read from, non-blocking; of the process that has the lease."""
    distant: DistantPipes | None = None
    """Set for a child on another machine, in place of the descriptors."""
    pid_folder: str
    is_fresh: bool
    """It was just started: the hand-shake is due."""
    is_disturbed: bool
    """The holder before was lost in the middle. The child can be waiting for an answer, or have half a frame."""


class NotYet(msgspec.Struct, frozen=True, tag=True):
    reason: str


class _Place:
    def __init__(self) -> None:
        self.child: ChildProcess | None = None
        self.settings: ChildSettings | None = None
        self.leases = 0
        self.is_leased = False
        self.is_greeted = False
        self.is_disturbed = False
        self.failures = 0
        self.start_at = 0.0
        self.used_at = 0.0

    def failed(self, now: float) -> None:
        self.child = None
        self.is_disturbed = False
        self.failures += 1
        self.start_at = now + min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** min(self.failures - 1, 16))


class OwnChildren:
    """Owns children in this process. Thread-safe. ``find`` finds the folder that a child runs in."""

    def __init__(self, clock: Clock | None = None, find: Callable[[str], Path] = find_resources) -> None:
        self._clock = clock or SystemClock()
        self._find = find
        self._changed = threading.Condition()
        self._places: dict[ChildKey, _Place] = {}
        self._is_closed = False

    def lease(self, key: ChildKey, settings: ChildSettings, wait_seconds: float) -> Lease | NotYet:
        """Lease a child, which is started if there is none. Waits while it is leased, or backing off.

        InvalidConfig: its command cannot be started.
        """
        until = self._clock.monotonic() + wait_seconds
        with self._changed:
            self._end_earlier_runs(key)
            place = self._places.setdefault(key, _Place())
            while (reason := self._why_not_yet(key, place)) is not None:
                left = until - self._clock.monotonic()
                if left <= 0:
                    return NotYet(reason)
                self._changed.wait(min(left, _TICK_SECONDS))
            return self._leased(key, place, settings)

    def greeted(self, lease: Lease) -> None:
        """A fresh child has answered the hand-shake. One that has not is not leased again."""
        with self._changed:
            place = self._held(lease)
            if place is not None:
                place.is_greeted = True

    def release(self, lease: Lease, *, is_proven: bool) -> None:
        """Take a child back that owes nothing. The lease's descriptors must not be used any more.

        ``is_proven``: it has acked or failed a tuple, which ends a back-off.
        """
        with self._changed:
            place = self._held(lease)
            if place is not None:
                place.failures = 0 if is_proven else place.failures
                self._given_back(place)

    def abandon(self, lease: Lease) -> None:
        """Take a child back whose holder is gone, maybe in the middle of a message."""
        with self._changed:
            place = self._held(lease)
            if place is not None:
                if place.child is not None and not place.is_greeted:
                    place.child.end_at_once()
                    place.child = None
                place.is_disturbed = True
                self._given_back(place)

    def discard(self, lease: Lease, *, is_proven: bool) -> str:
        """End a child that failed; say how it ended, and the end of its standard error."""
        with self._changed:
            place = self._held(lease)
            child = place.child if place is not None else None
        if place is None or child is None:
            return "it has ended already"
        words = child.end_at_once()
        with self._changed:
            place.failures = 0 if is_proven else place.failures
            place.failed(self._clock.monotonic())
            self._given_back(place)
        return words

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            children = [place.child for place in self._places.values() if place.child is not None]
            self._places.clear()
            self._changed.notify_all()
        _end_all(children)

    def _given_back(self, place: _Place) -> None:
        place.is_leased = False
        place.used_at = self._clock.monotonic()
        self._changed.notify_all()

    def _why_not_yet(self, key: ChildKey, place: _Place) -> str | None:
        if self._is_closed:
            return f"{key}: its owner is ending"
        if place.is_leased:
            return f"{key}: its process serves another Python worker"
        if place.child is not None and not place.child.is_running():
            _log.warning("%s: its process ended between micro-batches; %s", key, place.child.end_at_once())
            place.failed(self._clock.monotonic())
        left = place.start_at - self._clock.monotonic()
        if place.child is None and left > 0:
            return f"{key}: its process failed {place.failures} times, and is started again in {left:.1f} s"
        return None

    def _leased(self, key: ChildKey, place: _Place, settings: ChildSettings) -> Lease:
        if place.child is not None and place.settings != settings:
            place.child.end()
            place.child = None
        is_fresh = place.child is None
        if place.child is None:
            folder = None if settings.resources is None else str(self._find(settings.resources))
            place.child, place.settings, place.is_greeted = ChildProcess(settings, folder), settings, False
        child = place.child
        is_disturbed, place.is_disturbed = place.is_disturbed and not is_fresh, False
        place.leases += 1
        place.is_leased = True
        return Lease(
            key=key,
            number=place.leases,
            pid=child.pid,
            stdin=child.stdin,
            stdout=child.stdout,
            pid_folder=child.pid_folder,
            is_fresh=is_fresh,
            is_disturbed=is_disturbed,
        )

    def _held(self, lease: Lease) -> _Place | None:
        place = self._places.get(lease.key)
        return place if place is not None and place.is_leased and place.leases == lease.number else None

    def _end_earlier_runs(self, key: ChildKey) -> None:
        unused_since = self._clock.monotonic() - UNUSED_SECONDS
        over = [
            other
            for other, place in self._places.items()
            if other.topology == key.topology and other.run != key.run
            if not place.is_leased and place.used_at < unused_since
        ]
        places = [self._places.pop(other) for other in over]
        children = [place.child for place in places if place.child is not None]
        if children:
            _log.info("%d children of earlier runs of topology %s end", len(children), key.topology)
            threading.Thread(target=_end_all, args=(children,), name="earlier runs").start()


def _end_all(children: list[ChildProcess]) -> None:
    ending = [threading.Thread(target=child.end, name=f"end of {child.pid}") for child in children]
    for each in ending:
        each.start()
    for each in ending:
        each.join()
