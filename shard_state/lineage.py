"""Which shard came from which, and which may be read now.

A split closes one parent and opens two children; a merge closes two parents and opens one child. A child may
be read only when *every* parent is over: its end was read, all its records are finished, and that fact is in
the store (invariants 7 and 8). A parent that is neither listed nor known to the store has outlived the
stream's retention; nobody can read it any more, so it blocks nobody.

Lists are eventually consistent: a child may be listed before its parent's end is read, or after. Nothing here
depends on the order in which shards become known.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What ListShards, or the ChildShards of a page, says of a shard."""

    shard_id: str
    parents: tuple[str, ...] = ()
    """No parent, one (a split), or two (a merge: ParentShardId, AdjacentParentShardId)."""
    hash_range: tuple[int, int] = (0, (1 << 128) - 1)
    """First and last hash key, inclusive."""
    closed: bool = False
    """Whether an ending sequence number is listed: the shard takes no more records."""


def blocking_parents(
    shard: Shard, listed: Mapping[str, Shard], stored: Collection[str], over: Collection[str]
) -> list[str]:
    """Name the parents of ``shard`` that must still be finished before it may be read.

    Args:
        shard: the child.
        listed: every shard that the stream lists now.
        stored: every shard that has a checkpoint.
        over: every shard whose SHARD_END is in the store.
    """
    return [
        parent for parent in shard.parents if parent not in over and (parent in listed or parent in stored)
    ]


def parents_first(shards: Iterable[Shard]) -> list[Shard]:
    """Order shards so that each comes after those of its parents that are among them, else by id."""
    by_id = {shard.shard_id: shard for shard in sorted(shards, key=lambda shard: shard.shard_id)}
    ordered: dict[str, Shard] = {}

    for root in by_id.values():
        # A stack, not recursion: a stream that is resharded every hour has thousands of generations.
        pending = [root]
        while pending:
            shard = pending[-1]
            missing = [by_id[parent] for parent in shard.parents if parent in by_id and parent not in ordered]
            if missing:
                pending.extend(reversed(missing))
            else:
                ordered[pending.pop().shard_id] = shard
    return list(ordered.values())
