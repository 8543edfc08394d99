"""The counts and measurements of a consumer."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, NamedTuple, Self

from kinesis_spout.model.distribution import AGES, ATTEMPTS, CALLS, HANDLING, Distribution

_MAX_KINDS: Final = 50
"""Kinds of given-up records; further ones are counted together, so that a monitor's series are bounded."""
_OTHERS: Final = "others"
_ACKS_FOR_AN_AGE: Final = 8
"""The age of one in so many records that are acked one by one is looked at."""


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counts since the start. Mutable; any thread may read it."""

    delivered: int = 0
    """Deliveries to the user's code, retries included."""
    acked: int = 0
    retried: int = 0
    timed_out: int = 0
    """Deliveries that the message time-out ended. For a job on Spark: the records known to be to blame."""
    batches_timed_out: int = 0
    """Jobs on Spark that were cancelled because they outlived the message time-out."""
    given_up: int = 0
    """Records that were given up; their dead letters are written before long."""
    dead_lettered: int = 0
    """The durable dead letters of those."""
    expired: int = 0
    """Records that were older than `maximum_record_age_seconds` when they were to be delivered."""
    skipped: int = 0
    """Those of them that were not dead-lettered, as `expired_records` says."""
    bytes_read: int = 0
    throttled: int = 0
    damaged_aggregates: int = 0
    """Records read that begin like an aggregated record and are damaged. They are delivered as they are."""
    records_outside_shard: int = 0
    """User records read that lie outside their shard by their hash keys. They are delivered like the others."""
    commits: int = 0
    shards_trimmed: int = 0
    """The times that retention can have trimmed records of a shard, or a whole shard, before they were read."""

    @classmethod
    def total(cls, counters: Iterable[Self]) -> Self:
        total = cls()
        for each in counters:
            for field in fields(cls):
                setattr(total, field.name, getattr(total, field.name) + getattr(each, field.name))
        return total

    @property
    def finished(self) -> int:
        return self.acked + self.dead_lettered + self.skipped


class GivenUpKind(NamedTuple):
    reason: str
    """As in the dead letter: exhausted, rejected or expired."""
    error: str
    """The type of the exception, or ``NO_EXCEPTION``."""


class Figures:
    """The measurements for monitors. Mutable; guarded by the consumer's lock."""

    def __init__(self) -> None:
        self._attempts = Distribution(ATTEMPTS)
        self._at_once = 0
        """Acks of first deliveries that ``_attempts`` does not have yet: they are nearly all there are."""
        self.ages = Distribution(AGES)
        """Seconds from a record's arrival to the end of its handling; a sample."""
        self.handling = Distribution(HANDLING)
        """Seconds of user code for one record: on Spark the mean of its slice, in plain Python until its end."""
        self.commits = Distribution(CALLS)
        """Seconds of a commit."""
        self.given_up: Counter[GivenUpKind] = Counter()
        self.committed_at: float | None = None
        """When everything that was finished had been stored; monotonic, None before the first time."""
        self._acks = 0

    @property
    def attempts(self) -> Distribution:
        """Deliveries that an acked record took."""
        self._attempts.add(1, self._at_once)
        self._at_once = 0
        return self._attempts

    def gave_up(self, reason: str, error: str) -> None:
        kind = GivenUpKind(reason, error)
        if kind not in self.given_up and len(self.given_up) >= _MAX_KINDS:
            kind = GivenUpKind(reason, _OTHERS)
        self.given_up[kind] += 1

    def acked(self, attempt: int) -> bool:
        """Count the ack of a record's delivery; returns whether its age is to be measured."""
        if attempt == 1:
            self._at_once += 1
        else:
            self._attempts.add(attempt)
        self._acks += 1
        return self._acks % _ACKS_FOR_AN_AGE == 1

    def acked_at_age(self, seconds: float) -> None:
        self.ages.add(max(0.0, seconds), _ACKS_FOR_AN_AGE)
