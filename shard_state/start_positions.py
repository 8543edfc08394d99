"""From where, or up to where, the shards of a stream are read: some have a position of their own.

What is said of shards here is said of those that the stream has when reading begins. Shards that are born later
are children, which are read from their oldest record on (invariant 7).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from shard_state.position import Position
from shard_state.stored_form import mapping, text


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPositions:
    """A position for each shard."""

    default: Position
    """Of shards that ``shards`` does not name."""
    shards: Mapping[str, Position] = field(default_factory=dict, hash=False)

    def of_shard(self, shard_id: str) -> Position:
        """Give the position of one shard."""
        return self.shards.get(shard_id, self.default)

    @property
    def every(self) -> tuple[Position, ...]:
        """All the positions, that of unnamed shards first."""
        return (self.default, *self.shards.values())

    def resolved(self, now: float) -> Self:
        """These positions with LATEST turned into the time ``now`` (seconds since the epoch)."""
        named = {shard_id: position.resolved(now) for shard_id, position in self.shards.items()}
        return replace(self, default=self.default.resolved(now), shards=named)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions(ShardPositions):
    """From where each shard is read when reading begins."""

    def shards_as_document(self) -> dict[str, Any]:
        """Give the stored form of the positions of named shards: plain JSON values."""
        return {shard_id: position.as_document() for shard_id, position in self.shards.items()}

    @classmethod
    def from_documents(cls, default: dict[str, Any], shards: object) -> Self:
        """Read the stored forms of resolved positions: of unnamed shards, and of those that are named.

        Raises:
            ValueError, KeyError, TypeError: they are none, or one is LATEST, which is never stored.
        """
        return cls(
            default=Position.from_document(default),
            shards={
                text(shard_id): Position.from_document(mapping(position))
                for shard_id, position in mapping(shards).items()
            },
        )

    def __str__(self) -> str:
        named = (f"{shard_id}: {position}" for shard_id, position in self.shards.items())
        return ", ".join((*named, f"others: {self.default}")) if self.shards else str(self.default)
