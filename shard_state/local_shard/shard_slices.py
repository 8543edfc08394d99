"""The slices of one shard: which may be planned now, and what their ends mean.

At most one fresh slice and one slice of retries are out at a time. The *backlog* decides whether an executor
reads a fresh slice or the driver carries it: a page that came back full, or an end far behind the tip, says
that more is waiting; reaching the tip ends it. A shard under suspicion is carried as well, for only a driver
that holds the records can halve them. Records among which is one that kills its worker, nobody knows which,
wait from then on as retries: so the shard goes on while they are halved, as far as its order lets it.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from shard_state.errors import OutOfOrder
from shard_state.local_shard.local_shard_state import LocalShardState
from shard_state.local_shard.slice_settling import settle_fresh, settle_retries
from shard_state.slices.isolation import Isolation
from shard_state.slices.slices import Exhausted, Fate, SliceKind, SliceOutcome, SlicePlan

if TYPE_CHECKING:
    from shard_state.sequence_number import SequenceNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLimits:
    """The size limits of slices."""

    records: int = 100_000
    """In a slice that an executor reads."""
    retries: int = 1_000
    """In a slice of retries: bounded, so that they cannot starve fresh reads."""

    def __post_init__(self) -> None:
        if self.records < 1 or self.retries < 1:
            raise ValueError(f"expected slices of at least 1 record, got {self}")


class ShardSlices:
    """The slices of one owned shard that are out, or may go out next. Mutable; not thread-safe."""

    def __init__(self, state: LocalShardState, limits: SliceLimits) -> None:
        self.state = state
        self.backlog = True
        """True if executors read the shard. At first nobody knows; an executor finds out at no cost."""
        self._limits = limits
        self._fresh_out: SlicePlan | None = None
        self._retries_out: SlicePlan | None = None
        self._isolation = {True: Isolation(), False: Isolation()}
        """By ``SlicePlan.is_fresh``."""
        self._fresh_first = False
        """Takes turns where only one delivery may be planned: retries that are always due starve nothing."""
        self._failing = 0.0
        """The part of the last fresh slice that stayed unfinished."""
        self._suspects: set[SequenceNumber] = set()
        """Records that were under way, with others, when their worker died, and wait for another delivery."""

    @property
    def is_idle(self) -> bool:
        return self._fresh_out is None and self._retries_out is None

    @property
    def fresh_is_out(self) -> bool:
        return self._fresh_out is not None

    @property
    def next_due(self) -> float | None:
        """When retries can be planned next; None while none wait, or some are out."""
        return None if self._retries_out else self.state.retries.next_due()

    @property
    def wants_page(self) -> bool:
        return self.state.may_read and not self._fresh_out and not self.is_for_executors

    @property
    def is_for_executors(self) -> bool:
        """True if executors read the shard, for its backlog. The driver carries one under suspicion."""
        return self.backlog and not self.is_suspect

    @property
    def is_suspect(self) -> bool:
        return self._isolation[True].alone

    def has_work(self, carried: int | None) -> bool:
        """Tell whether there is anything to plan, if only later; ``carried`` is that of ``plan_some``.

        Most of a thousand shards have nothing, and this is all that they cost.
        """
        return bool(carried) or len(self.state.retries) > 0 or (carried is not None and self.backlog)

    def may_plan_retries(self, now: float) -> bool:
        due = self.next_due
        return due is not None and due <= now

    def may_plan_fresh(self, carried: int) -> bool:
        """Tell whether a fresh slice may be planned now; ``carried`` is that of ``plan_fresh``."""
        if self._fresh_out or not self.state.may_read or not self.state.room:
            return False
        return carried > 0 or self.is_for_executors

    def plan_some(self, now: float, carried: int | None, most: float = inf) -> list[SlicePlan]:
        """Plan the due retries, then a fresh slice, of at most ``most`` deliveries; fresh records have half of it.

        With ``carried`` None nothing fresh is planned; otherwise it is how many fetched records the driver holds.
        """
        fresh = carried is not None and self.may_plan_fresh(carried)
        for_retries = most
        if fresh and most < inf and self.may_plan_retries(now):
            for_retries = most // 2 if self._fresh_first else most - most // 2
            self._fresh_first = not self._fresh_first
        retries = self.plan_retries(now, for_retries) if for_retries else None
        left = most - (0 if retries is None else retries.most_deliveries)
        fresh_plan = None
        if carried is not None and left:
            fresh_plan = self.plan_fresh(carried, most=left)
        return [plan for plan in (retries, fresh_plan) if plan is not None]

    def plan_retries(self, now: float, most: float = inf) -> SlicePlan | None:
        """Plan the due retries, at most so many; None if there are none, or some are out already."""
        if not self.may_plan_retries(now):
            return None
        isolation = self._isolation[False]
        limit = int(min(isolation.limit(self._limits.retries), most))
        retries = self.state.take_retries(now, limit, whole_lines=True, single=isolation.is_isolated)
        if not retries:
            return None
        isolated = isolation.is_isolated(retries[0].sequence)
        suspected = not self._suspects.isdisjoint(retry.sequence for retry in retries)
        self._retries_out = SlicePlan(
            shard_id=self.state.shard.shard_id,
            epoch=self.state.epoch,
            kind=SliceKind.RETRY,
            limit=len(retries),
            position=self.state.position,
            max_failures=len(retries),
            retries=retries,
            alone=isolation.alone or isolated or suspected,
            portion=1 if suspected else isolation.portion,
        )
        return self._retries_out

    def plan_fresh(self, carried: int, *, slowed: bool = False, most: float = inf) -> SlicePlan | None:
        """Plan the next fresh slice. A ``slowed`` one delivers ``most`` records, of any number read."""
        isolation = self._isolation[True]
        if not self.may_plan_fresh(carried):
            return None
        tracker = self.state.tracker
        limit, deliveries = self._limits.records, None
        max_failures, room = self.state.max_failures, self.state.room
        if slowed:
            # Records finished before the restart are passed over, however many they are.
            deliveries = int(min(most, room))
            limit = limit if tracker.restored_holes else deliveries
            room = deliveries
        else:
            limit = int(min(limit, most))
        if isolation.alone and not self.backlog:
            isolation.at_most(carried)  # The job that died can have read no further than the tip.
        if isolation.alone:
            limit = min(limit, max_failures)  # If its job dies, all its records are held, to be halved.
        if self._failing:
            # It ends once there is no room for failures: what is behind that would travel in vain.
            limit = min(limit, max(1, int(max_failures / self._failing)))
        self._fresh_out = SlicePlan(
            shard_id=self.state.shard.shard_id,
            epoch=self.state.epoch,
            kind=SliceKind.CARRIED if carried else SliceKind.READ,
            limit=min(isolation.limit(self._limits.records), carried or limit, limit),
            position=self.state.position,
            max_failures=max_failures,
            room=room,
            holes=tracker.restored_holes,
            anchor=tracker.anchor if tracker.last_emitted == tracker.base else None,
            attempts=self.state.restored_attempts,
            blocked_keys=self.state.retries.blocked_keys,
            alone=isolation.alone,
            deliveries=deliveries,
            portion=isolation.portion,
            bound=self.state.bound,
        )
        return self._fresh_out

    def end_read(self) -> None:
        self._refuse_while_out("end")
        self.state.end_read()

    def _refuse_while_out(self, what: str) -> None:
        """Raise OutOfOrder while a fresh slice is out: its records are not tracked yet, so nothing is finished."""
        if self._fresh_out is not None:
            raise OutOfOrder(
                f"expected no fresh slice of {self.state.shard.shard_id} to be out when its {what} is reported, "
                f"got one from {self._fresh_out.position}: report the {what} in its outcome, or after it"
            )

    def reach_bound(self) -> None:
        self._refuse_while_out("bound")
        self.state.reach_bound()

    @property
    def is_done(self) -> bool:
        return self.is_idle and self.state.is_done

    def is_out(self, plan: SlicePlan) -> bool:
        return plan == (self._fresh_out if plan.is_fresh else self._retries_out)

    def settle(self, plan: SlicePlan, outcome: SliceOutcome, now: float) -> list[Exhausted]:
        """Take in the outcome of a slice, unless it is not out. Returns what must be dead-lettered."""
        if not self._returned(plan):
            return []
        isolation = self._isolation[plan.is_fresh]
        if plan.is_fresh:
            if plan.kind is SliceKind.READ:
                self.backlog = not outcome.at_tip
            if outcome.count:
                self._failing = len(outcome.failures) / outcome.count
            isolation.survived(outcome.count, alone=plan.alone)
            self._isolate(outcome)
            return self._acquitted(settle_fresh(self.state, outcome, now))
        if not self._is_isolated(plan):
            held = sum(failure.held for failure in outcome.failures)
            isolation.survived(len(plan.retries) - held, alone=plan.alone)
        waiting = {failure.sequence for failure in outcome.failures if failure.held}
        self._suspects -= {retry.sequence for retry in plan.retries} - waiting
        self._isolate(outcome)
        exhausted = settle_retries(self.state, plan.retries, outcome, now)
        for acked in {retry.sequence for retry in plan.retries} - outcome.unfinished:
            self._isolation[False].acquit(acked)
        return self._acquitted(exhausted)

    def suspect(self, plan: SlicePlan, count: int) -> None:
        self._isolation[plan.is_fresh].suspect(count)

    def blames(self, plan: SlicePlan, held: SliceOutcome | None) -> int | None:
        """Tell which delivery of its record is to blame if a slice that is out dies; None if that isolates none.

        The arguments are those of ``died``.
        """
        attempts = [retry.attempt for retry in plan.retries]
        if plan.is_fresh and held is not None:
            attempts = [failure.attempt + 1 for failure in held.failures if failure.held]
        return attempts[0] if len(attempts) == 1 and plan.alone and self.is_out(plan) else None

    def died(self, plan: SlicePlan, held: SliceOutcome | None, now: float) -> list[Exhausted]:
        """Take in that the job of a slice died, nobody knows at which record: it is planned again, alone.

        If it was alone it is halved, or its one record is isolated. ``StateManager.died`` says what ``held`` is.
        """
        if not self._returned(plan):
            return []
        if plan.is_fresh:
            return self._fresh_died(plan, held, now)
        if self._is_isolated(plan) or self._isolation[False].died(len(plan.retries), alone=plan.alone):
            retry = plan.retries[0]
            self._isolation[False].isolate(retry.sequence)
            key = held.failures[0].partition_key if held and held.failures else None
            decision = self.state.fail(retry.sequence, now, attempt=retry.attempt, partition_key=key)
            return self._acquitted([decision] if isinstance(decision, Exhausted) else [])
        self._wait_on(plan)
        return []

    def withdraw(self, plan: SlicePlan) -> None:
        """Take back a slice that came to nothing, through no fault of its records; it is planned again."""
        if self._returned(plan):
            self._wait_on(plan)

    def _wait_on(self, plan: SlicePlan) -> None:
        for retry in plan.retries:
            self.state.withdraw(retry.sequence, None)

    def _fresh_died(self, plan: SlicePlan, held: SliceOutcome | None, now: float) -> list[Exhausted]:
        fresh, retried = self._isolation[True], self._isolation[False]
        if not plan.alone or held is None:
            fresh.died(plan.limit, alone=False)
            return []
        fresh.survived(held.count, alone=True)
        suspects = [failure for failure in held.failures if failure.held]
        if retried.died(len(suspects), alone=True):
            guilty = suspects[0]._replace(fate=Fate.KILLED_WORKER, attempt=suspects[0].attempt + 1)
            held = replace(held, failures=(guilty,))
            self._isolate(held)
        return self._acquitted(settle_fresh(self.state, held, now))

    def _isolate(self, outcome: SliceOutcome) -> None:
        for failure in outcome.failures:
            if failure.fate is Fate.KILLED_WORKER:
                self._isolation[False].isolate(failure.sequence)
            elif failure.fate is Fate.SUSPECTED:
                self._suspects.add(failure.sequence)

    def _is_isolated(self, plan: SlicePlan) -> bool:
        return len(plan.retries) == 1 and self._isolation[False].is_isolated(plan.retries[0].sequence)

    def _returned(self, plan: SlicePlan) -> bool:
        """Note that a slice is out no more; False if it was not out."""
        if not self.is_out(plan):
            return False
        if plan.is_fresh:
            self._fresh_out = None
        else:
            self._retries_out = None
        return True

    def _acquitted(self, exhausted: list[Exhausted]) -> list[Exhausted]:
        """Forget the isolated records and suspects among records that are never delivered again."""
        for record in exhausted:
            self._suspects.discard(record.sequence)
            self._isolation[False].acquit(record.sequence)
        return exhausted
