"""The DataFrame door: the records of a micro-batch as one DataFrame, failures named by the handler.

The executors fetch the slices into a DataFrame, which is kept (local checkpoint) before the handler sees it: so
several actions on it read Kinesis once and see the same rows. Blocks that are lost with an executor end the
batch, which is planned again; they are never fetched anew behind the handler's back, with another end.

The same fetch that serves the other doors runs here with a handler that acks everything and keeps the rows; what
the user's handler fails is cut out of the outcomes afterwards, on the driver.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkContext, StorageLevel, cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.handler import Failure, failure_of
from kinesis_spout.kinesis import SCHEMA
from kinesis_spout.kinesis.arrow import batch_of_records
from kinesis_spout.record import Record
from kinesis_spout.spark.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.jobs import HandlerBroken, HandlerRaised, cancel, has_begun, tagged
from kinesis_spout.spark.task import TaskSettings, run_slices
from kinesis_spout.spark.work import Unfinished, WorkResult, WorkSlice
from shard_state import FailedRecord, SequenceNumber, SliceKind

COLUMNS: Final = SCHEMA.names
_ARROW_SCHEMA: Final = pa.schema(
    [
        *SCHEMA,
        ("_kind", pa.string()),
        ("_index", pa.int32()),
        ("_previous", pa.string()),
        ("_attempt", pa.int32()),
        ("_result", pa.binary()),
    ]
)
"""Behind the public columns: what is needed to fail a row later; in the last row of a slice, its result."""
_SPARK_SCHEMA: Final = (
    "partitionKey string, data binary, stream string, shardId string, sequenceNumber string, "
    "approximateArrivalTimestamp timestamp, "
    "_kind string, _index int, _previous string, _attempt int, _result binary"
)
_ROWS_PER_BATCH: Final = 2_000

DataFrameFunction = Callable[[DataFrame, "Collector"], None]


class Collector:
    """Given to a DataFrame handler with each batch, to say which of its rows failed. Mutable."""

    def __init__(self) -> None:
        self.failures: dict[tuple[str, str], Failure] = {}
        """By (shardId, sequenceNumber)."""

    def fail(self, rows: DataFrame | Iterable[Row | dict[str, Any]], reason: str | Exception) -> None:
        """Fail rows: they are delivered again, or dead-lettered past the retry limit.

        Args:
            rows: a DataFrame (it is collected: two columns of it) or rows, with at least the columns
                ``shardId`` and ``sequenceNumber`` of the batch.
            reason: kept with each record; ``Reject`` and ``RetryLater`` mean what they do when raised.

        Raises:
            InvalidConfig: the rows lack one of the two columns.
        """
        failure = failure_of(reason) if isinstance(reason, Exception) else Failure(error_text=reason)
        if isinstance(rows, DataFrame):
            missing = {"shardId", "sequenceNumber"}.difference(rows.columns)
            if missing:
                raise _lacking(missing)
            rows = rows.select("shardId", "sequenceNumber").collect()
        for row in rows:
            named = row.asDict() if isinstance(row, Row) else row
            missing = {"shardId", "sequenceNumber"}.difference(named)
            if missing:
                raise _lacking(missing)
            self.failures[named["shardId"], named["sequenceNumber"]] = failure


class DataFrameRunner:
    """A ``BatchRunner`` that hands each micro-batch to a handler on the driver, as a DataFrame."""

    def __init__(
        self,
        spark: SparkSession,
        context: SparkContext,
        settings: TaskSettings,
        function: DataFrameFunction,
    ) -> None:
        self._spark = spark
        self._context = context
        self._settings = settings
        self._function = function

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        """See ``BatchRunner``. An exception of the handler fails the batch as a whole: it is halved."""
        with tagged(self._context, tag):
            fetched = self._fetch(packs)
            try:
                return self._handle(fetched)
            finally:
                _release(fetched)

    def has_begun(self, tag: str) -> bool:
        """See ``BatchRunner``."""
        return has_begun(self._context, tag)

    def cancel(self, tag: str) -> None:
        """See ``BatchRunner``."""
        cancel(self._context, tag)

    def _fetch(self, packs: Sequence[Sequence[WorkSlice]]) -> DataFrame:
        dumped = [(bytearray(cloudpickle.dumps(list(pack))),) for pack in packs]  # type: ignore[no-untyped-call]
        slices = self._context.parallelize(dumped, len(dumped)).toDF("slices binary")
        fetch = FetchRows(self._settings)
        return slices.mapInArrow(fetch, _SPARK_SCHEMA).localCheckpoint(
            eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK
        )

    def _handle(self, fetched: DataFrame) -> list[WorkResult]:
        outcomes = fetched.where("_result is not null").select("_result").collect()
        results: list[WorkResult] = [cloudpickle.loads(row["_result"]) for row in outcomes]
        collector = Collector()
        if any(result.delivered for result in results):
            rows = fetched.where("_result is null")
            try:
                self._function(rows.select(*COLUMNS), collector)
            except InvalidConfig:
                raise  # a misuse of the collector: no row is to blame
            except BaseException as error:
                raise HandlerRaised(f"the DataFrame handler raised {failure_of(error).error_text}") from error
            if collector.failures:
                return _with_failures(results, rows, collector.failures)
        return results


def _release(fetched: DataFrame) -> None:
    """Free the blocks of a local checkpoint now; ``unpersist`` leaves them to the next garbage collection."""
    fetched._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001 - no public way


class FetchRows:
    """Fetches the slices of one task, as rows, followed by one row for each slice's result. Picklable."""

    def __init__(self, settings: TaskSettings) -> None:
        self._settings = settings

    def __call__(self, packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs in ``mapInArrow``."""
        for batch in packs:
            for dumped in batch.column(0).to_pylist():
                yield from self._rows(cloudpickle.loads(dumped))

    def _rows(self, pack: Sequence[WorkSlice]) -> Iterator[pa.RecordBatch]:
        kept: dict[tuple[str, SliceKind], _KeepingDelivery] = {}

        def keep(work: WorkSlice, rules: DeliverySettings) -> SliceDelivery:
            delivery = kept[work.plan.shard_id, work.plan.kind] = _KeepingDelivery(work, rules)
            return delivery

        for result in run_slices(pack, self._settings, keep):
            rows = kept[result.plan.shard_id, result.plan.kind].rows
            for start in range(0, len(rows), _ROWS_PER_BATCH):
                yield _batch_of(rows[start : start + _ROWS_PER_BATCH], result.plan.kind)
            yield _batch_of_result(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A record that was handed over, and what is needed to fail it later."""

    record: Record
    index: int
    previous: SequenceNumber | None


class _KeepingDelivery(SliceDelivery):
    """Acks every record of a slice, and keeps it as a row. Mutable."""

    def __init__(self, work: WorkSlice, settings: DeliverySettings) -> None:
        super().__init__(work, settings)
        self.rows: list[_Kept] = []
        self._most_rows = work.plan.max_failures if work.plan.room is None else work.plan.room

    @property
    def room(self) -> bool:
        """See ``SliceDelivery``. The user may fail every row, so there are no more than may be kept then."""
        return super().room and len(self.rows) < self._most_rows

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        """See ``SliceDelivery``."""
        del until
        part = run[: self._most_rows - len(self.rows)]
        for record in part:
            self.rows.append(_Kept(record=record, index=self.count, previous=self.last))
            self.pass_over(record)
        self.delivered += len(part)
        return len(part)


def _batch_of(rows: Sequence[_Kept], kind: SliceKind) -> pa.RecordBatch:
    records = [row.record for row in rows]
    public = batch_of_records(records, stream=records[0].stream, shard_id=records[0].shard_id)
    hidden = [
        pa.array([kind.name] * len(rows), pa.string()),
        pa.array([row.index for row in rows], pa.int32()),
        pa.array([None if row.previous is None else str(row.previous) for row in rows], pa.string()),
        pa.array([record.attempt for record in records], pa.int32()),
        pa.nulls(len(rows), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays([*public.columns, *hidden], schema=_ARROW_SCHEMA)


def _batch_of_result(result: WorkResult) -> pa.RecordBatch:
    pickled = cloudpickle.dumps(result)  # type: ignore[no-untyped-call]
    columns = [pa.nulls(1, field.type) for field in _ARROW_SCHEMA]
    columns[-1] = pa.array([pickled], pa.binary())
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def _with_failures(
    results: list[WorkResult], rows: DataFrame, failures: dict[tuple[str, str], Failure]
) -> list[WorkResult]:
    """Cut the failed rows out of the outcomes. Rows that were not of the batch are an error."""
    wanted = rows.sparkSession.createDataFrame(list(failures), "shardId string, sequenceNumber string")
    found = rows.join(sf.broadcast(wanted), ["shardId", "sequenceNumber"], "left_semi").collect()
    if len(found) < len(failures):
        known = {(row["shardId"], row["sequenceNumber"]) for row in found}
        unknown = next(place for place in failures if place not in known)
        raise HandlerBroken(
            f"expected collector.fail with rows of this batch, got {unknown[0]}:{unknown[1]}, which is not in "
            f"it (and {len(failures) - len(known) - 1} more). Pass rows of the DataFrame you were given"
        )
    by_slice: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        by_slice.setdefault((row["shardId"], row["_kind"]), []).append(row)
    return [
        _cut(result, by_slice.get((result.plan.shard_id, result.plan.kind.name), []), failures)
        for result in results
    ]


def _cut(result: WorkResult, rows: list[Row], failures: dict[tuple[str, str], Failure]) -> WorkResult:
    rows = sorted(rows, key=lambda row: int(row["_index"]))
    failed: list[FailedRecord] = []
    unfinished: list[Unfinished] = []
    for row in rows:
        failure = failures[row["shardId"], row["sequenceNumber"]]
        record = _record(row)
        previous = row["_previous"]
        failed.append(
            FailedRecord(
                index=row["_index"],
                sequence=record.sequence,
                previous=None if previous is None else SequenceNumber.parse(previous),
                attempt=record.attempt,
                partition_key=record.partition_key,
                rejected=failure.rejected,
                delay_seconds=failure.delay_seconds,
            )
        )
        unfinished.append(Unfinished(record=record, error=failure.error_text))
    outcome = replace(result.outcome, failures=result.outcome.failures + tuple(failed))
    return replace(result, outcome=outcome, unfinished=result.unfinished + tuple(unfinished))


def _record(row: Row) -> Record:
    arrival = row["approximateArrivalTimestamp"]
    return Record(
        data=bytes(row["data"]),
        sequence_number=row["sequenceNumber"],
        partition_key=row["partitionKey"],
        arrival_timestamp=None if arrival is None else arrival.timestamp(),
        stream=row["stream"],
        shard_id=row["shardId"],
        attempt=row["_attempt"],
    )


def _lacking(columns: set[str]) -> InvalidConfig:
    return InvalidConfig(
        "expected rows with the columns shardId and sequenceNumber, which say which records failed; "
        f"these lack {', '.join(sorted(columns))}"
    )
