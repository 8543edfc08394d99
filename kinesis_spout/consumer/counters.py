"""What a consumer counts."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counts since the start. Mutable; any thread may read it."""

    delivered: int = 0
    """Deliveries to the user's code, retries included."""
    acked: int = 0
    coalesced: int = 0
    """Records finished without a delivery, because a later one of their key was handled in their place."""
    retried: int = 0
    timed_out: int = 0
    """Deliveries that the message time-out ended. Of a job on Spark: the records known to be to blame."""
    batches_timed_out: int = 0
    """Jobs on Spark that were cancelled because they outlived the message time-out."""
    given_up: int = 0
    """Records that were given up; their dead letters are written before long."""
    dead_lettered: int = 0
    """Of those, the durable dead letters."""
    expired: int = 0
    """Records that were older than `maximum_record_age_seconds` when they were to be delivered."""
    skipped: int = 0
    """Of those, the ones that were not dead-lettered, as `expired_records` says."""
    bytes_read: int = 0
    throttled: int = 0
    damaged_aggregates: int = 0
    """Records read that begin like an aggregated record and are damaged. They are delivered as they are."""
    records_outside_shard: int = 0
    """User records read that lie outside their shard by their hash keys. They are delivered like the others."""
    commits: int = 0
    shards_trimmed: int = 0
    """Shards that retention trimmed away before their end was read. Their unread records are lost."""

    @classmethod
    def total(cls, counters: Iterable[Self]) -> Self:
        total = cls()
        for each in counters:
            for field in fields(cls):
                setattr(total, field.name, getattr(total, field.name) + getattr(each, field.name))
        return total

    @property
    def finished(self) -> int:
        return self.acked + self.coalesced + self.dead_lettered + self.skipped
