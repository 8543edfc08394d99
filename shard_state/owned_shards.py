"""The shards that a consumer owns, in turn, and which of them rest.

A shard *rests* while nothing of it may be handed out: it is about to be another's, or an operator has paused it.
"""

import math
from collections.abc import Collection

from shard_state.local_shard.shard_slices import ShardSlices
from shard_state.shard_status import ShardStatus
from shard_state.shards.operator_pause import OperatorPause
from shard_state.shards.round_robin import RoundRobin
from shard_state.slices.slices import Delivery, SlicePlan


class OwnedShards:
    """The owned shards of one stream. Mutable; not thread-safe."""

    def __init__(self, message_timeout_seconds: float | None) -> None:
        self.slices: dict[str, ShardSlices] = {}
        """Of each of them, by its id."""
        self.turns = RoundRobin()
        """Which of them is next (invariant 15)."""
        self._leaving: frozenset[str] = frozenset()
        """Owned shards of which nothing is handed out any more."""
        self._operator_pause = OperatorPause()
        self._timeout_seconds = message_timeout_seconds
        self.expires_at = -math.inf if message_timeout_seconds is not None else math.inf
        """No delivery times out before."""

    def add(self, shard_id: str, slices: ShardSlices) -> None:
        """Take in a shard, last in the present round."""
        self.slices[shard_id] = slices
        self.turns.add(shard_id)

    def remove(self, shard_id: str) -> ShardSlices:
        """Give a shard away."""
        self.turns.remove(shard_id)
        return self.slices.pop(shard_id)

    # What rests

    def leave(self, shard_ids: Collection[str]) -> None:
        """Let these shards rest, for they are to be another's; see ``StateManager.leave``."""
        self._leaving = frozenset(shard_ids)

    def pause_by_operator(self, pause: OperatorPause) -> bool:
        """Let rest what an operator has paused; see ``StateManager.pause_by_operator``."""
        changed, self._operator_pause = pause != self._operator_pause, pause
        return changed

    def is_paused_by_operator(self, shard_id: str) -> bool:
        """Tell whether an operator has paused a shard."""
        return self._operator_pause.covers(shard_id)

    @property
    def paused_shards(self) -> frozenset[str]:
        """Those that an operator has paused, and of which this run has something left to do."""
        return frozenset(
            shard_id
            for shard_id, slices in self.slices.items()
            if self._operator_pause.covers(shard_id) and not slices.is_done
        )

    def rests(self, shard_id: str) -> bool:
        """Tell whether nothing of a shard may be handed out now."""
        return shard_id in self._leaving or self._operator_pause.covers(shard_id)

    def staying(self, shard_id: str) -> ShardSlices | None:
        """Give a shard of which something may be handed out; None if it rests, or is not owned."""
        return None if self.rests(shard_id) else self.slices.get(shard_id)

    def has_left(self, shard_id: str) -> bool:
        """Tell whether nothing of a shard is in flight, or waits for its dead letter to be durable."""
        slices = self.slices.get(shard_id)
        if slices is None:
            return True
        tracker = slices.state.tracker
        return slices.is_idle and not tracker.in_flight and not tracker.exhausted

    # All of them

    def of_epoch(self, plan: SlicePlan) -> ShardSlices | None:
        """Give the shard of a slice that was planned under its present ownership."""
        slices = self.slices.get(plan.shard_id)
        return slices if slices is not None and slices.state.epoch == plan.epoch else None

    def expired(self, now: float) -> list[Delivery]:
        """Name the deliveries whose message time-out has passed. In vain before ``expires_at``."""
        if self._timeout_seconds is None:
            return []
        late: list[Delivery] = []
        self.expires_at = now + self._timeout_seconds
        for shard_id, slices in self.slices.items():
            tracker = slices.state.tracker
            late.extend(
                Delivery(shard_id, sequence, tracker.attempts(sequence)) for sequence in tracker.expired(now)
            )
            if tracker.next_deadline is not None:
                self.expires_at = min(self.expires_at, tracker.next_deadline)
        return late

    def next_due(self) -> float | None:
        """Tell when the next retry is due, over all shards that do not rest and have no retries out."""
        due = [slices.next_due for shard_id, slices in self.slices.items() if not self.rests(shard_id)]
        return min((at for at in due if at is not None), default=None)

    def status(self, shard_id: str) -> ShardStatus | None:
        """Describe a shard; None if it is not owned."""
        slices = self.slices.get(shard_id)
        if slices is None:
            return None
        state, tracker = slices.state, slices.state.tracker
        return ShardStatus(
            shard_id=shard_id,
            phase=state.phase,
            epoch=state.epoch,
            checkpoint=tracker.base,
            in_flight=tracker.in_flight,
            waiting=tracker.waiting,
            exhausted=tracker.exhausted,
            holes=tracker.holes,
            congested=state.is_congested,
            paused_by_operator=self._operator_pause.covers(shard_id),
        )
