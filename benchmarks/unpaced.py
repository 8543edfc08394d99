"""``format("kinesis")`` without Kinesis' read limits; see ``read_limits`` for why."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader
from read_limits import lift_read_limits

from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.structured.data_source import KinesisDataSource
from kinesis_spout.structured.stream.stream_reader import KinesisStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class UnpacedKinesis(KinesisDataSource):
    """``format("kinesis")`` without the limits, under another name."""

    @classmethod
    def name(cls) -> str:
        """Give the name for ``format(...)``."""
        return "kinesis_unpaced"

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Called in the reader's process, where the limits are kept."""
        lift_read_limits()
        return KinesisStreamReader(StreamReadOptions.of(dict(self.options)))
