"""Settings of every reader of shards."""

from dataclasses import dataclass, replace
from typing import Final, Self

from kinesis_spout.kinesis.pace import BYTES_PER_SECOND, MIN_INTERVAL_SECONDS, ReadPace

MAX_RECORDS: Final = 10_000
"""AWS: the most records that one GetRecords returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """Settings of a consumer, a query or a batch read for all its shards. Can be pickled.

    Options of ``settings.table`` have the same names here.
    """

    fail_on_data_loss: bool = True
    """True if a lost position is an error; if not, reading continues at the oldest record, with a warning."""
    deaggregate: bool = True
    tracing: bool = False
    """True if user records get the trace context of their producers."""
    max_records_per_fetch: int = MAX_RECORDS
    fetch_period_seconds: float = MIN_INTERVAL_SECONDS
    """Between two reads of a shard, at least."""
    max_fetch_bytes_per_second: float = BYTES_PER_SECOND
    """The limits of one shard."""
    max_total_fetch_bytes_per_second: int | None = None
    """The limit of all shards together; None: none."""
    fan_out_consumer: str | None = None
    """The registered consumer that Kinesis pushes the shards' records to; None: they are polled."""
    extra_columns: tuple[str, ...] = ()
    """Columns that ``read_arrow`` adds, of ``model.columns.EXTRA_COLUMNS``."""

    @property
    def pace(self) -> ReadPace:
        return ReadPace(
            interval_seconds=self.fetch_period_seconds, bytes_per_second=self.max_fetch_bytes_per_second
        )

    def for_one_of(self, shards: int) -> Self:
        """Divide the total rate by the number of shards that tasks read at the same time."""
        if self.max_total_fetch_bytes_per_second is None:
            return self
        part = self.max_total_fetch_bytes_per_second / max(1, shards)
        return replace(self, max_fetch_bytes_per_second=min(self.max_fetch_bytes_per_second, part))


DEFAULT: Final = ReadSettings()
"""As fast as AWS allows, nothing skipped."""
