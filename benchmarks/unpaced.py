"""Reading without Kinesis' read limits, which an endpoint that has none does not need.

Five reads and 2 MB a second are what a shard gives, so every client waits most of the time. What a client can do
by itself shows only without: so ``bench_sources`` lifts the limits for all who have a way to.
"""

import dataclasses
import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader

from kinesis_spout.kinesis import pacing
from kinesis_spout.structured.data_source import KinesisDataSource
from kinesis_spout.structured.options import StreamReadOptions
from kinesis_spout.structured.stream_reader import KinesisStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def lift_read_limits() -> None:
    """Let this process read a shard as often and as fast as it can."""
    pacing.MIN_INTERVAL_SECONDS = 0.0  # type: ignore[misc]
    pacing.BYTES_PER_SECOND = sys.maxsize  # type: ignore[misc]


class UnpacedKinesis(KinesisDataSource):
    """``format("kinesis")`` without the limits, under another name."""

    @classmethod
    def name(cls) -> str:
        """Give the name for ``format(...)``."""
        return "kinesis_unpaced"

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Called in the reader's process, where the limits are kept."""
        lift_read_limits()
        options = StreamReadOptions.of(dict(self.options))
        return KinesisStreamReader(dataclasses.replace(options, max_fetch_bytes_per_second=sys.maxsize))
