"""``df.write.format("kinesis")`` and ``df.writeStream.format("kinesis")``.

**At least once.** A task puts its rows with PutRecords, and reports only when every row is on its stream or
durably a dead letter. Kinesis has no transactions: a repeated task, a speculative copy of one, a micro-batch
that is repeated after a restart, and a call whose answer was lost, put records again. Records that an aborted
job has put stay.

**Order.** Each task puts the rows of one partition key in the order it has them; between tasks there is none,
so repartition by the key to have it. Kinesis can refuse some records of a call and take others: a refused one
then comes behind the later ones of its key in that call, of which there are at most 500, and never behind
those of later calls. With ``order`` key no call has two rows of one key, unless they are in one aggregated
record: the first copies of a key's rows are in order. A row that can never be taken holds up no other.

**Back-pressure.** Refused records are put again, with exponential back-off and jitter. A shard that refuses
holds up its own records, until as many wait as a task may hold.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kinesis_spout.dead_letters.sink_url import check_url
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.settings.table.spelling import as_option, said_as_options
from kinesis_spout.structured.write.written_columns import Written, WrittenColumns

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from kinesis_spout.settings.source_options import WriteOptions
else:
    # PySpark 4.0 gives rows to streaming writers; WrittenColumns takes both.
    DataSourceStreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )

Messages = Sequence[WriterCommitMessage | None]

_log = logging.getLogger(__name__)


class _Writing:
    """The common part of both writers. Travels to the executors. Raises InvalidConfig."""

    def __init__(self, options: "WriteOptions", schema: "StructType", *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidConfig(
                "mode: expected append, got overwrite; records of a stream cannot be replaced. Say "
                '.mode("append") for a write, .outputMode("append") or "update" for a streaming one'
            )
        if options.dead_letters is not None:
            with said_as_options():
                check_url(options.dead_letters)
        self._options = options
        self._columns = WrittenColumns.of(schema, partition_key=options.partition_key, stream=options.stream)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one partition; called by Spark in a task.

        Raises:
            KinesisError, UnwritableRow, DeadLetterError: the task fails. The text says what is on Kinesis.
        """
        # The driver starts a process for each micro-batch that needs none of this.
        from kinesis_spout.structured.write.row_putter import write_partition  # noqa: PLC0415

        context = TaskContext.get()
        assert context is not None, "Spark calls write in a task"
        print_log_lines(spell=as_option)
        return write_partition(self._options, self._columns.values(iterator), context.partitionId())

    def commit(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803 - Spark's name
        print_log_lines(spell=as_option)
        written = Written.sum_of(messages)
        level = logging.WARNING if written.dead_lettered else logging.INFO
        _log.log(level, "%s: %s", _what(batchId), written)

    def abort(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803 - Spark's name
        """Log what a failed job has left on Kinesis."""
        print_log_lines(spell=as_option)
        _log.warning(
            "%s failed. Its tasks that succeeded wrote: %s. This stays, and so does what the others wrote "
            "before they failed",
            _what(batchId),
            Written.sum_of(messages),
        )


class KinesisBatchWriter(_Writing, DataSourceArrowWriter):
    """Writes a DataFrame once."""


class KinesisStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes every micro-batch of a query."""


def _what(batch: int | None) -> str:
    return "Write" if batch is None else f"Micro-batch {batch}"
