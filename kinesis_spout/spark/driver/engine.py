"""The micro-batch engine: plan, run, settle (design: the driver decides, the executors work).

One thread owns everything here. Fetches and jobs run on pools, and queue their outcomes as calls for the
engine's thread. Between calls it starts what can be started: polls of shards at their tip, and batches of
every slice that may go out, up to ``max_concurrent_batches`` at a time over different shards.

A Spark job costs far more than a slice, so what comes at nearly the same time goes out in one: records that
polls bring wait for the other polls that are under way, and retries for others that are about due,
``gather_seconds`` at most, or a few times that while a job runs. While the maximum of jobs runs, everything
gathers anyway.

Records that are pushed come one by one, and the next one's time is unknown. So the first goes out at once,
and what follows closely waits until ``spacing_seconds`` have passed since the last job began: a steady
trickle makes as many jobs a second as that allows, however fast a job is.
"""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.pause_reports import pause_text
from kinesis_spout.consumer.record_age import RecordAge
from kinesis_spout.kinesis.read.getter import Cursor
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.model.errors import HandlerKilledWorker, KinesisSpoutError
from kinesis_spout.spark.driver.batch_progress import batch_progress
from kinesis_spout.spark.driver.batches.batch_slots import BatchSlots
from kinesis_spout.spark.driver.batches.retry_buffer import RetryBuffer
from kinesis_spout.spark.driver.batches.running_batches import Batch, RunningBatches
from kinesis_spout.spark.driver.batches.settling import Settling
from kinesis_spout.spark.driver.delivery_grants import DeliveryGrants
from kinesis_spout.spark.driver.engine_settings import WORTH_A_JOB_BYTES, EngineSettings
from kinesis_spout.spark.driver.polling.driver_shard import DriverShard, HeldPages, shard_of
from kinesis_spout.spark.driver.polling.tip_poller import TipPoller
from kinesis_spout.spark.tasks.jobs import BatchRunner, HandlerRaised, Ticks
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import SliceKind, SlicePlan

_CANCEL_AGAIN_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 1.0
_SHORTEST_WAIT_SECONDS: Final = 0.001
_UNCERTAIN_SECONDS: Final = 0.02
"""How often to check whether ZooKeeper has answered, while the shards can be another's."""
_PATIENCE_WHILE_RUNNING: Final = 8.0
"""While a job runs, records wait so many gather times for polls: a second job would slow both."""
_SPACINGS_WHILE_RUNNING: Final = 2.0
"""While a job runs, pushed records wait so many spacings for its end before another starts."""
_RECENT_PROGRESS: Final = 100

_log = logging.getLogger(__name__)


