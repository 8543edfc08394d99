"""Which shards there are, and which of them this consumer may try to own.

The phase of an owned shard is its ``LocalShardState``'s; those of all others are kept here.
"""

from collections.abc import Container, Iterable, Mapping

from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.position import Position
from shard_state.shards.life_cycle import ACQUIRABLE, ShardEvent, ShardPhase, next_phase
from shard_state.shards.lineage import Lineage, Shard, parents_first


class KnownShards:
    """The shards of one stream. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._lineage = Lineage()
        self._phases: dict[str, ShardPhase] = {}
        """Of the shards that this consumer does not own."""
        self._children_wait = False
        """Whether shards were found to be over, and their children were not released for it yet."""

    def listed(
        self, shards: Iterable[Shard], stored: Mapping[str, Checkpoint], owned: Container[str]
    ) -> None:
        self._lineage.learn(shards, stored)
        for shard_id in self._lineage.shards:
            if shard_id not in owned:
                self._phases.setdefault(shard_id, ShardPhase.WAITING_FOR_PARENTS)
        for shard_id, checkpoint in stored.items():
            # Of an owned shard only a commit of ours, or the loss of it, says that it is over.
            if checkpoint.is_shard_end:
                self._step(shard_id, ShardEvent.FOUND_OVER)
        self._release_children()

    def to_acquire(self) -> list[Shard]:
        self._release_waiting()
        # Asked again: a list may have said meanwhile that a shard of unknown lineage has unfinished parents.
        free = self._lineage.free(self._over())
        return parents_first(
            self._lineage.shards[shard_id] for shard_id in free if self._phases.get(shard_id) in ACQUIRABLE
        )

    def fresh_checkpoint(self, shard_id: str) -> Checkpoint:
        return Checkpoint(start=Position.trim_horizon(), parents=self._lineage.parents(shard_id))

    def acquired(self, shard_id: str) -> Shard:
        """Give a shard to its owner, this consumer, which keeps its phase from now on."""
        self._lineage.stored.add(shard_id)
        self._phases.pop(shard_id, None)
        return self._lineage.shards[shard_id]

    def found_over(self, shard_id: str) -> None:
        self._lineage.stored.add(shard_id)
        self._step(shard_id, ShardEvent.FOUND_OVER)
        # Once for all that are found: it looks at every shard, and after a takeover thousands may be over.
        self._children_wait = True

    def given_up(self, phases: Mapping[str, ShardPhase]) -> None:
        """Take back shards that this consumer owns no more, each with its phase."""
        self._phases.update(phases)
        if ShardPhase.OVER in phases.values():
            self._release_children()

    def phase(self, shard_id: str) -> ShardPhase:
        self._release_waiting()
        return self._phases[shard_id]

    def parents_first(self) -> list[Shard]:
        return parents_first(self._lineage.shards.values())

    def _release_waiting(self) -> None:
        if self._children_wait:
            self._release_children()

    def _release_children(self) -> None:
        self._children_wait = False
        for shard_id in self._lineage.free(self._over()):
            self._step(shard_id, ShardEvent.PARENTS_OVER)

    def _step(self, shard_id: str, event: ShardEvent) -> None:
        if shard_id in self._phases:
            self._phases[shard_id] = next_phase(self._phases[shard_id], event)

    def _over(self) -> set[str]:
        return {shard_id for shard_id, phase in self._phases.items() if phase is ShardPhase.OVER}
