"""The micro-batch engine: plan, run, settle (design: the driver decides, the executors work).

One thread owns everything here. Fetches and jobs run on pools, and put what came of them on a queue, as calls
for the engine's thread to make. Between calls it starts what can be started: polls of shards at their tip, and
batches of every slice that may go out, up to ``max_concurrent_batches`` at a time over different shards.

A Spark job costs far more than a slice, so what comes at nearly the same time goes out in one: records that polls
bring wait for the other polls that are under way, and retries for others that are about due, ``gather_seconds``
at most, or a few times that while a job runs. While all jobs that may run do run, everything gathers by itself.
"""

import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.pause_reports import pause_text
from kinesis_spout.errors import HandlerKilledWorker, KinesisSpoutError
from kinesis_spout.handler import RaisedAt, failure_of, raised_at
from kinesis_spout.kinesis.reactions import reaction_to
from kinesis_spout.spark.driver.batch import Batch, pack
from kinesis_spout.spark.driver.batch_progress import batch_progress
from kinesis_spout.spark.driver.driver_shard import DriverShard
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.driver.reread import Reread, read_missing
from kinesis_spout.spark.driver.retry_buffer import RetryBuffer
from kinesis_spout.spark.driver.tip_poller import TipPoller
from kinesis_spout.spark.tasks.delivery import DeliverySettings, HeldDelivery
from kinesis_spout.spark.tasks.jobs import BatchRunner, HandlerBroken, HandlerRaised
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import Order, RecordState, SequenceNumber, SliceKind, SliceOutcome, SlicePlan

_REREAD_SECONDS: Final = 5.0
"""How long a batch may read again what is to be retried. The rest of it comes later."""
_REREAD_PAUSE_SECONDS: Final = 1.0
_CANCEL_AGAIN_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 1.0
_PATIENCE_WHILE_RUNNING: Final = 8.0
"""How many times the gather time records wait for polls while a job runs: one beside it would slow both."""
_RECENT_PROGRESS: Final = 100

_log = logging.getLogger(__name__)


