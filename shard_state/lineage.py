"""The lineage of shards, and which of them may be read now.

A split closes one parent and opens two children; a merge closes two parents and opens one child. A child may
be read only when *every* parent is over: its end was read, all its records are finished, and that fact is in
the store (invariants 7 and 8). A parent that is neither listed nor known to the store has outlived the
stream's retention; nobody can read it any more, so it blocks nobody.

Lists are eventually consistent: a child may be listed before its parent's end is read, or after, or be in the
store while the list does not name it yet. So the parents are stored with a shard's checkpoint, and nothing here
depends on the order in which shards become known.

**The life of a shard.** ``ShardPhase`` names how far a shard is, as one consumer sees it:

    WAITING_FOR_PARENTS -> READY -> READING -> AT_END -> FINISHED -> OVER
                                    READING -> AT_BOUND

READING, AT_END, FINISHED and AT_BOUND are the phases of an owned shard, which ``LocalShardState`` knows. Losing
the ownership leads to LOST, and the next owner of the shard begins at READING from what is stored. At its bound a
shard is read no further by this run (``run_bounds``); nothing is stored of that. Only OVER, which is in the store,
lets the children begin.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.errors import InvalidLineage
from shard_state.position import Position


class ShardPhase(Enum):
    """The phase of a shard in its life, as one consumer sees it."""

    WAITING_FOR_PARENTS = auto()
    READY = auto()
    READING = auto()
    AT_END = auto()
    AT_BOUND = auto()
    FINISHED = auto()
    OVER = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard, as ListShards or the ChildShards of a page list it."""

    shard_id: str
    parents: tuple[str, ...] = ()
    """No parent, one (a split), or two (a merge: ParentShardId, AdjacentParentShardId)."""
    hash_range: tuple[int, int] = (0, (1 << 128) - 1)
    """First and last hash key, inclusive."""
    closed: bool = False
    """True if an ending sequence number is listed: the shard takes no more records."""


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
    """Order shards so that each comes after those of its parents that are among them, else by id.

    If shards are each other's ancestors, which no stream has, some of them come before a parent.
    """
    by_id = {shard.shard_id: shard for shard in sorted(shards, key=lambda shard: shard.shard_id)}
    begun: set[str] = set()
    ordered: dict[str, Shard] = {}

    for root in by_id.values():
        # A stack, not recursion: a stream that is resharded every hour has thousands of generations.
        pending = [root]
        while pending:
            shard = pending[-1]
            begun.add(shard.shard_id)
            # A shard begun and not ordered waits below on the stack, for this very shard.
            missing = [by_id[parent] for parent in shard.parents if parent in by_id and parent not in begun]
            if missing:
                pending.extend(reversed(missing))
            else:
                ordered.setdefault(shard.shard_id, pending.pop())
    return list(ordered.values())


class Lineage:
    """The shards that are listed or stored, and which came from which. Mutable."""

    def __init__(self) -> None:
        self.shards: dict[str, Shard] = {}
        """Every shard that was ever listed or stored."""
        self.ordered: list[Shard] = []
        """The same, parents before children."""
        self.listed: dict[str, Shard] = {}
        self.stored: set[str] = set()

    def learn(self, listed: Iterable[Shard], stored: Mapping[str, Checkpoint]) -> None:
        """Take in the list of the stream and the stored checkpoints. The list wins where they differ.

        Raises:
            InvalidLineage: a shard is its own ancestor. All of them would wait for each other for ever.
        """
        self.listed = {shard.shard_id: shard for shard in listed}
        self.stored.update(stored)
        self.shards.update(self.listed)
        for shard_id, checkpoint in stored.items():
            if shard_id not in self.shards:
                # Not listed: retention trimmed it, or the list is older than it. Its owner finds out.
                self.shards[shard_id] = Shard(shard_id=shard_id, parents=checkpoint.parents, closed=True)
        self.ordered = parents_first(self.shards.values())
        _check_no_ring(self.ordered)

    def in_sight(self, shard_id: str) -> bool:
        """Tell whether a shard is listed now, or stored.

        A list that misses a shard may miss its parents as well: it does not say that they expired.
        """
        return shard_id in self.listed or shard_id in self.stored

    def all_over(self, over: Collection[str]) -> bool:
        """Tell whether every listed shard is over: nothing can come any more without a reshard.

        Args:
            over: every shard whose SHARD_END is in the store.
        """
        return bool(self.listed) and all(shard_id in over for shard_id in self.listed)

    def free(self, over: Collection[str]) -> list[str]:
        """Name the shards that may be read now, or are being read.

        Args:
            over: every shard whose SHARD_END is in the store.
        """
        return [
            shard.shard_id
            for shard in self.ordered
            if self.in_sight(shard.shard_id)
            and shard.shard_id not in over
            and not blocking_parents(shard, self.listed, self.stored, over)
        ]


class KnownShards:
    """The shards of a stream that this consumer may try to own. Mutable; not thread-safe.

    Args:
        owned: the shards that it owns, as they are at any time.
    """

    def __init__(self, owned: Container[str]) -> None:
        self._owned = owned
        self._lineage = Lineage()
        self._over: set[str] = set()
        self._lost: set[str] = set()
        """Shards that this consumer owned once."""

    def listed(self, shards: Iterable[Shard], stored: Mapping[str, Checkpoint]) -> None:
        self._lineage.learn(shards, stored)
        for shard_id, checkpoint in stored.items():
            # Only a commit of ours, or the loss of an owned shard, says that it is over.
            if checkpoint.is_shard_end and shard_id not in self._owned:
                self._over.add(shard_id)

    def to_acquire(self) -> list[Shard]:
        return parents_first(
            self._lineage.shards[shard_id]
            for shard_id in self._lineage.free(self._over)
            if shard_id not in self._owned
        )

    def fresh_checkpoint(self, shard_id: str) -> Checkpoint:
        return Checkpoint(start=Position.trim_horizon(), parents=self._lineage.shards[shard_id].parents)

    def acquired(self, shard_id: str) -> Shard:
        self._lineage.stored.add(shard_id)
        return self._lineage.shards[shard_id]

    def found_over(self, shard_id: str) -> None:
        self._lineage.stored.add(shard_id)
        self._over.add(shard_id)

    def lost(self, shard_id: str) -> None:
        self._lost.add(shard_id)

    def phases(self) -> dict[str, ShardPhase]:
        """Tell the phases of the shards that this consumer does not own; parents come before children."""
        free = frozenset(self._lineage.free(self._over))
        return {shard.shard_id: self._phase(shard.shard_id, free) for shard in self._lineage.ordered}

    def _phase(self, shard_id: str, free: Container[str]) -> ShardPhase:
        if shard_id in self._over:
            return ShardPhase.OVER
        if shard_id in self._lost:
            return ShardPhase.LOST
        return ShardPhase.READY if shard_id in free else ShardPhase.WAITING_FOR_PARENTS


def _check_no_ring(ordered: Sequence[Shard]) -> None:
    indices = {shard.shard_id: index for index, shard in enumerate(ordered)}
    for index, shard in enumerate(ordered):
        for parent in shard.parents:
            if indices.get(parent, -1) >= index:
                raise InvalidLineage(
                    f"expected parents that are older than their children, got {shard.shard_id} as a child of "
                    f"{parent}, which itself comes from {shard.shard_id}: no stream has such shards, and each "
                    "would wait for the other for ever; look at them with `aws kinesis list-shards` and "
                    "`kinesis-spout checkpoints show`"
                )
