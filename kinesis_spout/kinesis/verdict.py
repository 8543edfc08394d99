"""What an answer really says of a shard: whether it, its stream, or a position in it is gone, or none of them."""

from dataclasses import dataclass
from typing import Final

from kinesis_spout.kinesis.errors import ResourceNotFound
from kinesis_spout.kinesis.naming import shard_text
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import DataLoss, KinesisError, ShardNotFound, Unavailable
from kinesis_spout.ports import ShardLister
from shard_state import Position

CLOCK_SKEW_SECONDS: Final = 300.0
"""So far ahead of the service a clock may be: more, and AWS refuses the signatures made with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInQuestion:
    """A shard of which Kinesis says that something is not there."""

    stream: str
    """Its name, or its ARN."""
    shard_id: str
    lister: ShardLister
    clock: Clock

    def __str__(self) -> str:
        """Name it, for messages."""
        return shard_text(self.stream, self.shard_id)

    def not_found(self, error: ResourceNotFound) -> KinesisError:
        """Find out what it is that was not found, by asking for the list of shards."""
        try:
            listed = {shard.shard_id for shard in self.lister.list_shards()}
        except KinesisError as answer:  # StreamNotFound, or that the lister cannot say now
            return answer
        if self.shard_id in listed:
            return Unavailable(f"{error}; yet the stream lists the shard, so it is tried again")
        return ShardNotFound(
            f"expected shard {self.shard_id!r} among the {len(listed)} that stream {self.stream!r} lists, "
            "but retention has trimmed it away; what was not read of it is gone"
        )

    def position_refused(self, position: Position, error: DataLoss) -> KinesisError:
        """Say what it means that a position was refused."""
        if position.timestamp is not None and self.clock.time() - position.timestamp < CLOCK_SKEW_SECONDS:
            return Unavailable(
                f"{error}; Kinesis refuses times that its own clock has not reached, so the call is repeated. "
                "If this goes on, correct this machine's clock"
            )
        if position.sequence_number is None:
            return KinesisError(str(error))  # not the position: an argument of ours is wrong
        return DataLoss(
            f"cannot read {self} from {position}: it is behind the stream's retention, or not of this "
            f"shard. The records from there to the oldest one left are lost to this application ({error}). "
            "With `fail_on_data_loss=False` reading goes on at the oldest one"
        )
