"""Records that are too old to be delivered, and what becomes of them: `maximum_record_age_seconds`.

Kinesis dates a record when it arrives, and that date stays: a record that waits for its retry grows older. A
record without a date is never too old.
"""

from dataclasses import dataclass

from kinesis_spout.model.clock import moment
from kinesis_spout.model.record import Record
from kinesis_spout.settings import SpoutConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAge:
    arrived_from: float
    """Records that arrived before this are too old; seconds since the epoch."""
    maximum_seconds: float
    skips: bool
    """True if such a record is skipped; otherwise it is dead-lettered."""

    @classmethod
    def of(cls, config: SpoutConfig, now: float) -> "RecordAge | None":
        """``now`` is in seconds since the epoch. None if the spout has no such rule."""
        maximum = config.maximum_record_age_seconds
        if maximum is None:
            return None
        return cls(
            arrived_from=now - maximum, maximum_seconds=maximum, skips=config.expired_records == "skip"
        )

    def expires(self, arrived_at: float | None) -> bool:
        return arrived_at is not None and arrived_at < self.arrived_from

    def error(self, record: Record) -> str:
        arrived_at = record.arrival_timestamp
        assert arrived_at is not None
        return (
            f"expired: it arrived at {moment(arrived_at)} and was to be delivered more than "
            f"{self.maximum_seconds:g} s later"
        )
