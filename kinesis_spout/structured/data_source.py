"""The entry to ``format("kinesis")``: makes readers and writers for Spark.

Spark imports this in every session, whether it reads Kinesis or not: so heavy imports wait until they are
used.
"""

import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from kinesis_spout.model.extras import check_spark

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

    from kinesis_spout.processes.executor_python import check_packages
except ImportError:
    check_spark('format("kinesis")')
    raise

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class KinesisDataSource(DataSource):
    """``format("kinesis")``: Kinesis for Spark SQL; streaming read, batch read, streaming write, batch write.

    Args:
        options: see ``kinesis_spout.settings.source_options``. Checked when a reader or a writer is made, which is
            before anything is read or written.

    Raises:
        InvalidConfig: the Python that Spark plans in lacks what this package needs.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        check_packages()
        self.options = options
        self._made_at = time.time()
        """PySpark 4.0 makes a reader for every action; LATEST must mean the same for all of them."""

    @classmethod
    def name(cls) -> str:
        return "kinesis"

    def schema(self) -> "StructType":
        """The columns. Raises InvalidConfig for options that are unknown or wrong."""
        from kinesis_spout.structured.schema import columns_of

        return columns_of(dict(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        from kinesis_spout.settings.source_options import BatchReadOptions
        from kinesis_spout.structured.batch_reader import KinesisBatchReader
        from kinesis_spout.structured.schema import check_columns, with_those_of_table

        options = BatchReadOptions.of(with_those_of_table(self.options, schema))
        check_columns(schema, options.read.extra_columns)
        return KinesisBatchReader(options, now=self._made_at)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from kinesis_spout.model.errors import InvalidConfig
        from kinesis_spout.settings.source_options import StreamReadOptions
        from kinesis_spout.structured.schema import check_columns, with_those_of_table
        from kinesis_spout.structured.stream.stream_reader import KinesisStreamReader, RefusedStreamReader

        try:
            options = StreamReadOptions.of(with_those_of_table(self.options, schema))
            check_columns(schema, options.read.extra_columns)
        except InvalidConfig as error:
            return RefusedStreamReader(str(error))
        return KinesisStreamReader(options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from kinesis_spout.settings.source_options import WriteOptions
        from kinesis_spout.structured.write.writer import KinesisBatchWriter

        return KinesisBatchWriter(WriteOptions.of(dict(self.options)), schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from kinesis_spout.settings.source_options import WriteOptions
        from kinesis_spout.structured.write.writer import KinesisStreamWriter

        return KinesisStreamWriter(WriteOptions.of(dict(self.options)), schema, overwrite=overwrite)


class KinesisSpoutDataSource(KinesisDataSource):
    """``format("kinesis_spout")``: the same, for platforms whose Spark has a source ``kinesis`` of its own."""

    @classmethod
    def name(cls) -> str:
        return "kinesis_spout"
