"""The delays of retries.

The delay before the n-th retry is ``min(cap, backoff * multiplier ** (n - 1))``, shortened by a random share
of up to ``jitter``, so that records that failed together do not come back together. The random number is
passed in: the policy is a function.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from shard_state.blame import History

OUTAGE_CAP_SECONDS: Final = 15.0
"""The longest delay of a record that is tried beyond its limit: so soon is the mend of a handler noticed."""

_MOST_SUMMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Deliver the record again, ``delay_seconds`` from now."""

    delay_seconds: float
    history: History | None = field(default=None, compare=False)
    """The history of the record from now on."""


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

    def after(self, history: History, *, random: float, delay_seconds: float | None = None) -> Retry:
        """Say when a record with such a history is tried again.

        Args:
            history: of the record.
            random: from [0, 1).
            delay_seconds: a wish for the delay, which replaces the computed one.
        """
        if delay_seconds is not None:
            return Retry(delay_seconds=max(0.0, delay_seconds), history=history)
        delay = self._backoff(max(1, history.failures)) * (1 - self.jitter * random)
        if history.spared:
            delay = min(delay, OUTAGE_CAP_SECONDS)
        return Retry(delay_seconds=delay, history=history)

    @property
    def all_seconds(self) -> float:
        """The most time that all retries take together; without a limit, the first three."""
        limit = 3 if self.limit is None else self.limit
        return sum(self._backoff(attempts) for attempts in range(1, min(limit, _MOST_SUMMED) + 1))

    def _backoff(self, attempts: int) -> float:
        if self.backoff_seconds == 0:
            return 0.0
        # Compared as logarithms: multiplier ** attempts overflows long before a patient record gives up.
        exponent = (attempts - 1) * math.log(self.multiplier)
        if exponent >= math.log(self.cap_seconds / self.backoff_seconds):
            return self.cap_seconds
        return self.backoff_seconds * math.exp(exponent)