class MicroBatchEngine:
    """Drives one stream's micro-batches, as its ``OwnershipListener``. State is under the consumer's lock."""

    def __init__(
        self,
        consumer: Consumer,
        runner: BatchRunner,
        settings: EngineSettings,
        name: str,
        *,
        slots: BatchSlots | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._consumer = consumer
        self._manager = consumer.manager
        self._settings = settings
        self._runner = runner
        self._slots = slots or BatchSlots(settings.max_concurrent_batches)
        self._name = name
        self._shards: dict[str, DriverShard] = {}
        self._held = HeldPages()
        self._retry_data = RetryBuffer(lambda: self._max_buffered_bytes // 2)
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._planned: deque[list[SlicePlan]] = deque()
        self._plan_at = 0.0
        """When to plan next, unless polls bring records before; monotonic."""
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._ended = threading.Event()
        self._on_end = on_end
        self.is_done = False
        """Whether the engine has ended because the run has come up to its `until`."""
        self._tip = TipPoller(
            consumer,
            self._shards,
            settings,
            kept_bytes=lambda: self._kept_bytes,
            call=self._calls.put,
            wake=self._wake,
        )
        self._running = RunningBatches(
            runner,
            settings,
            consumer.ports,
            name,
            call=self._calls.put,
            done=self._done,
            failed=self._failed,
        )
        self._settling = Settling(consumer, self._shards, self._retry_data, self._tip, settings)
        self._grants = DeliveryGrants(consumer.deliveries, consumer)
        self._ticks = runner.ticks
        self._thread = threading.Thread(target=self._run, name="kinesis-spout-engine", daemon=True)
        self._counted = Counters()
        """At the newest progress."""
        self.recent_progress: deque[dict[str, Any]] = deque(maxlen=_RECENT_PROGRESS)

    # From outside

    def start(self) -> None:
        self._consumer.start(self)
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Let running jobs end within the time-out, cancel the rest, commit, leave.

        Abandons what no cancel ends (a hanging handler). A handler must not call it: see ``runs_handler``.
        """
        self._stopping.set()
        self._calls.put(_nothing)
        wait = timeout_seconds
        cancelled_at: float | None = None
        while self._thread.ident is not None and not self._ended.wait(wait):
            cancelled_at = cancelled_at or monotonic()
            if monotonic() - cancelled_at > self._settings.abandon_seconds:
                self._abandon()
            # Repeated: a cancel misses a job that has not begun yet, or that follows another in its batch.
            self._running.cancel_all()
            wait = min(_CANCEL_AGAIN_SECONDS, self._settings.abandon_seconds)
        self._close()

    def wait(self, timeout_seconds: float | None) -> bool:
        return self._ended.wait(timeout_seconds)

    @property
    def runs_handler(self) -> bool:
        """Whether this thread runs a batch now: its handler, if it runs on the driver, is the caller."""
        return self._running.runs_here

    @property
    def is_active(self) -> bool:
        return not self._ended.is_set()

    def is_caught_up(self, since: float) -> bool:
        """Whether everything that was in this member's shards at the monotonic time ``since`` is finished."""
        with self._consumer.lock:
            manager = self._manager
            if not manager.idle or manager.unresolved or self._planned:
                return False
            if not self._consumer.sharing.is_settled:
                return False
            # A shard whose end was read has children, which are not read before that is stored.
            return all(
                not shard.at_end and not shard.records and shard.tip_seen_at >= since
                for shard in self._shards.values()
            )

    def status(self) -> dict[str, Any]:
        running, pause = len(self._running), self._consumer.breaker_pause
        message = f"Running {running} micro-batches" if running else "Waiting for records to arrive"
        said = self._consumer.paused_by_operator if pause is None else pause_text(pause)
        if said is not None:
            message = said[0].upper() + said[1:]
        elif not running and (rate_due_at := self._grants.due_at) is not None:
            wait = max(0.0, rate_due_at - self._consumer.now)
            message = f"Waiting {wait:.1f} s for the rate of deliveries"
        return {
            "message": message,
            "isDataAvailable": any(shard.records for shard in list(self._shards.values())),
            "isTriggerActive": running > 0,
        }

    # The ownership listener; called under the lock

    def shards_acquired(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            state = self._manager.shard(shard_id)
            assert state is not None
            self._shards[shard_id] = DriverShard(epoch=state.epoch, held=self._held)
            if self._settings.driver_reads_all:
                self._manager.page_fetched(shard_id, full=False)
            self._tip.look_again(shard_id)
        self._plan_at = self._consumer.now
        self._calls.put(_nothing)

    def shards_lost(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            shard = self._shards.pop(shard_id, None)
            if shard is not None:
                shard.drop_page()
            self._tip.forget(shard_id)
            self._retry_data.drop_shard(shard_id)

    def resumed(self) -> None:
        self._plan_at = self._consumer.now
        self._calls.put(_nothing)

    @property
    def is_full(self) -> bool:
        letters_bytes, most = self._consumer.letters.size_bytes, self._max_buffered_bytes
        return letters_bytes > most // 4 or self._kept_bytes >= most * 3 // 4

    @property
    def _kept_bytes(self) -> int:
        return self._consumer.letters.size_bytes + self._retry_data.size_bytes + self._held.size_bytes

    @property
    def _max_buffered_bytes(self) -> int:
        return self._settings.max_buffered_bytes // self._consumer.sharers

    # The engine's thread

    def _run(self) -> None:
        try:
            while not (self._stopping.is_set() and (self._abandoned.is_set() or not self._running)):
                self._consumer.check()
                with self._consumer.lock:
                    done = self._consumer.run_is_done and not self._running
                    wait = 0.0 if done else self._start_work()
                if done:
                    self._close()
                    self.is_done = True
                    break
                self._make_calls(wait)
        except Exception as error:  # noqa: BLE001 - whatever ended the engine must reach the user
            self._consumer.end_with(error)
            self._leave()
        finally:
            self._tip.stop()
            self._grants.close()
            self._slots.leave(self)
            self._ended.set()
            self._on_end()

    def _close(self) -> None:
        self._tip.close()
        self._running.close()
        self._consumer.close()

    def _leave(self) -> None:
        """Give everything up after an error, so that another consumer can take over at once."""
        self._tip.stop()
        self._running.close()
        self._running.cancel_all()
        self._consumer.close()
        self._running.cancel_all()  # once more, for a job that had not begun yet

    def _abandon(self) -> None:
        """End the engine although batches run. Their records come again."""
        if not self._abandoned.is_set():
            _log.warning(
                "%d batches did not end within %g s after they were cancelled; they are left behind, and their "
                "records come again",
                len(self._running),
                self._settings.abandon_seconds,
            )
            self._abandoned.set()
            self._calls.put(_nothing)

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
        now = self._consumer.now
        due = [self._running.cancel_overdue(now)]
        if self._stopping.is_set():
            self._tip.stop()
            self._slots.withdraw(self)
            return _LONGEST_WAIT_SECONDS
        self._tip.go_on()
        due.append(self._start_batches(now))
        if self._ticks is not None:
            due.append(self._start_tick(self._ticks, now))
        soonest = min((at for at in due if at is not None), default=now + _LONGEST_WAIT_SECONDS)
        return min(_LONGEST_WAIT_SECONDS, max(0.001, soonest - now))

    # Batches

    def _start_batches(self, now: float) -> float | None:
        """Start batches while there is something to do and room for them. Returns when to look again."""
        if not self._consumer.ports.coordinator.is_certain():
            return now + _UNCERTAIN_SECONDS
        while len(self._running) < self._settings.max_concurrent_batches:
            if not self._planned:
                if self._gathered_at > now:
                    return self._gathered_at
                self._plan(now)
                self._plan_at = self._next_plan(now)
            if self._planned and not self._launch_next(now):
                return None  # until a slot is free
        return None

    def _launch_next(self, now: float) -> bool:
        """Launch the oldest plan; False if other streams have all slots. Then this engine is woken."""
        if not self._slots.take(self, self._wake):
            return False
        works = []
        for plan in self._planned.popleft():
            if shard_of(plan, self._shards) is None:
                self._grants.not_sent(plan)
            else:
                works.append(self._work(plan))
        if works:
            if self._ticks is not None:
                self._advance(self._ticks, works, now)
            self._running.launch(works, now)
            self._tip.rests_until = now + self._settings.spacing_seconds
        else:
            self._slots.give_back(self)
        return True

    def _advance(self, ticks: Ticks, works: list[WorkSlice], now: float) -> None:
        """Let a batch bring the ticks that are due; in the breaker's pause it is for the one record in it."""
        if self._manager.breaker.pause is None:
            ticks.advance(now, self._read_to(works))

    def _read_to(self, works: list[WorkSlice]) -> float | None:
        """Up to when everything in the shards has gone out, with these slices; None if more waits."""
        by_shard = {
            shard_id: [work for work in works if work.plan.shard_id == shard_id] for shard_id in self._shards
        }
        if self._planned or not self._consumer.sharing.is_settled:
            return None
        if not all(shard.all_goes_out(by_shard[shard_id]) for shard_id, shard in self._shards.items()):
            return None
        return min((shard.read_to for shard in self._shards.values()), default=None)

    def _start_tick(self, ticks: Ticks, now: float) -> float | None:
        """Start a batch without slices for due ticks; return when to look again.

        Not in a pause: what a tick emits would fail, like the records. Not without a shard: another consumer
        works.
        """
        due_at = ticks.due_at
        if due_at is None or due_at > now:
            return due_at
        manager = self._manager
        is_idle = not (self._running or self._planned) and self._tip.arrived_at is None
        if is_idle and manager.breaker.pause is None and not manager.owned <= manager.paused_shards:
            if self._slots.take(self, self._wake):
                self._advance(ticks, [], now)
                self._running.launch([], now)
            else:
                self._slots.withdraw(self)  # Batches of records go first.
        return None

    def _wake(self) -> None:
        self._calls.put(_nothing)

    @property
    def _gathered_at(self) -> float:
        arrived_at = self._tip.arrived_at
        if arrived_at is None:
            return self._plan_at
        if self._settings.driver_reads_all:
            return self._pushed_gathered_at(arrived_at)
        if not self._tip.is_polling:
            return arrived_at
        patience = _PATIENCE_WHILE_RUNNING if self._running else 1.0
        return arrived_at + patience * self._settings.gather_seconds

    def _pushed_gathered_at(self, arrived_at: float) -> float:
        spacing = self._settings.spacing_seconds
        if self._running:
            return arrived_at + _SPACINGS_WHILE_RUNNING * spacing
        is_worth_a_job = self._held.size_bytes >= WORTH_A_JOB_BYTES
        due_at = arrived_at if is_worth_a_job else max(arrived_at, self._tip.rests_until)
        # Records that came meanwhile are being read, which takes no call: they are here in a moment.
        return due_at + self._settings.gather_seconds if self._tip.is_polling else due_at

    def _next_plan(self, now: float) -> float:
        """When something can be planned, if nothing comes up before."""
        waits = [shard.barred_until for shard in self._shards.values()]
        if self._grants.due_at is not None:
            # Also where it is due already: the rest was possibly not granted yet.
            waits.append(max(self._grants.due_at, now + _SHORTEST_WAIT_SECONDS))
        # The end of a shard's read limits does not concern a shard that the driver reads.
        waits += [
            shard.read_at
            for shard_id, shard in self._shards.items()
            if shard.read_at > now and self._manager.is_for_executors(shard_id)
        ]
        retries_due = self._manager.next_due()
        if retries_due is not None and retries_due > now:
            waits.append(retries_due + self._settings.gather_seconds)
        # What is due already and did not start waits for something else, which wakes the engine.
        return min((at for at in waits if at > now), default=now + _LONGEST_WAIT_SECONDS)

    def _plan(self, now: float) -> None:
        self._tip.arrived_at = self._grants.due_at = None
        shards = self._shards.items()
        letters_bytes, most = self._consumer.letters.size_bytes, self._max_buffered_bytes
        if letters_bytes > most // 2:
            return  # Retries can be read again, and be given up: their data would come on top.
        may_read = letters_bytes <= most // 4
        granted = self._grants.ask(now)
        plans = self._manager.plan(
            now,
            carried={shard_id: len(shard.records) for shard_id, shard in shards},
            resting={shard_id for shard_id, shard in shards if shard.read_at > now or not may_read},
            barred={shard_id for shard_id, shard in shards if shard.barred_until > now},
            most=granted,
            coalesces=self._settings.coalescing is not None,
        )
        if granted is not None:
            self._grants.planned(plans, now)
        together: list[SlicePlan] = []
        for plan in plans:
            if plan.alone or self._is_incomplete(plan):
                self._planned.append([plan])
            else:
                together.append(plan)
        if together:
            self._planned.append(together)

    def _is_incomplete(self, plan: SlicePlan) -> bool:
        """Whether a slice has to be read again first, which takes time that others should not wait for."""
        return any(self._retry_data.get(plan.shard_id, retry.sequence) is None for retry in plan.retries)

    def _work(self, plan: SlicePlan) -> WorkSlice:
        consumer, shard, age = self._consumer, self._shards[plan.shard_id], None
        if self._manager.breaker.pause is None:  # Otherwise nothing is given up now.
            age = RecordAge.of(consumer.config, consumer.ports.clock.time())
        if plan.kind is SliceKind.READ:
            shard.close_getter()
            state = self._manager.shard(plan.shard_id)
            hash_keys = None if state is None else HashKeys.to_check(state.shard)
            cursor = self._paced(shard.cursor, plan.shard_id)
            return WorkSlice(plan=plan, age=age, cursor=cursor, hash_keys=hash_keys)
        if plan.kind is SliceKind.CARRIED:
            return WorkSlice(plan=plan, age=age, records=shard.carried(plan.limit))
        kept = (self._retry_data.get(plan.shard_id, retry.sequence) for retry in plan.retries)
        return WorkSlice(plan=plan, age=age, records=tuple(record for record in kept if record is not None))

    def _paced(self, cursor: Cursor, shard_id: str) -> Cursor:
        """Set how fast executors read on, and not before the driver's own reads since are paid for."""
        paces = self._consumer.ports.paces
        return replace(
            cursor,
            not_before=max(cursor.not_before, paces.not_before(shard_id)),
            pace=paces.elsewhere,
            throttled_to=paces.of(shard_id).throttled_to,
        )

    def _done(self, batch: Batch, results: list[WorkResult]) -> None:
        self._running.remove(batch.number)
        self._slots.give_back(self)
        self._grants.ended(batch.plans, results)
        now = self._consumer.now
        is_whole = all(shard_of(plan, self._shards) is not None for plan in batch.plans)
        if not self._runner.settled(batch.tag, is_whole=is_whole):
            self._settling.died(batch, HandlerRaised("its shards were lost meanwhile"))
            self._look_again(batch.plans, now)
            return
        results = self._settling.done(batch, results, now, stopping=self._stopping.is_set())
        self._look_again(batch.plans, now)
        progress = batch_progress(
            name=self._name,
            stream=self._consumer.config.stream_name,
            number=batch.number,
            seconds=now - batch.started,
            results=results,
            shards=self._shards.values(),
            counters=self._consumer.counters,
            before=self._counted,
            pause=self._manager.breaker.pause,
            paused_shards=self._manager.paused_shards,
            uncommitted=self._consumer.uncommitted,
        )
        self._counted = copy(self._consumer.counters)
        self.recent_progress.append(progress)

    def _failed(self, batch: Batch, error: Exception) -> None:
        self._running.remove(batch.number)
        self._slots.give_back(self)
        self._grants.ended(batch.plans)
        if self._stopping.is_set():
            return
        if isinstance(error, HandlerKilledWorker):
            self._settling.died(batch, error)
        elif isinstance(error, KinesisSpoutError) and error.retriable:
            self._settling.could_not_run(batch, error)
        else:
            self._consumer.end_with(error)
            return
        self._look_again(batch.plans, self._consumer.now)

    def _look_again(self, plans: Iterable[SlicePlan], now: float) -> None:
        self._plan_at = now
        for plan in plans:
            self._tip.look_again(plan.shard_id)


def _nothing() -> None:
    """Wakes the engine's thread."""
