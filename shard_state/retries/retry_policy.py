"""Whether and when a failed record is delivered again.

The delay before the n-th retry is ``min(cap, backoff * multiplier ** (n - 1))``, shortened by a random share
of up to ``jitter``, so that records that failed together do not come back together. The random number is
passed in: the policy is a function.
"""

import math
from dataclasses import dataclass, field
from typing import Final

OUTAGE_CAP_SECONDS: Final = 15.0
"""The longest delay while the handler, and no record, seems to be at fault: so soon is its mend noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Deliver the record again, ``delay_seconds`` from now."""

    delay_seconds: float
    spared: bool = field(default=False, compare=False)
    """The delivery that failed does not count against the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The record has had its last delivery: dead-letter it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The rule for retries.

    Every Storm spout gave 0 and "no limit" another meaning. Here ``limit`` counts deliveries after the first:
    0 never retries, None retries for ever.
    """

    limit: int | None = 3
    backoff_seconds: float = 1.0
    multiplier: float = 2.0
    cap_seconds: float = 60.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        allowed = {
            "limit": (self.limit is None or self.limit >= 0, "None or at least 0"),
            "backoff_seconds": (self.backoff_seconds >= 0, "at least 0"),
            "multiplier": (1 <= self.multiplier < math.inf, "at least 1, and finite"),
            "cap_seconds": (
                self.backoff_seconds <= self.cap_seconds < math.inf,
                "at least backoff_seconds, and finite",
            ),
            "jitter": (0 <= self.jitter <= 1, "0 to 1"),
        }
        for name, (fits, range_) in allowed.items():
            if not fits:
                raise ValueError(f"expected {name} to be {range_}, got {getattr(self, name)!r}")

    def decide(
        self,
        *,
        attempts: int,
        random: float,
        rejected: bool = False,
        delay_seconds: float | None = None,
        spare: bool = False,
    ) -> Retry | GiveUp:
        """Decide upon a record that has just failed.

        Args:
            attempts: how often it was delivered, this time included: 1 or more.
            random: from [0, 1).
            rejected: the handler said that no retry can help.
            delay_seconds: the handler's own wish, which replaces the computed delay.
            spare: give nothing up but what is rejected, whatever the limit, and delay it for no longer than
                ``OUTAGE_CAP_SECONDS``.
        """
        if rejected or (not spare and self.limit is not None and attempts > self.limit):
            return GiveUp()
        delay = self._delay(attempts, random, delay_seconds)
        if spare and delay_seconds is None:
            delay = min(delay, OUTAGE_CAP_SECONDS)
        return Retry(delay_seconds=delay, spared=spare)

    def again(self, *, attempts: int, random: float, delay_seconds: float | None = None) -> Retry:
        """Say when something is tried again, whatever the limit. The arguments are those of ``decide``."""
        return Retry(delay_seconds=self._delay(attempts, random, delay_seconds))

    def _delay(self, attempts: int, random: float, delay_seconds: float | None) -> float:
        if delay_seconds is not None:
            return max(0.0, delay_seconds)
        return self._backoff(attempts) * (1 - self.jitter * random)

    def _backoff(self, attempts: int) -> float:
        if self.backoff_seconds == 0:
            return 0.0
        # Compared as logarithms: multiplier ** attempts overflows long before a patient record gives up.
        exponent = (attempts - 1) * math.log(self.multiplier)
        if exponent >= math.log(self.cap_seconds / self.backoff_seconds):
            return self.cap_seconds
        return self.backoff_seconds * math.exp(exponent)
