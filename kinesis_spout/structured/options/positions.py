"""Where a read begins and ends, shard by shard.

An end is written as a position, too: the one where a later read would go on. What that read would give first
is the first record that is *not* read: at a time or AT_SEQUENCE_NUMBER the record itself is left out,
AFTER_SEQUENCE_NUMBER it is the last one read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from kinesis_spout.errors import InvalidConfig
from shard_state import Position, PositionType

MARGIN_SECONDS: Final = 5.0
"""What is allowed for: records out of the order of their arrival, and clocks that differ, together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions:
    """From where each shard is read."""

    default: Position
    """Of shards that ``shards`` does not name; their children always start at their beginning."""
    shards: Mapping[str, Position] = field(default_factory=dict, hash=False)

    def of_shard(self, shard_id: str) -> Position:
        """Give the start of one shard."""
        return self.shards.get(shard_id, self.default)

    def resolved(self, now: float) -> "StartPositions":
        """These positions with LATEST turned into the time ``now`` (seconds since the epoch).

        Raises:
            InvalidConfig: one is a time that is yet to come: nothing would be read until then.
        """
        _refuse_future((self.default, *self.shards.values()), now, "initialPosition", "begins at latest")
        return StartPositions(default=self.default.resolved(now), shards=_resolved(self.shards, now))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPositions:
    """Up to where each shard is read: the first record from there on is left out."""

    default: Position
    """Of shards that ``shards`` does not name. Never TRIM_HORIZON."""
    shards: Mapping[str, Position] = field(default_factory=dict, hash=False)

    def of_shard(self, shard_id: str) -> Position:
        """Give the end of one shard."""
        return self.shards.get(shard_id, self.default)

    def resolved(self, now: float) -> "EndPositions":
        """These positions with LATEST turned into the time ``now`` (seconds since the epoch).

        Raises:
            InvalidConfig: one is a time that is yet to come: the read would wait for it.
        """
        _refuse_future((self.default, *self.shards.values()), now, "endingPosition", "ends at latest")
        return EndPositions(default=self.default.resolved(now), shards=_resolved(self.shards, now))


def _resolved(shards: Mapping[str, Position], now: float) -> dict[str, Position]:
    return {shard_id: position.resolved(now) for shard_id, position in shards.items()}


def rank(position: Position) -> tuple[int, bool]:
    """Order positions at sequence numbers: before a record, then after it."""
    assert position.sequence_number is not None
    return position.sequence_number.number, position.type is PositionType.AFTER_SEQUENCE_NUMBER


def moment(seconds: float) -> str:
    """Write a time (seconds since the epoch) for a person."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _refuse_future(positions: Iterable[Position], now: float, option: str, latest: str) -> None:
    for position in positions:
        if position.timestamp is not None and position.timestamp > now + MARGIN_SECONDS:
            raise InvalidConfig(
                f"option {option}: expected a time that is over, got {moment(position.timestamp)}, which is yet "
                f"to come: a read {latest} at the latest"
            )
