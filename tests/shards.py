"""Shards of which a test needs no more than the names."""

from shard_state import Shard


def shards_named(*shard_ids: str) -> list[Shard]:
    return [Shard(shard_id=shard_id) for shard_id in shard_ids]
