"""How the slices of a batch are spread over tasks.

A Python task costs far more than a slice, and more than handling a few records usually does. So records that
travel with their slices get another task only where it saves more than it costs, by what the handler took lately.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Final

from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import SliceKind

WORTH_A_TASK_SECONDS: Final = 0.01
"""Handling that another task is started for, which costs some 4 ms of CPU."""
_NEWEST_COUNTS: Final = 0.3
"""The part of the estimate that is made of the newest batch."""


class HandlingTime:
    """How long the handler takes for a record, by the batches that ended last. Mutable.

    Batches that end at the same time may overwrite each other's part in the estimate, which does no harm.
    """

    def __init__(self) -> None:
        self._seconds_a_record: float | None = None

    def took(self, results: Iterable[WorkResult]) -> None:
        """Take in what came of a batch. Slices that called no handler say nothing."""
        timed = [each for each in results if each.handling_seconds is not None and each.delivered]
        if not timed:
            return
        newest = sum(each.handling_seconds or 0.0 for each in timed) / sum(each.delivered for each in timed)
        before = self._seconds_a_record
        self._seconds_a_record = newest if before is None else before + _NEWEST_COUNTS * (newest - before)

    def tasks_worth(self, records: int) -> float:
        """Tell how many tasks so many records are worth; without end while nothing is known of the handler."""
        if self._seconds_a_record is None:
            return math.inf
        return records * self._seconds_a_record / WORTH_A_TASK_SECONDS


def pack(
    works: Sequence[WorkSlice], *, per_task: int, parallelism: int, handling: HandlingTime | None = None
) -> list[list[WorkSlice]]:
    """Spread slices over tasks: every core gets work, and as few tasks beyond that as possible.

    Slices that are read wait for Kinesis most of the time, so there are tasks enough that ``per_task`` of them
    share one. Records that travel with their slice only need a core, and are spread evenly; if they are the whole
    batch, over no more tasks than they are worth.

    Args:
        works: the slices.
        per_task: how many slices that are read share a task.
        parallelism: how many tasks can run at a time.
        handling: what is known of the handler; None if it is not called in the tasks.
    """
    read = [work for work in works if work.plan.kind is SliceKind.READ]
    carried = [work for work in works if work.plan.kind is not SliceKind.READ]
    cores = parallelism
    if handling is not None and not read:
        worth = handling.tasks_worth(sum(len(work.records) for work in carried))
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
