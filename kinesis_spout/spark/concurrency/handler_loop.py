"""Calls a handler that is a coroutine function, for several records at a time, in one event loop.

The loop has a thread of its own and lives as long as the worker keeps the handler: so clients that belong to a
loop (a session, a pool of connections) last from batch to batch, and what they do in the background goes on in
between. Each record is a task with a context of its own.
"""

import asyncio
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from kinesis_spout.model.handler import Failure, failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.spark.concurrency.crew import Bounds, Crew, LookUp, timed_out
from kinesis_spout.spark.concurrency.record_run import RecordRun

_GRACE_SECONDS: Final = 1.0
"""How long a coroutine may take to end after it was cancelled, before it is abandoned."""

AsyncCall = Callable[[Record], Awaitable[object]]

_log = logging.getLogger(__name__)


class HandlerLoop:
    """Carries out runs in an event loop. Mutable; one run at a time.

    Args:
        call: hands one record over.
        concurrency: the most records under way.
        timeout_seconds: of one delivery; None: it takes what it takes.
    """

    def __init__(self, call: AsyncCall, *, concurrency: int, timeout_seconds: float | None) -> None:
        self._call = call
        self._bounds = Bounds(concurrency=concurrency, timeout_seconds=timeout_seconds)
        self._loop = asyncio.new_event_loop()
        needed = threading.Event()
        needed.set()
        name = "kinesis-spout-handler-loop"
        threading.Thread(target=_run_loop, args=(self._loop, needed), name=name, daemon=True).start()
        weakref.finalize(self, _end_loop, self._loop, needed).atexit = False

    def carry_out(self, run: RecordRun, records: Sequence[Record], look_up: LookUp) -> None:
        """Hand over the records of a run, until it is over."""
        crew = _Coroutines(run, records, self._bounds, call=self._call, loop=self._loop)
        self._loop.call_soon_threadsafe(crew.begin_more)
        crew.oversee(look_up)


def _run_loop(loop: asyncio.AbstractEventLoop, needed: threading.Event) -> None:
    """Run the loop for as long as it is needed, whatever a handler raises into it or asks of it."""
    asyncio.set_event_loop(loop)
    while needed.is_set():
        try:
            loop.run_forever()
        except BaseException:  # noqa: BLE001 - a handler's callback raised SystemExit; its records still have to end
            _log.exception("the event loop of a handler was ended by what a callback raised; it goes on")
    loop.close()


def _end_loop(loop: asyncio.AbstractEventLoop, needed: threading.Event) -> None:
    needed.clear()
    loop.call_soon_threadsafe(loop.stop)


class _Coroutines(Crew):
    """The coroutines of one run. Mutable; thread-safe."""

    def __init__(
        self,
        run: RecordRun,
        records: Sequence[Record],
        bounds: Bounds,
        *,
        call: AsyncCall,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(run, records, bounds)
        self._call = call
        self._loop = loop
        self._tasks: dict[int, asyncio.Task[Failure | None]] = {}
        self._cancelled: dict[int, float] = {}
        """When deliveries that took too long were cancelled."""

    def begin_more(self) -> None:
        """Begin as many records as may be under way. Runs in the loop."""
        run, loop = self.run, self._loop
        while True:
            with self.lock:
                at = run.take(monotonic())
                if at is None:
                    if run.is_over:
                        self.changed.notify_all()
                    return
                task = self._tasks[at] = loop.create_task(self._deliver(self.records[at]))
            task.add_done_callback(partial(self._done, at))

    async def _deliver(self, record: Record) -> Failure | None:
        try:
            await self._call(record)
        except BaseException as error:  # noqa: BLE001 - whatever it raises fails its record
            return failure_of(error)
        return None

    def _done(self, at: int, task: "asyncio.Task[Failure | None]") -> None:
        try:
            failure = task.result()
        except BaseException as error:  # noqa: BLE001 - the handler cancelled a task that had not begun
            failure = failure_of(error)
        with self.lock:
            del self._tasks[at]
            if self._cancelled.pop(at, None) is not None:
                assert self.timeout_seconds is not None
                raised = None if failure is None else failure.raised
                failure = replace(timed_out(self.timeout_seconds), raised=raised)
            known = self.run.ended(at, failure)
        if not known:
            self.abandoned.one_ended()
        self.begin_more()

    def end_overdue(self, at: int, now: float) -> None:
        cancelled_at = self._cancelled.get(at)
        if cancelled_at is None:
            self._cancelled[at] = now
            self._loop.call_soon_threadsafe(self._tasks[at].cancel)
        elif now - cancelled_at >= _GRACE_SECONDS:
            assert self.timeout_seconds is not None
            if self.abandon(at, timed_out(self.timeout_seconds)):
                self._loop.call_soon_threadsafe(self.begin_more)
