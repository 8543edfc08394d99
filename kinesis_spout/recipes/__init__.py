"""For programs with queues: requests coalesced by key, an elected leader, rates by key.

A program may use one of them and nothing else of this package, so the names here are loaded when first used.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.recipes.coalescing import (
        Admission,
        AsyncQueueCoordinator,
        CoalescingCounts,
        QueueCoordinator,
        Turn,
        ZooKeeperQueueCoordinator,
        coalesce_across,
    )
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

_MODULES: Final = {
    "kinesis_spout.recipes.coalescing": (
        "Admission",
        "AsyncQueueCoordinator",
        "CoalescingCounts",
        "QueueCoordinator",
        "Turn",
        "ZooKeeperQueueCoordinator",
        "coalesce_across",
    ),
    "kinesis_spout.recipes.keyed_rate": ("KeyedRate",),
    "kinesis_spout.recipes.leader": ("HandOver", "Leader", "LeaderCareer", "Term", "stand_for"),
}

__getattr__, __dir__ = lazy_names(
    __name__, {name: module for module, names in _MODULES.items() for name in names}
)
