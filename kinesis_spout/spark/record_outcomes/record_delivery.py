"""Hands the records of a DataFrame to a handler, inside the tasks that read them; only what failed comes back.

Runs on the executors, as the function of a ``mapInArrow``. For every failed record it gives a row with the
record itself, so that it can be delivered again without reading its source again, and at the end one row that
tells how many records the task delivered.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.model.columns import ARROW_TYPES, HANDLED_COLUMNS, HANDLED_SCHEMA, RECORD_COLUMNS, as_arrow
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Failure, failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.model.unfinished_work import refuse_unfinished
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.concurrency.record_run import NoNotes, RecordRun, RunRules
from kinesis_spout.spark.pickled_handler import PickledHandler

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ATTEMPT: Final = "attempt"
"""Which delivery it is. A DataFrame may lack it: then it is the first."""

_OUTCOMES: Final = {
    **HANDLED_COLUMNS,
    ATTEMPT: "int",
    "error": "string",
    "kind": "string",
    "traceback": "string",
    "rejected": "boolean",
    "delaySeconds": "double",
    # Of the row that ends a task; null where a row is a failed record.
    "delivered": "bigint",
    "lastInRow": "bigint",
    "overflowed": "boolean",
    "ambiguous": "string",
}
OUTCOMES_DDL: Final = ", ".join(f"{name} {type_}" for name, type_ in _OUTCOMES.items())

OUTCOMES_SCHEMA: Final = as_arrow(_OUTCOMES)

_OVERHEAD_BYTES: Final = 500
"""What a failed record weighs besides its data, its error and where that was raised, roughly."""

RecordFunction = Callable[[Record], object]
"""Returning acks the record, raising fails it."""


def check_columns(df: "DataFrame") -> list[str]:
    """Look at the columns that records are made of, and name them: the six, and those of user records if there.

    Raises:
        InvalidConfig: names those that are missing or of another type.
    """
    found = {column.name: column.dataType.simpleString() for column in df.schema.fields}
    wrong = [
        f"{name} {type_} ({f'got {found[name]}' if name in found else 'missing'})"
        for name, type_ in HANDLED_COLUMNS.items()
        if found.get(name, None if name in RECORD_COLUMNS else type_) != type_
    ]
    if wrong:
        raise InvalidConfig(
            f'each_record: expected a DataFrame with the columns of format("kinesis"), and among them '
            f"{', '.join(wrong)}; keep these columns as they are, and do the rest in the handler"
        )
    return [name for name in HANDLED_COLUMNS if name in found]


class PreparedHandler:
    """Calls ``handler(scheme(record))``."""

    def __init__(self, handler: Callable[[Any], object], scheme: Callable[[Record], Any]) -> None:
        self._handler = handler
        self._scheme = scheme

    def __call__(self, record: Record) -> object:
        returned = self._handler(self._scheme(record))
        if returned is not None:
            refuse_unfinished(returned)
        return returned


class DeliverRecords:
    """The function that Spark runs over the rows of a micro-batch. Picklable.

    Rows that lack ``subSequenceNumber`` and have one ``sequenceNumber`` came in one aggregated record, and nothing
    tells them apart: their dead letters would be taken for copies of one. A task that finds two stops calling the
    handler, and names them in its last row.

    Args:
        handler: returning acks a record, raising fails it; it may be one for several records at a time.
        max_failed_bytes: of failed records that one task gives back; None: no bound. A task in which more
            fails stops calling the handler, passes over the rest of its records, and says so in its last row,
            with the error that was one too many.
    """

    def __init__(
        self, handler: PickledHandler[RecordFunction | ConcurrentCalls], max_failed_bytes: int | None
    ) -> None:
        self._handler = handler
        self.max_failed_bytes = max_failed_bytes

    def again(self) -> "DeliverRecords":
        """Give the function for records that came back: what they weigh is bounded already."""
        return DeliverRecords(self._handler, None)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Deliver every record once, in the order of the rows. Gives batches of ``OUTCOMES_SCHEMA``."""
        handler = self._handler.load()
        failed_bytes = _FailedBytes(math.inf if self.max_failed_bytes is None else self.max_failed_bytes)
        delivered = last_in_row = 0
        names = _Names()
        for batch in batches:
            if failed_bytes.overflowed or names.ambiguous(batch) is not None:
                continue  # read to its end: a task that leaves its input unread costs Spark the worker
            if isinstance(handler, ConcurrentCalls):
                delivered_now, failed = _together(handler, batch, failed_bytes)
            else:
                delivered_now, failed = _one_by_one(handler, batch, failed_bytes)
            delivered += delivered_now
            at_end = _last_in_row(delivered_now, failed)
            last_in_row = at_end if at_end < delivered_now else last_in_row + at_end
            if failed and not failed_bytes.overflowed:
                yield _failures(batch, failed)
        end = {
            "delivered": [delivered],
            "lastInRow": [last_in_row],
            "overflowed": [failed_bytes.overflowed],
            "ambiguous": [names.found],
            "error": [failed_bytes.last_error],
        }
        yield _outcomes({name: pa.array(values) for name, values in end.items()}, 1)


