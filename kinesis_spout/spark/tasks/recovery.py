"""Makes results of the notes that a dead task left about its slices.

A slice that had ended keeps its result. The delivery of one that was under way is entered again as it was,
without calling the handler; a READ slice is fetched again for that. One that had not begun has an empty
outcome. So nothing is delivered twice but the record that was under way, and that one is blamed, unless the
task died of something else.

If several were under way, which one is to blame is unknown: they are held, and come again one at a time. So
each of them has one more delivery, and the next death blames one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.spark.concurrency.record_schedule import NOT_BEGUN
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.journal import Remains
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import SliceKind, SliceOutcome, SlicePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """The progress of a slice. Records are named by their index in it."""

    count: int
    """Records dealt with."""
    failures: Mapping[int, Failure | None]
    """Failures by index; None for held records."""
    suspects: int = 0
    """The number of the following records that were under way together."""
    suspected: Collection[int] = ()
    """The held records that were under way, one by one."""


class _ReplayedDelivery(SliceDelivery):
    """Enters how far another delivery of the slice came before its worker died. Calls no handler. Mutable."""

    def __init__(self, plan: SlicePlan, settings: DeliverySettings, reached: _Reached) -> None:
        super().__init__(plan, settings)
        self._reached = reached

    @property
    def room(self) -> bool:
        # Its progress is known, whatever has failed by then.
        return self.count < self._reached.count

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        del until  # what was done took its time already
        part = run[: max(0, self._reached.count - self.count)]
        for record in part:
            if self.count in self._reached.failures and self._reached.failures[self.count] is None:
                self.hold(record, suspected=self.count in self._reached.suspected)
            else:
                failure = self._reached.failures.get(self.count)
                if failure is not None:
                    self.note_failed(record, failure)
                self.delivered += 1
                self.pass_over(record)
        return len(part)


def recover(
    pack: Sequence[WorkSlice],
    remains: Remains,
    settings: TaskSettings,
    blame: str | None,
    *,
    hangs: bool = False,
) -> list[WorkResult]:
    """A result for each slice of a dead task.

    ``blame`` is the error for the record under way; None if the task did not die by its own fault. ``hangs``:
    its records took too long, and all that were under way are to blame.
    """
    unclear = blame is not None and remains.under_way is None and not remains.suspects
    results = []
    for number, work in enumerate(pack):
        known = remains.results.get(number)
        if known is not None:
            results.append(known)
        elif unclear:
            results.append(lost(work))
        else:
            results.append(_replay(work, _reached(work, number, remains, blame, hangs=hangs), settings))
    return results


def lost(work: WorkSlice) -> WorkResult:
    return WorkResult(plan=work.plan, outcome=SliceOutcome(), cursor=work.cursor, lost=True)


def _reached(work: WorkSlice, number: int, remains: Remains, blame: str | None, *, hangs: bool) -> _Reached:
    if remains.marks and number == remains.slice_number:
        return _reached_by_marks(remains, dict(remains.failures.get(number, {})), blame, hangs=hangs)
    failures = dict(remains.failures.get(number, {}))
    at = remains.under_way
    if at is None or number != remains.slice_number:
        return _Reached(count=remains.counts[number], failures=failures)
    if blame is None or remains.together == 1:
        if blame is not None:
            failures[at] = Failure(error_text=blame, killed_worker=True)
        # One that has failed is done with, although no other had begun.
        return _Reached(count=at + (at in failures), failures=failures)
    # Retries that are returned come again in another order.
    suspects = len(work.records) - at if work.plan.kind is SliceKind.RETRY else remains.together
    return _Reached(count=at, failures=failures, suspects=suspects)


def _reached_by_marks(
    remains: Remains, failures: dict[int, Failure | None], blame: str | None, *, hangs: bool
) -> _Reached:
    count, suspects = remains.marked_from + len(remains.marks), remains.suspects
    for at, mark in enumerate(remains.marks, remains.marked_from):
        if mark == NOT_BEGUN:  # it waited for its key; or it is passed over again
            failures.setdefault(at, None)
    if blame is not None and (hangs or len(suspects) == 1):
        failures |= dict.fromkeys(suspects, Failure(error_text=blame, killed_worker=True))
        return _Reached(count=count, failures=failures)
    failures |= dict.fromkeys(suspects)
    return _Reached(count=count, failures=failures, suspected=() if blame is None else frozenset(suspects))


def _replay(work: WorkSlice, reached: _Reached, settings: TaskSettings) -> WorkResult:
    if work.plan.kind is SliceKind.READ and not reached.count:
        return WorkResult(
            plan=work.plan, outcome=SliceOutcome(), cursor=work.cursor, suspects=reached.suspects
        )

    def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
        return _ReplayedDelivery(plan, rules, reached)

    (result,) = run_slices([work], replace(settings, max_seconds=inf), deliver)
    return replace(result, suspects=reached.suspects)
