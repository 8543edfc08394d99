"""The DataFrame door: the records of a micro-batch as one DataFrame, failures named by the handler.

The executors fetch the slices and keep their rows (``cached_rows``) before the handler sees them: so several
actions on the DataFrame read Kinesis once and see the same rows. The fetch of the other doors runs here with
a delivery that acks everything; afterwards the driver cuts what the user's handler fails out of the outcomes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from time import monotonic
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession

from kinesis_spout.model.errors import HandlerKilledWorker, InvalidConfig
from kinesis_spout.model.handler import Failure, failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.model.unfinished_work import refuse_unfinished
from kinesis_spout.spark.dataframe.cached_rows import CachedRows, FoundRow, RowCache, RowId
from kinesis_spout.spark.tasks.jobs import (
    HandlerBroken,
    HandlerRaised,
    SparkRunner,
    lost_rows,
    tagged,
)
from kinesis_spout.spark.tasks.task import TaskSettings
from kinesis_spout.spark.tasks.work import Unfinished, WorkResult, WorkSlice, failed_record

_NAMING: Final = frozenset({"shardId", "sequenceNumber"})
_SUB: Final = "subSequenceNumber"

DataFrameFunction = Callable[[DataFrame, "Collector"], object]


class Collector:
    """Passed to a DataFrame handler with each batch, to say which of its rows failed. Mutable."""

    def __init__(self) -> None:
        self.failures: dict[RowId, Failure] = {}

    def __repr__(self) -> str:
        return f"Collector(failed={len(self.failures)})"

    def fail(self, rows: DataFrame | Iterable[Row | dict[str, Any]], reason: str | Exception) -> None:
        """Fail rows: they are delivered again, or dead-lettered past the retry limit.

        Args:
            rows: a DataFrame (it is collected: three columns of it) or rows, with at least the columns ``shardId``
                and ``sequenceNumber`` of the batch, and ``subSequenceNumber`` where it is not null: it tells the
                rows of one aggregated record apart.
            reason: kept with each record; ``Reject`` and ``RetryLater`` mean what they do when raised.

        Raises InvalidConfig: the rows lack ``shardId`` or ``sequenceNumber``.
        """
        failure = failure_of(reason) if isinstance(reason, Exception) else Failure(error_text=reason)
        if isinstance(rows, DataFrame):
            missing = _NAMING.difference(rows.columns)
            if missing:
                raise _lacking(missing)
            rows = rows.select(*_NAMING, *{_SUB}.intersection(rows.columns)).collect()
        for row in rows:
            named = row.asDict() if isinstance(row, Row) else row
            missing = _NAMING.difference(named)
            if missing:
                raise _lacking(missing)
            self.failures[named["shardId"], named["sequenceNumber"], _index(named.get(_SUB))] = failure


class DataFrameRunner(SparkRunner):
    """A ``BatchRunner`` that passes each micro-batch to a handler on the driver, as a DataFrame."""

    def __init__(
        self,
        spark: SparkSession,
        context: SparkContext,
        settings: TaskSettings,
        function: DataFrameFunction,
    ) -> None:
        super().__init__(context)
        self._cache = RowCache(spark, context, settings)
        self._function = function

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        """Run slices; an exception of the handler fails the batch as a whole: it is halved."""
        with tagged(self._context, tag):
            rows = self._cache.fetch(tag, packs)
            try:
                return handled(self._function, rows)
            finally:
                rows.release()


def handled(function: DataFrameFunction, rows: CachedRows) -> list[WorkResult]:
    """Pass rows to a handler, and return the outcomes of their slices.

    Raises:
        HandlerRaised: the handler did; nothing is known of the rows.
        HandlerKilledWorker: rows were lost with an executor under the handler.
        HandlerBroken, InvalidConfig: it failed what cannot be failed; no row is to blame.
    """
    if not any(result.delivered for result in rows.results):
        return rows.results
    collector, began = Collector(), monotonic()
    try:
        returned = function(rows.frame(), collector)
        if returned is not None:
            refuse_unfinished(returned)
    except InvalidConfig:
        raise  # a misuse of the collector
    except BaseException as error:
        if lost_rows(error):
            raise HandlerKilledWorker("an executor was lost that kept rows of the batch") from error
        raise HandlerRaised(f"the DataFrame handler raised {failure_of(error).error_text}") from error
    results = with_failures(rows, collector.failures) if collector.failures else rows.results
    return _timed(results, monotonic() - began)


def _timed(results: Sequence[WorkResult], seconds: float) -> list[WorkResult]:
    """Divide the time of the handler among its rows."""
    rows = sum(result.delivered for result in results)
    return [replace(result, handling_seconds=seconds * result.delivered / rows) for result in results]


def with_failures(rows: CachedRows, failures: Mapping[RowId, Failure]) -> list[WorkResult]:
    """Cut the failed rows out of the outcomes. Raises HandlerBroken for rows that are not of the batch."""
    found = rows.find(failures)
    if len(found) < len(failures):
        known = {_row_id(row.record) for row in found}
        shard_id, number, sub = next(row_id for row_id in failures if row_id not in known)
        raise HandlerBroken(
            f"expected collector.fail with rows of this batch, got {shard_id}:{number}"
            f"{'' if sub is None else f':{sub}'}, which is not in it (and {len(failures) - len(known) - 1} more). "
            "Pass rows of the DataFrame you were given, with their shardId, sequenceNumber and subSequenceNumber: "
            "the last one tells the rows of one aggregated record apart"
        )
    by_slice: dict[int, list[FoundRow]] = {}
    for row in found:
        by_slice.setdefault(row.slice, []).append(row)
    return [_cut(result, by_slice.get(at, []), failures) for at, result in enumerate(rows.results)]


def _cut(result: WorkResult, rows: list[FoundRow], failures: Mapping[RowId, Failure]) -> WorkResult:
    found = [(row, failures[_row_id(row.record)]) for row in sorted(rows, key=lambda row: row.index)]
    failed = tuple(
        failed_record(row.record, failure, index=row.index, previous=row.previous) for row, failure in found
    )
    unfinished = tuple(
        Unfinished(record=row.record, error=failure.error_text, raised=failure.raised)
        for row, failure in found
    )
    outcome = replace(result.outcome, failures=result.outcome.failures + failed)
    return replace(result, outcome=outcome, unfinished=result.unfinished + unfinished)


def _row_id(record: Record) -> RowId:
    return record.shard_id, record.sequence_number, record.sub_sequence_number


def _index(sub_sequence_number: float | None) -> int | None:
    """Read a sub-sequence number; pandas makes a float of it, and NaN of a null."""
    if sub_sequence_number is None or isnan(sub_sequence_number):
        return None
    return int(sub_sequence_number)


def _lacking(columns: Collection[str]) -> InvalidConfig:
    return InvalidConfig(
        "expected rows with the columns shardId and sequenceNumber, which say which records failed; "
        f"these lack {', '.join(sorted(columns))}"
    )
