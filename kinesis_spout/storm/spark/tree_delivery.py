"""Delivers the records of a slice into a topology, and remembers those whose trees stay open."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, count, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from kinesis_spout.model.errors import StateError
from kinesis_spout.model.handler import failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.work import Unfinished as UnfinishedRecord
from kinesis_spout.spark.tasks.work import WorkResult, failed_record
from kinesis_spout.storm.running.acking import TreeEnd, Words
from kinesis_spout.storm.running.blocks import ForDriver, OpenTrees
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.running.trees import Unfinished, acker_of, root_of
from shard_state import FailedRecord, SequenceNumber, SlicePlan

if TYPE_CHECKING:
    from kinesis_spout.kinesis import PollingShardGetter


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

    def records(self) -> Iterator[tuple[Record, str | None]]:
        before: str | None = None
        columns = (self.data, self.sequence_numbers, self.partition_keys, self.arrivals, self.encryptions)
        for at, values in enumerate(zip(*columns, self.attempts, strict=True)):
            data, sequence_number, partition_key, arrival, encryption, attempt = values
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
            yield record, self.before.get(at, before)
            before = record.sequence_text


_ENCODE: Final = msgspec.msgpack.Encoder()
_DECODE: Final = msgspec.msgpack.Decoder(_OpenRecords)
_COMPRESSION: Final = "lz4"
"""0.1 µs for a record of 100 bytes that is not random. In each exchange that it passes, 100 bytes cost 1 µs."""


def _packed(records: _OpenRecords) -> bytes:
    packed: bytes = pa.compress(_ENCODE.encode(records), codec=_COMPRESSION, asbytes=True)
    return packed


def _unpacked(packed: bytes) -> _OpenRecords:
    return _DECODE.decode(pa.CompressedInputStream(pa.BufferReader(packed), _COMPRESSION).read())


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


class _Piece(NamedTuple):
    number: int
    """Which record of the slice the first is."""
    records: Sequence[Record]
    before: str | None
    """The sequence of the record before the first."""


class _Opened:
    __slots__ = ("count", "pieces")

    def __init__(self) -> None:
        self.count = 0
        self.pieces: list[_Piece] = []

    def __iter__(self) -> Iterator[tuple[int, Record, str | None]]:
        """Of each tree the place of its record in the slice, the record, and the sequence before it."""
        for number, records, before in self.pieces:
            for at, record in enumerate(records):
                yield number + at, record, records[at - 1].sequence_text if at else before

    def numbers(self) -> Words:
        ranges = [np.arange(piece.number, piece.number + len(piece.records)) for piece in self.pieces]
        return np.concatenate(ranges).astype(np.uint64)

    def packed(self) -> bytes:
        records = list(chain.from_iterable(piece.records for piece in self.pieces))
        firsts = accumulate((len(piece.records) for piece in self.pieces), initial=0)
        return _packed(
            _OpenRecords(
                stream=records[0].stream,
                shard_id=records[0].shard_id,
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
                before={at: piece.before for at, piece in zip(firsts, self.pieces, strict=False)},
            )
        )


class TreeDelivery(SliceDelivery):
    """Emits each record of a slice as the root of a tree. Mutable.

    A record whose tree is open when its ``emit`` has returned can still fail, so in a topology of one stage
    there are no more of those than failures can be kept. With later stages nearly all trees stay open, and
    nearly all complete: should more fail than can be kept, ``with_failed`` cuts the slice there. Ackers cannot,
    so with them no more is fetched than may stay open.
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
        """Which of the slices of the micro-batch this is."""
        program = run.program
        self._ackers = program.ackers
        self._is_tracked = program.is_tracked
        self._most_open = plan.max_failures if plan.room is None else plan.room
        stays_open = program.plan.exchanges > 0 and self._is_tracked
        # On its way to the one record of a probe it passes over all others.
        is_bounded = stays_open and plan.deliveries is None
        self._most_fetched = plan.limit
        if is_bounded and self._ackers:
            self._most_fetched = min(plan.limit, self._most_open)
        elif is_bounded:
            self._most_open = plan.limit
        self._opened = _Opened()
        self.expired_at: list[int] = []
        """The indexes of expired records."""

    def pass_expired(self, record: Record) -> None:
        self.expired_at.append(self.count)
        super().pass_expired(record)

    @property
    def room(self) -> bool:
        return super().room and len(self.failures) + self._opened.count < self._most_open

    def fetch(self, getter: "PollingShardGetter", limit: int) -> Page:
        return getter.read(min(limit, max(1, self._most_fetched)))

    def wants_more_than(self, page: Page) -> bool:
        return self.count + len(page.records) < self._most_fetched

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        clock = self._settings.clock
        run = run[: self._plan.most_deliveries - self.delivered]
        # To call the method of an object costs less than to call the object.
        emit, to_values = self._run.emit_root, self._to_values.__call__
        open_here = array("Q")
        add_open = open_here.append
        may_open = self._most_open - len(self.failures) - self._opened.count
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
        if open_here:
            self._note_opened(run, np.frombuffer(open_here, np.uint64))
        self.delivered += at + 1
        self.count += at + 1
        self.last = run[at].sequence
        return at + 1

    def _roots(self) -> Iterator[int]:
        """The roots of a run. They need only differ from those of all trees at the same time."""
        return count(root_of(self.batch, self.count)) if self._is_tracked else repeat(0)

    def _note_opened(self, run: Sequence[Record], places: Words) -> None:
        """Note the records of a run whose trees are open. ``count`` and ``last`` are still those before it."""
        self._opened.count += len(places)
        for piece in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1):
            first, last = int(piece[0]), int(piece[-1])
            before = None if self.last is None else str(self.last)
            if first:
                before = run[first - 1].sequence_text
            self._opened.pieces.append(_Piece(self.count + first, run[first : last + 1], before))

    def failed_here(self) -> Iterator[FailedTree]:
        for number, record, before in self._opened:
            end = self._run.trees.decided(root_of(self.batch, number))
            if end is not None:
                yield _failed(number, record, before, end)

    def open_trees(self) -> Iterator[OpenTrees]:
        opened, first = self._opened, root_of(self.batch, 0)
        if opened.pieces:
            numbers = opened.numbers()
            yield OpenTrees(
                acker=acker_of(first, self._ackers or 1),
                batch=self.batch,
                roots=(numbers + np.uint64(first)).tobytes() if self._ackers else b"",
                numbers=numbers.tobytes(),
                tuples=opened.packed(),
            )


