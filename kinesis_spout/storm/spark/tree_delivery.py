"""Delivers the records of a slice into a topology, and remembers those whose trees stay open."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, repeat
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from kinesis_spout.model.errors import StateError
from kinesis_spout.model.handler import failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.work import Unfinished as UnfinishedRecord
from kinesis_spout.spark.tasks.work import WorkResult, failed_record
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.blocks import ForDriver, RecordBlock
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.running.trees import root_of
from shard_state import SequenceNumber, SlicePlan, UnackedRecord


class ToValues(Protocol):
    """Makes a tuple's values of a record. Anything it raises fails the record."""

    def __call__(self, record: Record, /) -> Sequence[Any]: ...


class SpoutValues:
    """Makes a tuple's values of what the scheme of a ``KinesisSpout`` makes of a record. Picklable."""

    def __init__(self, scheme: Callable[[Record], Any], fields: Sequence[str]) -> None:
        self._scheme = scheme
        self._fields = tuple(fields)
        self._is_one = len(self._fields) == 1

    def __call__(self, record: Record) -> Sequence[Any]:
        if self._is_one:
            return (self._scheme(record),)
        made, fields = self._scheme(record), self._fields
        if isinstance(made, Mapping) and all(field in made for field in fields):
            return [made[field] for field in fields]
        if isinstance(made, Sequence) and not isinstance(made, (str, bytes)) and len(made) == len(fields):
            return made
        raise ValueError(
            f"expected the scheme to make {len(fields)} values of a record, for the fields {', '.join(fields)}, "
            f"got {type(made).__name__}"
        )


class _OpenRecords(msgspec.Struct, array_like=True):
    """Records whose trees are open, with what their failure needs; by columns, which packs best."""

    stream: str
    shard_id: str
    numbers: list[int]
    """The number of each record in the slice."""
    data: list[bytes]
    sequence_numbers: list[str]
    partition_keys: list[str | None]
    arrivals: list[float | None]
    encryptions: list[str | None]
    attempts: list[int]
    subs: dict[int, tuple[int, str | None]]
    """The sub-sequence number and the explicit hash key of each user record of an aggregate, by its place here."""
    before: dict[int, str | None]
    """The sequence of the record before one, by its place here, unless that is the one before it here."""

    def rows(self) -> Iterator[tuple[int, Record, str | None]]:
        before: str | None = None
        columns = (self.data, self.sequence_numbers, self.partition_keys, self.arrivals, self.encryptions)
        for at, values in enumerate(zip(*columns, self.attempts, self.numbers, strict=True)):
            data, sequence_number, partition_key, arrival, encryption, attempt, number = values
            sub, hash_key = self.subs.get(at, (None, None))
            record = Record(
                data=data,
                sequence_number=sequence_number,
                partition_key=partition_key,
                arrival_timestamp=arrival,
                encryption_type=encryption,
                stream=self.stream,
                shard_id=self.shard_id,
                attempt=attempt,
                sub_sequence_number=sub,
                explicit_hash_key=hash_key,
            )
            yield number, record, self.before.get(at, before)
            before = record.sequence_text


_ENCODE: Final = msgspec.msgpack.Encoder()
_DECODE: Final = msgspec.msgpack.Decoder(_OpenRecords)
_COMPRESSION: Final = "lz4"
"""0.1 µs for a record of 100 bytes that is not random. In each exchange that it passes, 100 bytes cost 1 µs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTree:
    index: int
    """Among the records of the slice."""
    record: Record
    previous: SequenceNumber | None
    end: TreeEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBlock(ForDriver):
    batch: int
    result: WorkResult
    expired_at: tuple[int, ...] = ()
    """The indexes of the result's expired records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrees(ForDriver):
    batch: int
    failed: tuple[FailedTree, ...]


