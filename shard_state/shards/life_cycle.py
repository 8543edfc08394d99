"""The life of a shard, as a table.

    WAITING_FOR_PARENTS --parents over--> READY --acquired--> READING --end read--> AT_END
    AT_END --all finished--> FINISHED --end committed--> OVER
    READING --bound reached--> AT_BOUND

READING, AT_END, FINISHED and AT_BOUND are the owned states: losing the ownership leads to LOST, and the next owner
of the shard begins at READING from what is stored. At its bound a shard is read no further by this run
(``run_bounds``); nothing is stored of that. A shard found over in the store is OVER at once. Only
OVER, which is in the store, lets the children begin (invariants 7, 8).
"""

from enum import Enum, auto
from typing import Final


class ShardPhase(Enum):
    """Where a shard stands in its life, as one consumer sees it."""

    WAITING_FOR_PARENTS = auto()
    READY = auto()
    READING = auto()
    AT_END = auto()
    AT_BOUND = auto()
    FINISHED = auto()
    OVER = auto()
    LOST = auto()


class ShardEvent(Enum):
    """What may happen to a shard."""

    PARENTS_OVER = auto()
    ACQUIRED = auto()
    END_READ = auto()
    BOUND_REACHED = auto()
    ALL_FINISHED = auto()
    END_COMMITTED = auto()
    FOUND_OVER = auto()
    OWNERSHIP_LOST = auto()


_P, _E = ShardPhase, ShardEvent

TRANSITIONS: Final[dict[tuple[ShardPhase, ShardEvent], ShardPhase]] = {
    **{(phase, event): phase for phase in _P for event in _E},
    **{(phase, _E.FOUND_OVER): _P.OVER for phase in _P},
    (_P.WAITING_FOR_PARENTS, _E.PARENTS_OVER): _P.READY,
    (_P.READY, _E.ACQUIRED): _P.READING,
    (_P.LOST, _E.ACQUIRED): _P.READING,
    (_P.READING, _E.END_READ): _P.AT_END,
    (_P.READING, _E.BOUND_REACHED): _P.AT_BOUND,
    (_P.AT_END, _E.ALL_FINISHED): _P.FINISHED,
    (_P.FINISHED, _E.END_COMMITTED): _P.OVER,
    **{(phase, _E.OWNERSHIP_LOST): _P.LOST for phase in (_P.READING, _P.AT_END, _P.FINISHED, _P.AT_BOUND)},
}
"""Total: every phase answers every event; a pair that maps to its own phase changes nothing."""

ACQUIRABLE: Final = frozenset({ShardPhase.READY, ShardPhase.LOST})
"""The phases in which this consumer may try to become the owner."""


def next_phase(phase: ShardPhase, event: ShardEvent) -> ShardPhase:
    return TRANSITIONS[phase, event]
