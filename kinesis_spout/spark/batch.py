"""One micro-batch: its slices, and how they are packed into tasks."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from kinesis_spout.spark.work import WorkSlice


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
    """Spread slices over tasks: every core gets work, beyond that ``per_task`` slices share a task.

    A Python task costs far more than a slice, so there are no more tasks than that.
    """
    tasks = min(len(works), max(parallelism, -(-len(works) // per_task)))
    return [list(itertools.islice(works, at, None, tasks)) for at in range(tasks)]
