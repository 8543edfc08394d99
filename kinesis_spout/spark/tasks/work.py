"""Messages between the driver and a task: slices with their data out, outcomes with the failures back.

Nothing comes back of an acked record. Everything comes back of any other: the driver keeps it for
the retry, or for the dead letter.

Slices and results are pickled as columns: pickling each record and each failure as an object, or as a tuple of its
own, costs several times as much, also in collections of the driver's garbage.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import astuple

from kinesis_spout.consumer.limits.record_age import RecordAge
from kinesis_spout.kinesis.read.polled_getter import FRESH, Cursor
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.model.distribution import Counted
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.handler import Failure, RaisedAt
from kinesis_spout.model.record import Record
from shard_state import Fate, Redelivery, SequenceNumber, ShardBound, SliceOutcome, SlicePlan, UnackedRecord

_SPEAK_OF_DEATH: Final = (Fate.KILLED_WORKER, Fate.SUSPECTED)
_FAILED: Final = (Fate.FAILED, Fate.KILLED_WORKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSlice:
    plan: SlicePlan
    records: tuple[Record, ...] = ()
    """The records that a CARRIED or RETRY slice delivers; READ slices bring nothing."""
    cursor: Cursor = FRESH
    hash_keys: HashKeys | None = None
    """The shard's, to count records outside of it."""
    age: RecordAge | None = None
    """As of the planning: the same for every repetition."""

    def __reduce__(self) -> "tuple[Callable[..., WorkSlice], tuple[Any, ...]]":
        others = self.cursor, self.hash_keys, self.age
        return _slice_of, (_packed_plan(self.plan), _packed_records(self.records), *others)


class Unfinished(Struct, frozen=True, gc=False):
    """A record that was not acked, with its handler's error; an empty error: it was held back."""

    record: Record
    error: str
    raised: RaisedAt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    plan: SlicePlan
    outcome: SliceOutcome
    unfinished: tuple[Unfinished, ...] = ()
    """The records of the outcome's failures; those of which the data is still to be read again are missing."""
    cursor: Cursor = FRESH
    delivered: int = 0
    """Records handed to the handler."""
    gone: int = 0
    """Failures that were not delivered: retention had trimmed the record."""
    expired: int = 0
    """Records too old for the handler: skipped, or among the failures."""
    timed_out: int = 0
    """Records whose handler had not returned in time."""
    handling_seconds: float | None = None
    """For the delivered records; None if unknown."""
    ages: Counted | None = None
    """The ages of records when they were acked: a sample that stands for all of them."""
    bytes_read: int = 0
    millis_behind_latest: int | None = None
    """After the last page; None if none was read."""
    throttles: int = 0
    damaged_aggregates: int = 0
    records_outside_shard: int = 0
    data_losses: int = 0
    reached: tuple[SequenceNumber | None, float] | None = None
    """The last record of the last page that was handled, None if it had none, and that page's ``since``."""
    left: tuple[Record, ...] = ()
    """Records after the last one dealt with: fetched, without time to handle them."""
    suspects: int = 0
    """The worker died while the handler had so many records together: the next after the outcome."""
    lost: bool = False
    """The worker died, and the slice's progress is unknown."""
    error: KinesisError | None = None
    """The error that stopped reading early. Records read before still count."""
    _pickled: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def kinds_of_failures(self) -> list[tuple[RaisedAt | None, int, str]]:
        """The place of failures (None: nothing was raised), their number, and the error of the first.

        A ``Reject`` is a verdict, and no failure.
        """
        failed = {each.sequence for each in self.outcome.failures if each.fate in _FAILED}
        of_failed = [each for each in self.unfinished if each.record.sequence in failed]
        errors = {each.raised: each.error for each in reversed(of_failed)}
        counts = Counter(each.raised for each in of_failed)
        return [(raised, count, errors[raised]) for raised, count in counts.items()]

    @property
    def speaks_of_death(self) -> bool:
        return (
            self.lost
            or self.suspects > 0
            or any(failed.fate in _SPEAK_OF_DEATH for failed in self.outcome.failures)
        )

    @property
    def failed(self) -> int:
        """The number of records that were handed to the handler and not acked."""
        return sum(failure.was_delivered for failure in self.outcome.failures) - self.gone

    def pickled_once(self) -> Self:
        """Keep what it is when pickled: a task writes it down and returns it, and all its records are in it."""
        object.__setattr__(self, "_pickled", pickle.dumps(self, pickle.HIGHEST_PROTOCOL))
        return self

    def __reduce__(self) -> "tuple[Callable[..., WorkResult], tuple[Any, ...]]":
        if self._pickled is not None:
            return pickle.loads, (self._pickled,)
        unfinished = self.unfinished
        return _result_of, (
            _packed_plan(self.plan),
            replace(self.outcome, failures=()),
            _packed_failures(self.outcome.failures),
            _packed_records(each.record for each in unfinished),
            [each.error for each in unfinished],
            [each.raised for each in unfinished],
            _packed_records(self.left),
            *_REST_OF_RESULT(self),
        )


