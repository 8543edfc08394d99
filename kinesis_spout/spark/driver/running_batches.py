"""The running micro-batches: spread over tasks, each batch on its own thread, cancelled when overdue.

A Python task costs far more than a slice, and usually more than handling a few records. So records that
travel with their slices get another task only where it saves more than it costs, by the handler's recent
times.
"""

import heapq
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.model.handler import failure_of
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.driver.retry_data import Reread, read_missing
from kinesis_spout.spark.tasks.jobs import WORTH_A_TASK_SECONDS, BatchRunner, HandlerBroken, tags_of
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import SliceKind, SliceOutcome, SlicePlan

_REREAD_SECONDS: Final = 5.0
"""The longest time that a batch spends on rereading retries. The rest comes later."""
_LOOK_SECONDS: Final = 1.0
"""The interval at which to look for batches to cancel, at least."""
_FULL_SECONDS: Final = 1.0
"""The handling time that makes a full batch."""
_FULL_LASTS: Final = 1.6
"""A full batch lasts so many times its time: the last page of each slice has a share beyond it."""
_OVERHEAD_SECONDS: Final = 1.0
"""The overhead of a job, and of the last read."""
_NEWEST_COUNTS: Final = 0.3
"""The weight of the newest batch in the estimate."""


@dataclass(slots=True, kw_only=True)
class Batch:
    number: int
    tag: str
    works: list[WorkSlice]
    plans: list[SlicePlan]
    """The plans of these."""
    started: float
    """Monotonic."""
    rounds: int = 1
    """The number of its tasks that follow one another on a core."""
    is_full: bool = True
    """True if it may use up the time of a micro-batch: it reads, or handles much."""
    began: float | None = None
    """When its first task was seen to run; its time-out counts from there."""
    cancelled_for: str | None = None
    """Why it was cancelled; None if it was not."""
    is_lost: bool = False
    """True if none of its shards is owned any more: nobody takes in its outcome."""


