"""Runs micro-batches in a task that stays, while records come slowly.

A Spark job costs some 50 ms, of time and of CPU, however few records it carries. While records come slowly
that is most of what they cost, and of the time that they take. So the driver then keeps one Spark job with
one task, which stays for seconds and is handed one micro-batch after another (``long_task``). The task does
with the slices what any task does, and the driver settles the same outcomes. Only the way of the slices to
the task is another one.

**When.** A micro-batch is small if it fits into one task: nothing of it is read by executors, and its handler
is expected to take ``_WORTH_A_TASK_SECONDS`` at most. A small one that follows another within
``_CLOSE_SECONDS`` begins a long task. One that comes while the task is at work waits a moment for it, and then
runs as a job of its own, as all others do.

**Until when.** A long task is given up, and ends after what it has under way,

- after the seconds that it may live, so that Spark sees tasks end, and counts them;
- when no micro-batch came for ``long_task.IDLE_SECONDS``: an idle query holds no core. In a pause records are
  tried one by one, seconds apart, so that ends it, too;
- when a micro-batch is not small: a backlog has all cores;
- when tasks of other jobs wait for a core in two looks, a second apart; and then none begins for a while;
- when its worker died, or its query stops.

It has no state of any shard between two micro-batches. So a hand-over, or a session that is lost, needs nothing
of it: the driver hands out slices of shards that are owned, and takes in no outcome of one that is not.

**How many.** The long tasks of an application leave half of the slots free: a cluster with one slot has none, with
two or three there is one, whatever the number of queries and streams.

**Deaths.** Each micro-batch has a file of notes of its own in the folder of the job. If the worker dies, Spark's
next attempt of the task connects, and returns what the notes tell of the micro-batch that was under way; in
local mode there is none, and the driver reads them. So one record is to blame, and what had been done counts.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Final, Protocol

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.spark.long_tasks.held_task import HeldTask
from kinesis_spout.spark.long_tasks.long_task import BUSY_SECONDS, LongTask, LongTasks
from kinesis_spout.spark.tasks.handler_runner import HandlerJob
from kinesis_spout.spark.tasks.jobs import BatchRunner, Ticks
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import SliceKind

_WORTH_A_TASK_SECONDS: Final = 0.05
"""The handling time that justifies another task, and with it a Spark job."""
_CLOSE_SECONDS: Final = 0.6
"""A task is worth its core where a micro-batch follows the end of a small one within that time."""
_LOOK_SECONDS: Final = 1.0
"""The interval at which to look whether others wait for a core."""
_REST_SECONDS: Final = 10.0
"""The time for which no long task begins after others have waited, or a worker has died."""
_SILENT_SECONDS: Final = 60.0
"""A task that is handed nothing for so long ends: it lives no longer where its driver is gone without a word."""
_END_SECONDS: Final = 2.0
"""The time for which a stop waits for the job's end."""

_log = logging.getLogger(__name__)


class Jobs(BatchRunner, Protocol):
    """The runner of all other micro-batches."""

    def job(self, tag: str, tasks: int) -> HandlerJob:
        """Return the work of a job under ``tag``, of so many tasks."""
        ...


class Cluster(Protocol):
    """A cluster in which long tasks run."""

    @property
    def tasks(self) -> LongTasks: ...

    def slots(self) -> int:
        """Return the number of tasks that can run at a time now."""
        ...

    def has_waiting_tasks(self) -> bool:
        """Return whether some task, of any job, waits for a slot."""
        ...

    def run(self, tag: str, task: HeldTask) -> list[str]:
        """Run a job of one task under ``tag``, and return what it yields. Raises as ``BatchRunner.run``."""
        ...

    def cancel(self, tag: str) -> None:
        """As ``BatchRunner.cancel``."""
        ...


