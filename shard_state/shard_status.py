"""One shard as its consumer sees it, for people and metrics."""

from dataclasses import dataclass

from shard_state.sequence_number import SequenceNumber
from shard_state.shards.life_cycle import ShardPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """One shard as this consumer sees it, for people and metrics."""

    shard_id: str
    phase: ShardPhase
    epoch: int = 0
    checkpoint: SequenceNumber | None = None
    in_flight: int = 0
    waiting: int = 0
    exhausted: int = 0
    holes: int = 0
    congested: bool = False
    paused_by_operator: bool = False
    """Whether an operator has paused it."""
