"""Outcomes of a batch that has ended, for its records: acked, retried, given up, or planned again.

When a worker has died, some slices come back with the record that was under way: that one is to blame. The
progress of the others is unknown: they are planned again, and halved if they die alone
(``shard_state.slices.isolation``).
"""

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

from msgspec import structs

from kinesis_spout.model.errors import HandlerKilledWorker, KinesisSpoutError
from kinesis_spout.model.handler import RaisedAt, failure_of, raised_at
from kinesis_spout.model.record import Record
from kinesis_spout.spark.driver.driver_shards import DriverShard, DriverShards
from kinesis_spout.spark.driver.running_batches import Batch
from kinesis_spout.spark.driver.tip_poller import TipPoller
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.jobs import HandlerRaised
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import Fate, Order, RecordState, SequenceNumber, SliceKind

_REREAD_PAUSE_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


class Settling:
    """Applies how batches ended. Mutable; used by the engine's thread only, under the consumer's lock."""

    def __init__(self, shards: DriverShards, tip: TipPoller) -> None:
        self._consumer = shards.consumer
        self._manager = shards.consumer.manager
        self._shards = shards
        self._retry_data = shards.retry_data
        self._tip = tip
        self._settings = shards.settings
        self.deaths = 0
        """The number of jobs that have died since records were handled last."""
        self._outages = 0
        """The number of batches that could not run since one could."""
        self._outage: KinesisSpoutError | None = None
        """Why the last of them could not."""

    def done(
        self, batch: Batch, results: list[WorkResult], now: float, *, stopping: bool
    ) -> list[WorkResult]:
        """Settle the slices of a batch. Returns the results of those whose progress is known."""
        if self._outage is not None:
            _log.info(
                "batch %d could run: what the %d before it needed is there again", batch.number, self._outages
            )
            if self._consumer.last_error is self._outage:
                self._consumer.last_error = None
            self._outages, self._outage = 0, None
        if any(result.delivered > len(result.unfinished) for result in results):
            self.deaths = 0
        self._consumer.counters.batches_timed_out += batch.cancelled_for is not None
        if any(result.speaks_of_death for result in results):
            results = self._judged(batch, results, now, stopping=stopping)
        for result in results:
            self._settle(result, now, batch.started)
        return results

    def died(self, batch: Batch, error: HandlerKilledWorker) -> None:
        """Plan all slices of a batch again: how far they came is unknown."""
        reason = batch.cancelled_for or str(error)
        self._consumer.counters.batches_timed_out += batch.cancelled_for is not None
        _log.warning("batch %d died (%s); its slices are planned again", batch.number, reason)
        self.deaths += not isinstance(error, HandlerRaised)
        # An error of Spark's own client says nothing of the handler.
        cause = error.__cause__ if isinstance(error, HandlerRaised) else None
        raised = None if cause is None else raised_at(cause)
        if cause is not None:
            self._consumer.failures.add(raised, error_text=failure_of(cause).error_text)
        for work in batch.works:
            self._slice_died(work, batch, error, reason, raised)

    def could_not_run(self, batch: Batch, error: KinesisSpoutError) -> None:
        """Plan all slices of a batch again after a rest: something it needs is unavailable at present."""
        self._outages += 1
        rest = self._settings.rest_after(self._settings.quick_deaths + self._outages)
        _log.warning("batch %d could not run, and is tried again in %.1f s: %s", batch.number, rest, error)
        self._consumer.last_error = self._outage = error
        now = self._consumer.now
        for work in batch.works:
            shard = self._shards.of(work.plan)
            if shard is not None:
                shard.schedule(out_at=now + rest)
                self._manager.withdraw(work.plan)

    def _settle(self, result: WorkResult, now: float, started: float) -> None:
        plan, outcome, failures = result.plan, result.outcome, self._consumer.failures
        shard_id = plan.shard_id
        shard = self._shards.of(plan)
        if shard is None:
            return
        if result.error is None and shard.error is not None:
            self._tip.recovered(shard)
        exhausted = self._manager.settle(plan, outcome, now, delivered=result.delivered)
        failed = {failure.sequence: failure.sequence for failure in outcome.failures}
        waiting = [(failed[each.record.sequence], each) for each in result.unfinished]
        self._retry_data.keep(shard_id, ((sequence, each.record) for sequence, each in waiting))
        for raised, count, text in result.kinds_of_failures():
            failures.add(raised, count, error_text=text)
        finished = {retry.sequence for retry in plan.retries} - failed.keys()
        if finished or exhausted:
            self._retry_data.drop(shard_id, finished | {gone.sequence for gone in exhausted})
        records = dict(waiting) if exhausted else {}
        for given_up in exhausted:
            unfinished = records[given_up.sequence]
            self._consumer.dead_letter(given_up, unfinished.record, unfinished.error, unfinished.raised)
        acked = result.delivered - result.failed
        self._count(result, len(exhausted), acked)
        self._measure(result, failed, acked)
        if plan.kind is SliceKind.CARRIED:
            shard.settled(outcome.count)
            self._tip.end_if_carried(shard_id, shard)
        elif plan.kind is SliceKind.READ:
            self._read_settled(shard, result, now, started)
        elif result.error is not None:
            waits = self._tip.reading_failed(shard_id, shard, result.error)
            shard.schedule(out_at=now + max(_REREAD_PAUSE_SECONDS, waits))
        if result.suspects:
            self._manager.suspect(plan, result.suspects)

    def _read_settled(self, shard: DriverShard, result: WorkResult, now: float, started: float) -> None:
        pacing = self._consumer.ports.paces.of(result.plan.shard_id)
        pacing.read_elsewhere(
            started,
            result.bytes_read,
            ready_at=now + result.cursor.wait_seconds,
            throttled_to=result.cursor.throttled_to,
        )
        shard.slice_read(result, pacing.ready_at)
        if result.error is None or result.bytes_read:
            self._consumer.read_errors.worked(result.plan.shard_id)
        if result.error is not None:
            self._tip.reading_failed(result.plan.shard_id, shard, result.error)

    def _count(self, result: WorkResult, exhausted: int, acked: int) -> None:
        counters = self._consumer.counters
        expired = sum(failure.fate is Fate.EXPIRED for failure in result.outcome.failures)
        counters.expired += result.expired
        counters.skipped += result.expired - expired
        counters.delivered += result.delivered
        counters.acked += acked
        counters.retried += result.delivered - acked + result.gone - (exhausted - expired)
        counters.timed_out += result.timed_out
        counters.bytes_read += result.bytes_read
        self._consumer.sharing.read_bytes[result.plan.shard_id] += result.bytes_read
        counters.throttled += result.throttles
        counters.damaged_aggregates += result.damaged_aggregates
        counters.records_outside_shard += result.records_outside_shard
        end, since = result.reached or (None, None)
        self._consumer.reached(result.plan.shard_id, end, since, result.data_losses)

    def _measure(self, result: WorkResult, failed: Collection[SequenceNumber], acked: int) -> None:
        figures, plan = self._consumer.figures, result.plan
        if plan.kind is SliceKind.RETRY:
            for retry in plan.retries:
                if retry.sequence not in failed:
                    figures.attempts.add(retry.attempt)
        elif acked > 0:
            figures.attempts.add(1, acked)
        if result.ages is not None:
            figures.ages.add_counted(result.ages)
        if result.handling_seconds is not None and result.delivered:
            figures.handling.add(result.handling_seconds / result.delivered, result.delivered)

    def _judged(
        self, batch: Batch, results: list[WorkResult], now: float, *, stopping: bool
    ) -> list[WorkResult]:
        """Sort out the slices whose worker died; returns the results of those whose progress is known."""
        if stopping:
            # The record under way when the stop cancelled the job did nothing wrong.
            return [result for result in results if not (result.lost or _killed(result))]
        self.deaths += 1
        reason = batch.cancelled_for or "its worker died"
        if batch.cancelled_for is not None:
            results = [_timed_out(result, reason) for result in results]
            self._consumer.counters.timed_out += sum(len(_killed(result)) for result in results)
        _log.warning("batch %d: %s; what it had finished counts", batch.number, reason)
        works = {(work.plan.shard_id, work.plan.kind): work for work in batch.works}
        error = HandlerKilledWorker(f"batch {batch.number}: {reason}")
        for result in results:
            shard = self._shards.of(result.plan)
            if result.lost:
                self._slice_died(works[result.plan.shard_id, result.plan.kind], batch, error, reason)
            elif shard is not None and result.speaks_of_death:
                shard.schedule(out_at=now + self._settings.rest_after(self.deaths))
        return [result for result in results if not result.lost]

    def _slice_died(
        self,
        work: WorkSlice,
        batch: Batch,
        error: KinesisSpoutError,
        reason: str,
        raised: RaisedAt | None = None,
    ) -> None:
        plan, now = work.plan, self._consumer.now
        shard = self._shards.of(plan)
        if shard is None:
            return
        shard.schedule(out_at=now + self._settings.rest_after(self.deaths))
        shard.failed(error)
        self._consumer.last_error = error
        rules = DeliverySettings(order=Order.UNORDERED, clock=monotonic)
        held = _HeldDelivery(plan, rules)
        held.deliver(work.records, math.inf)
        outcome = held.result().outcome
        before = self._manager.shard(plan.shard_id)
        position = None if before is None else before.position
        known = None if plan.kind is SliceKind.READ else outcome
        if batch.cancelled_for is not None:
            self._consumer.counters.timed_out += self._manager.isolates(plan, known)
        for given_up in self._manager.died(plan, known, now):
            record = next(record for record in work.records if record.sequence == given_up.sequence)
            self._consumer.dead_letter(given_up, record, reason, raised)
            self._retry_data.drop(plan.shard_id, [given_up.sequence])
        if plan.kind is SliceKind.CARRIED and before is not None and before.position != position:
            # They wait now, to be halved.
            own = ((each.record.sequence, each.record) for each in held.unfinished)
            waiting = (pair for pair in own if before.tracker.state(pair[0]) is RecordState.WAITING)
            self._retry_data.keep(plan.shard_id, waiting)
            shard.settled(held.count)
            self._tip.end_if_carried(plan.shard_id, shard)


class _HeldDelivery(SliceDelivery):
    """Holds every record of a slice: presumably none was delivered. Mutable."""

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        del until
        part = run[: self._plan.max_failures - len(self.failures)]
        for record in part:
            self.hold(record)
        return len(part)


def _killed(result: WorkResult) -> set[SequenceNumber]:
    return {failed.sequence for failed in result.outcome.failures if failed.fate is Fate.KILLED_WORKER}


def _timed_out(result: WorkResult, reason: str) -> WorkResult:
    killed = _killed(result)
    unfinished = tuple(
        structs.replace(each, error=reason) if each.record.sequence in killed else each
        for each in result.unfinished
    )
    return replace(result, unfinished=unfinished)
