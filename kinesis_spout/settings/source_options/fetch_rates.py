"""How fast a read is, in every read's options."""

from dataclasses import dataclass, replace

from kinesis_spout.kinesis.pace import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRates:
    """The rates of one query, or of one batch read."""

    max_fetch_bytes_per_second: int
    """Of one shard."""
    max_total_fetch_bytes_per_second: int | None
    """Of all shards together; None: no limit."""
    fetch_period_seconds: float
    """Between two reads of a shard, at least."""

    @property
    def pace(self) -> Pace:
        """Give the pace of one shard, as far as it does not depend on the others."""
        return Pace(
            interval_seconds=self.fetch_period_seconds, bytes_per_second=self.max_fetch_bytes_per_second
        )

    def pace_of_one(self, shards: int) -> Pace:
        """Give the pace of each of so many shards that tasks read beside each other, with nobody to lend."""
        pace = self.pace
        if self.max_total_fetch_bytes_per_second is None:
            return pace
        part = self.max_total_fetch_bytes_per_second / max(1, shards)
        return replace(pace, bytes_per_second=min(pace.bytes_per_second, part))
