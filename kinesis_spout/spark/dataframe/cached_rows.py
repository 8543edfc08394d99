"""The rows of a micro-batch, fetched once and kept on the executors.

They are kept as the decoder makes them: blocks of Arrow, about a megabyte each, in an RDD that is
checkpointed locally. So keeping a row costs little: the JVM makes rows of the blocks when an action asks for
them. Blocks that are lost with an executor end the batch, which is planned again. They are never fetched
again behind the handler's back, with another end.

The outcomes of the slices return by an accumulator, so they need no separate job. Spark counts what a task
added once: when its first successful attempt ends. With speculation another attempt could leave its blocks
behind, which have another end; so a session that speculates is refused.
"""

import pickle
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.core.rdd import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from kinesis_spout.kinesis.read.arrow import user_sequence_at
from kinesis_spout.model.columns import HANDLED_SCHEMA
from kinesis_spout.model.errors import HandlerKilledWorker, InvalidConfig
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.spark.tasks.arrow_delivery import ArrowRows, ColumnsDelivery, records_of
from kinesis_spout.spark.tasks.delivery import DeliverySettings
from kinesis_spout.spark.tasks.jobs import SparkGone
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.structured.schema import columns_of
from kinesis_spout.structured.stream.partitions import in_chunks
from shard_state import SequenceNumber, SliceKind, SlicePlan

if TYPE_CHECKING:
    from kinesis_spout.kinesis import PollingShardGetter

_Outcomes = dict[str, list[bytes]]
"""Pickled ``CachedSlice``s, by the tag of their batch."""

RowId = tuple[str, str, int | None]
"""The id of a record: of its shard, its sequence number, and its index in an aggregated record, if any."""

RowNumber = tuple[str, int | None]
"""A ``RowId`` without the shard's id."""

Wanted = dict[str, set[RowNumber]]
"""Rows that are looked for, by their shards' ids."""


@dataclass(frozen=True, slots=True)
class RowRun:
    """Kept rows of a slice that were read one after the other, with nothing passed over in between."""

    row: int
    """The first one's number among the slice's kept rows."""
    index: int
    """Its number among the records read in the slice."""
    previous: SequenceNumber | None
    """The record read before it; None for the first of the slice."""


