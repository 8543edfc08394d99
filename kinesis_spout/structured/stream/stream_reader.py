"""The streaming read of ``format("kinesis")``: answers Spark's calls from ``ReadAhead``.

Spark keeps one of these in a separate process next to the driver, and sends copies to the executors, which
only ``read``. It calls, in this order: ``latestOffset`` from where the last batch ended, ``partitions`` of
the batch in between, ``commit`` of the one before. When it calls ``latestOffset`` again, everything before is
done.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.settings.setting_messages import respell
from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.settings.table.spelling import as_option, said_as_options
from kinesis_spout.structured.offsets import QueryOffset
from kinesis_spout.structured.stream.partitions import ShardRanges, in_tasks, read_ranges
from kinesis_spout.structured.stream.planning import BatchLimits
from kinesis_spout.structured.stream.read_ahead import ReadAhead

# Spark's read limits came with PySpark 4.2; before it, Spark does not ask for any.
try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.0 and 4.1
    from dataclasses import dataclass

    class ReadLimit:  # type: ignore[no-redef]
        """See PySpark 4.2."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """See PySpark 4.2."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """See PySpark 4.2. Before it, such a query takes one batch of what was fetched."""


_NO_LIMIT: Final = (1 << 63) - 1

_log = logging.getLogger(__name__)


@contextmanager
def one_message() -> Iterator[None]:
    """Raise our errors in the words of the options, without causes: Spark would show every traceback."""
    try:
        yield
    except KinesisSpoutError as error:
        respell(error, as_option)
        raise error from None


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams for one query. Mutable; on executors only ``read`` is called."""

    def __init__(self, options: StreamReadOptions) -> None:
        self._options = options
        self._ahead: ReadAhead | None = None
        self._until: float | None = None
        self._latest: dict[str, Any] | None = None
        """The end of the last batch; PySpark before 4.2 does not pass it."""

    def __reduce__(self) -> tuple[type["KinesisStreamReader"], tuple[StreamReadOptions]]:
        """Only the options travel."""
        return KinesisStreamReader, (self._options,)

    @one_message()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Spark asks again when it replays the first batch: so every end offset alone defines its data."""
        self._latest = self._opened().first_offset().as_document()
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the time: what arrives later is left to the next query."""
        self._until = time.time()
        self.stop()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Never ``ReadAllAvailable``: when Spark passes that, the query takes what is available, once."""
        return ReadMaxRows(self._options.max_records_per_trigger or _NO_LIMIT)

    @one_message()
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next batch, or ``start`` if nothing came within a second.

        Args:
            start: where the last batch ended; None under PySpark before 4.2.
            limit: the query's own, or ``ReadAllAvailable``: ``trigger(once=True)`` takes all that is
                available in one batch, but for the children of shards that end in it.

        Raises what ends a query: see ``ReadAhead``. Transient errors do not.
        """
        if isinstance(limit, ReadAllAvailable) and self._until is None:
            self.prepareForTriggerAvailableNow()
        document = start if start is not None else self._latest
        if document is None:
            document = self.initialOffset()
        known = QueryOffset.from_document(document, self._options.streams)
        ahead = self._opened()
        ahead.streams.rejoin(known)
        current = ahead.advance(known)
        end = ahead.wait_for_batch(current, self._limits(limit))
        if end is None and current.unlogged:
            # An empty batch, so that Spark's log has what LATEST was before anything is read, and which
            # streams are gone before one of the same name can come.
            end = current.without_read()
        self._latest = document if end is None else end.as_document()
        return self._latest

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The metrics that Spark shows in the progress, as ``sources[].latestOffset``."""
        return None if self._ahead is None else self._ahead.progress().as_document()

    @one_message()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._latest = end
        if start == end:
            return []
        offset = QueryOffset.from_document(end, self._options.streams)
        ahead = self._opened()
        ahead.streams.rejoin(offset)
        ranges = ahead.ranges(offset)
        options = self._options
        settings = ahead.settings_of(offset).for_one_of(len(ranges))
        pages = ahead.server_address() if any(shard.segments for shard in ranges) else None
        tasks = in_tasks(
            ranges, bytes_per_task=options.bytes_per_task, shards_per_task=options.shards_per_task
        )
        return [ShardRanges(task, client=options.client, settings=settings, pages=pages) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ShardRanges)
        print_log_lines(spell=as_option)
        with said_as_options():
            yield from read_ranges(partition)

    def stop(self) -> None:
        """End the threads. Spark calls this only after an error; else it ends the process."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _opened(self) -> ReadAhead:
        if self._ahead is None:
            print_log_lines(level=self._options.log_level, spell=as_option)
            ahead = ReadAhead(self._options, until=self._until)
            try:
                ahead.open()
            except BaseException:
                ahead.close()
                raise
            self._ahead = ahead
        return self._ahead

    def _limits(self, limit: ReadLimit | None) -> BatchLimits:
        if isinstance(limit, ReadAllAvailable):
            return BatchLimits(takes_all=True)
        return BatchLimits(
            rows=self._options.max_records_per_trigger, bytes=self._options.max_bytes_per_trigger
        )


class RefusedStreamReader(DataSourceStreamReader):
    """Replaces a reader whose options are wrong: its first call raises ``InvalidConfig``.

    PySpark 4.3 hides what is raised while a reader is made behind its own ``UnboundLocalError``.
    """

    def __init__(self, message: str) -> None:
        self._message = message

    def _refuse(self, *_asked: object, **_named: object) -> NoReturn:
        raise InvalidConfig(self._message)

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - Spark's names


__all__ = ["KinesisStreamReader", "ReadAllAvailable", "RefusedStreamReader", "one_message"]
