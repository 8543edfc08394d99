"""One thread that polls many shards, each when it is due.

It begins the reads that are due, sends their calls on kept connections, and takes the answers with a selector.
So a thousand idle shards cost one thread and one short call each now and then, and no shard waits for another
one's pause, back-off or answer. What may block, and what takes much CPU (a page with many records), runs on
threads that start when they are needed.
"""

import math
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kinesis_spout.kinesis.read.polling.daemon_threads import DaemonThreads
from kinesis_spout.kinesis.read.polling.exchanges import Exchanges
from kinesis_spout.kinesis.read.polling.poll_schedule import PollSchedule
from kinesis_spout.kinesis.read.polling.steps import GetRecordsCall, MayBlock, Pause, Steps
from kinesis_spout.kinesis.read.socket_loop import SocketLoop
from kinesis_spout.model.clock import Clock, SystemClock

Fetch = Callable[[], Steps[float | None]]
"""Fetches once, in steps. Returns the monotonic time of its next run, or None to be put aside until submitted."""

READS_AT_ONCE: Final = 32
"""Each uses a connection while its call is under way."""
_CLOSING_SECONDS: Final = 0.5
"""How long ``close`` waits for its threads. One that is in a call drops the answer."""


class Prefetcher:
    """Runs submitted fetches when they are due. Thread-safe.

    Its threads start when needed, and end with ``close``. A fetch never runs twice at a time, and must not
    raise. Due times are read from ``clock``; the waits are real time.

    Args:
        most: how many fetches run at a time.
    """

    def __init__(
        self, *, most: int = READS_AT_ONCE, clock: Clock | None = None, name: str = "kinesis-prefetch"
    ) -> None:
        self._most = most
        self._clock = clock or SystemClock()
        self._schedule = PollSchedule[Fetch]()
        self._running: set[Fetch] = set()
        self._again_at: dict[Fetch, float] = {}
        """The times for which running fetches were submitted again."""
        self._hastened: set[Fetch] = set()
        """Running fetches that are due again at once, unless they are put aside."""
        self._lock = threading.Lock()
        """Guards all above."""
        self._closed = False
        self._looks_at = math.inf
        """When the loop looks next for fetches that are due."""
        self._loop = SocketLoop(name, self._clock)
        self._threads = DaemonThreads(most, f"{name}-thread")
        self._exchanges = Exchanges(self._loop, self._clock)

    def submit(self, fetch: Fetch, due_at: float) -> None:
        """Run ``fetch`` at ``due_at`` (monotonic) or soon after. After ``close`` this does nothing.

        A running fetch runs again at that time, or at the time that it returns, whichever is sooner.
        """
        with self._lock:
            if self._closed:
                return
            if fetch in self._running:
                self._again_at[fetch] = min(due_at, self._again_at.get(fetch, math.inf))
                return
            self._put(fetch, due_at)

    def hasten(self, fetch: Fetch) -> None:
        """Run a waiting fetch now; a running one runs once more. Others are left alone."""
        with self._lock:
            if fetch in self._running:
                self._hastened.add(fetch)
            elif fetch in self._schedule:
                self._put(fetch, -math.inf)

    def withdraw(self, fetch: Fetch) -> None:
        with self._lock:
            self._schedule.remove(fetch)

    def look(self) -> None:
        """Look at the clock now: it was moved. A clock that runs by itself needs no such call."""
        self._loop.call(lambda: None)

    @property
    def is_behind(self) -> bool:
        with self._lock:
            next_at = self._schedule.next_at()
            return next_at is not None and next_at <= self._clock.monotonic()

    def stop(self) -> None:
        """Begin no more fetches."""
        with self._lock:
            self._closed = True
            self._schedule.clear()

    def close(self) -> None:
        """End the threads, after what runs on them. Calls under way are abandoned: nothing waits for them.

        Idempotent.
        """
        self.stop()
        self._loop.close()
        self._exchanges.abandon_all()
        self._threads.close(_CLOSING_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, fetch: Fetch, due_at: float) -> None:
        """Schedule a fetch; under the lock."""
        self._schedule.put(fetch, due_at, max(0.0, due_at - self._clock.monotonic()))
        if len(self._running) < self._most:
            self._look_by(due_at)

    def _look_by(self, moment: float) -> None:
        """Have the loop look for due fetches at a time, unless it looks before; under the lock."""
        if moment >= self._looks_at:
            return
        if self._loop.is_here:
            self._loop.at(moment, partial(self._look, moment))
        else:
            self._loop.call(partial(self._loop.at, moment, partial(self._look, moment)))
        self._looks_at = moment

    def _look(self, moment: float) -> None:
        """Begin the fetches that are due, as many as may run. On the loop's thread, as what follows."""
        with self._lock:
            if moment != self._looks_at:
                return  # an earlier look has replaced this one
            self._looks_at = -math.inf  # what is put meanwhile is seen below
        while (run := self._next_run()) is not None:
            self._advance(run)

    def _next_run(self) -> "_Run | None":
        with self._lock:
            is_full = len(self._running) >= self._most
            fetch = None if is_full else self._schedule.take(self._clock.monotonic())
            if fetch is not None:
                self._running.add(fetch)
                return _Run(fetch, fetch())
            self._looks_at = math.inf
            next_at = None if is_full else self._schedule.next_at()
            if next_at is not None:
                self._look_by(next_at)
            return None

    def _advance(self, run: "_Run", answer: Any = None, error: Exception | None = None) -> None:
        """Take the steps of a run as far as this thread may: the loop's does nothing that may block."""
        is_loop = self._loop.is_here
        try:
            while True:
                step = run.steps.send(answer) if error is None else run.steps.throw(error)
                answer = error = None
                if isinstance(step, MayBlock):
                    if is_loop:
                        self._go_on_elsewhere(run, partial(self._advance, run))
                        return
                elif is_loop:
                    self._await(run, step)
                    return
                else:
                    self._loop.call(partial(self._await, run, step))
                    return
        except StopIteration as end:
            again_at = end.value
        except Exception as raised:  # noqa: BLE001 - not hidden: reported like one that ends a thread
            again_at = None
            threading.excepthook(threading.ExceptHookArgs((type(raised), raised, raised.__traceback__, None)))
        self._ended(run.fetch, again_at)

    def _await(self, run: "_Run", step: GetRecordsCall | Pause) -> None:
        if isinstance(step, Pause):
            self._loop.at(step.until, partial(self._advance, run))
            return
        try:
            exchange = step.begin()
        except Exception as error:  # noqa: BLE001 - not hidden: the steps decide what it means
            self._advance(run, error=error)
            return
        if exchange is None:
            self._make_elsewhere(run, step)
        else:
            self._exchanges.make(
                step, exchange, partial(self._advance, run), partial(self._make_elsewhere, run, step)
            )

    def _make_elsewhere(self, run: "_Run", call: GetRecordsCall) -> None:
        self._go_on_elsewhere(run, partial(self._make, run, call))

    def _go_on_elsewhere(self, run: "_Run", go_on: Callable[[], None]) -> None:
        try:
            self._threads.run(go_on)
        except RuntimeError as error:  # the steps decide what it means; this thread must not end with it
            self._advance(run, error=error)

    def _make(self, run: "_Run", call: GetRecordsCall) -> None:
        """Make a call the blocking way; on a thread for what may block."""
        answer, error = None, None
        try:
            answer = call.make()
        except Exception as raised:  # noqa: BLE001 - not hidden: the steps decide what it means
            error = raised
        if not self._closed:
            self._advance(run, answer, error)

    def _ended(self, fetch: Fetch, again_at: float | None) -> None:
        """Schedule the next run of a fetch that has ended, on any thread."""
        with self._lock:
            was_full = len(self._running) >= self._most
            self._running.discard(fetch)
            submitted_for = self._again_at.pop(fetch, None)
            if fetch in self._hastened:
                self._hastened.discard(fetch)
                again_at = None if again_at is None else -math.inf
            soonest = min((at for at in (again_at, submitted_for) if at is not None), default=None)
            if soonest is not None and not self._closed:
                self._put(fetch, soonest)
            next_at = self._schedule.next_at() if was_full else None
            if next_at is not None:
                self._look_by(next_at)


class _Run(NamedTuple):
    fetch: Fetch
    steps: Steps[float | None]
