"""Runs record and Arrow handlers inside the tasks that fetch: the data never leaves the Python worker.

When a worker dies, the notes of its task (``journal``) are found in one of two ways. If Spark retries tasks,
the second attempt does not run the handler again: it recovers what the first has left on its machine, and the
job continues. In local mode a task has one attempt and its job fails, other tasks with it; there this process
shares the machine, reads what all of them left, and stops those that still run. On another machine nothing is
found: then the slices of that task are planned again, alone.
"""

import hashlib
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from pyspark import SparkContext, TaskContext

from kinesis_spout.model.directories import check_private, make_private
from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks import journal
from kinesis_spout.spark.tasks.handlers import AnyHandler, delivery_to
from kinesis_spout.spark.tasks.jobs import SparkRunner, tagged
from kinesis_spout.spark.tasks.journal import Journal, Remains
from kinesis_spout.spark.tasks.recovery import lost, recover
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import SliceKind

_DIED: Final = "the worker died while it handled this record"
_FAILED_TASK: Final = re.compile(r"Task (\d+) in stage")
_STOP_SECONDS: Final = 5.0
"""The time to wait for the tasks of a dead job: each has a record in hand. Spark kills them after 2 s."""
_LOOK_SECONDS: Final = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    name: str
    is_read_here: bool
    """The process that started the job reads the files; otherwise each task removes its own."""

    @property
    def path(self) -> Path:
        """Its path on this machine. A driver's folder for temporary files can be missing on another one."""
        return Path(tempfile.gettempdir(), self.name)

    def file(self, task: int) -> Path:
        return self.path / str(task)

    def make(self) -> None:
        """Make the folder, if possible. Its name is predictable, so another user's is not accepted."""
        try:
            make_private(self.path)
        except OSError as error:
            _log.warning("%s cannot be used (%s): a death costs more deliveries", self.path, error)

    @property
    def is_ours(self) -> bool:
        """Return whether it exists, and this user wrote its files. Journals are unpickled."""
        try:
            check_private(self.path)
        except FileNotFoundError:
            return False
        except OSError as error:
            _log.warning("the journals of a task that died are not read: %s", error)
            return False
        return True

    def open(self, task: int, slices: int, *, has_marks: bool) -> Journal | None:
        """Begin the journal of a task; None where none can be written."""
        try:
            make_private(self.path)
            return Journal(self.file(task), slices, has_marks=has_marks)
        except OSError as error:
            _log.warning(
                "%s: no journal can be written (%s): a death costs more deliveries", self.path, error
            )
            return None

    def remove(self, task: int) -> None:
        """Remove a file, and the folder with the last one, unless the process that made it does."""
        with suppress(OSError):  # there is none, or other tasks' files are in the folder still
            self.file(task).unlink()
            if not self.is_read_here:
                self.path.rmdir()


class RunSlices:
    """The function that Spark runs over the packed slices. Picklable."""

    def __init__(self, settings: TaskSettings, handler: PickledHandler[AnyHandler], folder: _Folder) -> None:
        self._settings = settings
        self._handler = handler
        self._folder = folder

    def __call__(self, packs: Iterable[Sequence[WorkSlice]]) -> Iterator[WorkResult]:
        """Carry out the slices of one task; in its second attempt, return the outcomes of the first."""
        context = TaskContext.get()
        assert context is not None
        print_log_lines()
        task, attempt = context.partitionId(), context.attemptNumber()
        for pack in packs:
            if attempt:
                yield from self.recover(pack, task)
            else:
                yield from self.run(pack, task)
                if not self._folder.is_read_here:
                    self.drop_notes(task)

    def run(self, pack: Sequence[WorkSlice], number: int) -> Iterator[WorkResult]:
        """Carry out slices, with notes under a number that is unique in the job."""
        handler = self._handler.load()
        has_marks = isinstance(handler, ConcurrentCalls)
        notes = self._folder.open(number, len(pack), has_marks=has_marks)
        yield from run_slices(pack, self._settings, partial(delivery_to, handler), notes)
        if notes is not None:
            notes.close()

    def recover(self, pack: Sequence[WorkSlice], number: int) -> Iterator[WorkResult]:
        """The outcomes of slices that a process which has ended was running, by its notes."""
        remains = journal.read(self._folder.file(number)) if self._folder.is_ours else None
        if remains is None or not remains.is_over:
            # It ran on another machine, or Spark has started a second attempt next to the first.
            yield from map(lost, pack)
            return
        # Under another parent the executor died, not the worker, and the cause is unknown.
        if remains.parent == os.getppid():
            yield from recover(pack, remains, self._settings, _DIED)
        else:
            yield from map(lost, pack)
        if not self._folder.is_read_here:
            self.drop_notes(number)

    def drop_notes(self, number: int) -> None:
        """Remove the notes under a number, whose outcomes have been returned; they can be missing."""
        self._folder.remove(number)


