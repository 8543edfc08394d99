"""Delivers the records of a slice into a topology, and remembers those whose trees are not done at once."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import getrandbits
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kinesis_spout.handler import failure_of
from kinesis_spout.ports import Page
from kinesis_spout.record import Record
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.work import Unfinished as UnfinishedRecord
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.topology.acking import TreeEnd
from kinesis_spout.topology.running.blocks import ForDriver, OpenTrees
from kinesis_spout.topology.running.collecting import Collector
from kinesis_spout.topology.running.trees import Trees
from kinesis_spout.topology.running.verdicts import Unfinished, decide_here
from shard_state import FailedRecord, SequenceNumber

if TYPE_CHECKING:
    from kinesis_spout.kinesis import PollingShardGetter

ToValues = Callable[[Record], Sequence[Any]]
RecordId = tuple[str, str]
"""Shard and sequence number, with the sub-sequence number of a user record."""


class _OpenRecords(msgspec.Struct, array_like=True):
    """Records whose trees are open, with what the books need if they fail; by columns, which packs best."""

    stream: str
    shard_id: str
    data: list[bytes]
    sequence_numbers: list[str]
    partition_keys: list[str | None]
    arrivals: list[float | None]
    encryptions: list[str | None]
    attempts: list[int]
    subs: list[int | None]
    hash_keys: list[str | None]
    before: dict[int, str | None]
    """The sequence of the record before one, by its place here, unless that is the one before it here."""

    def records(self) -> Iterator[tuple[Record, str | None]]:
        """Unpack them, each with the sequence of the record before it."""
        before: str | None = None
        columns = (self.data, self.sequence_numbers, self.partition_keys, self.arrivals, self.encryptions)
        for at, values in enumerate(zip(*columns, self.attempts, self.subs, self.hash_keys, strict=True)):
            data, sequence_number, partition_key, arrival, encryption, attempt, sub, hash_key = values
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTree:
    """A record whose tree did not complete."""

    index: int
    """Among the records of the slice."""
    record: Record
    previous: SequenceNumber | None
    end: TreeEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBlock(ForDriver):
    """What came of a slice in the first stage, on its way to the driver."""

    batch: int
    result: WorkResult


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrees(ForDriver):
    """The records of a slice whose trees did not complete, on their way to the driver."""

    batch: int
    failed: tuple[FailedTree, ...]
    touched: frozenset[int]
    """The indexes of those that came to a bolt with state."""


class _Opened:
    """The open trees of a slice. Mutable."""

    __slots__ = ("before", "numbers", "records", "roots")

    def __init__(self) -> None:
        self.roots: list[int] = []
        self.numbers: list[int] = []
        """Which record of the slice each is."""
        self.records: list[Record] = []
        self.before: dict[int, str | None] = {}
        """By number: the sequence of the record before one whose tree is not open, if there is one."""

    def previous(self, at: int) -> str | None:
        """Give the sequence of the record before one, by its place here."""
        number = self.numbers[at]
        return self.before[number] if number in self.before else self.records[at - 1].sequence_text

    def packed(self, places: Sequence[int]) -> bytes:
        """Pack some of the records."""
        records = [self.records[at] for at in places]
        before = {
            place: self.previous(at)
            for place, at in enumerate(places)
            if not place or places[place - 1] != at - 1 or self.numbers[at] in self.before
        }
        return _ENCODE.encode(
            _OpenRecords(
                stream=records[0].stream,
                shard_id=records[0].shard_id,
                data=[record.data for record in records],
                sequence_numbers=[record.sequence_number for record in records],
                partition_keys=[record.partition_key for record in records],
                arrivals=[record.arrival_timestamp for record in records],
                encryptions=[record.encryption_type for record in records],
                attempts=[record.attempt for record in records],
                subs=[record.sub_sequence_number for record in records],
                hash_keys=[record.explicit_hash_key for record in records],
                before=before,
            )
        )


class TreeDelivery(SliceDelivery):
    """Emits each record of a slice as the root of a tree. Mutable.

    Every record may fail in a later stage, so there are no more of them than failures can be kept.

    Args:
        work: the slice.
        settings: the rules.
        spout: emits.
        trees: of this process.
        to_values: makes a tuple's values of a record.
        refused: the records that are not to be run, with how their trees ended before.
        tracks: whether trees are tracked.
    """

    def __init__(
        self,
        work: WorkSlice,
        settings: DeliverySettings,
        *,
        spout: Collector,
        trees: Trees,
        to_values: ToValues,
        refused: Mapping[RecordId, TreeEnd],
        tracks: bool,
    ) -> None:
        super().__init__(work, settings)
        self._spout = spout
        self._trees = trees
        self._to_values = to_values
        self._refused = refused
        self._tracks = tracks
        self._most = work.plan.max_failures if work.plan.room is None else work.plan.room
        self._opened = _Opened()

    @property
    def room(self) -> bool:
        """See ``SliceDelivery``."""
        return super().room and self.delivered < self._most

    def fetch(self, getter: "PollingShardGetter", limit: int) -> Page:
        """See ``SliceDelivery``."""
        return getter.read(min(limit, max(1, min(self._plan.limit, self._most))))

    def wants_more_than(self, page: Page) -> bool:
        """See ``SliceDelivery``."""
        return self.count + len(page.records) < min(self._plan.limit, self._most)

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        """See ``SliceDelivery``."""
        clock, open_trees = self._settings.clock, self._trees.values
        refused, tracks = self._refused, self._tracks
        emit, to_values, base = self._spout.emit_root, self._to_values, self.count
        opened, numbers = self._opened, self._opened.numbers
        add_root, add_number, add_record = opened.roots.append, numbers.append, opened.records.append
        reached = 0
        for reached, record in enumerate(run[: self._most - self.delivered], 1):
            root = (getrandbits(64) or 1) if tracks else 0
            end = failure = None
            if refused and (end := refused.get((record.shard_id, record.sequence_text))) is not None:
                failure = end.failure
            else:
                try:
                    emit(to_values(record), root)
                except BaseException as error:  # noqa: BLE001 - whatever the scheme raises fails its record
                    failure = failure_of(error)
            if failure is not None:
                open_trees.pop(root, None)
                before = run[reached - 2] if reached > 1 else None
                error_text = failure.error_text if end is None else end.reason
                self.note_failed(record, error_text, base + reached - 1, before, failure)
                if not super().room:
                    break
            elif root in open_trees:
                number = base + reached - 1
                if not numbers or numbers[-1] != number - 1:
                    opened.before[number] = self._previous(run, reached)
                add_root(root)
                add_number(number)
                add_record(record)
            if clock() >= until:
                break
        self.delivered += reached
        self.count += reached
        self.last = run[reached - 1].sequence
        return reached

    def _previous(self, run: Sequence[Record], reached: int) -> str | None:
        """Give the sequence of the record before one, as text."""
        if reached > 1:
            return run[reached - 2].sequence_text
        return None if self.last is None else str(self.last)

    def failed_here(self) -> Iterator[FailedTree]:
        """Decide the open trees at the end of the only stage; give those that did not complete."""
        opened = self._opened
        for at, (root, number) in enumerate(zip(opened.roots, opened.numbers, strict=True)):
            end = decide_here(self._trees, root)
            if end is not None:
                yield _failed(number, opened.records[at], opened.previous(at), end)

    def open_trees(self, batch: int, ackers: int) -> Iterator[OpenTrees]:
        """Give the open trees, for the ackers to decide."""
        opened = self._opened
        for acker in range(ackers):
            here = [at for at, root in enumerate(opened.roots) if root % ackers == acker]
            if here:
                yield OpenTrees(
                    acker=acker,
                    batch=batch,
                    roots=array("Q", (opened.roots[at] for at in here)).tobytes(),
                    numbers=array("Q", (opened.numbers[at] for at in here)).tobytes(),
                    tuples=opened.packed(here),
                )


def failed_trees(unfinished: Unfinished) -> FailedTrees:
    """Find the records of trees that did not complete."""
    opened = zip(
        array("Q", unfinished.opened.numbers), _DECODE.decode(unfinished.opened.tuples).records(), strict=True
    )
    failed = tuple(
        _failed(number, record, before, unfinished.ends[number])
        for number, (record, before) in opened
        if number in unfinished.ends
    )
    return FailedTrees(batch=unfinished.batch, failed=failed, touched=unfinished.touched)


def with_failed(result: WorkResult, failed: Sequence[FailedTree]) -> WorkResult:
    """Cut the records whose trees did not complete out of a slice's outcome."""
    failures = list(result.outcome.failures)
    unfinished = list(result.unfinished)
    for tree in failed:
        record, failure = tree.record, tree.end.failure
        failures.append(
            FailedRecord(
                index=tree.index,
                sequence=record.sequence,
                previous=tree.previous,
                attempt=record.attempt,
                partition_key=record.partition_key,
                rejected=failure.rejected,
                delay_seconds=failure.delay_seconds,
            )
        )
        unfinished.append(UnfinishedRecord(record=record, error=tree.end.reason, raised=failure.raised))
    failures.sort(key=lambda each: each.index)
    outcome = replace(result.outcome, failures=tuple(failures))
    return replace(result, outcome=outcome, unfinished=tuple(unfinished))


def _failed(number: int, record: Record, before: str | None, end: TreeEnd) -> FailedTree:
    previous = None if before is None else SequenceNumber.parse(before)
    return FailedTree(index=number, record=record, previous=previous, end=end)