class TreeDelivery(SliceDelivery):
    """Emits each record of a slice as the root of a tree. Mutable.

    A record whose tree is open when its ``emit`` has returned can still fail, so in a topology of one stage
    there are no more of those than failures can be kept. With later stages nearly all trees stay open, and
    nearly all complete: should more fail than can be kept, ``with_failed`` cuts the slice there.
    """

    def __init__(
        self,
        plan: SlicePlan,
        settings: DeliverySettings,
        *,
        run: StageRun,
        to_values: ToValues,
        batch: int = 0,
    ) -> None:
        super().__init__(plan, settings)
        self._run = run
        self._to_values = to_values
        self.batch = batch
        """The number of the slice in the micro-batch."""
        self._is_tracked = run.program.is_tracked
        self._most_open = plan.max_failures if plan.room is None else plan.room
        # On its way to the one record of a probe it passes over all others.
        if run.program.plan.exchanges and self._is_tracked and plan.deliveries is None:
            self._most_open = plan.limit
        self._open_numbers: list[int] = []
        self._open_records: list[Record] = []
        self._before: dict[int, str | None] = {}
        """See ``_OpenRecords``."""
        self.expired_at: list[int] = []
        """The indexes of expired records."""

    def pass_expired(self, record: Record) -> None:
        self.expired_at.append(self.count)
        super().pass_expired(record)

    @property
    def room(self) -> bool:
        return super().room and len(self.failures) + len(self._open_records) < self._most_open

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        clock = self._settings.clock
        run = run[: self._plan.most_deliveries - self.delivered]
        # To call the method of an object costs less than to call the object.
        emit, to_values = self._run.emit_root, self._to_values.__call__
        open_here: list[int] = []
        add_open = open_here.append
        may_open = self._most_open - len(self.failures) - len(self._open_records)
        at = 0
        for at, record, root in zip(count(), run, self._roots(), strict=False):
            try:
                if emit(to_values(record), root):
                    add_open(at)
                    may_open -= 1
            except StateError:
                raise  # no record is to blame
            except BaseException as error:  # noqa: BLE001 - whatever the scheme raises fails its record
                failure = failure_of(error)
                self.note_failed(record, failure, at, run[at - 1] if at else None)
                may_open = (may_open - 1) if super().room else 0
            if may_open <= 0 or clock() >= until:
                break
        self._note_opened(run, open_here)
        self.delivered += at + 1
        self.count += at + 1
        self.last = run[at].sequence
        return at + 1

    def _roots(self) -> Iterator[int]:
        """The roots of a run. They need only differ from those of all trees at the same time."""
        return count(root_of(self.batch, self.count)) if self._is_tracked else repeat(0)

    def _note_opened(self, run: Sequence[Record], places: Sequence[int]) -> None:
        """Note the records of a run whose trees are open. ``count`` and ``last`` are still those before it."""
        numbers, records = self._open_numbers, self._open_records
        follows_on = numbers[-1] if numbers else None
        for at in places:
            number = self.count + at
            if follows_on is None or follows_on + 1 != number:
                last = None if self.last is None else str(self.last)
                self._before[len(records)] = run[at - 1].sequence_text if at else last
            follows_on = number
            numbers.append(number)
            records.append(run[at])

    def failed_here(self) -> FailedTrees | None:
        """The trees that failed in a topology of one stage, once that has ended."""
        trees, batch = self._run.trees, self.batch
        ends = {number: trees.decided(root_of(batch, number)) for number in self._open_numbers}
        failed = {number: end for number, end in ends.items() if end is not None}
        left = self.records_left() if failed else None
        return None if left is None else failed_trees(left, failed)

    def records_left(self) -> RecordBlock | None:
        """The records whose trees are open; None if there are none."""
        records = self._open_records
        if not records:
            return None
        columns = _OpenRecords(
            stream=records[0].stream,
            shard_id=records[0].shard_id,
            numbers=self._open_numbers,
            data=[record.data for record in records],
            sequence_numbers=[record.sequence_number for record in records],
            partition_keys=[record.partition_key for record in records],
            arrivals=[record.arrival_timestamp for record in records],
            encryptions=[record.encryption_type for record in records],
            attempts=[record.attempt for record in records],
            subs={
                at: (record.sub_sequence_number, record.explicit_hash_key)
                for at, record in enumerate(records)
                if record.sub_sequence_number is not None
            },
            before=self._before,
        )
        packed: bytes = pa.compress(_ENCODE.encode(columns), codec=_COMPRESSION, asbytes=True)
        return RecordBlock(batch=self.batch, records=packed)


def failed_trees(left: RecordBlock, ends: Mapping[int, TreeEnd]) -> FailedTrees:
    """Find the records whose trees failed, by their numbers in the slice."""
    opened = _DECODE.decode(pa.CompressedInputStream(pa.BufferReader(left.records), _COMPRESSION).read())
    failed = tuple(
        FailedTree(
            index=number,
            record=record,
            previous=None if before is None else SequenceNumber.parse(before),
            end=ends[number],
        )
        for number, record, before in opened.rows()
        if number in ends
    )
    return FailedTrees(batch=left.batch, failed=failed)


def with_failed(
    result: WorkResult, failed: Sequence[FailedTree], expired_at: Sequence[int] = ()
) -> WorkResult:
    """Enter failed trees into the result of their slice; cut it where more failed than can be kept.

    Records behind a cut come again. ``expired_at``: the indexes of the result's expired records.
    """
    failures = list(result.outcome.failures)
    unfinished = list(result.unfinished)
    for tree in failed:
        record, failure = tree.record, tree.end.failure
        failures.append(failed_record(record, failure, index=tree.index, previous=tree.previous))
        unfinished.append(UnfinishedRecord(record=record, error=tree.end.reason, raised=failure.raised))
    failures.sort(key=lambda each: each.index)
    most = result.plan.max_failures
    result = replace(result, unfinished=tuple(unfinished))
    if result.plan.is_fresh and failed and len(failures) > most:
        result = _cut(result, failures[:most], expired_at)
    else:
        result = replace(result, outcome=replace(result.outcome, failures=tuple(failures)))
    # Records that a cut leaves out come again, and are counted then.
    timed_out = sum(tree.end.timed_out for tree in failed if tree.index < result.outcome.count)
    return replace(result, timed_out=result.timed_out + timed_out)


def _cut(result: WorkResult, failures: Sequence[UnackedRecord], expired_at: Sequence[int]) -> WorkResult:
    """End a slice with the last of these failures. Later records are read, or carried, again."""
    last = failures[-1]
    outcome = replace(
        result.outcome,
        last=last.sequence,
        count=last.index + 1,
        failures=tuple(failures),
        at_end=False,
        at_tip=False,
        at_bound=False,
    )
    unfinished = tuple(each for each in result.unfinished if each.record.sequence <= last.sequence)
    cursor = replace(result.cursor, iterator=None)
    expired_after = sum(at > last.index for at in expired_at)
    delivered_after = result.outcome.count - outcome.count - expired_after
    return replace(
        result,
        outcome=outcome,
        delivered=max(sum(each.was_delivered for each in failures), result.delivered - delivered_after),
        expired=result.expired - expired_after,
        unfinished=unfinished,
        cursor=cursor,
        left=(),
        error=None,  # it comes again, behind those records
    )