class LongTaskRunner:
    """A ``BatchRunner``; ``jobs`` runs what no long task does. Mutable; thread-safe.

    A long task lives for ``life_seconds``, and to the end of what it then has under way.
    """

    ticks: Ticks | None = None

    def __init__(
        self, jobs: Jobs, cluster: Cluster, *, life_seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._jobs = jobs
        self._cluster = cluster
        self._life_seconds = life_seconds
        self._clock = clock
        self._lock = threading.Lock()
        """Guards changes of what follows."""
        self._task: LongTask | None = None
        self._lives_until = -inf
        self._jobs_running = 0
        """The number of micro-batches under way that are not small."""
        self._small_at = -inf
        """When the last small one ended."""
        self._rests_until = self._looks_at = clock()
        self._others_waited = False
        self._cancelled: str | None = None
        """The last micro-batch that was cancelled when the task had it."""
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, "kinesis-spout-long-task")

    @property
    def worth_a_task_seconds(self) -> float:
        return _WORTH_A_TASK_SECONDS if self._comes_slowly(self._clock()) else self._jobs.worth_a_task_seconds

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        if len(packs) != 1 or any(work.plan.kind is SliceKind.READ for work in packs[0]):
            with self._no_long_task():
                return self._jobs.run(tag, packs)
        task = self._at_hand(tag)
        try:
            results = None if task is None else task.hand(tag, list(packs[0]))
        except Exception:
            self._rest()
            raise
        if results is None:
            if tag == self._cancelled:
                raise HandlerKilledWorker("it was cancelled while it waited for a task")
            results = self._jobs.run(tag, packs)
        now = self._clock()
        with self._lock:
            self._small_at = now
            is_old = now >= self._lives_until
        if task is not None and is_old:
            task.give_up()
        return results

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        return self._jobs.settled(tag, is_whole=is_whole)

    def has_begun(self, tag: str) -> bool:
        task = self._task
        return (task is not None and task.handles(tag)) or self._jobs.has_begun(tag)

    def cancel(self, tag: str) -> None:
        task = self._task
        if task is not None and task.has(tag):
            self._cancelled = tag
            self._cluster.cancel(task.tag)
        self._jobs.cancel(tag)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            task = self._task
        if task is not None:
            task.give_up()
            if not task.await_end(_END_SECONDS) and task.is_stuck:
                self._cluster.cancel(task.tag)
        self._thread.shutdown(wait=False)
        self._jobs.close()

    def _comes_slowly(self, now: float) -> bool:
        """Return whether a small micro-batch would be handed over now."""
        if self._is_closed or self._jobs_running or now < self._rests_until:
            return False
        return now - self._small_at <= _CLOSE_SECONDS or not (self._task is None or self._task.is_over)

    @contextmanager
    def _no_long_task(self) -> Iterator[None]:
        with self._lock:
            self._jobs_running += 1
            task = self._task
        if task is not None:
            task.give_up()
        try:
            yield
        finally:
            with self._lock:
                self._jobs_running -= 1

    def _at_hand(self, tag: str) -> LongTask | None:
        before = self._task
        if before is not None and before.is_ending and self._comes_slowly(self._clock()):
            before.await_end(BUSY_SECONDS)
        with self._lock:
            now, task = self._clock(), self._task
            if not self._comes_slowly(now):
                return None
            if task is not None and task.is_over and (task.is_busy or task.is_ending):
                if task.is_stuck:
                    self._cluster.cancel(task.tag)
                return None
            if task is None or task.is_over:
                self._task = task = self._begun(f"{tag}-long")
            elif self._must_make_room(now):
                task.give_up()
                self._rests_until = now + _REST_SECONDS
                return None
            return task

    def _begun(self, tag: str) -> LongTask | None:
        at_most = self._cluster.slots() // 2
        if not at_most:
            self._rests_until = self._clock() + _REST_SECONDS
            return None
        if self._cluster.has_waiting_tasks():
            self._rests_until = self._clock() + _LOOK_SECONDS
            return None
        job = self._jobs.job(tag, 1)
        task = self._cluster.tasks.begin(tag, job, at_most=at_most)
        if task is None:
            job.close()
            self._rests_until = self._clock() + _LOOK_SECONDS
            return None
        _log.info("%s: a task begins to be handed micro-batches", tag)
        self._lives_until = self._clock() + self._life_seconds
        self._thread.submit(self._run_job, task)
        return task

    def _must_make_room(self, now: float) -> bool:
        if now < self._looks_at:
            return False
        self._looks_at = now + _LOOK_SECONDS
        waited, self._others_waited = self._others_waited, self._cluster.has_waiting_tasks()
        return waited and self._others_waited

    def _rest(self) -> None:
        with self._lock:
            self._rests_until = self._clock() + _REST_SECONDS

    def _run_job(self, task: LongTask) -> None:
        error: Exception | None = None
        try:
            held = HeldTask(task.job.run_slices, task.address, silent_seconds=_SILENT_SECONDS)
            said = self._cluster.run(task.tag, held)
        except Exception as raised:  # noqa: BLE001 - the thread that waits for outcomes raises it
            error = raised
            self._rest()
        else:
            if said:
                _log.warning(
                    "no task can be handed micro-batches, so each costs a Spark job: the driver at %s. Expected "
                    "spark.driver.host to be an address that executors reach, at any port",
                    said[0],
                )
                with self._lock:
                    self._is_closed = True
        finally:
            self._cluster.tasks.end(task)
            task.ended(error)
            _log.info(
                "%s: the task was handed %d micro-batches%s",
                task.tag,
                task.handed,
                "" if error is None else f", and died: {error}",
            )
