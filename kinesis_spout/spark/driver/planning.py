"""Plans of the next micro-batches: of what, and when.

A Spark job costs far more than a slice, so what comes at nearly the same time goes out in one: records that
polls bring wait for the other polls that are under way, and retries for others that are about due,
``gather_seconds`` at most, or a few times that while a job runs. While the maximum of jobs runs, everything
gathers anyway.

Records that are pushed come one by one, and the next one's time is unknown. So the first goes out at once,
and what follows closely waits until ``spacing_seconds`` have passed since the last job began: a steady
trickle makes as many jobs a second as that allows, however fast a job is.

A micro-batch is planned within its delivery grant, so nothing on an executor has to wait: the driver only
plans less, or later. Commits, polls and other streams continue meanwhile. The driver waits until a job is
worth it: a quarter of what a window holds (``consumer.limits.rate_window``), or one delivery.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from kinesis_spout.consumer.limits.delivery_rate import DeliveryRate, Grant
from kinesis_spout.consumer.ports import LONGEST_TURN_SECONDS
from kinesis_spout.spark.driver.driver_shards import DriverShards
from kinesis_spout.spark.driver.engine_settings import WORTH_A_JOB_BYTES
from kinesis_spout.spark.driver.tip_poller import TipPoller
from kinesis_spout.spark.tasks.work import WorkResult
from shard_state import SlicePlan

_SHORTEST_WAIT_SECONDS: Final = 0.001
_PATIENCE_WHILE_RUNNING: Final = 8.0
"""While a job runs, records wait so many gather times for polls: a second job would slow both."""
_SPACINGS_WHILE_RUNNING: Final = 2.0
"""While a job runs, pushed records wait so many spacings for its end before another starts."""
_WORTH_A_JOB: Final = 0.25

_Slice = tuple[str, int, bool]


class BatchPlanner:
    """Plans one stream's batches. Mutable; the engine's thread's only, under the consumer's lock."""

    def __init__(self, shards: DriverShards, tip: TipPoller) -> None:
        self._consumer = shards.consumer
        self._manager = shards.consumer.manager
        self._settings = shards.settings
        self._shards = shards
        self._retry_data = shards.retry_data
        self._tip = tip
        self.grants = DeliveryGrants(shards.consumer.deliveries, shards.consumer)
        self.planned: deque[list[SlicePlan]] = deque()
        """The batches that wait for a slot, each as its slices."""
        self.plan_at = 0.0
        """When to plan next, unless polls bring records before; monotonic."""

    def plan(self, now: float) -> None:
        """Plan what may go out now, and when to plan next."""
        self._tip.arrived_at = self.grants.due_at = None
        self._plan(now)
        self.plan_at = self._next_plan(now)

    def _plan(self, now: float) -> None:
        shards = self._shards.by_id.items()
        letters_bytes, most = self._consumer.letters.size_bytes, self._shards.max_bytes()
        if letters_bytes > most // 2:
            return  # Retries can be read again, and be given up: their data would come on top.
        may_read = letters_bytes <= most // 4
        granted = self.grants.ask(now)
        plans = self._manager.plan(
            now,
            carried={shard_id: len(shard.records) for shard_id, shard in shards if shard.records},
            resting={shard_id for shard_id, shard in shards if shard.times.read_at > now or not may_read},
            barred={shard_id for shard_id, shard in shards if shard.times.out_at > now},
            most=granted,
        )
        if granted is not None:
            self.grants.planned(plans, now)
        together: list[SlicePlan] = []
        for plan in plans:
            # A slice that must be read again first takes time that others should not wait for.
            is_incomplete = any(
                self._retry_data.get(plan.shard_id, retry.sequence) is None for retry in plan.retries
            )
            if plan.alone or is_incomplete:
                self.planned.append([plan])
            else:
                together.append(plan)
        if together:
            self.planned.append(together)

    def _next_plan(self, now: float) -> float:
        """When something can be planned, if nothing comes up before."""
        waits = [shard.times.out_at for shard in self._shards.by_id.values()]
        if self.grants.due_at is not None:
            # Also where it is due already: the rest was possibly not granted yet.
            waits.append(max(self.grants.due_at, now + _SHORTEST_WAIT_SECONDS))
        # The end of a shard's read limits does not concern a shard that the driver reads.
        waits += [
            shard.times.read_at
            for shard_id, shard in self._shards.by_id.items()
            if shard.times.read_at > now and self._manager.is_for_executors(shard_id)
        ]
        retries_due = self._manager.next_due()
        if retries_due is not None and retries_due > now:
            waits.append(retries_due + self._settings.gather_seconds)
        # A slice that is due and did not start waits for something else, which wakes the engine.
        return min((at for at in waits if at > now), default=now + LONGEST_TURN_SECONDS)

    def due_at(self, *, while_running: bool) -> float:
        """When to plan next: what comes at nearly the same time has gathered by then; monotonic."""
        arrived_at = self._tip.arrived_at
        if arrived_at is None:
            return self.plan_at
        if self._settings.driver_reads_all:
            return self._pushed_due_at(arrived_at, while_running=while_running)
        if not self._tip.is_polling:
            return arrived_at
        patience = _PATIENCE_WHILE_RUNNING if while_running else 1.0
        return arrived_at + patience * self._settings.gather_seconds

    def _pushed_due_at(self, arrived_at: float, *, while_running: bool) -> float:
        spacing = self._settings.spacing_seconds
        if while_running:
            return arrived_at + _SPACINGS_WHILE_RUNNING * spacing
        is_worth_a_job = self._shards.held.size_bytes >= WORTH_A_JOB_BYTES
        due_at = arrived_at if is_worth_a_job else max(arrived_at, self._tip.rests_until)
        # Records that came meanwhile are being read, which takes no call: they are here in a moment.
        return due_at + self._settings.gather_seconds if self._tip.is_polling else due_at


class DeliveryGrants:
    """The grants of one stream's slices: requested at planning, paid when a slice ends. Mutable."""

    def __init__(self, rate: DeliveryRate, stream: object) -> None:
        self._rate = rate
        self._stream = stream
        self._grant: Grant | None = None
        self._of: dict[_Slice, Grant] = {}
        """The grants of running slices: of a shard at most a fresh one and one of retries."""
        self.due_at: float | None = None
        """When to plan again if something can wait for a grant; None: nothing waits for one."""

    def ask(self, now: float) -> int | None:
        """Return the number of deliveries that may be planned now; None: any number. ``planned`` follows."""
        if not self._rate.is_limited:
            return None
        self._grant = self._rate.granted(self._stream, now, worth=_WORTH_A_JOB)
        return self._grant.deliveries

    def planned(self, plans: Sequence[SlicePlan], now: float) -> None:
        """Take in what was planned of the last grant; the rest is free again."""
        grant, self._grant = self._grant, None
        if grant is None:
            return
        used = 0
        for plan in plans:
            used += plan.most_deliveries
            self._of[_slice(plan)] = Grant(plan.most_deliveries, grant.at)
        self._rate.ended(Grant(grant.deliveries - used, grant.at), 0)
        more_may_wait = used == grant.deliveries
        self.due_at = self._rate.due_at(self._stream, now, worth=_WORTH_A_JOB) if more_may_wait else None

    def not_sent(self, plan: SlicePlan) -> None:
        self._end(plan, 0)

    def ended(self, plans: Sequence[SlicePlan], results: Sequence[WorkResult] = ()) -> None:
        """A batch has ended. Records of unknown outcome count as delivered."""
        if not self._of:
            return
        for result in results:
            if not result.lost:
                self._end(result.plan, result.delivered + result.suspects)
        for plan in plans:
            self._end(plan, plan.most_deliveries)

    def close(self) -> None:
        for grant in self._of.values():
            self._rate.ended(grant, grant.deliveries)
        self._of.clear()

    def _end(self, plan: SlicePlan, delivered: int) -> None:
        grant = self._of.pop(_slice(plan), None)
        if grant is not None:
            self._rate.ended(grant, delivered)


def _slice(plan: SlicePlan) -> _Slice:
    return plan.shard_id, plan.epoch, plan.is_fresh
