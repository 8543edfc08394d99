"""Which deliveries of a record count against the retry limit, and what follows when one of them fails.

A delivery does not count if nothing was given up when it failed (it was *spared*: the circuit breaker was open, or
in doubt), or if the handler put the record off.
"""

from collections.abc import Callable
from typing import Final

from shard_state.checkpoint.hole_map import Attempts
from shard_state.local_shard.guarantee import Guarantee
from shard_state.retries.retry_policy import GiveUp, Retry, RetryPolicy
from shard_state.sequence_number import SequenceNumber
from shard_state.slices.slices import FailedRecord

MOST_PUT_OFF: Final = 1_000
"""So often a handler may put a record off before that counts as an attempt: nothing goes round for ever."""


class CountedAttempts:
    """The deliveries of one shard's records, as the retry limit counts them. Mutable."""

    def __init__(self, retry: RetryPolicy, guarantee: Guarantee, random: Callable[[], float]) -> None:
        self._retry = retry
        self._random = random
        self._guarantee = guarantee
        self.spared: dict[SequenceNumber, int] = {}
        """How many deliveries of unfinished records do not count: they failed while nothing was given up."""

    def decide(
        self,
        sequence: SequenceNumber,
        attempt: int,
        *,
        rejected: bool,
        delay_seconds: float | None,
        spare: bool,
        put_off: bool,
    ) -> Retry | GiveUp:
        """Decide upon a record whose delivery number ``attempt`` failed; see ``LocalShardState.fail``."""
        if self._guarantee is not Guarantee.AT_LEAST_ONCE:
            return GiveUp()
        spare = spare or (put_off and self.spared.get(sequence, 0) < MOST_PUT_OFF)
        if spare and not rejected:
            self.spare(sequence)
        # Where nothing counts the delays grow all the same: nobody knows for how long nothing will.
        counted = attempt if spare else max(1, attempt - self.spared.get(sequence, 0))
        return self._retry.decide(
            attempts=counted,
            random=self._random(),
            rejected=rejected,
            delay_seconds=delay_seconds,
            spare=spare,
        )

    def decide_failed(self, failure: FailedRecord, *, spare: bool) -> Retry | GiveUp | None:
        """Decide upon a record of a fresh slice; None if it was held, so that nothing failed."""
        if failure.held:
            return None
        if failure.expired:
            return GiveUp()
        return self.decide(
            failure.sequence,
            failure.attempt,
            rejected=failure.rejected,
            delay_seconds=failure.delay_seconds,
            spare=spare,
            put_off=failure.put_off,
        )

    def spare(self, sequence: SequenceNumber) -> None:
        self.spared[sequence] = self.spared.get(sequence, 0) + 1

    def within_limit(self, attempts: int) -> int:
        """Bound a stored attempt count, so that one delivery more stays within the limit (invariant 4).

        The last delivery of a record may have had no durable outcome: it was out, or its dead letter was not
        written. Then nobody knows how it ended, and it is made again under the same number.
        """
        return attempts if self._retry.limit is None else min(attempts, self._retry.limit)

    def without_spared(self, attempts: tuple[Attempts, ...]) -> tuple[Attempts, ...]:
        if not self.spared:
            return attempts
        counted = ((sequence, count - self.spared.get(sequence, 0)) for sequence, count in attempts)
        return tuple((sequence, count) for sequence, count in counted if count > 0)

    def put_off_until(self, delivered: int, now: float) -> float:
        """Say when a record that was delivered so often before the restart is due, if not now."""
        return now + self._retry.again(attempts=max(1, delivered), random=self._random()).delay_seconds
