"""What travels between the driver and a task: slices with their data out, outcomes with the failures back.

Nothing comes back of an acked record. Everything comes back of any other: the driver keeps it for
the retry, or for the dead letter.

Slices and results are pickled as plain tuples: pickling each record and each failure as an object costs several
times as much.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

from kinesis_spout.consumer.limits.record_age import RecordAge
from kinesis_spout.kinesis.read.polled_getter import FRESH, Cursor
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.model.distribution import Counted
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.handler import Failure, RaisedAt
from kinesis_spout.model.record import Record
from shard_state import FailedRecord, Fate, Redelivery, SequenceNumber, ShardBound, SliceOutcome, SlicePlan

_SPEAK_OF_DEATH: Final = (Fate.KILLED_WORKER, Fate.SUSPECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSlice:
    plan: SlicePlan
    records: tuple[Record, ...] = ()
    """What a CARRIED or RETRY slice delivers; READ slices bring nothing."""
    cursor: Cursor = FRESH
    hash_keys: HashKeys | None = None
    """The shard's, to count records outside of it."""
    age: RecordAge | None = None
    """As of the planning: the same for every repetition."""

    def __reduce__(self) -> "tuple[Callable[..., WorkSlice], tuple[Any, ...]]":
        others = self.cursor, self.hash_keys, self.age
        return _slice_of, (_packed_plan(self.plan), _packed_records(self.records), *others)


class Unfinished(Struct, frozen=True, kw_only=True, gc=False):
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
    coalesced: int = 0
    """Records finished without the handler: a later record of their key was handled in their place."""
    gone: int = 0
    """Failures that were not delivered: retention had trimmed the record."""
    expired: int = 0
    """Records too old for the handler: skipped, or among the failures."""
    timed_out: int = 0
    """Records whose handler had not returned in time."""
    handling_seconds: float | None = None
    """For the delivered records; None if unknown."""
    ages: Counted | None = None
    """How old records were when they were acked: a sample that stands for all of them."""
    bytes_read: int = 0
    millis_behind_latest: int | None = None
    """After the last page; None if none was read."""
    throttles: int = 0
    damaged_aggregates: int = 0
    records_outside_shard: int = 0
    trimmed: bool = False
    """The shard does not exist any more; what was unread of it is lost."""
    left: tuple[Record, ...] = ()
    """Records after the last one dealt with: fetched, without time to handle them."""
    suspects: int = 0
    """The worker died while the handler had so many records together: the next after the outcome."""
    lost: bool = False
    """The worker died, and the slice's progress is unknown."""
    error: KinesisError | None = None
    """Why reading stopped early, if by an error. What was read before still counts."""

    @property
    def speaks_of_death(self) -> bool:
        return (
            self.lost
            or self.suspects > 0
            or any(failed.fate in _SPEAK_OF_DEATH for failed in self.outcome.failures)
        )

    @property
    def failed(self) -> int:
        """Of those that were handed to the handler, how many were not acked."""
        return sum(failure.was_delivered for failure in self.outcome.failures) - self.gone

    def __reduce__(self) -> "tuple[Callable[..., WorkResult], tuple[Any, ...]]":
        failures = [
            (each.index, *each.sequence, each.previous and tuple(each.previous), *_REST_OF_FAILURE(each))
            for each in self.outcome.failures
        ]
        outcome = replace(self.outcome, failures=())
        unfinished = [
            (type(each.record), astuple(each.record), each.error, each.raised) for each in self.unfinished
        ]
        left = _packed_records(self.left)
        return _result_of, (
            _packed_plan(self.plan),
            outcome,
            failures,
            unfinished,
            left,
            *_REST_OF_RESULT(self),
        )


def failed_record(
    record: Record, failure: Failure, *, index: int, previous: SequenceNumber | None
) -> FailedRecord:
    return FailedRecord(
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


_PackedRecords = list[tuple[type[Record], tuple[Any, ...]]]
_PackedPlan = tuple[SlicePlan, list[tuple[int, int, int]]]

_REST_OF_FAILURE: Final = attrgetter("attempt", "fate", "partition_key", "delay_seconds", "stand_in")
_RESULT_NAMES: Final = tuple(
    field.name for field in fields(WorkResult) if field.name not in ("plan", "outcome", "unfinished", "left")
)
_REST_OF_RESULT: Final = attrgetter(*_RESULT_NAMES)


def _packed_records(records: Iterable[Record]) -> _PackedRecords:
    return [(type(record), astuple(record)) for record in records]


def _records(packed: _PackedRecords) -> tuple[Record, ...]:
    return tuple([kind(*values) for kind, values in packed])


def _packed_plan(plan: SlicePlan) -> _PackedPlan:
    if not plan.retries:
        return plan, []
    return replace(plan, retries=()), [(*retry.sequence, retry.attempt) for retry in plan.retries]


def _plan(packed: _PackedPlan) -> SlicePlan:
    plan, retries = packed
    if not retries:
        return plan
    return replace(
        plan,
        retries=tuple(
            [
                Redelivery(sequence=SequenceNumber(number, sub), attempt=attempt)
                for number, sub, attempt in retries
            ]
        ),
    )


def _slice_of(plan: _PackedPlan, records: _PackedRecords, *others: Any) -> WorkSlice:
    cursor, hash_keys, age = others
    return WorkSlice(plan=_plan(plan), records=_records(records), cursor=cursor, hash_keys=hash_keys, age=age)


def _result_of(
    plan: _PackedPlan,
    outcome: SliceOutcome,
    failures: Sequence[tuple[Any, ...]],
    unfinished: Sequence[tuple[type[Record], tuple[Any, ...], str, RaisedAt | None]],
    left: _PackedRecords,
    *others: Any,
) -> WorkResult:
    return WorkResult(
        plan=_plan(plan),
        outcome=replace(outcome, failures=tuple([_failed_record(*each) for each in failures])),
        unfinished=tuple(
            [
                Unfinished(record=kind(*values), error=error, raised=raised)
                for kind, values, error, raised in unfinished
            ]
        ),
        left=_records(left),
        **dict(zip(_RESULT_NAMES, others, strict=True)),
    )


def _failed_record(
    index: int,
    number: int,
    sub: int,
    previous: tuple[int, int] | None,
    attempt: int,
    *others: Any,
) -> FailedRecord:
    fate, partition_key, delay_seconds, stand_in = others
    return FailedRecord(
        index=index,
        sequence=SequenceNumber(number, sub),
        previous=None if previous is None else SequenceNumber(*previous),
        attempt=attempt,
        fate=fate,
        partition_key=partition_key,
        delay_seconds=delay_seconds,
        stand_in=stand_in,
    )