class CachingDelivery(ColumnsDelivery):
    """Acks every record of a slice, and keeps it as a row. Mutable.

    The user can fail every row: so there are, and are fetched, no more rows than failures can be kept.
    """

    def __init__(self, plan: SlicePlan, settings: DeliverySettings) -> None:
        super().__init__(plan, settings)
        self._most_rows = plan.max_failures if plan.room is None else plan.room
        # On its way to the one row of a probe it passes over all others.
        self._most_fetched = plan.limit if plan.deliveries is not None else min(plan.limit, self._most_rows)
        self._fetched = 0
        self.batches: list[pa.RecordBatch] = []
        self.runs: list[RowRun] = []

    @property
    def attempts(self) -> dict[SequenceNumber, int]:
        """Earlier deliveries of records; those that never were are missing."""
        return self._attempts

    @property
    def room(self) -> bool:
        return super().room and self.delivered < self._most_rows

    def fetch(self, getter: "PollingShardGetter", limit: int) -> Page:
        page = super().fetch(getter, min(limit, self._still_to_fetch))
        self._fetched += len(page.records)
        return page

    def wants_more_than(self, page: Page) -> bool:
        del page
        return self._still_to_fetch > 0

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        del until
        rows = ArrowRows.of(run[: self._most_rows - self.delivered])
        latest = self.runs[-1] if self.runs else None
        if latest is None or self.count - latest.index != self.delivered - latest.row:
            self.runs.append(RowRun(self.delivered, self.count, self.last))
        self.batches.append(rows.batch)
        self.delivered += len(rows)
        self.count += len(rows)
        self.last = user_sequence_at(rows.batch, len(rows) - 1)
        return len(rows)

    @property
    def _still_to_fetch(self) -> int:
        return self._most_fetched - self._fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedSlice:
    """The outcome of a slice if all its rows are acked, and where they are."""

    result: WorkResult
    partition: int
    blocks: range
    """The slice's blocks among those of the partition."""
    runs: tuple[RowRun, ...]
    attempts: Mapping[SequenceNumber, int]
    """Earlier deliveries; records that had none are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    """A kept row that was looked up, with what is needed to fail it."""

    slice: int
    """The index of its result in the batch."""
    record: Record
    index: int
    """Its number among the records read in the slice."""
    previous: SequenceNumber | None
    """The record read before it."""


class RowCache:
    """Fetches micro-batches, for one query. Raises InvalidConfig if the session speculates."""

    def __init__(self, spark: SparkSession, context: SparkContext, settings: TaskSettings) -> None:
        if context.getConf().get("spark.speculation", "false") == "true":
            raise InvalidConfig(
                "expected spark.speculation=false with foreach_batch, got true: two attempts of a task read a "
                "shard to different ends, and rows could be acked that the handler never saw"
            )
        self._spark = spark
        self._context = context
        self._settings = settings
        self._outcomes: Accumulator[_Outcomes] = context.accumulator({}, _ByTag())

    def fetch(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> "CachedRows":
        """Fetch slices, in one job, and keep their rows until ``release``.

        Raises what ``BatchRunner.run`` does; SparkGone also if the driver lost the outcomes.
        """
        fetch = FetchBlocks(self._settings.of_one_task(len(packs)), self._outcomes, tag)
        fetched = self._context.parallelize(packs, len(packs)).mapPartitionsWithIndex(fetch)
        blocks = fetched._reserialize(NoOpSerializer())  # noqa: SLF001 - no public way keeps bytes as they are
        blocks.localCheckpoint()
        try:
            blocks._jrdd.count()  # noqa: SLF001 - runs in the JVM; ``blocks.count`` would move them to Python
            return CachedRows(self._spark, blocks, self._fetched(tag, sum(map(len, packs))))
        except BaseException:
            blocks.unpersist()
            raise
        finally:
            self._outcomes.value.pop(tag, None)

    def _fetched(self, tag: str, planned: int) -> list[CachedSlice]:
        pickled = list(self._outcomes.value.get(tag, ()))
        if len(pickled) < planned:
            # Every task has ended well, so only the driver can have lost something: no record is to blame.
            raise SparkGone(
                f"expected the outcomes of {planned} slices, got {len(pickled)}: Spark could not pass on what its "
                "tasks accumulated; the driver's log says why. Start the query again"
            )
        if len(pickled) > planned:
            raise HandlerKilledWorker(
                f"expected the outcomes of {planned} slices, got {len(pickled)}: blocks were lost with an "
                "executor and fetched again, to another end"
            )
        return [pickle.loads(each) for each in pickled]  # noqa: S301 - pickled by our own tasks


class CachedRows:
    """The rows of one micro-batch, which exist until ``release``."""

    def __init__(self, spark: SparkSession, blocks: RDD[Any], slices: list[CachedSlice]) -> None:
        self._spark = spark
        self._blocks = blocks
        self._slices = slices

    @property
    def results(self) -> list[WorkResult]:
        return [each.result for each in self._slices]

    def frame(self) -> DataFrame:
        jvm: Any = self._spark._jvm  # noqa: SLF001 - made for SparkR; PySpark's own way goes through the driver
        columns = columns_of({"extraColumns": "subSequenceNumber,explicitHashKey"})
        assert columns.names == HANDLED_SCHEMA.names
        schema = jvm.org.apache.spark.sql.types.DataType.fromJson(columns.json())
        session = self._spark._jsparkSession  # noqa: SLF001
        rows = jvm.org.apache.spark.sql.api.r.SQLUtils.toDataFrame(self._blocks._jrdd, schema, session)  # noqa: SLF001
        return DataFrame(rows, self._spark)

    def find(self, row_ids: Iterable[RowId]) -> list[FoundRow]:
        """Look rows up, in one job; those that are not of the batch are not found."""
        wanted: Wanted = {}
        for shard_id, sequence_number, sub_sequence_number in row_ids:
            wanted.setdefault(shard_id, set()).add((sequence_number, sub_sequence_number))
        searched = {
            at: each
            for at, each in enumerate(self._slices)
            if each.blocks and each.result.plan.shard_id in wanted
        }
        if not searched:
            return []
        find = FindRows(searched, wanted)
        partitions = sorted({each.partition for each in searched.values()})
        rows: Any = self._blocks.mapPartitionsWithIndex(find)
        found: list[FoundRow] = self._spark.sparkContext.runJob(rows, list, partitions)
        return found

    def release(self) -> None:
        self._blocks.unpersist()


class _ByTag(AccumulatorParam[_Outcomes]):
    """Gathers the outcomes of several batches, which can run at the same time."""

    def zero(self, value: _Outcomes) -> _Outcomes:
        del value
        return {}

    def addInPlace(self, value1: _Outcomes, value2: _Outcomes) -> _Outcomes:  # noqa: N802 - Spark's name
        for tag, outcomes in value2.items():
            value1.setdefault(tag, []).extend(outcomes)
        return value1


class FetchBlocks:
    """Fetches the slices of one task, and yields their rows as blocks. Picklable."""

    def __init__(self, settings: TaskSettings, outcomes: Accumulator[_Outcomes], tag: str) -> None:
        self._settings = settings
        self._outcomes = outcomes
        self._tag = tag

    def __call__(self, partition: int, packs: Iterable[Sequence[WorkSlice]]) -> Iterator[pa.Buffer]:
        print_log_lines()
        for pack in packs:
            yield from self._blocks(partition, pack)

    def _blocks(self, partition: int, pack: Sequence[WorkSlice]) -> Iterator[pa.Buffer]:
        deliveries: dict[tuple[str, SliceKind], CachingDelivery] = {}

        def keep(plan: SlicePlan, rules: DeliverySettings) -> CachingDelivery:
            delivery = deliveries[plan.shard_id, plan.kind] = CachingDelivery(plan, rules)
            return delivery

        blocks = 0
        for result in run_slices(pack, self._settings, keep):
            delivery = deliveries.pop((result.plan.shard_id, result.plan.kind))
            first = blocks
            for batch in delivery.batches:
                for chunk in in_chunks(batch):
                    yield chunk.serialize()
                    blocks += 1
            kept = CachedSlice(
                result=result,
                partition=partition,
                blocks=range(first, blocks),
                runs=tuple(delivery.runs),
                attempts=delivery.attempts,
            )
            self._outcomes.add({self._tag: [pickle.dumps(kept)]})


class FindRows:
    """Looks up rows in the blocks of a partition. Picklable."""

    def __init__(self, slices: Mapping[int, CachedSlice], wanted: Wanted) -> None:
        self._slices = slices
        self._wanted = wanted

    def __call__(self, partition: int, blocks: Iterable[bytes]) -> Iterator[FoundRow]:
        here = {each.blocks: at for at, each in self._slices.items() if each.partition == partition}
        for number, block in enumerate(blocks):
            for among, at in here.items():
                if number == among.start:
                    kept = self._slices[at]
                    search = _Search(at, kept, self._wanted[kept.result.plan.shard_id])
                if number in among:
                    yield from search.found_in(pa.ipc.read_record_batch(pa.py_buffer(block), HANDLED_SCHEMA))


class _Search:
    def __init__(self, at: int, kept: CachedSlice, wanted: set[RowNumber]) -> None:
        self._at = at
        self._kept = kept
        self._wanted = wanted
        self._numbers = pa.array(sorted({number for number, _ in wanted}), pa.string())
        self._rows = 0
        self._last: SequenceNumber | None = None
        """The last of the rows looked through so far."""

    def found_in(self, batch: pa.RecordBatch) -> Iterator[FoundRow]:
        rows = pc.indices_nonzero(pc.is_in(batch.column("sequenceNumber"), value_set=self._numbers))
        for row, record in zip(rows.to_pylist(), records_of(batch.take(rows)), strict=True):
            if (record.sequence_number, record.sub_sequence_number) in self._wanted:
                previous = user_sequence_at(batch, row - 1) if row else self._last
                yield self._found(record, self._rows + row, previous)
        self._rows += batch.num_rows
        self._last = user_sequence_at(batch, batch.num_rows - 1)

    def _found(self, record: Record, row: int, previous: SequenceNumber | None) -> FoundRow:
        runs = self._kept.runs
        run = runs[bisect_right(runs, row, key=lambda run: run.row) - 1]
        record.attempt = self._kept.attempts.get(record.sequence, 0) + 1
        return FoundRow(
            slice=self._at,
            record=record,
            index=run.index + row - run.row,
            previous=run.previous if row == run.row else previous,
        )
