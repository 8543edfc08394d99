"""The pure core: it decides what to read, retry, commit and give up. No I/O, no clock, no threads."""

from shard_state.checkpoint import Checkpoint
from shard_state.lineage import Shard
from shard_state.position import Position, PositionType
from shard_state.sequence_number import SHARD_END, SHARD_START, SequenceNumber

__all__ = [
    "SHARD_END",
    "SHARD_START",
    "Checkpoint",
    "Position",
    "PositionType",
    "SequenceNumber",
    "Shard",
]
