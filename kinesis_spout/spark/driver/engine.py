"""The micro-batch engine: plan, run, settle (design: the driver decides, the executors work).

One thread owns everything here. Fetches and jobs run on pools, and queue their outcomes as calls for the
engine's thread. Between calls it starts what can be started: polls of shards at their tip, and batches of
every slice that may go out, up to ``max_concurrent_batches`` at a time over different shards.
"""

import logging
import queue
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from time import monotonic
from typing import Any, Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.ports import LONGEST_TURN_SECONDS, ShardReading
from kinesis_spout.consumer.trouble_reports import trouble_text
from kinesis_spout.model.errors import HandlerKilledWorker, KinesisSpoutError
from kinesis_spout.spark.driver.batch_progress import batch_progress
from kinesis_spout.spark.driver.batch_slots import BatchSlots
from kinesis_spout.spark.driver.driver_shards import DriverShard, DriverShards
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.driver.planning import BatchPlanner
from kinesis_spout.spark.driver.running_batches import Batch, RunningBatches
from kinesis_spout.spark.driver.settling import Settling
from kinesis_spout.spark.driver.shard_reading import ReadState
from kinesis_spout.spark.driver.tip_poller import TipPoller
from kinesis_spout.spark.tasks.jobs import BatchRunner, HandlerRaised, Ticks
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import SliceKind, SlicePlan

_CANCEL_AGAIN_SECONDS: Final = 0.5
_CAUGHT_UP_CHECK_SECONDS: Final = 0.05
_UNCERTAIN_SECONDS: Final = 0.02
"""The interval at which to check whether ZooKeeper has answered, while the shards can be another's."""
_RECENT_PROGRESS: Final = 100

_log = logging.getLogger(__name__)


