"""Calls a handler for several records at a time: on threads, or coroutine functions in an event loop.

Threads and loop are made on the executor, and last as long as the worker keeps the handler, from batch to
batch:

* A thread takes a record, calls the handler, and takes the next one; there is no queue of records in between.
  So what a handler keeps in ``threading.local()`` (a connection) lasts. The threads are daemons: a handler
  that hangs does not keep its worker from ending.
* The loop has its own thread. So clients that belong to a loop (a session, a pool of connections) last, and
  their background work continues between batches. Each record is a task with its own context.
"""

import asyncio
import itertools
import logging
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any, Final

from kinesis_spout.model.handler import Failure, failure_of, found_at
from kinesis_spout.model.record import Record
from kinesis_spout.model.unfinished_work import is_coroutine_function, refuse_unfinished
from kinesis_spout.spark.concurrency.concurrent_run import Bounds, ConcurrentRun, LookUp
from kinesis_spout.spark.concurrency.record_schedule import RecordSchedule

Call = Callable[[Record], object]
AsyncCall = Callable[[Record], Awaitable[object]]

_log = logging.getLogger(__name__)


class ConcurrentCalls:
    """Calls ``handler(scheme(record))``. Picklable. Mutable; one run at a time. None: no time-out."""

    def __init__(
        self,
        handler: Callable[[Any], Any],
        scheme: Callable[[Record], Any],
        *,
        concurrency: int,
        timeout_seconds: float | None = None,
    ) -> None:
        self._handler = handler
        self._scheme = scheme
        self.concurrency = concurrency
        self._timeout_seconds = timeout_seconds
        self._runner: _HandlerLoop | _HandlerThreads | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_runner": None}

    def __call__(self, run: RecordSchedule, records: Sequence[Record], look_up: LookUp) -> None:
        """``look_up`` is called about ten times a second; True: no further record may begin."""
        if self._runner is None:
            self._runner = self._made()
        self._runner.begin(run, records).oversee(look_up)

    def _made(self) -> "_HandlerLoop | _HandlerThreads":
        handler, scheme = self._handler, self._scheme
        bounds = Bounds(
            concurrency=self.concurrency,
            timeout_seconds=self._timeout_seconds,
            abandoned=threading.Semaphore(self.concurrency),
        )
        if is_coroutine_function(handler):

            async def call_in_loop(record: Record) -> None:
                returned = await handler(scheme(record))
                if returned is not None:
                    refuse_unfinished(returned)

            return _HandlerLoop(call_in_loop, bounds)

        def call(record: Record) -> None:
            returned = handler(scheme(record))
            if returned is not None:
                refuse_unfinished(returned)

        return _HandlerThreads(call, bounds)


# Threads

_Job = Callable[[], bool]
"""Returns whether its thread continues with the next job."""
_Jobs = SimpleQueue[_Job | None]

_ABANDONED: Final = -1
_numbers = itertools.count(1)


class _HandlerThreads:
    """The threads of a handler, without those that were abandoned. Mutable; one run at a time."""

    def __init__(self, call: Call, bounds: Bounds) -> None:
        self._call = call
        self._bounds = bounds
        self._jobs: _Jobs = SimpleQueue()
        self._started = 0
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def begin(self, run: RecordSchedule, records: Sequence[Record]) -> "_RunOnThreads":
        run_on_threads = _RunOnThreads(run, records, self._bounds, call=self._call, replace=self._replace)
        for number in range(min(self._bounds.concurrency, len(records))):
            if number == self._started:
                self._start()
            self._jobs.put(run_on_threads.work)
        return run_on_threads

    def _replace(self, work: _Job) -> None:
        self._started -= 1
        self._start()
        self._jobs.put(work)

    def _start(self) -> None:
        self._started += 1
        name = f"kinesis-spout-handler-{next(_numbers)}"
        threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()


def _serve(jobs: _Jobs) -> None:
    """Run jobs on a thread, until the threads are dismissed or this one was abandoned."""
    while (job := jobs.get()) is not None:
        if not job():
            return
        del job  # free its run while waiting for the next job
    jobs.put(None)  # for the other threads


