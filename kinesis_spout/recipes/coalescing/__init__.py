"""Coalescing for any program: one in process and at most one waiting for each key, and nobody else.

What it decides is pure: ``table``, ``line`` and ``lines``. Threads, tasks and processes each have a shell around
that; coalescing of records read on Spark is in ``spark/tasks/coalescing``. Begin with ``table``.
"""

from kinesis_spout.recipes.coalescing.counts import CoalescingCounts
from kinesis_spout.recipes.coalescing.open import coalesce_across
from kinesis_spout.recipes.coalescing.processes import ZooKeeperQueueCoordinator
from kinesis_spout.recipes.coalescing.tasks import AsyncQueueCoordinator
from kinesis_spout.recipes.coalescing.threads import QueueCoordinator
from kinesis_spout.recipes.coalescing.turn import Admission, Turn

__all__ = [
    "Admission",
    "AsyncQueueCoordinator",
    "CoalescingCounts",
    "QueueCoordinator",
    "Turn",
    "ZooKeeperQueueCoordinator",
    "coalesce_across",
]