def _nothing() -> None:
    """Wakes the engine's thread."""


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
        on_end: Callable[[], None] = _nothing,
    ) -> None:
        self.consumer = consumer
        self.run_id = str(uuid.uuid4())
        self._manager = consumer.manager
        self._settings = settings
        self._runner = runner
        self._slots = slots or BatchSlots(settings.max_concurrent_batches)
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = partial(self._calls.put, _nothing)
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._ended = threading.Event()
        self._on_end = on_end
        self.is_done = False
        """True if the engine has ended because the run has come up to its `until`."""
        self._shards = DriverShards(consumer, settings)
        self._tip = TipPoller(self._shards, call=self._calls.put, wake=self._wake)
        self._planner = BatchPlanner(self._shards, self._tip)
        self._running = RunningBatches(
            runner,
            settings,
            consumer.ports,
            name,
            call=self._calls.put,
            done=self._done,
            failed=self._failed,
        )
        self._settling = Settling(self._shards, self._tip)
        self._ticks = runner.ticks
        self._thread = threading.Thread(target=self._run, name="kinesis-spout-engine", daemon=True)
        self.turned_at: float | None = None
        """When the engine's thread was here last; monotonic. None before its first turn and after its last."""
        self._counted = Counters()
        """At the newest progress."""
        self.recent_progress: deque[dict[str, Any]] = deque(maxlen=_RECENT_PROGRESS)

    # From outside

    def start(self) -> None:
        self.consumer.start(self)
        self._thread.start()

    def close(self) -> None:
        """Let running jobs end within `stop_timeout_seconds`, cancel the rest, commit, leave. May be called twice.

        Abandons what no cancel ends (a hanging handler). A handler must not call it: see ``runs_handler``.
        """
        self._stopping.set()
        self._wake()
        wait = self.consumer.config.stop_timeout_seconds
        cancelled_at: float | None = None
        while self._thread.ident is not None and not self._ended.wait(wait):
            cancelled_at = cancelled_at or monotonic()
            if monotonic() - cancelled_at > self._settings.abandon_seconds:
                self._abandon()
            # Repeated: a cancel misses a job that has not begun yet, or that follows another in its batch.
            self._running.cancel_all()
            wait = min(_CANCEL_AGAIN_SECONDS, self._settings.abandon_seconds)
        self._leave()

    def wait(self, timeout_seconds: float | None) -> bool:
        return self._ended.wait(timeout_seconds)

    @property
    def runs_handler(self) -> bool:
        """Return whether this thread runs a batch now: its handler, if it runs on the driver, is the caller."""
        return self._running.runs_here

    @property
    def is_active(self) -> bool:
        return not self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        return self.consumer.fatal

    def await_caught_up(self) -> None:
        """Wait until everything that is in the stream now is finished; raises what ended the stream."""
        since = self.consumer.now
        while not self._ended.wait(_CAUGHT_UP_CHECK_SECONDS):
            if self.is_caught_up(since):
                return
        self.consumer.check()

    def is_caught_up(self, since: float) -> bool:
        """Return whether all that was in this member's shards at the monotonic time ``since`` is finished."""
        with self.consumer.lock:
            manager = self._manager
            if not manager.idle or manager.unresolved or self._planner.planned:
                return False
            if not self.consumer.sharing.is_settled:
                return False
            # A shard whose end was read has children, which are not read before that is stored.
            return all(
                shard.reading is not ReadState.ENDED and not shard.records and shard.view.tip_seen_at >= since
                for shard in self._shards.by_id.values()
            )

    def status(self) -> dict[str, Any]:
        running, trouble = len(self._running.batches), self.consumer.trouble
        message = f"Running {running} micro-batches" if running else "Waiting for records to arrive"
        said = self.consumer.paused_by_operator if trouble is None else trouble_text(trouble)
        if said is not None:
            message = said[0].upper() + said[1:]
        elif not running and (rate_due_at := self._planner.grants.due_at) is not None:
            wait = max(0.0, rate_due_at - self.consumer.now)
            message = f"Waiting {wait:.1f} s for the rate of deliveries"
        return {
            "message": message,
            "isDataAvailable": any(shard.records for shard in list(self._shards.by_id.values())),
            "isTriggerActive": running > 0,
        }

    # The ownership listener; called under the lock

    def shards_acquired(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            state = self._manager.shard(shard_id)
            assert state is not None
            self._shards.by_id[shard_id] = DriverShard(state.epoch, self._shards.held)
            if self._settings.driver_reads_all:
                self._manager.page_fetched(shard_id, full=False)
            self._tip.look_again(shard_id)
        self._planner.plan_at = self.consumer.now
        self._wake()

    def shards_lost(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            shard = self._shards.by_id.pop(shard_id, None)
            if shard is not None:
                shard.drop_page()
            self._tip.forget(shard_id)
            self._shards.retry_data.drop_shard(shard_id)
        self._running.look_for_lost(lambda plan: self._shards.of(plan) is None)
        self._wake()

    def resumed(self) -> None:
        self._planner.plan_at = self.consumer.now
        self._wake()

    @property
    def readings(self) -> Mapping[str, ShardReading]:
        busy = self._running.full_until(self.consumer.config.max_batch_seconds)
        return {
            shard_id: ShardReading(
                shard.view.millis_behind_latest,
                bool(shard.records),
                self._tip.reading_since(shard_id),
                busy.get(shard_id),
            )
            for shard_id, shard in self._shards.by_id.items()
        }

    @property
    def buffered_bytes(self) -> int:
        return self._shards.kept_bytes()

    @property
    def is_full(self) -> bool:
        letters_bytes, most = self.consumer.letters.size_bytes, self._shards.max_bytes()
        return letters_bytes > most // 4 or self._shards.kept_bytes() >= most * 3 // 4

    # The engine's thread

    def _run(self) -> None:
        try:
            while not (self._stopping.is_set() and (self._abandoned.is_set() or not self._running.batches)):
                self.consumer.check()
                self.turned_at = self.consumer.now
                with self.consumer.lock:
                    done = self.consumer.run_is_done and not self._running.batches
                    wait = 0.0 if done else self._start_work()
                if done:
                    self.turned_at = None
                    self._leave()
                    self.is_done = True
                    break
                self._make_calls(wait)
        except Exception as error:  # noqa: BLE001 - whatever ended the engine must reach the user
            self.consumer.end_with(error)
            self._leave_at_once()
        finally:
            self.turned_at = None
            self._tip.stop()
            self._tip.polls.close()
            self._planner.grants.close()
            self._slots.leave(self)
            self._ended.set()
            self._on_end()

    def _leave(self) -> None:
        self._tip.polls.close()
        self._running.close()
        self.consumer.close()

    def _leave_at_once(self) -> None:
        """Give everything up after an error, so that another consumer can take over at once."""
        self._tip.stop()
        self._running.close()
        self._running.cancel_all()
        self.consumer.close()
        self._running.cancel_all()  # once more, for a job that had not begun yet

    def _abandon(self) -> None:
        """End the engine although batches run. Their records come again."""
        if not self._abandoned.is_set():
            _log.warning(
                "%d batches did not end within %g s after they were cancelled; they are left behind, and their "
                "records come again",
                len(self._running.batches),
                self._settings.abandon_seconds,
            )
            self._abandoned.set()
            self._wake()

    def _make_calls(self, wait: float) -> None:
        try:
            call = self._calls.get(timeout=wait)
        except queue.Empty:
            return
        with self.consumer.lock:
            while True:
                call()
                self.turned_at = self.consumer.now
                try:
                    call = self._calls.get_nowait()
                except queue.Empty:
                    return

    def _start_work(self) -> float:
        now = self.consumer.now
        due = [self._running.cancel_late(now)]
        if self._stopping.is_set():
            self._tip.stop()
            self._slots.withdraw(self)
            return LONGEST_TURN_SECONDS
        if self._tip.room.parked:
            self._tip.go_on()
        due.append(self._start_batches(now))
        if self._ticks is not None:
            due.append(self._start_tick(self._ticks, now))
        soonest = min((at for at in due if at is not None), default=now + LONGEST_TURN_SECONDS)
        return min(LONGEST_TURN_SECONDS, max(0.001, soonest - now))

    # Batches

    def _start_batches(self, now: float) -> float | None:
        """Start batches while there is something to do and room for them. Returns when to look again."""
        if not self.consumer.ports.coordinator.is_certain():
            return now + _UNCERTAIN_SECONDS
        planner = self._planner
        while len(self._running.batches) < self._settings.max_concurrent_batches:
            if not planner.planned:
                due_at = planner.due_at(while_running=bool(self._running.batches))
                if due_at > now:
                    return due_at
                planner.plan(now)
            if planner.planned and not self._launch_next(now):
                return None  # until a slot is free
        return None

    def _launch_next(self, now: float) -> bool:
        """Launch the oldest plan; False if other streams have all slots. Then this engine is woken."""
        if not self._slots.take(self, self._wake):
            return False
        works = []
        for plan in self._planner.planned.popleft():
            if self._shards.of(plan) is None:
                self._planner.grants.not_sent(plan)
            else:
                works.append(self._shards.work(plan))
        if works:
            if self._ticks is not None:
                self._advance(self._ticks, works, now)
            self._running.launch(works, now)
            self._tip.rests_until = now + self._settings.spacing_seconds
        else:
            self._slots.give_back(self)
        return True

    def _advance(self, ticks: Ticks, works: list[WorkSlice], now: float) -> None:
        """Let a batch bring the ticks that are due; not while deliveries are slow, for those few records."""
        if not self._manager.blame.is_slowed:
            ticks.advance(now, self._read_to(works))

    def _read_to(self, works: list[WorkSlice]) -> float | None:
        """Up to when everything in the shards has gone out, with these slices; None if more waits."""
        if self._planner.planned or not self.consumer.sharing.is_settled:
            return None
        for shard_id, shard in self._shards.by_id.items():
            if not shard.all_goes_out(work for work in works if work.plan.shard_id == shard_id):
                return None
        return min((shard.view.read_to for shard in self._shards.by_id.values()), default=None)

    def _start_tick(self, ticks: Ticks, now: float) -> float | None:
        """Start a batch without slices for due ticks; return when to look again.

        Not while deliveries are slow: what a tick emits would fail, like the records. Not without a shard:
        another consumer works.
        """
        due_at = ticks.due_at
        if due_at is None or due_at > now:
            return due_at
        manager = self._manager
        is_idle = not (self._running.batches or self._planner.planned) and self._tip.arrived_at is None
        if is_idle and not manager.blame.is_slowed and not manager.owned <= manager.paused_shards:
            if self._slots.take(self, self._wake):
                self._advance(ticks, [], now)
                self._running.launch([], now)
            else:
                self._slots.withdraw(self)  # Batches of records go first.
        return None

    def _done(self, batch: Batch, results: list[WorkResult]) -> None:
        del self._running.batches[batch.number]
        self._slots.give_back(self)
        self._planner.grants.ended(batch.plans, results)
        now = self.consumer.now
        is_whole = all(self._shards.of(plan) is not None for plan in batch.plans)
        if not self._runner.settled(batch.tag, is_whole=is_whole):
            self._settling.died(batch, HandlerRaised("its shards were lost meanwhile"))
            self._look_again(batch.plans, now)
            return
        results = self._settling.done(batch, results, now, stopping=self._stopping.is_set())
        self._look_again(batch.plans, now)
        progress = batch_progress(
            name=self._name,
            number=batch.number,
            started=batch.started,
            results=results,
            shards=self._shards,
            before=self._counted,
        )
        self._counted = copy(self.consumer.counters)
        self.recent_progress.append(progress)

    def _failed(self, batch: Batch, error: Exception) -> None:
        del self._running.batches[batch.number]
        self._slots.give_back(self)
        self._planner.grants.ended(batch.plans)
        if self._stopping.is_set():
            return
        if isinstance(error, HandlerKilledWorker):
            if not batch.is_lost:
                self._settling.died(batch, error)
        elif isinstance(error, KinesisSpoutError) and error.retriable:
            self._settling.could_not_run(batch, error)
        else:
            self.consumer.end_with(error)
            return
        self._look_again(batch.plans, self.consumer.now)

    def _look_again(self, plans: Iterable[SlicePlan], now: float) -> None:
        self._planner.plan_at = now
        for plan in plans:
            shard = self._shards.of(plan)
            if shard is not None and plan.kind is SliceKind.READ:
                shard.slice_over()
            self._tip.look_again(plan.shard_id)
