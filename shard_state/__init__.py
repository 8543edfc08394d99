"""The pure core: it decides what to read, retry, commit and give up. No I/O, no clock, no threads."""

from shard_state.assignment.assignment import Assignment
from shard_state.assignment.assignment_planner import AssignmentPlanner
from shard_state.assignment.group_member import GroupMember, MemberMode
from shard_state.blame import Blame, Counts, History, Trouble
from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.lineage import Shard, ShardPhase
from shard_state.local_shard.guarantee import Guarantee
from shard_state.local_shard.local_shard_state import Capacity, Emission, LocalShardState
from shard_state.local_shard.shard_slices import SliceLimits
from shard_state.owned_shards import OperatorPause, ShardStatus
from shard_state.position import Position, PositionType, ShardPositions, StartPositions
from shard_state.retries.ordered_retries import Order
from shard_state.retries.retry_policy import Retry, RetryPolicy
from shard_state.run_bounds import RunBounds, ShardBound
from shard_state.sequence_number import SHARD_END, SHARD_START, SequenceNumber
from shard_state.slices.slices import (
    Exhausted,
    Fate,
    OpenRecord,
    Redelivery,
    SliceKind,
    SliceOutcome,
    SlicePlan,
    UnackedRecord,
)
from shard_state.state_manager import PendingCommit, StateManager
from shard_state.tracker.inflight_record_tracker import InflightRecordTracker
from shard_state.tracker.record_life import RecordEvent, RecordState

__all__ = [
    "SHARD_END",
    "SHARD_START",
    "Assignment",
    "AssignmentPlanner",
    "Blame",
    "Capacity",
    "Checkpoint",
    "Counts",
    "Emission",
    "Exhausted",
    "Fate",
    "GroupMember",
    "Guarantee",
    "History",
    "InflightRecordTracker",
    "LocalShardState",
    "MemberMode",
    "OpenRecord",
    "OperatorPause",
    "Order",
    "PendingCommit",
    "Position",
    "PositionType",
    "RecordEvent",
    "RecordState",
    "Redelivery",
    "Retry",
    "RetryPolicy",
    "RunBounds",
    "SequenceNumber",
    "Shard",
    "ShardBound",
    "ShardPhase",
    "ShardPositions",
    "ShardStatus",
    "SliceKind",
    "SliceLimits",
    "SliceOutcome",
    "SlicePlan",
    "StartPositions",
    "StateManager",
    "Trouble",
    "UnackedRecord",
]