class MicroBatchEngine:
    """Drives the micro-batches of one query, as its ``OwnershipListener``. State is under the consumer's lock."""

    def __init__(self, consumer: Consumer, runner: BatchRunner, settings: EngineSettings, name: str) -> None:
        self._consumer = consumer
        self._manager = consumer.manager
        self._runner = runner
        self._settings = settings
        self._name = name
        self._shards: dict[str, DriverShard] = {}
        self._retry_data = RetryBuffer(settings.max_buffered_bytes // 2)
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._planned: deque[list[SlicePlan]] = deque()
        self._running: dict[int, Batch] = {}
        self._batches = 0
        self._plan_at = 0.0
        """When to plan next, unless polls bring records before; monotonic."""
        self._look_for_overdue_at = 0.0
        self._deaths = 0
        """How many jobs have died since records were handled last."""
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._ended = threading.Event()
        self._on_job_thread = threading.local()
        self._tip = TipPoller(consumer, self._shards, settings, self._calls.put)
        self._jobs = ThreadPoolExecutor(settings.max_concurrent_batches, "kinesis-spout-job")
        self._thread = threading.Thread(target=self._run, name="kinesis-spout-engine", daemon=True)
        self._counted = Counters()
        """As the newest progress tells it."""
        self.recent_progress: deque[dict[str, Any]] = deque(maxlen=_RECENT_PROGRESS)

    # From outside

    def start(self) -> None:
        """Begin. Raises what the consumer's start raises."""
        self._consumer.start(self)
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Plan nothing more, let what runs end within the time-out, cancel the rest, commit, leave.

        What no cancel ends (a handler that hangs on the driver) is left behind in the end. Not to be called by
        a handler: see ``runs_handler``.
        """
        self._stopping.set()
        self._calls.put(_nothing)
        wait = timeout_seconds
        cancelled_at: float | None = None
        while self._thread.ident is not None and not self._ended.wait(wait):
            cancelled_at = cancelled_at or monotonic()
            if monotonic() - cancelled_at > self._settings.abandon_seconds:
                self._abandon()
            # Again and again: a job that has not begun yet, or follows another in its batch, is not met.
            self._cancel_all()
            wait = min(_CANCEL_AGAIN_SECONDS, self._settings.abandon_seconds)
        self._tip.close()
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self._consumer.close()

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until the engine has ended; False if it has not in that time."""
        return self._ended.wait(timeout_seconds)

    @property
    def runs_handler(self) -> bool:
        """Whether this thread runs a batch now: its handler, if it runs on the driver, is the caller."""
        return getattr(self._on_job_thread, "running", False)

    @property
    def is_active(self) -> bool:
        """Whether the engine works."""
        return not self._ended.is_set()

    def is_caught_up(self, since: float) -> bool:
        """Tell whether everything that was in the stream at the monotonic time ``since`` is finished."""
        with self._consumer.lock:
            manager = self._manager
            if not manager.idle or manager.unresolved or manager.to_acquire() or self._planned:
                return False
            if not self._consumer.children_are_known:
                return False
            # A shard whose end was read has children, which are not read before that is stored.
            return all(
                not shard.at_end and not shard.records and shard.tip_seen_at >= since
                for shard in self._shards.values()
            )

    def status(self) -> dict[str, Any]:
        """Say what the engine is doing, like ``StreamingQuery.status``."""
        running, pause = len(self._running), self._manager.pause
        message = f"Running {running} micro-batches" if running else "Waiting for records to arrive"
        return {
            "message": message if pause is None else pause_text(pause).capitalize(),
            "isDataAvailable": any(shard.records for shard in list(self._shards.values())),
            "isTriggerActive": running > 0,
        }

    # The ownership listener; called under the lock

    def shards_acquired(self, shard_ids: Iterable[str]) -> None:
        """See ``OwnershipListener``."""
        for shard_id in shard_ids:
            state = self._manager.shard(shard_id)
            assert state is not None
            self._shards[shard_id] = DriverShard(epoch=state.epoch)
            self._tip.look_again(shard_id)
        self._plan_at = self._consumer.now
        self._calls.put(_nothing)

    def shards_lost(self, shard_ids: Iterable[str]) -> None:
        """See ``OwnershipListener``."""
        for shard_id in shard_ids:
            self._shards.pop(shard_id, None)
            self._tip.forget(shard_id)
            self._retry_data.drop_shard(shard_id)

    def resumed(self) -> None:
        """See ``OwnershipListener``."""
        self._plan_at = self._consumer.now
        self._calls.put(_nothing)

    @property
    def is_full(self) -> bool:
        """See ``OwnershipListener``."""
        letters_bytes, most = self._consumer.letters.size_bytes, self._settings.max_buffered_bytes
        pages_bytes = sum(shard.size_bytes for shard in self._shards.values())
        held_bytes = letters_bytes + self._retry_data.size_bytes + pages_bytes
        return letters_bytes > most // 4 or held_bytes >= most * 3 // 4

    # The engine's thread

    def _run(self) -> None:
        try:
            while not (self._stopping.is_set() and (self._abandoned.is_set() or not self._running)):
                self._consumer.check()
                with self._consumer.lock:
                    wait = self._start_work()
                self._make_calls(wait)
        except Exception as error:  # noqa: BLE001 - whatever ended the engine must reach the user
            self._consumer.end_with(error)
            self._leave()
        finally:
            self._ended.set()

    def _leave(self) -> None:
        """Give everything up after an error, so that another consumer can take over at once."""
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self._cancel_all()
        self._consumer.close()
        self._cancel_all()  # once more, for a job that had not begun yet

    def _abandon(self) -> None:
        """Let the engine end although batches run. Their records come again."""
        if not self._abandoned.is_set():
            _log.warning(
                "%d batches did not end within %g s after they were cancelled; they are left behind, and their "
                "records come again",
                len(self._running),
                self._settings.abandon_seconds,
            )
            self._abandoned.set()
            self._calls.put(_nothing)

    def _cancel_all(self) -> None:
        for batch in list(self._running.values()):
            self._runner.cancel(batch.tag)

    def _make_calls(self, wait: float) -> None:
        try:
            call = self._calls.get(timeout=wait)
        except queue.Empty:
            return
        with self._consumer.lock:
            while True:
                call()
                try:
                    call = self._calls.get_nowait()
                except queue.Empty:
                    return

    def _start_work(self) -> float:
        """Start what can be started. Returns how long to wait if nothing comes up."""
        now = self._consumer.now
        due = [self._cancel_overdue(now)]
        if self._stopping.is_set():
            return _LONGEST_WAIT_SECONDS
        waiting_bytes = self._retry_data.size_bytes + self._consumer.letters.size_bytes
        due += [self._tip.start_fetches(now, waiting_bytes), self._start_batches(now)]
        soonest = min((at for at in due if at is not None), default=now + _LONGEST_WAIT_SECONDS)
        return min(_LONGEST_WAIT_SECONDS, max(0.001, soonest - now))

    # Batches

    def _start_batches(self, now: float) -> float | None:
        """Start batches while there is something to do and room for them. Returns when to look again."""
        while len(self._running) < self._settings.max_concurrent_batches:
            if not self._planned:
                if self._gathered_at > now:
                    return self._gathered_at
                self._plan(now)
                self._plan_at = self._next_plan(now)
            if self._planned:
                self._launch(self._planned.popleft(), now)
        return None

    @property
    def _gathered_at(self) -> float:
        """When to plan, as far as one can tell now."""
        arrived_at = self._tip.arrived_at
        if arrived_at is None:
            return self._plan_at
        if not self._tip.is_polling:
            return arrived_at
        patience = _PATIENCE_WHILE_RUNNING if self._running else 1.0
        return arrived_at + patience * self._settings.gather_seconds

    def _next_plan(self, now: float) -> float:
        """Tell when something can be planned, although nothing comes up before."""
        waits = [shard.barred_until for shard in self._shards.values()]
        # The end of a shard's read limits says nothing of a shard that the driver reads.
        waits += [
            shard.read_at
            for shard_id, shard in self._shards.items()
            if shard.read_at > now and self._manager.is_for_executors(shard_id)
        ]
        retries_due = self._manager.next_due()
        if retries_due is not None and retries_due > now:
            waits.append(retries_due + self._settings.gather_seconds)
        # What is due already and did not start has to wait for something else: for that one is woken up.
        return min((at for at in waits if at > now), default=now + _LONGEST_WAIT_SECONDS)

    def _plan(self, now: float) -> None:
        self._tip.arrived_at = None
        shards = self._shards.items()
        letters_bytes, most = self._consumer.letters.size_bytes, self._settings.max_buffered_bytes
        if letters_bytes > most // 2:
            return  # Retries may be read again, and be given up: their data would come on top.
        may_read = letters_bytes <= most // 4
        plans = self._manager.plan(
            now,
            carried={shard_id: len(shard.records) for shard_id, shard in shards},
            resting={shard_id for shard_id, shard in shards if shard.read_at > now or not may_read},
            barred={shard_id for shard_id, shard in shards if shard.barred_until > now},
        )
        together: list[SlicePlan] = []
        for plan in plans:
            if plan.alone or self._is_incomplete(plan):
                self._planned.append([plan])
            else:
                together.append(plan)
        if together:
            self._planned.append(together)

    def _is_incomplete(self, plan: SlicePlan) -> bool:
        """Tell whether a slice has to be read again first, which takes time that others should not wait for."""
        return any(self._retry_data.get(plan.shard_id, retry.sequence) is None for retry in plan.retries)

    def _launch(self, plans: list[SlicePlan], now: float) -> None:
        works = [self._work(plan) for plan in plans if self._shard_of(plan) is not None]
        if not works:
            return
        number = self._batches
        self._batches += 1
        batch = Batch(number=number, tag=f"{self._name}-{number}", works=works, started=now)
        self._running[number] = batch
        self._jobs.submit(self._run_batch, batch)

    def _shard_of(self, plan: SlicePlan) -> DriverShard | None:
        """Give the shard of a plan; None if the ownership it was made under has ended."""
        shard = self._shards.get(plan.shard_id)
        return None if shard is None or shard.epoch != plan.epoch else shard

    def _work(self, plan: SlicePlan) -> WorkSlice:
        shard = self._shards[plan.shard_id]
        if plan.kind is SliceKind.READ:
            shard.getter = None
            return WorkSlice(plan=plan, cursor=shard.cursor)
        if plan.kind is SliceKind.CARRIED:
            return WorkSlice(plan=plan, records=shard.carried(plan.limit))
        kept = (self._retry_data.get(plan.shard_id, retry.sequence) for retry in plan.retries)
        return WorkSlice(plan=plan, records=tuple(record for record in kept if record is not None))

    def _run_batch(self, batch: Batch) -> None:
        """Runs on a job thread."""
        self._on_job_thread.running = True
        try:
            rereads = self._read_missing(batch)
            results = [
                rereads[result.plan.shard_id].complete(result)
                if result.plan.kind is SliceKind.RETRY and result.plan.shard_id in rereads
                else result
                for result in self._run_job(batch)
            ]
        except Exception as error:  # noqa: BLE001 - sorted out on the engine's thread
            failure = error
            self._calls.put(lambda: self._batch_failed(batch, failure))
        except BaseException as error:  # noqa: BLE001 - unnoticed, the batch would be under way for ever
            unexpected = HandlerBroken(f"the batch was ended by {failure_of(error).error_text}")
            unexpected.__cause__ = error
            self._calls.put(lambda: self._batch_failed(batch, unexpected))
        else:
            self._calls.put(lambda: self._batch_done(batch, results))
        finally:
            self._on_job_thread.running = False

    def _run_job(self, batch: Batch) -> list[WorkResult]:
        """Run what has something to deliver. A job without, dying, would convict records that nobody saw."""
        works = [work for work in batch.works if work.records or work.plan.kind is SliceKind.READ]
        empty = [work for work in batch.works if not work.records and work.plan.kind is not SliceKind.READ]
        results = [WorkResult(plan=work.plan, outcome=SliceOutcome()) for work in empty]
        if works:
            settings = self._settings
            packs = pack(works, per_task=settings.shards_per_task, parallelism=settings.parallelism)
            results += self._runner.run(batch.tag, packs)
        return results

    def _read_missing(self, batch: Batch) -> dict[str, Reread]:
        ports = self._consumer.ports
        until = ports.clock.monotonic() + _REREAD_SECONDS
        rereads: dict[str, Reread] = {}
        for at, work in enumerate(batch.works):
            if len(work.records) < len(work.plan.retries):
                reread = rereads[work.plan.shard_id] = read_missing(
                    work, ports.open_getter, ports.clock, until
                )
                batch.works[at] = reread.work
        return rereads

    def _batch_done(self, batch: Batch, results: list[WorkResult]) -> None:
        del self._running[batch.number]
        now = self._consumer.now
        results = self._judge(batch, results, now)
        for result in results:
            self._settle(result, now)
        self._look_again(batch, now)
        progress = batch_progress(
            name=self._name,
            stream=self._consumer.config.stream_name,
            number=batch.number,
            seconds=now - batch.started,
            results=results,
            shards=self._shards.values(),
            counters=self._consumer.counters,
            before=self._counted,
            pause=self._manager.pause,
        )
        self._counted = copy(self._consumer.counters)
        self.recent_progress.append(progress)

    def _settle(self, result: WorkResult, now: float) -> None:
        plan, outcome = result.plan, result.outcome
        shard_id = plan.shard_id
        shard = self._shard_of(plan)
        if shard is None:
            return
        if result.error is None:
            self._tip.recovered(shard)
        records = {unfinished.record.sequence: unfinished for unfinished in result.unfinished}
        exhausted = self._manager.settle(plan, outcome, now, delivered=result.delivered)
        for unfinished in result.unfinished:
            self._retry_data.keep(shard_id, unfinished.record)
            self._consumer.failures.add(unfinished.raised)
        failed = {failure.sequence for failure in outcome.failures}
        finished = {retry.sequence for retry in plan.retries} - failed
        self._retry_data.drop(shard_id, finished | {gone.sequence for gone in exhausted})
        for given_up in exhausted:
            unfinished = records[given_up.sequence]
            self._consumer.bury(given_up, unfinished.record, unfinished.error, unfinished.raised)
        self._count(result, len(exhausted))
        if plan.kind is SliceKind.CARRIED:
            shard.settled(outcome.count)
            self._tip.end_if_carried(shard_id, shard)
        elif plan.kind is SliceKind.READ:
            self._read_settled(shard, result, now)
            shard.take_left(result.left)
        elif result.error is not None:
            pause = max(_REREAD_PAUSE_SECONDS, reaction_to(result.error).wait_seconds)
            shard.barred_until = now + pause
            self._tip.reading_failed(shard_id, shard, result.error)
        if result.suspects:
            self._manager.suspect(plan, result.suspects)

    def _read_settled(self, shard: DriverShard, result: WorkResult, now: float) -> None:
        shard.cursor = result.cursor
        wait = max(0.0, result.cursor.not_before - self._consumer.ports.clock.time())
        shard.read_at = shard.next_poll_at = now + wait
        shard.at_end = result.outcome.at_end
        if result.millis_behind_latest is not None:
            shard.millis_behind_latest = result.millis_behind_latest
        if result.trimmed:
            self._tip.trimmed(result.plan.shard_id)
        elif result.outcome.at_end:
            self._consumer.end_was_read()
        if result.error is None or result.bytes_read:
            self._consumer.read_errors.worked(result.plan.shard_id)
        if result.error is not None:
            self._tip.reading_failed(result.plan.shard_id, shard, result.error)

    def _count(self, result: WorkResult, exhausted: int) -> None:
        counters = self._consumer.counters
        failed = sum(not failure.held for failure in result.outcome.failures)
        counters.delivered += result.delivered
        counters.acked += result.delivered - (failed - result.gone)
        counters.retried += failed - exhausted
        counters.bytes_read += result.bytes_read
        counters.throttled += result.throttles

    def _batch_failed(self, batch: Batch, error: Exception) -> None:
        del self._running[batch.number]
        if self._stopping.is_set():
            return
        if not isinstance(error, HandlerKilledWorker):
            self._consumer.end_with(error)
            return
        reason = batch.cancelled_for or str(error)
        if batch.cancelled_for is not None:
            self._consumer.counters.timed_out += 1
        _log.warning("batch %d died (%s); its slices are planned again", batch.number, reason)
        self._deaths += not isinstance(error, HandlerRaised)
        raised = None if error.__cause__ is None else raised_at(error.__cause__)
        self._consumer.failures.add(raised)
        for work in batch.works:
            self._died(work, error, reason, raised)
        self._look_again(batch, self._consumer.now)

    def _judge(self, batch: Batch, results: list[WorkResult], now: float) -> list[WorkResult]:
        """Sort out the slices whose worker died; gives those of which it is known how far they came."""
        if any(result.delivered > len(result.unfinished) for result in results):
            self._deaths = 0
        self._consumer.counters.timed_out += batch.cancelled_for is not None
        if not any(result.lost or result.suspects or _killed(result) for result in results):
            return results
        if self._stopping.is_set():
            # Who was under way when the stop cancelled the job did nothing wrong.
            return [result for result in results if not (result.lost or _killed(result))]
        self._deaths += 1
        reason = batch.cancelled_for or "its worker died"
        if batch.cancelled_for is not None:
            results = [_timed_out(result, reason) for result in results]
        _log.warning("batch %d: %s; what it had finished counts", batch.number, reason)
        works = {(work.plan.shard_id, work.plan.kind): work for work in batch.works}
        error = HandlerKilledWorker(f"batch {batch.number}: {reason}")
        for result in results:
            shard = self._shard_of(result.plan)
            if result.lost:
                self._died(works[result.plan.shard_id, result.plan.kind], error, reason)
            elif shard is not None and (result.suspects or _killed(result)):
                shard.barred_until = now + self._settings.rest_after(self._deaths)
        return [result for result in results if not result.lost]

    def _died(
        self, work: WorkSlice, error: KinesisSpoutError, reason: str, raised: RaisedAt | None = None
    ) -> None:
        """Have a slice planned again of which nobody knows how far it came."""
        plan, now = work.plan, self._consumer.now
        shard = self._shard_of(plan)
        if shard is None:
            return
        shard.barred_until = now + self._settings.rest_after(self._deaths)
        self._consumer.last_error = shard.error = error
        held = HeldDelivery(work, DeliverySettings(order=Order.UNORDERED, clock=monotonic))
        held.deliver(work.records, math.inf)
        outcome = SliceOutcome(
            first=held.first, last=held.last, count=held.count, failures=tuple(held.failures)
        )
        before = self._manager.shard(plan.shard_id)
        position = None if before is None else before.position
        for given_up in self._manager.died(plan, None if plan.kind is SliceKind.READ else outcome, now):
            record = next(record for record in work.records if record.sequence == given_up.sequence)
            self._consumer.bury(given_up, record, reason, raised)
            self._retry_data.drop(plan.shard_id, [given_up.sequence])
        if plan.kind is SliceKind.CARRIED and before is not None and before.position != position:
            # They wait now, to be halved.
            for unfinished in held.unfinished:
                if before.tracker.state(unfinished.record.sequence) is RecordState.WAITING:
                    self._retry_data.keep(plan.shard_id, unfinished.record)
            shard.settled(held.count)
            self._tip.end_if_carried(plan.shard_id, shard)

    def _look_again(self, batch: Batch, now: float) -> None:
        """See to the shards of a batch that has ended: they may be polled, and planned for, again."""
        self._plan_at = now
        for work in batch.works:
            self._tip.look_again(work.plan.shard_id)

    def _cancel_overdue(self, now: float) -> float | None:
        """Cancel what outlived the message time-out. Returns when to look again."""
        timeout = self._settings.batch_timeout_seconds
        if timeout is None or not self._running:
            return None
        if now < self._look_for_overdue_at:
            return self._look_for_overdue_at  # Spark is asked about each batch, which costs a millisecond.
        for batch in self._running.values():
            if batch.began is None:
                # While others have the cluster, no handler is to blame for the time that passes.
                batch.began = now if self._runner.has_begun(batch.tag) else None
            elif now - batch.began > timeout:
                # Each time anew: a job that has not begun yet, or follows another in its batch, is not met.
                batch.cancelled_for = f"timed out after {timeout:g} s"
                self._runner.cancel(batch.tag)
        self._look_for_overdue_at = now + min(_LONGEST_WAIT_SECONDS, timeout / 10)
        return self._look_for_overdue_at


def _killed(result: WorkResult) -> set[SequenceNumber]:
    """Name the record of a slice that was under way when its worker died."""
    return {failed.sequence for failed in result.outcome.failures if failed.killed_worker}


def _timed_out(result: WorkResult, reason: str) -> WorkResult:
    """Say of the record that was under way that it took too long."""
    killed = _killed(result)
    unfinished = tuple(
        replace(each, error=reason) if each.record.sequence in killed else each for each in result.unfinished
    )
    return replace(result, unfinished=unfinished)


def _nothing() -> None:
    """Wakes the engine's thread."""
