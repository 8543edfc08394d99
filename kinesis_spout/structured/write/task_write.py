"""What a task of a write does: opens what it needs, writes its partition, closes."""

from collections.abc import Iterable
from contextlib import ExitStack, closing

from kinesis_spout.clock import SystemClock
from kinesis_spout.dead_letters.sink_url import check_once, open_sink
from kinesis_spout.kinesis.perseverance import Patience
from kinesis_spout.kinesis.write.put_records import CallLimits
from kinesis_spout.settings.source_options import WriteOptions
from kinesis_spout.settings.table.spelling import said_as_options
from kinesis_spout.structured.write.rejected_rows import DeadLetteredRows, RefusedRows, RejectedRows
from kinesis_spout.structured.write.row_putter import RowPutter
from kinesis_spout.structured.write.written import Written
from kinesis_spout.structured.write.written_columns import RowValues


@said_as_options()
def write_partition(options: WriteOptions, rows: Iterable[RowValues], partition: int) -> Written:
    """Return when every row is on its stream, or durably a dead letter. Raises like ``RowPutter.write``."""
    clock = SystemClock()
    client = options.client.connect()
    patience = Patience(deadline_seconds=options.deadline_seconds, clock=clock)
    limits = CallLimits(records=options.max_records_per_call, size_bytes=options.max_bytes_per_call)
    with ExitStack() as closing_last:
        rejected: RejectedRows
        if options.dead_letters is None:
            rejected = RefusedRows(partition)
        else:
            url = options.dead_letters
            sink = closing_last.enter_context(closing(open_sink(url, client=client, aws=options.client)))
            check_once(url, sink, aws=options.client)
            rejected = DeadLetteredRows(sink, partition, clock)
        putter = RowPutter(
            client,
            patience=patience,
            limits=limits,
            rejected=rejected,
            order=options.order,
            aggregate_bytes=options.aggregate_bytes,
        )
        return putter.write(rows, partition)
