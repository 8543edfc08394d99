"""Coalescing for any program: for each key one request in process and at most one waiting.

The decisions are pure: ``line`` and ``lines``. ``in_process`` waits for turns, in threads or tasks;
``processes`` over ZooKeeper. ``spark.tasks.coalescing`` coalesces records on Spark. Begin with ``line``.
"""

from kinesis_spout.recipes.coalescing.in_process import AsyncQueueCoordinator, QueueCoordinator
from kinesis_spout.recipes.coalescing.lines import CoalescingCounts
from kinesis_spout.recipes.coalescing.processes import ZooKeeperQueueCoordinator, coalesce_across
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
