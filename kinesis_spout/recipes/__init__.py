"""What programs around a queue need beside a consumer: coalescing of requests, a leader, rates by key.

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

_HOMES: Final = {
    "Admission": "kinesis_spout.recipes.coalescing",
    "AsyncQueueCoordinator": "kinesis_spout.recipes.coalescing",
    "CoalescingCounts": "kinesis_spout.recipes.coalescing",
    "HandOver": "kinesis_spout.recipes.leader",
    "KeyedRate": "kinesis_spout.recipes.keyed_rate",
    "Leader": "kinesis_spout.recipes.leader",
    "LeaderCareer": "kinesis_spout.recipes.leader",
    "QueueCoordinator": "kinesis_spout.recipes.coalescing",
    "Term": "kinesis_spout.recipes.leader",
    "Turn": "kinesis_spout.recipes.coalescing",
    "ZooKeeperQueueCoordinator": "kinesis_spout.recipes.coalescing",
    "coalesce_across": "kinesis_spout.recipes.coalescing",
    "stand_for": "kinesis_spout.recipes.leader",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
