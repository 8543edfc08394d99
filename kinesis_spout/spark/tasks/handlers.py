"""Calls of the user's code on an executor: record by record, several at a time, or by Arrow batches."""

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.model.handler import Failure, failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.model.unfinished_work import (
    is_coroutine_function,
    refuse_generator_function,
    refuse_unfinished,
)
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.tasks.concurrent_delivery import ConcurrentDelivery
from kinesis_spout.spark.tasks.delivery import (
    DeliverySettings,
    Failed,
    Handler,
    HandlerDelivery,
    SliceDelivery,
)
from kinesis_spout.spark.tasks.journal import UNDER_WAY, SliceNotes
from shard_state import SlicePlan

if TYPE_CHECKING:
    import pyarrow as pa

_LOOK_UP_SECONDS: Final = 0.1
"""The interval at which a record handler checks whether the driver still waits for its records."""

ArrowFunction = Callable[["pa.RecordBatch", "ArrowCollector"], object]
RecordFunction = Callable[[Any], object]
AnyHandler = Handler | ConcurrentCalls

_log = logging.getLogger(__name__)


def record_handler(
    function: RecordFunction,
    scheme: Callable[[Record], Any],
    *,
    concurrency: int,
    timeout_seconds: float | None,
    traced_for: str | None = None,
) -> AnyHandler:
    """Return what calls ``function(scheme(record))``, by default on the task's own thread.

    ``traced_for``: the application, if records' spans are to be made.

    Raises:
        InvalidConfig: it is a generator function.
    """
    refuse_generator_function("handler", function)
    is_coroutine = is_coroutine_function(function)
    if traced_for is not None:
        from kinesis_spout.tracing import traced  # noqa: PLC0415 - it needs an extra

        function, scheme = traced(function, scheme, traced_for), _unchanged
    if concurrency == 1 and timeout_seconds is None and not is_coroutine:
        return RecordHandler(function, scheme)
    if concurrency == 1 and is_coroutine:
        _log.info("the handler is an async def and is given one record at a time: set concurrency for more")
    return ConcurrentCalls(function, scheme, concurrency=concurrency, timeout_seconds=timeout_seconds)


def _unchanged(record: Record) -> Record:
    return record


def delivery_to(handler: AnyHandler, plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
    """Make the delivery of a slice to a handler."""
    if isinstance(handler, ConcurrentCalls):
        return ConcurrentDelivery(plan, handler, rules)
    if isinstance(handler, ArrowHandler) and handler.takes_columns:
        from kinesis_spout.spark.tasks.arrow_delivery import ArrowDelivery  # noqa: PLC0415 - it needs pyarrow

        return ArrowDelivery(plan, handler, rules)
    return HandlerDelivery(plan, handler, rules)


class RecordHandler:
    """Calls ``function(scheme(record))`` for each record. Returning acks it, raising fails it."""

    def __init__(self, function: RecordFunction, scheme: Callable[[Record], Any]) -> None:
        self._function = function
        self._scheme = scheme

    def __call__(
        self, records: Sequence[Record], until: float, notes: SliceNotes
    ) -> tuple[int, list[Failed]]:
        failed: list[Failed] = []
        function, scheme, words = self._function, self._scheme, notes.words
        look_up_at, index = min(until, monotonic() + _LOOK_UP_SECONDS), notes.base - 1
        for index, record in enumerate(records, notes.base):
            words[UNDER_WAY] = index
            try:
                returned = function(scheme(record))
                if returned is not None:
                    refuse_unfinished(returned)
            except BaseException as error:  # noqa: BLE001 - whatever it raises fails its record
                failure = failure_of(error)
                failed.append((index - notes.base, failure))
                if notes.failed(index - notes.base, failure):
                    break
            now = monotonic()
            if now >= look_up_at:
                if notes.tick() or now >= until:
                    break
                look_up_at = min(until, now + _LOOK_UP_SECONDS)
        return index + 1 - notes.base, failed


class ArrowCollector:
    """Passed to an Arrow handler with each batch, to say which of its rows failed. Mutable."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.failures: dict[int, Failure] = {}

    def __repr__(self) -> str:
        return f"ArrowCollector(rows={self._rows}, failed={len(self.failures)})"

    def fail(self, rows: int | Sequence[int], reason: str | Exception) -> None:
        """Fail rows of the batch: they are delivered again, or dead-lettered past the retry limit.

        Args:
            rows: the row's index in the batch, or several.
            reason: kept with the record; ``Reject`` and ``RetryLater`` mean what they do when raised.

        Raises:
            IndexError: the batch has no such row.
        """
        failure = failure_of(reason) if isinstance(reason, Exception) else Failure(error_text=reason)
        for row in [rows] if isinstance(rows, int) else rows:
            if not 0 <= row < self._rows:
                raise IndexError(f"expected a row of the batch, 0 to {self._rows - 1}, got {row}")
            self.failures[int(row)] = failure


class ArrowHandler:
    """Calls ``function(batch, collector)``. Returning acks all rows but those given to the collector.

    When it raises, the batch is halved and each half is tried, down to the single row, which then fails. So a
    poison row costs its neighbours repeated calls, never a failed delivery; a handler with side effects
    should rather name the failed rows to the collector.
    """

    takes_columns = True
    """True if it needs no more of a record than its row has."""

    def __init__(self, function: ArrowFunction) -> None:
        self._function = function

    def __call__(
        self, records: Sequence[Record], until: float, notes: SliceNotes
    ) -> tuple[int, list[Failed]]:
        del until  # a batch that was begun is finished, whatever the time
        from kinesis_spout.spark.tasks.arrow_delivery import ArrowRows  # noqa: PLC0415 - the other handlers need no pyarrow

        return len(records), self._handle(ArrowRows.of(records).batch, 0, notes)

    def _handle(self, batch: "pa.RecordBatch", offset: int, notes: SliceNotes) -> list[Failed]:
        collector = ArrowCollector(batch.num_rows)
        notes.together(offset, batch.num_rows)
        notes.tick()
        try:
            returned = self._function(batch, collector)
            if returned is not None:
                refuse_unfinished(returned)
        except BaseException as error:  # noqa: BLE001 - whatever it raises fails its row
            if batch.num_rows > 1:
                half = batch.num_rows // 2
                first, second = batch.slice(0, half), batch.slice(half)
                return self._handle(first, offset, notes) + self._handle(second, offset + half, notes)
            collector.failures = {0: failure_of(error)}
        failed = [(offset + row, failure) for row, failure in sorted(collector.failures.items())]
        for at, failure in failed:
            notes.failed(at, failure)
        return failed


class TracedArrowHandler(ArrowHandler):
    """An ``ArrowHandler`` whose batches have spans."""

    takes_columns = False  # The trace context of a record is no column.

    def __init__(self, function: ArrowFunction, application: str) -> None:
        from kinesis_spout.tracing import ProcessTracing  # noqa: PLC0415 - it needs an extra

        super().__init__(function)
        self._tracing = ProcessTracing(application=application)

    def __call__(
        self, records: Sequence[Record], until: float, notes: SliceNotes
    ) -> tuple[int, list[Failed]]:
        with self._tracing.processing_batch(records) as span:
            reached, failed = super().__call__(records, until, notes)
            if span is not None and failed:
                span.set_attribute("kinesis_spout.failed", len(failed))
            return reached, failed
