"""Delivers the records of a DataFrame inside the tasks that read them; only failed ones come back.

``DeliverRecords`` is the function of a ``mapInArrow``. It is the delivery of the record door
(``tasks.delivery``), with the batches of Arrow for slices. Its output is a column of pickled objects: a
``Failed`` for each record that failed, from which it is delivered again without another read of the source,
and a ``TaskEnd`` at the end of each task.
"""

import math
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.model.columns import HANDLED_COLUMNS, RECORD_COLUMNS
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.rows import records_of
from kinesis_spout.spark.tasks.delivery import DeliverySettings
from kinesis_spout.spark.tasks.handlers import AnyHandler, delivery_to
from kinesis_spout.spark.tasks.journal import SliceNotes
from kinesis_spout.spark.tasks.work import Unfinished
from shard_state import Order, Position, SliceKind, SlicePlan, UnackedRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PICKLED: Final = "pickled"
OUTCOMES_DDL: Final = f"{PICKLED} binary"

Failed = tuple[Unfinished, UnackedRecord]

_OVERHEAD_BYTES: Final = 500
"""The approximate size of a failed record without its data, its error and where that was raised."""
_NO_LIMIT: Final = 1 << 62
_WHOLE_BATCH: Final = SlicePlan(
    shard_id="",
    epoch=0,
    kind=SliceKind.RETRY,  # the rows can be of several shards
    limit=_NO_LIMIT,
    position=Position.trim_horizon(),
    max_failures=_NO_LIMIT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    delivered: int
    overflowed_by: str | None
    """The error of the failed record that exceeded the bound; None if none did."""
    ambiguous: str | None
    """The shard's id and the sequence number of the first two rows that nothing tells apart."""


def check_columns(df: "DataFrame") -> list[str]:
    """The columns that records are made of. Raises InvalidConfig: some are missing or of another type."""
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


def table_of(objects: Iterable[object]) -> pa.Table:
    return pa.table({PICKLED: pa.array([pickle.dumps(each) for each in objects], pa.binary())})


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    failures: list[Failed]
    ends: list[TaskEnd]

    @classmethod
    def of(cls, outcomes: pa.Table) -> Self:
        given = [pickle.loads(each.as_py()) for each in outcomes.column(PICKLED)]  # noqa: S301 - pickled by our own tasks
        ends = [each for each in given if isinstance(each, TaskEnd)]
        return cls(failures=[each for each in given if not isinstance(each, TaskEnd)], ends=ends)

    @property
    def delivered(self) -> int:
        return sum(end.delivered for end in self.ends)


class DeliverRecords:
    """The function that Spark runs over the rows of a micro-batch, or over ``table_of`` records. Picklable.

    Rows that lack ``subSequenceNumber`` and have one ``sequenceNumber`` came in one aggregated record: their
    dead letters would be taken for copies of one. A task that finds two stops calling the handler, and names
    them at its end. So does a task whose failed records exceed ``max_failed_bytes`` (None: no bound).
    """

    def __init__(self, handler: PickledHandler[AnyHandler], max_failed_bytes: int | None) -> None:
        self._handler = handler
        self.max_failed_bytes = max_failed_bytes

    def again(self) -> "DeliverRecords":
        """For records that came back: their bytes are bounded already."""
        return DeliverRecords(self._handler, None)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        handler = self._handler.load()
        notes = _BoundedNotes(math.inf if self.max_failed_bytes is None else self.max_failed_bytes)
        rules = DeliverySettings(order=Order.UNORDERED, clock=monotonic, notes=notes)
        names = _Names()
        delivered = 0
        for batch in batches:
            if notes.must_stop or names.ambiguous(batch) is not None:
                continue  # read to its end: a task that leaves its input unread costs Spark the worker
            notes.records = _records(batch)
            delivery = delivery_to(handler, _WHOLE_BATCH, rules)
            delivery.deliver(notes.records, math.inf)
            delivered += delivery.delivered
            if delivery.failures and not notes.must_stop:
                failed = zip(delivery.unfinished, delivery.failures, strict=True)
                yield from table_of(failed).to_batches()
        end = TaskEnd(
            delivered=delivered,
            overflowed_by=notes.overflowed_by,
            ambiguous=names.found,
        )
        yield from table_of([end]).to_batches()


def _records(batch: pa.RecordBatch) -> list[Record]:
    if batch.schema.names == [PICKLED]:
        return [pickle.loads(each.as_py()) for each in batch.column(0)]  # noqa: S301 - pickled by our own driver
    return list(records_of(batch))


class _BoundedNotes(SliceNotes):
    """Stops a task when its failed records are too large. Mutable."""

    def __init__(self, max_bytes: float) -> None:
        super().__init__(None, 0)
        self._room = max_bytes
        self.records: Sequence[Record] = ()
        """Of the batch that is delivered."""
        self.overflowed_by: str | None = None

    def failed(self, at: int, failure: Failure) -> bool:
        traceback_chars = 0 if failure.raised is None else len(failure.raised.traceback)
        said = len(failure.error_text) + traceback_chars
        self._room -= len(self.records[self.base + at].data) + said + _OVERHEAD_BYTES
        if self._room < 0 and self.overflowed_by is None:
            self.overflowed_by = failure.error_text
            self.stop()
        return self.must_stop


class _Names:
    """Looks for two consecutive rows that nothing tells apart. Mutable."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self.found: str | None = None
        """The shard's id and the sequence number of the first two."""

    def ambiguous(self, batch: pa.RecordBatch) -> str | None:
        names = batch.schema.names
        if "sequenceNumber" not in names or "subSequenceNumber" in names or not batch.num_rows or self.found:
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
