"""Which slices of the owned shards go out next: shard by shard in turn, or one probe while the breaker is open."""

import math
from collections.abc import Collection, Iterable, Mapping

from shard_state.breaker.outcome_watch import OutcomeWatch
from shard_state.owned_shards import OwnedShards
from shard_state.slices.slices import SlicePlan


class SlicePlanner:
    """Plans the slices of one consumer. It changes the shards whose slices it plans."""

    def __init__(self, owned: OwnedShards, watch: OutcomeWatch) -> None:
        self._owned = owned
        self._watch = watch

    def plan(
        self,
        now: float,
        carried: Mapping[str, int],
        resting: Collection[str],
        barred: Collection[str],
        most: int | None,
        *,
        coalesces: bool,
    ) -> list[SlicePlan]:
        """Do what ``StateManager.plan`` says, whose arguments these are."""
        if most == 0:
            return []
        if self._watch.breaker.is_open:
            return self._plan_probe(now, carried, resting, barred)
        turns, slices = self._owned.turns, self._owned.slices
        ready = [
            (shard_id, _carried(shard_id, carried, resting))
            for shard_id in turns.round()
            if shard_id not in barred and not self._owned.rests(shard_id)
        ]
        left, part = math.inf, math.inf
        if most is not None:
            left, part = most, max(1, most // (1 + self._count_ready(ready, now)))
        plans: list[SlicePlan] = []
        for shard_id, held in ready:
            if not left:
                break
            planned = slices[shard_id].plan_some(now, held, min(left, part), coalesces=coalesces)
            plans += planned
            left -= sum(plan.most_deliveries for plan in planned)
            if planned:
                turns.served(shard_id)
        return plans

    @property
    def probes_fresh(self) -> tuple[bool, bool]:
        """Whether the next probe is a fresh record, and if there is none: a retry first, then the other kind."""
        return (True, False) if self._watch.breaker.prefers_fresh else (False, True)

    @property
    def keeps_fresh_back(self) -> bool:
        """Whether the open breaker has no use for fresh records, as the next that is tried is a retry."""
        breaker = self._watch.breaker
        if not breaker.is_open or breaker.prefers_fresh:
            return False
        retry_due = self._owned.next_due()
        return retry_due is not None and retry_due <= breaker.probe_at

    def _count_ready(self, shards: Iterable[tuple[str, int | None]], now: float) -> int:
        return sum(
            slices.may_plan_retries(now) or (held is not None and slices.may_plan_fresh(held))
            for shard_id, held in shards
            for slices in [self._owned.slices[shard_id]]
        )

    def _plan_probe(
        self, now: float, carried: Mapping[str, int], resting: Collection[str], barred: Collection[str]
    ) -> list[SlicePlan]:
        """Plan the one record that is tried while the breaker is open, if it is time."""
        if not self._watch.breaker.may_probe(now):
            return []
        for fresh in self.probes_fresh:
            for shard_id in self._owned.turns.round():
                slices, held = self._owned.slices[shard_id], carried.get(shard_id, 0)
                if (
                    shard_id in barred
                    or self._owned.rests(shard_id)
                    or (fresh and shard_id in resting and not held)
                ):
                    continue
                plan = slices.plan_fresh(held, probe=True) if fresh else slices.plan_retries(now, most=1)
                if plan is not None:
                    self._owned.turns.served(shard_id)
                    self._watch.slice_sent(plan)
                    return [plan]
        return []


def _carried(shard_id: str, carried: Mapping[str, int], resting: Collection[str]) -> int | None:
    """Tell how many records the driver holds of a shard; None if nothing fresh may be planned of it."""
    held = carried.get(shard_id, 0)
    return None if shard_id in resting and not held else held
