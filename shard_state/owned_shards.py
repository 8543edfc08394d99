"""The shards that a consumer owns: whose turn is next, which of them rest, and which slices of them go out.

**Turns.** A shard that was served goes to the back of the ring; so does one that joins. So a shard that joins or
leaves does not gain or cost a turn (invariant 15). A micro-batch serves a whole ``round``. Record by record, the
``current`` shard is served, a few records each time. One that was found to have nothing *sleeps* if an event will
tell when it has something, and is not looked at before. Any other one *rests*, for a moment that grows with the
number of shards that rest: looking at them costs at most about the same share of one processor, however many there
are, and a busy shard's records cost nothing more for them.

**Pauses.** A shard rests also while nothing of it may be handed out: it is about to be another's, or an
operator has paused it. A shard that an operator has paused keeps its owner. Its records in flight may end,
and are committed; retries wait like all other records, until the operator ends the pause.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from shard_state.blame import Blame
from shard_state.lineage import ShardPhase
from shard_state.local_shard.shard_slices import ShardSlices
from shard_state.sequence_number import SequenceNumber
from shard_state.slices.slices import SlicePlan

REST_SECONDS_PER_SHARD: Final = 50e-6
"""At most 20,000 looks a second in vain, which is about a tenth of a processor."""


class RoundRobin:
    """A ring of names. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._ready: OrderedDict[str, None] = OrderedDict()
        """In the order of whose turn is next."""
        self._resting: OrderedDict[str, float] = OrderedDict()
        """Behind those: who rests, and until when, in the order in which they began."""
        self._sleeping: dict[str, None] = {}
        """Behind those: who sleeps until it is woken."""

    def __len__(self) -> int:
        return len(self._ready) + len(self._resting) + len(self._sleeping)

    def __contains__(self, member: str) -> bool:
        return member in self._ready or member in self._resting or member in self._sleeping

    def add(self, member: str) -> None:
        """Let a member take part, last in the present round. One that does keeps its turn, and rests no more."""
        self._resting.pop(member, None)
        self._sleeping.pop(member, None)
        self._ready.setdefault(member)

    def remove(self, member: str) -> None:
        """Let a member take part no more; unknown ones are passed over."""
        self._resting.pop(member, None)
        self._sleeping.pop(member, None)
        self._ready.pop(member, None)

    # Round by round

    def round(self) -> list[str]:
        """Name every member once, in turn. Members may be served, added and removed meanwhile."""
        return [*self._ready, *self._resting, *self._sleeping]

    def served(self, member: str) -> None:
        """Note that a member had its turn: everybody else comes first now."""
        if member in self._ready:
            self._ready.move_to_end(member)

    # Record by record

    def current(self, now: float) -> str | None:
        """Name the member to be served now; None while all of them rest or sleep."""
        while self._resting and next(iter(self._resting.values())) <= now:
            self._ready[self._resting.popitem(last=False)[0]] = None
        return next(iter(self._ready), None)

    def rest(self, now: float) -> None:
        """Note that the current member has nothing to give: it rests."""
        until = now + REST_SECONDS_PER_SHARD * (len(self._ready) + len(self._resting))
        self._resting[self._ready.popitem(last=False)[0]] = until

    def sleep(self) -> None:
        """Note that the current member has nothing to give, and will be woken when it has: it sleeps."""
        self._sleeping[self._ready.popitem(last=False)[0]] = None

    def wake(self, member: str) -> None:
        """Let a member rest and sleep no more; unknown ones are passed over."""
        if member in self._resting or member in self._sleeping:
            self.add(member)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPause:
    """The shards that an operator has paused."""

    everything: bool = False
    """The application as a whole, with shards that come later."""
    shards: frozenset[str] = frozenset()
    """Shards that are paused by themselves."""

    def covers(self, shard_id: str) -> bool:
        return self.everything or shard_id in self.shards

    def __bool__(self) -> bool:
        return self.everything or bool(self.shards)


class ShardStatus(NamedTuple):
    """One shard as this consumer sees it, for people and metrics. A tuple, as a thousand are made each second."""

    shard_id: str
    phase: ShardPhase
    epoch: int = 0
    checkpoint: SequenceNumber | None = None
    in_flight: int = 0
    waiting: int = 0
    exhausted: int = 0
    holes: int = 0
    congested: bool = False
    paused_by_operator: bool = False
    slices_out: bool = False
    """True if a slice of it is under way: what one reads is not in flight before it has ended."""
    waits_until: float | None = None
    """When the retry is due for which it waits, by its order or a limit; None: it waits for none."""