class RunningBatches:
    """Launched batches. Mutable; the engine's thread calls its methods.

    ``call`` queues ``done`` or ``failed`` for the engine's thread when a batch has ended.
    """

    def __init__(
        self,
        runner: BatchRunner,
        settings: EngineSettings,
        ports: Ports,
        name: str,
        *,
        call: Callable[[Callable[[], None]], None],
        done: Callable[[Batch, list[WorkResult]], None],
        failed: Callable[[Batch, Exception], None],
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._ports = ports
        self._tags = tags_of(name)
        self._call = call
        self._done = done
        self._failed = failed
        self.batches: dict[int, Batch] = {}
        """By number; the engine removes those that have ended."""
        self.launched = 0
        self._look_at = 0.0
        self._looks = ThreadPoolExecutor(1, "kinesis-spout-look")
        self._looking: Future[None] | None = None
        self._handling = HandlingTime()
        self._this_thread = threading.local()
        self._threads = ThreadPoolExecutor(settings.max_concurrent_batches, "kinesis-spout-job")

    @property
    def runs_here(self) -> bool:
        """Return whether this thread runs a batch now. Any thread may ask."""
        return getattr(self._this_thread, "runs", False)

    def launch(self, works: list[WorkSlice], now: float) -> None:
        """Run slices as one batch; without slices the batch only brings the runner's ticks."""
        number = self.launched
        self.launched += 1
        batch = Batch(
            number=number,
            tag=f"{self._tags}-{number}",
            works=works,
            plans=[work.plan for work in works],
            started=now,
        )
        self.batches[number] = batch
        self._threads.submit(self._run, batch)

    def full_until(self, max_batch_seconds: float) -> dict[str, float]:
        """Name the shards of full batches, and until when those may last; monotonic."""
        return {
            plan.shard_id: batch.started + _OVERHEAD_SECONDS + _FULL_LASTS * max_batch_seconds * batch.rounds
            for batch in self.batches.values()
            if batch.is_full
            for plan in batch.plans
        }

    def cancel_all(self) -> None:
        """Cancel the jobs that Spark knows by now. Any thread may call it."""
        for batch in list(self.batches.values()):
            self._runner.cancel(batch.tag)

    def look_for_lost(self, is_lost: Callable[[SlicePlan], bool]) -> None:
        """Shards were lost: find the batches that have no other ones. Any thread, under the consumer's lock."""
        for batch in self.batches.values():
            batch.is_lost = bool(batch.plans) and all(map(is_lost, batch.plans))
        self._look_at = 0.0

    def cancel_late(self, now: float) -> float | None:
        """Cancel what outlived the message time-out, and lost batches. Returns when to look again.

        A lost one that waits for a core, or for a Python worker, would otherwise begin at any time later, and hand
        out what the new owner has handed out; which can be the same consumer.
        """
        timeout = self._settings.batch_timeout_seconds
        late = [batch for batch in self.batches.values() if batch.is_lost]
        if not self.batches or (timeout is None and not late):
            return None
        if now < self._look_at:
            return self._look_at  # Spark is asked about each batch, which costs a millisecond.
        self._look_at = now + _LOOK_SECONDS if timeout is None else now + min(_LOOK_SECONDS, timeout / 10)
        if self._looking is not None:
            if not self._looking.done():
                return self._look_at
            self._looking.result()
        if timeout is not None:
            for batch in self.batches.values():
                if batch.began is not None and now - batch.began > timeout:
                    batch.cancelled_for = f"timed out after {timeout:g} s"
                    late.append(batch)
        # While other jobs have the cluster, no handler is to blame for the time that passes.
        unknown = [batch for batch in self.batches.values() if timeout is not None and batch.began is None]
        if unknown or late:
            self._looking = self._looks.submit(self._look, unknown, late, now)
        return self._look_at

    def _look(self, unknown: list[Batch], late: list[Batch], now: float) -> None:
        """Ask Spark, whose JVM may not answer for long: so on a thread of its own, and without a lock."""
        for batch in unknown:
            batch.began = now if self._runner.has_begun(batch.tag) else None
        for batch in late:
            # Repeated: a cancel misses a job that has not begun yet, or that follows another in its batch.
            self._runner.cancel(batch.tag)

    def close(self) -> None:
        """Launch none of those that still wait for a thread. Does not wait for running ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._looks.shutdown(wait=False, cancel_futures=True)
        self._runner.close()

    def _run(self, batch: Batch) -> None:
        self._this_thread.runs = True
        try:
            is_whole = all(len(work.records) >= len(work.plan.retries) for work in batch.works)
            rereads = {} if is_whole else self._read_missing(batch)
            results = [
                rereads[result.plan.shard_id].complete(result)
                if result.plan.kind is SliceKind.RETRY and result.plan.shard_id in rereads
                else result
                for result in self._run_job(batch)
            ]
        except Exception as error:  # noqa: BLE001 - sorted out on the engine's thread
            self._call(partial(self._failed, batch, error))
        except BaseException as error:  # noqa: BLE001 - unnoticed, the batch would be under way for ever
            unexpected = HandlerBroken(f"the batch was ended by {failure_of(error).error_text}")
            unexpected.__cause__ = error
            self._call(partial(self._failed, batch, unexpected))
        else:
            self._call(partial(self._done, batch, results))
        finally:
            self._this_thread.runs = False

    def _run_job(self, batch: Batch) -> list[WorkResult]:
        """Run what has something to deliver. An empty job that dies would blame records nobody received."""
        if batch.is_lost:
            raise HandlerKilledWorker("its shards were lost before it began")
        works = [work for work in batch.works if work.records or work.plan.kind is SliceKind.READ]
        empty = [work for work in batch.works if not work.records and work.plan.kind is not SliceKind.READ]
        results = [WorkResult(plan=work.plan, outcome=SliceOutcome()) for work in empty]
        if works or not batch.works:
            settings = self._settings
            parallelism = settings.parallelism()
            packs = pack(
                works,
                per_task=settings.shards_per_task,
                parallelism=parallelism,
                handling=self._handling,
                worth_a_task_seconds=self._runner.worth_a_task_seconds,
            )
            batch.rounds = math.ceil(len(packs) / parallelism)
            batch.is_full = self._handling.is_full(
                sum(len(work.records) for work in works),
                reads=any(work.plan.kind is SliceKind.READ for work in works),
            )
            ended = self._runner.run(batch.tag, packs)
            self._handling.took(ended)
            results += ended
        return results

    def _read_missing(self, batch: Batch) -> dict[str, Reread]:
        ports = self._ports
        until = ports.clock.monotonic() + _REREAD_SECONDS
        rereads: dict[str, Reread] = {}
        for at, work in enumerate(batch.works):
            if len(work.records) < len(work.plan.retries):
                reread = rereads[work.plan.shard_id] = read_missing(
                    work, ports.open_rereader or ports.open_getter, ports.clock, until
                )
                batch.works[at] = reread.work
        return rereads


class HandlingTime:
    """An estimate per record. Mutable; concurrent batches can overwrite each other's part, harmlessly."""

    def __init__(self) -> None:
        self._seconds_a_record: float | None = None

    def took(self, results: Iterable[WorkResult]) -> None:
        timed = [each for each in results if each.handling_seconds is not None and each.delivered]
        if not timed:
            return
        newest = sum(each.handling_seconds or 0.0 for each in timed) / sum(each.delivered for each in timed)
        before = self._seconds_a_record
        self._seconds_a_record = newest if before is None else before + _NEWEST_COUNTS * (newest - before)

    def is_full(self, records: int, *, reads: bool) -> bool:
        """Return whether a batch that carries so many records may use up the time of a micro-batch."""
        return reads or (
            self._seconds_a_record is not None and records * self._seconds_a_record > _FULL_SECONDS
        )

    def tasks_worth(self, records: int, worth_a_task_seconds: float) -> float:
        """The number of tasks that so many records are worth; infinite while nothing is known of the handler."""
        if self._seconds_a_record is None:
            return math.inf
        return records * self._seconds_a_record / worth_a_task_seconds


def pack(
    works: Sequence[WorkSlice],
    *,
    per_task: int,
    parallelism: int,
    handling: HandlingTime | None = None,
    worth_a_task_seconds: float = WORTH_A_TASK_SECONDS,
) -> list[list[WorkSlice]]:
    """Spread slices over tasks: every core gets work, with as few tasks beyond that as possible.

    Slices that are read mostly wait for Kinesis, so ``per_task`` of them share a task. Records that travel
    with their slice only need a core, and are spread evenly; if they are the whole batch, over no more tasks
    than they are worth. ``parallelism`` tasks can run at a time. ``handling`` is None if the tasks call no
    handler.
    """
    read = [work for work in works if work.plan.kind is SliceKind.READ]
    carried = [work for work in works if work.plan.kind is not SliceKind.READ]
    cores = parallelism
    if handling is not None and not read:
        worth = handling.tasks_worth(sum(len(work.records) for work in carried), worth_a_task_seconds)
        cores = max(1, math.ceil(min(worth, parallelism)))
    tasks = min(len(works), max(cores, -(-len(read) // per_task)))
    packs = [read[at::tasks] for at in range(tasks)]
    loads = [(len(packed), at) for at, packed in enumerate(packs)]
    heapq.heapify(loads)
    for work in sorted(carried, key=lambda work: len(work.records), reverse=True):
        load, at = loads[0]
        packs[at].append(work)
        heapq.heapreplace(loads, (load + len(work.records), at))
    return packs
