"""Up to where a bounded run reads each shard.

A bound is a position, the one where a later read goes on: the first record from there on *ends* the shard for this
run. It and all behind it are not handed out, also those that arrived earlier than it, so that what was handed out
is a prefix of the shard, as the checkpoint is. They remain for the next run.

    a time                   the first record that arrived then or later ends the shard
    AT_SEQUENCE_NUMBER       that record ends it
    AFTER_SEQUENCE_NUMBER    the record behind it ends it; that nothing is wanted behind is known before that comes
    LATEST                   everything that was in the shard when the run began is handed out

Perhaps no record comes that ends a shard. So its tip ends it too: an empty answer, at the tip, to a read that
began when nothing more could come that is wanted. Arrival times and the clock here differ, by ``margin_seconds``
at most: with a time the tip counts from so long after it, and LATEST leaves out what arrived more than so long
after the beginning, so that it ends although records go on to come.

A closed shard that has no such record is read to its end, and its children are read up to their own bounds. The
children of a shard that was ended earlier are not read in this run, for it is not finished (invariant 7).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shard_state.position import Position, PositionType
from shard_state.sequence_number import SequenceNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBound:
    """Up to where one shard is read."""

    position: Position
    """A time, or a sequence number."""
    tip_counts_from: float
    """Seconds since the epoch. A read that begins then or later and finds the tip has seen all that is wanted."""

    def ends_before(self, sequence: SequenceNumber, arrived_at: float | None) -> bool:
        """Tell whether a record ends the shard.

        Args:
            sequence: where it is.
            arrived_at: its arrival, in seconds since the epoch. Without one a time says nothing of it.
        """
        if self.position.timestamp is None:
            return self.position.includes(sequence)
        return arrived_at is not None and arrived_at >= self.position.timestamp

    def ends_after(self, last: SequenceNumber) -> bool:
        """Tell whether every record behind ``last`` would end the shard."""
        wanted = self.position.sequence_number
        return wanted is not None and last >= wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBounds:
    """Up to where a run reads the shards of a stream."""

    default: ShardBound
    shards: Mapping[str, ShardBound] = field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls, default: Position, shards: Mapping[str, Position], *, began_at: float, margin_seconds: float
    ) -> "RunBounds":
        """Give the bounds of a run.

        Args:
            default: of the shards that are not named.
            shards: of those that are.
            began_at: when it began, in seconds since the epoch.
            margin_seconds: by how much arrival times and the clock differ at most.
        """

        def bound(position: Position) -> ShardBound:
            if position.type is PositionType.LATEST:
                last = Position.at_timestamp(began_at + margin_seconds)
                return ShardBound(position=last, tip_counts_from=began_at)
            time = position.timestamp
            from_ = began_at if time is None else time + margin_seconds
            return ShardBound(position=position, tip_counts_from=from_)

        return cls(
            default=bound(default), shards={shard_id: bound(each) for shard_id, each in shards.items()}
        )

    def of_shard(self, shard_id: str) -> ShardBound:
        return self.shards.get(shard_id, self.default)