class OwnedShards:
    """The owned shards of one stream. Mutable; not thread-safe."""

    def __init__(self, blame: Blame) -> None:
        self.slices: dict[str, ShardSlices] = {}
        """The slices of each of them, by its id."""
        self.turns = RoundRobin()
        """The order of their turns (invariant 15)."""
        self.leaving: frozenset[str] = frozenset()
        """Shards of which nothing is handed out any more, for they are to be another's."""
        self.operator_pause = OperatorPause()
        self._blame = blame

    def add(self, shard_id: str, slices: ShardSlices) -> None:
        self.slices[shard_id] = slices
        self.turns.add(shard_id)

    def remove(self, shard_id: str) -> ShardSlices:
        self.turns.remove(shard_id)
        return self.slices.pop(shard_id)

    def rests(self, shard_id: str) -> bool:
        return shard_id in self.leaving or self.operator_pause.covers(shard_id)

    def staying(self, shard_id: str) -> ShardSlices | None:
        """Give a shard of which something may be handed out; None if it rests, or is not owned."""
        return None if self.rests(shard_id) else self.slices.get(shard_id)

    def of_epoch(self, plan: SlicePlan) -> ShardSlices | None:
        """Give the shard of a slice that was planned under its present ownership."""
        slices = self.slices.get(plan.shard_id)
        return slices if slices is not None and slices.state.epoch == plan.epoch else None

    def next_due(self) -> float | None:
        due = [slices.next_due for shard_id, slices in self.slices.items() if not self.rests(shard_id)]
        return min((at for at in due if at is not None), default=None)

    def status(self, shard_id: str) -> ShardStatus | None:
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
            paused_by_operator=self.operator_pause.covers(shard_id),
            slices_out=not slices.is_idle,
            waits_until=slices.next_due if tracker.waiting and not state.may_read else None,
        )

    # Planning slices

    def plan(
        self,
        now: float,
        carried: Mapping[str, int],
        resting: Collection[str],
        barred: Collection[str],
        most: int | None,
    ) -> list[SlicePlan]:
        if most == 0:
            return []
        if self._blame.is_slowed:
            return self._plan_slowly(now, carried, resting, barred, most)
        ready = [
            (shard_id, slices, held)
            for shard_id in self.turns.round()
            if (slices := self.slices[shard_id]).has_work(held := _carried(shard_id, carried, resting))
            and shard_id not in barred
            and not self.rests(shard_id)
        ]
        left, part = math.inf, math.inf
        if most is not None:
            to_plan = sum(
                slices.may_plan_retries(now) or (held is not None and slices.may_plan_fresh(held))
                for _, slices, held in ready
            )
            left, part = most, max(1, most // (1 + to_plan))
        plans: list[SlicePlan] = []
        for shard_id, slices, held in ready:
            if not left:
                break
            planned = slices.plan_some(now, held, min(left, part))
            plans += planned
            left -= sum(plan.most_deliveries for plan in planned)
            if planned:
                self.turns.served(shard_id)
        return plans

    @property
    def keeps_fresh_back(self) -> bool:
        """True if deliveries are slow and the next one is a retry."""
        if not self._blame.is_slowed or self._blame.fresh_first:
            return False
        retry_due = self.next_due()
        return retry_due is not None and retry_due <= self._blame.next_try_at

    def _plan_slowly(
        self,
        now: float,
        carried: Mapping[str, int],
        resting: Collection[str],
        barred: Collection[str],
        most: int | None,
    ) -> list[SlicePlan]:
        """Plan the few records that may be tried now while deliveries are slow, all of one shard."""
        allowed = min(self._blame.allowance(now), math.inf if most is None else most)
        for fresh in (True, False) if self._blame.fresh_first else (False, True):
            for shard_id in self.turns.round():
                slices, held = self.slices[shard_id], _carried(shard_id, carried, resting)
                if not allowed or shard_id in barred or self.rests(shard_id):
                    continue
                if not fresh:
                    plan = slices.plan_retries(now, most=allowed)
                else:
                    plan = None if held is None else slices.plan_fresh(held, slowed=True, most=allowed)
                if plan is not None:
                    self.turns.served(shard_id)
                    self._blame.tried(now)
                    return [plan]
        return []


def _carried(shard_id: str, carried: Mapping[str, int], resting: Collection[str]) -> int | None:
    """Tell how many records the driver holds of a shard; None if nothing fresh may be planned of it."""
    held = carried.get(shard_id, 0)
    return None if shard_id in resting and not held else held
