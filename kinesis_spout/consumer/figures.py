"""What a consumer measures for monitors, beside its counters."""

from collections import Counter
from typing import Final, NamedTuple

from kinesis_spout.model.distribution import AGES, ATTEMPTS, CALLS, HANDLING, Distribution

_MAX_KINDS: Final = 50
"""Of given-up records; further ones are counted together, so that a monitor's series are bounded."""
_OTHERS: Final = "others"
_ACKS_FOR_AN_AGE: Final = 8
"""Of records that are acked one by one, the age of one in so many is looked at."""


class GivenUp(NamedTuple):
    reason: str
    """As in the dead letter: exhausted, rejected or expired."""
    error: str
    """The type of the exception; empty if nothing was raised."""


class Figures:
    """Mutable; guarded by the consumer's lock."""

    def __init__(self) -> None:
        self.attempts = Distribution(ATTEMPTS)
        """Deliveries that an acked record took."""
        self.ages = Distribution(AGES)
        """Seconds from a record's arrival to the end of its handling; a sample."""
        self.handling = Distribution(HANDLING)
        """Seconds of user code for one record: the mean of its slice."""
        self.commits = Distribution(CALLS)
        """Seconds of a commit."""
        self.given_up: Counter[GivenUp] = Counter()
        self.committed_at: float | None = None
        """When everything that was finished had been stored; monotonic, None before the first time."""
        self._acks = 0

    def gave_up(self, reason: str, error: str) -> None:
        kind = GivenUp(reason, error)
        if kind not in self.given_up and len(self.given_up) >= _MAX_KINDS:
            kind = GivenUp(reason, _OTHERS)
        self.given_up[kind] += 1

    def acked(self, count: int, attempt: int) -> range:
        """Count acks of deliveries, each its record's ``attempt``; returns whose age is to be measured."""
        self.attempts.add(attempt, count)
        before, self._acks = self._acks, self._acks + count
        return range(-before % _ACKS_FOR_AN_AGE, count, _ACKS_FOR_AN_AGE)

    def acked_at_age(self, seconds: float) -> None:
        self.ages.add(max(0.0, seconds), _ACKS_FOR_AN_AGE)