class _FailedBytes:
    """What the failed records of a task weigh. Mutable."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._bytes = 0
        self.overflowed = False
        self.last_error: str | None = None
        """Of the record that was one too many."""

    def add(self, record: Record, failure: Failure) -> bool:
        """Add a record that failed. Returns whether it was one too many."""
        self._bytes += len(record.data) + _weight(failure)
        if self._bytes > self._most and not self.overflowed:
            self.overflowed, self.last_error = True, failure.error_text
        return self.overflowed


def _one_by_one(
    handler: RecordFunction, batch: pa.RecordBatch, failed_bytes: _FailedBytes
) -> tuple[int, list[tuple[int, Failure]]]:
    """Deliver rows until too much has failed. Returns how many, and which failed."""
    failed: list[tuple[int, Failure]] = []
    at = -1
    for at, record in enumerate(records_of(batch)):
        try:
            handler(record)
        except BaseException as error:  # noqa: BLE001 - whatever it raises fails its record
            failed.append((at, failure_of(error)))
            if failed_bytes.add(record, failed[-1][1]):
                break
    return at + 1, failed


def _last_in_row(delivered: int, failed: Sequence[tuple[int, Failure]]) -> int:
    """Count the rows that failed at the end, behind the last that was handled."""
    last_handled = delivered
    for at, failure in reversed(failed):
        if at != last_handled - 1 or failure.rejected:
            break
        last_handled = at
    return delivered - last_handled


def _together(
    calls: ConcurrentCalls, batch: pa.RecordBatch, failed_bytes: _FailedBytes
) -> tuple[int, list[tuple[int, Failure]]]:
    """Deliver rows several at a time; as ``_one_by_one``, but that what is under way then ends first."""
    records = list(records_of(batch))
    notes = _StopsAtOverflow(records, failed_bytes)
    run = notes.run = RecordRun(len(records), RunRules(concurrency=calls.concurrency), notes)
    calls(run, records, lambda: False)
    return run.begun, sorted(run.failures.items())


class _StopsAtOverflow(NoNotes):
    """Has a run stop when too much has failed. Mutable."""

    run: RecordRun

    def __init__(self, records: Sequence[Record], failed_bytes: _FailedBytes) -> None:
        super().__init__(len(records))
        self._records = records
        self._failed_bytes = failed_bytes

    def failed(self, at: int, failure: Failure) -> None:
        if self._failed_bytes.add(self._records[at], failure):
            self.run.stop()


class _Names:
    """Looks for two rows, one after the other, that are told apart by nothing. Mutable."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self.found: str | None = None
        """The shard's id and the sequence number of the first two."""

    def ambiguous(self, batch: pa.RecordBatch) -> str | None:
        """Look through the next rows. Returns ``found``."""
        if "subSequenceNumber" in batch.schema.names or not batch.num_rows or self.found is not None:
            return self.found
        shards, numbers = batch.column("shardId"), batch.column("sequenceNumber")
        same = pc.and_(*(pc.equal(column[1:], column[:-1]) for column in (shards, numbers)))
        row = pc.index(same, value=True).as_py()
        if self._last == (shards[0].as_py(), numbers[0].as_py()):
            row = 0
        if row >= 0:
            self.found = f"{shards[row]}:{numbers[row]}"
        self._last = (shards[-1].as_py(), numbers[-1].as_py())
        return self.found


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """Give the rows of a DataFrame with ``RECORD_COLUMNS``, or all of ``HANDLED_COLUMNS``, as records."""
    keys, data, streams, shards, sequences = (
        batch.column(name).to_pylist()
        for name in ("partitionKey", "data", "stream", "shardId", "sequenceNumber")
    )
    arrivals = arrival_seconds(batch.column("approximateArrivalTimestamp"))
    attempts = _attempts(batch).to_pylist()
    subs, hash_keys = (_maybe(batch, name).to_pylist() for name in ("subSequenceNumber", "explicitHashKey"))
    for at, sequence_number in enumerate(sequences):
        yield Record(
            data=data[at],
            sequence_number=sequence_number,
            partition_key=keys[at],
            arrival_timestamp=arrivals[at],
            stream=streams[at],
            shard_id=shards[at],
            attempt=attempts[at],
            sub_sequence_number=subs[at],
            explicit_hash_key=hash_keys[at],
        )


def arrival_seconds(column: Any) -> list[float | None]:
    """Give an Arrow column of timestamps, whatever their zone, as seconds since the epoch."""
    micros = column.cast(ARROW_TYPES["timestamp"]).cast(pa.int64()).to_pylist()
    return [None if value is None else value / 1e6 for value in micros]


def _maybe(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    return pa.nulls(batch.num_rows, HANDLED_SCHEMA.field(name).type)


def _attempts(batch: pa.RecordBatch) -> pa.Array:
    if ATTEMPT in batch.schema.names:
        return batch.column(ATTEMPT)
    return pa.array([1] * batch.num_rows, pa.int32())


def _failures(batch: pa.RecordBatch, failed: Sequence[tuple[int, Failure]]) -> pa.RecordBatch:
    rows = pa.array([at for at, _ in failed])
    failures = [failure for _, failure in failed]
    columns = {name: _maybe(batch, name).take(rows) for name in HANDLED_COLUMNS}
    columns[ATTEMPT] = _attempts(batch).take(rows)
    columns["error"] = pa.array([failure.error_text for failure in failures])
    raised = [failure.raised for failure in failures]
    columns["kind"] = pa.array([each and each.kind for each in raised], pa.string())
    columns["traceback"] = pa.array([each and each.traceback for each in raised], pa.string())
    columns["rejected"] = pa.array([failure.rejected for failure in failures])
    columns["delaySeconds"] = pa.array([failure.delay_seconds for failure in failures], pa.float64())
    return _outcomes(columns, len(failed))


def _weight(failure: Failure) -> int:
    traceback_chars = 0 if failure.raised is None else len(failure.raised.traceback)
    return len(failure.error_text) + traceback_chars + _OVERHEAD_BYTES


def _outcomes(columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            columns[column.name].cast(column.type) if column.name in columns else pa.nulls(rows, column.type)
            for column in OUTCOMES_SCHEMA
        ],
        schema=OUTCOMES_SCHEMA,
    )
