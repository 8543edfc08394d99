"""For programs with queues: requests coalesced by key, an elected leader, rates by key.

A program may use one of them and nothing else of this package, so the names here are loaded when first used.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.extras import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.recipes.coalescing.in_process import AsyncQueueCoordinator, QueueCoordinator
    from kinesis_spout.recipes.coalescing.lines import CoalescingCounts
    from kinesis_spout.recipes.coalescing.processes import ZooKeeperQueueCoordinator, coalesce_across
    from kinesis_spout.recipes.coalescing.turn import Admission, Turn
    from kinesis_spout.recipes.keyed_rate import KeyedRate
    from kinesis_spout.recipes.leader import HandOver, Leader, LeaderCareer, Term, stand_for

__all__ = [
    "Admission",
    "AsyncQueueCoordinator",
    "CoalescingCounts",
    "HandOver",
    "KeyedRate",
    "Leader",
    "LeaderCareer",
    "QueueCoordinator",
    "Term",
    "Turn",
    "ZooKeeperQueueCoordinator",
    "coalesce_across",
    "stand_for",
]

_NAMES: Final = {
    "kinesis_spout.recipes.coalescing.in_process": ("AsyncQueueCoordinator", "QueueCoordinator"),
    "kinesis_spout.recipes.coalescing.lines": ("CoalescingCounts",),
    "kinesis_spout.recipes.coalescing.processes": ("ZooKeeperQueueCoordinator", "coalesce_across"),
    "kinesis_spout.recipes.coalescing.turn": ("Admission", "Turn"),
    "kinesis_spout.recipes.keyed_rate": ("KeyedRate",),
    "kinesis_spout.recipes.leader": ("HandOver", "Leader", "LeaderCareer", "Term", "stand_for"),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
