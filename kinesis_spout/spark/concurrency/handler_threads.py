"""Calls a plain handler for several records at a time, on threads that stay for the next run.

A thread takes a record, calls the handler, and takes the next one: there is no queue of records in between. What a
handler keeps in ``threading.local()`` (a connection) therefore lasts as long as its thread: as long as the worker
keeps the handler. The threads are daemons: a handler that hangs does not keep its worker from ending.
"""

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Final

from kinesis_spout.model.handler import Failure, failure_of, found_at
from kinesis_spout.model.record import Record
from kinesis_spout.spark.concurrency.crew import Bounds, Call, Crew, LookUp, timed_out
from kinesis_spout.spark.concurrency.record_run import RecordRun

_Job = Callable[[], bool]
"""Returns whether its thread goes on to the next job."""
_Jobs = SimpleQueue[_Job | None]

_ABANDONED: Final = -1
_numbers = itertools.count(1)


class HandlerThreads:
    """Carries out runs with threads. Mutable; one run at a time.

    Args:
        call: hands one record over.
        concurrency: the most threads, without those that were abandoned.
        timeout_seconds: of one delivery; None: it takes what it takes.
    """

    def __init__(self, call: Call, *, concurrency: int, timeout_seconds: float | None) -> None:
        self._call = call
        self._bounds = Bounds(concurrency=concurrency, timeout_seconds=timeout_seconds)
        self._jobs: _Jobs = SimpleQueue()
        self._started = 0
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def carry_out(self, run: RecordRun, records: Sequence[Record], look_up: LookUp) -> None:
        """Hand over the records of a run, until it is over."""
        crew = _Threads(run, records, self._bounds, call=self._call, replace=self._replace)
        for number in range(min(self._bounds.concurrency, len(records))):
            if number == self._started:
                self._start()
            self._jobs.put(crew.work)
        crew.oversee(look_up)

    def _replace(self, work: _Job) -> None:
        """Have another thread go on with the work of one that was abandoned."""
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
        del job  # what it belongs to may go while the next one is waited for
    jobs.put(None)  # for the other threads


class _Threads(Crew):
    """The threads of one run. Mutable; thread-safe."""

    def __init__(
        self,
        run: RecordRun,
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
                self.abandoned.one_ended()
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
        assert self.timeout_seconds is not None
        frame = sys._current_frames().get(self._thread_of[at])  # noqa: SLF001 - there is no other way to ask
        where = None if frame is None else found_at(frame, "timed out")
        if self.abandon(at, replace(timed_out(self.timeout_seconds), raised=where)):
            self._replace(self.work)

    def _following(self, ended: int | None, failure: Failure | None) -> int | None:
        """Take in how one record ended, and give the next; None if there is none any more."""
        run, lock = self.run, self.lock
        while not lock.acquire(blocking=False):
            # Who waits for the lock itself has it before the interpreter, and all others wait for both: for each
            # record the threads would take turns, at twice the cost. The lock is free again after microseconds.
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