class HandlerJob:
    """The work of one job, and what is known of its tasks when it died. Close it after the job."""

    def __init__(self, settings: TaskSettings, handler: PickledHandler[AnyHandler], folder: _Folder) -> None:
        self._settings = settings
        self._folder = folder
        self.run_slices = RunSlices(settings, handler, folder)
        """The function of its tasks."""
        if folder.is_read_here:
            folder.make()

    def recovered(
        self, packs: Sequence[Sequence[WorkSlice]], numbers: Sequence[int], death: HandlerKilledWorker
    ) -> list[WorkResult]:
        """The outcomes of packs with notes under these numbers. Raises ``death`` if nothing can be recovered."""
        if not (self._folder.is_read_here and self._folder.is_ours):
            raise death  # on other machines, or not to be written
        results = recover_job(packs, lambda task: self._folder.file(numbers[task]), self._settings, death)
        if results is None:
            raise death
        return results

    def close(self) -> None:
        """Remove the notes of tasks on this machine. May be called twice."""
        if self._folder.is_read_here and self._folder.is_ours:
            shutil.rmtree(self._folder.path, ignore_errors=True)


class HandlerRunner(SparkRunner):
    """A ``BatchRunner`` for handlers that run on the executors."""

    def __init__(
        self, context: SparkContext, settings: TaskSettings, handler: PickledHandler[AnyHandler]
    ) -> None:
        super().__init__(context)
        self._settings = settings
        self._handler = handler
        self._is_local = re.match(r"local(\[|$)", context.master or "") is not None
        self._name = f"kinesis-spout-{uuid.uuid4().hex}"

    def job(self, tag: str, tasks: int) -> HandlerJob:
        """Return the work of the job under ``tag``, of so many tasks; the caller closes it."""
        digest = hashlib.sha256(tag.encode()).hexdigest()[:16]
        folder = _Folder(name=f"{self._name}-{digest}", is_read_here=self._is_local)
        return HandlerJob(self._settings.of_one_task(tasks), self._handler, folder)

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        """Run slices; raises only where nothing can be recovered."""
        with closing(self.job(tag, len(packs))) as job:
            try:
                with tagged(self._context, tag):
                    return (
                        self._context.parallelize(packs, len(packs)).mapPartitions(job.run_slices).collect()
                    )
            except HandlerKilledWorker as death:
                return job.recovered(packs, range(len(packs)), death)


def recover_job(
    packs: Sequence[Sequence[WorkSlice]],
    file: Callable[[int], Path],
    settings: TaskSettings,
    death: HandlerKilledWorker,
) -> list[WorkResult] | None:
    """The outcomes of a failed job on this machine; None if no task is to blame.

    To blame is the task whose worker died, or, when cancelled, one in a handler for longer than a task may
    take.
    """
    failed = _FAILED_TASK.search(str(death))
    guilty = None if failed is None else int(failed[1])
    cancelled = guilty is None and "cancel" in str(death)
    if not cancelled and guilty is None:
        return None
    files = [file(task) for task in range(len(packs))]
    for each in files:
        journal.ask_to_stop(each)
    until = monotonic() + _STOP_SECONDS
    found = [_stopped(each, until) for each in files]
    since = monotonic() - settings.max_seconds
    anybody_hangs = any(remains is not None and remains.hangs_since(since) for remains in found)
    results: list[WorkResult] = []
    for task, (pack, remains) in enumerate(zip(packs, found, strict=True)):
        if remains is None:
            # Its worker had not begun: a time-out that was spent on starting it blames no record. A worker that
            # died before it could note anything blames none either.
            results += [lost(work) for work in pack] if task == guilty else _not_begun(pack, settings)
            continue
        hangs = cancelled and remains.hangs_since(since)
        blame = f"{_DIED}: {death}" if task == guilty else str(death) if hangs else None
        results += recover(pack, remains, settings, blame, hangs=hangs)
    if cancelled and any(found) and not anybody_hangs:
        # Then the reading takes too long: the driver should read these shards.
        return [
            replace(each, lost=each.plan.kind is SliceKind.READ and not each.outcome.count)
            for each in results
        ]
    return results


def _not_begun(pack: Sequence[WorkSlice], settings: TaskSettings) -> list[WorkResult]:
    return recover(pack, Remains(counts=(0,) * len(pack)), settings, None)


def _stopped(file: Path, until: float) -> Remains | None:
    """Read a task's notes, once it hands nothing over any more, or at the monotonic time ``until``."""
    remains = journal.read(file)
    while remains is not None and not remains.is_over and monotonic() < until:
        sleep(_LOOK_SECONDS)
        remains = journal.read(file)
    return remains
