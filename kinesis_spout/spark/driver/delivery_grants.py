"""The delivery grants of one stream's slices: requested at planning, paid when a slice ends.

A micro-batch is planned within its grant, so nothing on an executor has to wait: the driver only plans less,
or later. Commits, polls and other streams continue meanwhile. The driver waits until a job is worth it: a
quarter of what a window holds (``consumer.rate_window``), or one.
"""

from collections.abc import Sequence
from typing import Final

from kinesis_spout.consumer.delivery_rate import DeliveryRate, Grant
from kinesis_spout.spark.tasks.work import WorkResult
from shard_state import SlicePlan

_WORTH_A_JOB: Final = 0.25

_Slice = tuple[str, int, bool]


class DeliveryGrants:
    """One stream's, from the rate of the application in this process. Mutable; the engine's thread's only."""

    def __init__(self, rate: DeliveryRate, stream: object) -> None:
        self._rate = rate
        self._stream = stream
        self._grant: Grant | None = None
        self._of: dict[_Slice, Grant] = {}
        """The grants of running slices: of a shard at most a fresh one and one of retries."""
        self.due_at: float | None = None
        """When to plan again if something can wait for a grant; None: nothing waits for one."""

    def ask(self, now: float) -> int | None:
        """How many deliveries may be planned now; None: any number. ``planned`` follows."""
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
        """A batch has ended. What is not known of it counts as delivered."""
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
