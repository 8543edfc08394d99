"""Makes results of what a task that died had noted of its slices.

A slice that had ended keeps its result. Of one that was under way the delivery is entered again as it was,
without calling the handler; a READ slice is fetched again for that. One that had not begun has an empty outcome.
So nothing is delivered twice but the record that was under way, and that one is blamed, unless the task died of
something else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from kinesis_spout.handler import Failure
from kinesis_spout.spark.tasks.coalescing.window import Windows
from kinesis_spout.spark.tasks.delivery import DeliverySettings, ReplayedDelivery, SliceDelivery
from kinesis_spout.spark.tasks.journal import Remains
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import SliceKind, SliceOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """How far a slice had come."""

    count: int
    failures: Mapping[int, Failure]
    stand_ins: Mapping[int, int]
    suspects: int = 0


def salvage(
    pack: Sequence[WorkSlice], remains: Remains, settings: TaskSettings, blame: str | None
) -> list[WorkResult]:
    """Give a result for each slice of a task that died.

    Args:
        pack: its slices.
        remains: what it has noted.
        settings: the task's.
        blame: what is said of the record that was under way, if the task died by its own fault; None if something
            else ended it.
    """
    unclear = blame is not None and remains.under_way is None
    results = []
    for number, work in enumerate(pack):
        known = remains.results.get(number)
        if known is not None:
            results.append(known)
        elif unclear:
            results.append(lost(work))
        else:
            results.append(_replay(work, _reached(work, number, remains, blame), settings))
    return results


def lost(work: WorkSlice) -> WorkResult:
    """Give the result of a slice of which nothing is known."""
    return WorkResult(plan=work.plan, outcome=SliceOutcome(), cursor=work.cursor, lost=True)


def _reached(work: WorkSlice, number: int, remains: Remains, blame: str | None) -> _Reached:
    windows = Windows(remains.windows.get(number, ()))
    failures = windows.failures
    failures.update((windows.index_of(at), failed) for at, failed in remains.failures.get(number, {}).items())
    stand_ins = windows.stand_ins
    at = remains.under_way
    if at is None or number != remains.slice_number:
        return _Reached(count=remains.counts[number], failures=failures, stand_ins=stand_ins)
    at = windows.index_of(at)
    if blame is None or remains.together == 1:
        if blame is not None:
            failures[at] = Failure(error_text=blame, killed_worker=True)
        # One that has failed is done with, although no other had begun.
        return _Reached(count=at + (at in failures), failures=failures, stand_ins=stand_ins)
    # Retries that are given back come again in another order.
    suspects = len(work.records) - at if work.plan.kind is SliceKind.RETRY else remains.together
    return _Reached(count=at, failures=failures, stand_ins=stand_ins, suspects=suspects)


def _replay(work: WorkSlice, reached: _Reached, settings: TaskSettings) -> WorkResult:
    if work.plan.kind is SliceKind.READ and not reached.count:
        return WorkResult(
            plan=work.plan, outcome=SliceOutcome(), cursor=work.cursor, suspects=reached.suspects
        )

    def deliver(work: WorkSlice, rules: DeliverySettings) -> SliceDelivery:
        return ReplayedDelivery(work, rules, reached.count, reached.failures, reached.stand_ins)

    (result,) = run_slices([work], replace(settings, max_seconds=inf), deliver)
    return replace(result, suspects=reached.suspects)
