"""Coalescing for any program: one in process and at most one waiting for each key, and nobody else.

What it decides is pure: ``line`` and ``lines``. ``in_process`` waits for turns, in threads or tasks; ``processes``
does over ZooKeeper. Coalescing of records read on Spark is in ``spark.tasks.coalescing``. Begin with ``line``.
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
