"""Tells the circuit breaker what deliveries came to, and knows which delivery is its probe.

Record by record or slice by slice, it is asked right before a failure is decided upon: ``spare`` says whether that
delivery counts against its record's limit. It also remembers the failures among the last outcomes, for when they
open the breaker.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from shard_state.breaker.circuit_breaker import BreakerRule, CircuitBreaker
from shard_state.slices.slices import Delivery, FailedRecord, Fate, SliceOutcome, SlicePlan

_MOST_REMEMBERED: Final = 20_000
"""Failures. Retries are no outcomes, so there may be more of these than the breaker looks at."""

_NEVER: Final = BreakerRule(failure_ratio=None)


class OutcomeWatch:
    """What the deliveries of one consumer came to. Mutable; not thread-safe.

    Args:
        rule: of the breaker; None: it never opens.
        random: for the intervals between probes.
        retries: whether failed records are retried; if not, a doubt of the breaker spares none.
    """

    def __init__(
        self, rule: BreakerRule | None, random: Callable[[], float], *, retries: bool = True
    ) -> None:
        self.breaker = CircuitBreaker(rule or _NEVER, random)
        self._retries = retries
        self._probe: Delivery | None = None
        """The delivery that is the probe."""
        self._probing_slice: SlicePlan | None = None
        """The slice that is, until it has ended."""
        self._failures: deque[tuple[int, Delivery]] = deque(maxlen=_MOST_REMEMBERED)
        """The deliveries that failed and were not spared, each with how many outcomes the breaker had taken in."""

    # Probes

    def record_sent(self, delivery: Delivery, now: float) -> None:
        """Note a delivery; while the breaker is open it is the probe, if it is time for one."""
        if self.breaker.may_probe(now):
            self._probe = delivery
            self.breaker.probe_sent()

    def slice_sent(self, plan: SlicePlan) -> None:
        self._probing_slice = plan
        self.breaker.probe_sent()

    def lost(self, shard_ids: Collection[str]) -> None:
        """Note that shards were lost: what became of their probe nobody will tell."""
        if any(delivery.shard_id in shard_ids for _, delivery in self._failures):
            kept = [(at, delivery) for at, delivery in self._failures if delivery.shard_id not in shard_ids]
            self._failures = deque(kept, self._failures.maxlen)
        of_slice = self._probing_slice is not None and self._probing_slice.shard_id in shard_ids
        if of_slice or (self._probe is not None and self._probe.shard_id in shard_ids):
            self._forget_probe()
            self.breaker.probe_lost()

    def resume(self) -> bool:
        self._forget_probe()
        return self.breaker.resume()

    def take_opened_by(self) -> list[Delivery]:
        """Name what had failed among the last outcomes when the breaker opened, and was not spared; once."""
        if not self._failures or not self.breaker.is_open:
            return []
        self._forget_old_failures()
        opened_by = [delivery for _, delivery in self._failures]
        self._failures.clear()
        return opened_by

    # Record by record

    def acked(self, shard_id: str, sequence: object) -> None:
        if not self.breaker.is_open:
            self.breaker.note(outcomes=1, failed=0, now=0.0)
        elif self._probe is not None and self._probe[:2] == (shard_id, sequence):
            self._passed()

    def acked_first_deliveries(self, count: int) -> None:
        """Note that so many were acked, none of which is the probe."""
        if not self.breaker.is_content:
            self.breaker.note(outcomes=count, failed=0, now=0.0)

    def failed(self, delivery: Delivery, fate: Fate, now: float) -> bool:
        """Note that a delivery came to ``fate``.

        Returns:
            Whether it is spared.
        """
        if fate is Fate.EXPIRED:
            return False
        if delivery == self._probe:
            if fate is Fate.REJECTED:
                self._passed()  # it was handled
            else:
                self._forget_probe()
                self.breaker.probe_failed(now)
        elif fate is Fate.REJECTED:
            self._note(1, [], now)
        elif fate is not Fate.PUT_OFF:
            self._note(int(delivery.attempt == 1), [delivery], now)
        return self._spares(now)

    # Slice by slice

    def settled(self, plan: SlicePlan, outcome: SliceOutcome, delivered: int | None, now: float) -> bool:
        """Note what came of a slice that is out.

        Args:
            plan: the slice.
            outcome: what came of it.
            delivered: how many of its records reached the handler; None: all that were not held.
            now: the time.

        Returns:
            Whether its failures are spared.
        """
        records = outcome.count if plan.is_fresh else len(plan.retries)
        delivered_failures = [failure for failure in outcome.failures if failure.was_delivered]
        handled = records - (len(outcome.failures) - len(delivered_failures))
        reached = handled if delivered is None else min(handled, delivered)
        failed = [failure for failure in delivered_failures if failure.fate is not Fate.REJECTED]
        if plan == self._probing_slice:
            self._probing_slice = None
            if plan.holes and handled and not reached:
                self.breaker.probe_missed()
            else:
                self._probe_settled(plan, outcome, reached, len(failed), now)
        else:
            again = sum(failure.attempt > 1 or failure.fate is Fate.PUT_OFF for failure in failed)
            deliveries = [
                Delivery(plan.shard_id, each.sequence, each.attempt)
                for each in failed
                if each.fate is not Fate.PUT_OFF
            ]
            outcomes = reached - again - len(outcome.open_records)
            last_in_row = _last_in_row(outcome) if plan.is_fresh and failed else 0
            self._note(outcomes, deliveries, now, last_in_row)
        return bool(outcome.failures) and self._spares(now)

    def died(self, plan: SlicePlan, now: float, *, guilty: Delivery | None) -> bool:
        """Note that the job of a slice died.

        Args:
            plan: the slice.
            now: the time.
            guilty: the delivery of its one record, if that isolates it.

        Returns:
            Whether that failure is spared.
        """
        if plan == self._probing_slice:
            self._probing_slice = None
            self.breaker.probe_failed(now)
        elif guilty is not None:
            self._note(int(guilty.attempt == 1), [guilty], now)
        return self._spares(now)

    def withdrawn(self, plan: SlicePlan, now: float) -> None:
        if plan == self._probing_slice:
            self._probing_slice = None
            self.breaker.probe_vanished(now)

    def _probe_settled(
        self, plan: SlicePlan, outcome: SliceOutcome, reached: int, failed: int, now: float
    ) -> None:
        if failed:
            self.breaker.probe_failed(now)
        elif not reached:
            self.breaker.probe_vanished(now)
        elif outcome.open_records:
            delivery = outcome.open_records[0]
            self._probe = Delivery(plan.shard_id, delivery.sequence, delivery.attempt)
        else:
            self._passed()

    def _spares(self, now: float) -> bool:
        """Whether what fails now does not count against its record's limit."""
        return self.breaker.is_open or (self._retries and self.breaker.doubts(now))

    def _note(self, outcomes: int, failed: Sequence[Delivery], now: float, last_in_row: int = 0) -> None:
        """Note so many outcomes, and what failed: first deliveries, which are outcomes, and others."""
        breaker = self.breaker
        if breaker.is_open:
            return
        if breaker.is_content:
            self._failures.clear()
        fresh = sum(each.attempt == 1 for each in failed)
        breaker.note(outcomes=max(0, outcomes), failed=fresh, now=now, last_in_row=last_in_row)
        if failed and not self._spares(now):
            self._failures.extend((breaker.noted, delivery) for delivery in failed)
            self._forget_old_failures()

    def _forget_old_failures(self) -> None:
        oldest = self.breaker.noted - self.breaker.rule.window
        while self._failures and self._failures[0][0] <= oldest:
            self._failures.popleft()

    def _passed(self) -> None:
        self._forget_probe()
        self.breaker.probe_passed()

    def _forget_probe(self) -> None:
        self._probe = self._probing_slice = None


def _last_in_row(outcome: SliceOutcome) -> int:
    """Count the first deliveries that failed at the end of a fresh slice, behind the last that was handled."""
    failures = {failure.index: failure for failure in outcome.failures}
    unknown = {delivery.index for delivery in outcome.open_records}
    row = 0
    for index in range(outcome.count - 1, -1, -1):
        failure = failures.get(index)
        if index in unknown or (failure is not None and _says_nothing(failure)):
            continue
        if failure is None or failure.fate is Fate.REJECTED:
            break
        row += 1
    return row


def _says_nothing(failure: FailedRecord) -> bool:
    return not failure.was_delivered or failure.fate is Fate.PUT_OFF or failure.attempt > 1
