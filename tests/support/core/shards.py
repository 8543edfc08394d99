"""Shards of which a test needs no more than the names, and where all of them begin."""

from shard_state import Position, Shard, StartPositions


def shards_named(*shard_ids: str) -> list[Shard]:
    return [Shard(shard_id=shard_id) for shard_id in shard_ids]


def everywhere(position: Position) -> StartPositions:
    """Every shard begins there."""
    return StartPositions(default=position)