def failed_trees(unfinished: Unfinished) -> FailedTrees:
    opened = zip(
        array("Q", unfinished.opened.numbers), _unpacked(unfinished.opened.tuples).records(), strict=True
    )
    failed = tuple(
        _failed(number, record, before, unfinished.ends[number])
        for number, (record, before) in opened
        if number in unfinished.ends
    )
    return FailedTrees(batch=unfinished.batch, failed=failed)


class TreeResult(NamedTuple):
    result: WorkResult
    is_cut: bool
    """Whether records after its end were delivered and come again, because more have failed than can be kept."""


def with_failed(
    result: WorkResult, failed: Sequence[FailedTree], expired_at: Sequence[int] = ()
) -> TreeResult:
    """``expired_at``: the indexes of the result's expired records."""
    failures = list(result.outcome.failures)
    unfinished = list(result.unfinished)
    for tree in failed:
        record, failure = tree.record, tree.end.failure
        failures.append(failed_record(record, failure, index=tree.index, previous=tree.previous))
        unfinished.append(UnfinishedRecord(record=record, error=tree.end.reason, raised=failure.raised))
    failures.sort(key=lambda each: each.index)
    most = result.plan.max_failures
    is_cut = result.plan.is_fresh and bool(failed) and len(failures) > most
    result = replace(result, unfinished=tuple(unfinished))
    if is_cut:
        result = _cut(result, failures[:most], expired_at)
    else:
        result = replace(result, outcome=replace(result.outcome, failures=tuple(failures)))
    # What a cut leaves out comes again, and is counted then.
    timed_out = sum(tree.end.timed_out for tree in failed if tree.index < result.outcome.count)
    return TreeResult(replace(result, timed_out=result.timed_out + timed_out), is_cut=is_cut)


def _cut(result: WorkResult, failures: Sequence[FailedRecord], expired_at: Sequence[int]) -> WorkResult:
    """End a slice with the last of these failures. What it had after it is read, or carried, again."""
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
        trimmed=False,
    )


def _failed(number: int, record: Record, before: str | None, end: TreeEnd) -> FailedTree:
    previous = None if before is None else SequenceNumber.parse(before)
    return FailedTree(index=number, record=record, previous=previous, end=end)
