"""One micro-batch: its slices, and how they are packed into tasks."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from kinesis_spout.spark.tasks.work import WorkSlice
from shard_state import SliceKind


@dataclass(slots=True, kw_only=True)
class Batch:
    """A micro-batch from its plan to its end. Mutable."""

    number: int
    tag: str
    works: list[WorkSlice]
    started: float
    """Monotonic."""
    began: float | None = None
    """When its first task was seen to run; its time-out counts from there."""
    cancelled_for: str | None = None
    """Why it was cancelled; None if it was not."""


def pack(works: Sequence[WorkSlice], *, per_task: int, parallelism: int) -> list[list[WorkSlice]]:
    """Spread slices over tasks: every core gets work, and as few tasks beyond that as possible.

    A Python task costs far more than a slice. Slices that are read wait for Kinesis most of the time, so there are
    tasks enough that ``per_task`` of them share one; records that travel with their slice only need a core, and
    are spread evenly.
    """
    read = [work for work in works if work.plan.kind is SliceKind.READ]
    carried = [work for work in works if work.plan.kind is not SliceKind.READ]
    tasks = min(len(works), max(parallelism, -(-len(read) // per_task)))
    packs = [read[at::tasks] for at in range(tasks)]
    loads = [(len(packed), at) for at, packed in enumerate(packs)]
    heapq.heapify(loads)
    for work in sorted(carried, key=lambda work: len(work.records), reverse=True):
        load, at = loads[0]
        packs[at].append(work)
        heapq.heapreplace(loads, (load + len(work.records), at))
    return packs
