"""The delivery of a slice to a handler that takes several records at a time.

The books are those of ``delivery``. They are written when nothing is under way any more, in the order of the
records, so the order in which records ended has no effect downstream.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final

from kinesis_spout.model.record import Record
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.concurrency.record_schedule import RecordSchedule, RunRules, Verdict
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.journal import MARKS
from shard_state import Order, SlicePlan

_WAIT_SECONDS: Final = 1.0
"""After the time is over, records that wait for their key get this, or a quarter of the time if less."""


class ConcurrentDelivery(SliceDelivery):
    """Delivers to the user's handler, several records at a time. Mutable."""

    def __init__(self, plan: SlicePlan, calls: ConcurrentCalls, settings: DeliverySettings) -> None:
        super().__init__(plan, settings)
        self._calls = calls
        self._notes = settings.notes
        self.handling_seconds: float = 0.0

    def _runs(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """Leave all in one run: what is not delivered must not hold up the records behind it."""
        yield records

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        reached = 0
        while reached < len(run) and self.room and not self._notes.must_stop:
            part = run[reached : reached + MARKS]
            dealt_with = self._hand_over(part, until)
            reached += dealt_with
            if dealt_with < len(part) or self._settings.clock() >= until:
                break
        return reached

    def _hand_over(self, part: Sequence[Record], until: float) -> int:
        plan, order, notes = self._plan, self._settings.order, self._notes
        instead: dict[int, Callable[[Record], None]] = {}
        run = RecordSchedule(
            len(part),
            RunRules(
                concurrency=min(self._calls.concurrency, plan.portion or self._calls.concurrency),
                until=until,
                waits_until=self._waits_until(until),
                max_unfinished=plan.max_failures - len(self.failures),
                max_deliveries=plan.most_deliveries - self.delivered,
                stops_at_failure=order is Order.SHARD,
            ),
            notes,
            notes.begin_run(self.count, len(part)),
            key_of=(lambda at: part[at].partition_key) if order is Order.KEY else None,
            verdict=self._verdict(part, instead),
        )
        began = self._settings.clock()
        self._calls(run, part, notes.tick)
        self.handling_seconds += self._settings.clock() - began
        self._enter(part, run, instead)
        notes.reached(self.count)
        return run.reached

    def _waits_until(self, until: float) -> float:
        return (
            inf if until == inf else until + min(_WAIT_SECONDS, max(0.0, until - self._settings.clock()) / 4)
        )

    def _verdict(
        self, part: Sequence[Record], instead: dict[int, Callable[[Record], None]]
    ) -> Callable[[int], Verdict] | None:
        """Return what decides upon a record when it is its turn, and keeps in ``instead`` how it is entered."""
        age = self._age if self._age is not None and self._age.expires(self.oldest(part)) else None
        if not (self._holes or self._attempts or self._blocked or age):
            return None

        def decide(at: int) -> Verdict:
            record = part[at]
            record.attempt = self._attempts.get(record.sequence, 0) + 1
            how = self._instead_of_delivery(record, age, may_wait=True)
            if how is None:
                return Verdict.DELIVER
            instead[at] = how
            is_finished = how == self.pass_over or (
                how == self.pass_expired and age is not None and age.skips
            )
            return Verdict.PASS if is_finished else Verdict.UNFINISHED

        return decide

    def _enter(
        self, part: Sequence[Record], run: RecordSchedule, instead: dict[int, Callable[[Record], None]]
    ) -> None:
        base, before = self.count, self.last
        for at in sorted([*run.failures, *run.held, *instead]):
            record, failure = part[at], run.failures.get(at)
            self.count, self.last = base + at, part[at - 1].sequence if at else before
            if failure is None:
                instead.get(at, self.hold)(record)
            else:
                self.note_failed(record, failure)
                self.pass_over(record)
        self.delivered += run.begun
        self.count = base + run.reached
        self.last = part[run.reached - 1].sequence if run.reached else before