class _RunOnThreads(ConcurrentRun):
    """Mutable; thread-safe."""

    def __init__(
        self,
        run: RecordSchedule,
        records: Sequence[Record],
        bounds: Bounds,
        *,
        call: Call,
        replace: Callable[[_Job], None],
    ) -> None:
        super().__init__(run, records, bounds)
        self._call = call
        self._replace = replace
        self._waiting = 0
        self._thread_of: dict[int, int] = {}

    def work(self) -> bool:
        """Hand over one record after the other; False if this thread was abandoned."""
        call, records, following = self._call, self.records, self._following
        failure: Failure | None = None
        at = following(None, None)
        while at is not None:
            if at == _ABANDONED:
                self.abandoned.release()
                return False
            try:
                call(records[at])
            except BaseException as error:  # noqa: BLE001 - whatever it raises fails its record
                failure = failure_of(error)
            else:
                failure = None
            at = following(at, failure)
        return True

    def end_overdue(self, at: int, now: float) -> None:
        del now
        frame = sys._current_frames().get(self._thread_of[at])  # noqa: SLF001 - there is no other way to ask
        where = None if frame is None else found_at(frame, "timed out")
        if self.abandon(at, self.timed_out(where)):
            self._replace(self.work)

    def _following(self, ended: int | None, failure: Failure | None) -> int | None:
        run, lock = self.run, self.lock
        while not lock.acquire(blocking=False):
            # A thread that blocks on the lock gets it before the interpreter, and all others wait for both: for
            # each record the threads would take turns, at twice the cost. The lock is free after microseconds.
            sleep(0)
        try:
            if ended is not None:
                if not run.ended(ended, failure):
                    return _ABANDONED
                if self._waiting:
                    self.changed.notify_all()
            while (at := run.take(monotonic())) is None:
                if not run.may_give_more:
                    self.changed.notify_all()
                    return None
                self._waiting += 1
                self.changed.wait()
                self._waiting -= 1
            if self.timeout_seconds is not None:
                self._thread_of[at] = threading.get_ident()
            return at
        finally:
            lock.release()


# An event loop

_GRACE_SECONDS: Final = 1.0
"""The time in which a cancelled coroutine may end, before it is abandoned."""


class _HandlerLoop:
    """The event loop of a handler. Mutable; one run at a time."""

    def __init__(self, call: AsyncCall, bounds: Bounds) -> None:
        self._call = call
        self._bounds = bounds
        self._loop = asyncio.new_event_loop()
        needed = threading.Event()
        needed.set()
        name = "kinesis-spout-handler-loop"
        threading.Thread(target=_run_loop, args=(self._loop, needed), name=name, daemon=True).start()
        weakref.finalize(self, _end_loop, self._loop, needed).atexit = False

    def begin(self, run: RecordSchedule, records: Sequence[Record]) -> "_RunInLoop":
        run_in_loop = _RunInLoop(run, records, self._bounds, call=self._call, loop=self._loop)
        self._loop.call_soon_threadsafe(run_in_loop.begin_more)
        return run_in_loop


def _run_loop(loop: asyncio.AbstractEventLoop, needed: threading.Event) -> None:
    """Run the loop while it is needed, whatever a handler raises into it or asks of it."""
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


class _RunInLoop(ConcurrentRun):
    """Mutable; thread-safe."""

    def __init__(
        self,
        run: RecordSchedule,
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
                failure = self.timed_out(None if failure is None else failure.raised)
            known = self.run.ended(at, failure)
        if not known:
            self.abandoned.release()
        self.begin_more()

    def end_overdue(self, at: int, now: float) -> None:
        cancelled_at = self._cancelled.get(at)
        if cancelled_at is None:
            self._cancelled[at] = now
            self._loop.call_soon_threadsafe(self._tasks[at].cancel)
        elif now - cancelled_at >= _GRACE_SECONDS and self.abandon(at, self.timed_out()):
            self._loop.call_soon_threadsafe(self.begin_more)