def failed_record(
    record: Record, failure: Failure, *, index: int, previous: SequenceNumber | None
) -> UnackedRecord:
    return UnackedRecord(
        index=index,
        sequence=record.sequence,
        previous=previous,
        attempt=record.attempt,
        fate=failure.fate,
        partition_key=record.partition_key,
        delay_seconds=failure.delay_seconds,
    )


def before_bound(records: Sequence[Record], bound: ShardBound | None) -> Sequence[Record]:
    """The records before the first that ends their shard for this run: all of them, if none does."""
    if bound is None:
        return records
    for at, record in enumerate(records):
        if bound.ends_before(record.sequence, record.arrival_timestamp):
            return records[:at]
    return records


_Column = Sequence[Any]
_PackedRecords = list[tuple[type[Record], Sequence[_Column]]]
"""Runs of records of one type, each as its fields."""
_PackedPlan = tuple[SlicePlan, Sequence[_Column]]

_RESULT_NAMES: Final = tuple(
    each.name
    for each in fields(WorkResult)
    if each.init and each.name not in ("plan", "outcome", "unfinished", "left")
)
# Named tuples are made by a function of Python, which takes longer than all else here.
_new_failed: Final = partial(tuple.__new__, UnackedRecord)
_new_sequence: Final = partial(tuple.__new__, SequenceNumber)
_new_redelivery: Final = partial(tuple.__new__, Redelivery)
_REST_OF_RESULT: Final = attrgetter(*_RESULT_NAMES)


def _packed_records(records: Iterable[Record]) -> _PackedRecords:
    return [(kind, list(zip(*map(astuple, run), strict=True))) for kind, run in groupby(records, type)]


def _records(packed: _PackedRecords) -> Iterable[Record]:
    return chain.from_iterable(map(kind, *columns) for kind, columns in packed)


def _packed_failures(failures: Sequence[UnackedRecord]) -> Sequence[_Column]:
    if not failures:
        return ()
    indexes, sequences, previous, *others = zip(*failures, strict=True)
    return indexes, *_packed_sequences(sequences), *_packed_sequences(previous), *others


def _failures(packed: Sequence[_Column]) -> Iterable[UnackedRecord]:
    if not packed:
        return ()
    indexes, numbers, subs, numbers_before, subs_before, *others = packed
    sequences, previous = _sequences(numbers, subs), _sequences(numbers_before, subs_before)
    return map(_new_failed, zip(indexes, sequences, previous, *others, strict=True))


def _packed_sequences(sequences: Sequence[SequenceNumber | None]) -> tuple[_Column, _Column]:
    return [each and each.number for each in sequences], [each and each.sub for each in sequences]


def _sequences(numbers: _Column, subs: _Column) -> Iterable[Any]:
    if None in numbers:
        return [
            None if number is None else _new_sequence((number, sub))
            for number, sub in zip(numbers, subs, strict=True)
        ]
    return map(_new_sequence, zip(numbers, subs, strict=True))


def _packed_plan(plan: SlicePlan) -> _PackedPlan:
    if not plan.retries:
        return plan, ()
    sequences, attempts = zip(*plan.retries, strict=True)
    return replace(plan, retries=()), (*_packed_sequences(sequences), attempts)


def _plan(packed: _PackedPlan) -> SlicePlan:
    plan, retries = packed
    if not retries:
        return plan
    numbers, subs, attempts = retries
    return replace(
        plan, retries=tuple(map(_new_redelivery, zip(_sequences(numbers, subs), attempts, strict=True)))
    )


def _slice_of(plan: _PackedPlan, records: _PackedRecords, *others: Any) -> WorkSlice:
    cursor, hash_keys, age = others
    return WorkSlice(
        plan=_plan(plan), records=tuple(_records(records)), cursor=cursor, hash_keys=hash_keys, age=age
    )


def _result_of(
    plan: _PackedPlan,
    outcome: SliceOutcome,
    failures: Sequence[_Column],
    *others: Any,
) -> WorkResult:
    records, errors, raised, left, *rest = others
    return WorkResult(
        plan=_plan(plan),
        outcome=replace(outcome, failures=tuple(_failures(failures))),
        unfinished=tuple(map(Unfinished, _records(records), errors, raised)),
        left=tuple(_records(left)),
        **dict(zip(_RESULT_NAMES, rest, strict=True)),
    )
