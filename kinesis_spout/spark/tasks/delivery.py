"""Hands the records of one slice to the user's handler, and keeps the books of their outcomes.

The books name only what was *not* acked: the tracker on the driver finishes everything else in one step. A
delivery can end before its slice does (the time is up, too much has failed, an earlier record must come
first); what was not reached is read, or carried, again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Final, Protocol

from kinesis_spout.consumer.limits.record_age import RecordAge
from kinesis_spout.model.distribution import AGES, Distribution, sampled
from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from kinesis_spout.spark.tasks.journal import SliceNotes
from kinesis_spout.spark.tasks.work import Unfinished, WorkResult, before_bound, failed_record
from shard_state import Fate, Order, SequenceNumber, SliceKind, SliceOutcome, SlicePlan, UnackedRecord
from shard_state.checkpoint.checkpoint import fits
from shard_state.checkpoint.hole_map import within

if TYPE_CHECKING:
    from kinesis_spout.kinesis import PollingShardGetter

_ROWS_FOR_ONE: Final = 32
"""Two rows of Arrow that are made records one by one cost as much as so many together."""

Failed = tuple[int, Failure]
"""The index of a record among those handed over."""


class Handler(Protocol):
    def __call__(
        self, records: Sequence[Record], until: float, notes: SliceNotes
    ) -> tuple[int, list[Failed]]:
        """Deliver records in order, until the monotonic time ``until``, or until the notes say stop.

        Returns how many were delivered, from the first (at least one), and which of those failed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    order: Order
    clock: Callable[[], float]
    """Monotonic."""
    notes: SliceNotes = field(default_factory=lambda: SliceNotes(None, 0))
    """Those of this slice."""
    age: RecordAge | None = None
    """None: no record is too old."""


class SliceDelivery(ABC):
    """The books of one slice. Mutable. Subclasses decide how a run of records is delivered."""

    extra_columns: Sequence[str] = ()
    """Columns that ``fetch`` needs of a page read as columns, in addition to the usual ones."""

    def __init__(self, plan: SlicePlan, settings: DeliverySettings) -> None:
        self._plan = plan
        self._settings = settings
        self._holes = plan.holes
        self._attempts = dict(plan.attempts)
        self._attempts.update((retry.sequence, retry.attempt - 1) for retry in plan.retries)
        self._blocked = set(plan.blocked_keys)
        self._age = settings.age
        self._is_ordered = settings.order is not Order.UNORDERED
        """True if each record waits for the outcome of the one before."""
        self._stops_shard = False
        """True if a record failed that the whole shard waits for."""
        self.first: SequenceNumber | None = None
        self.last: SequenceNumber | None = None
        self.count = 0
        """Records of the slice dealt with: delivered, held, or passed over."""
        self.delivered = 0
        self.expired = 0
        self.timed_out = 0
        """Records whose handler had not returned in time."""
        self.handling_seconds: float | None = None
        """None if no handler is called here."""
        self.ages = Distribution(AGES)
        """The ages of records when they had been handled, of a sample of those that did not fail by then."""
        self.failures: list[UnackedRecord] = []
        self.unfinished: list[Unfinished] = []

    @property
    def room(self) -> bool:
        """Return whether more may be delivered: neither the limit nor the bound on failures is reached."""
        if self._stops_shard:
            return False
        if self.delivered >= self._plan.most_deliveries:
            return False
        return self.count < self._plan.limit and len(self.failures) < self._plan.max_failures

    def fetch(self, getter: "PollingShardGetter", limit: int) -> Page:
        """Read a page of the slice, of at most ``limit`` records, on a fetching thread."""
        return getter.read(limit)

    def wants_more_than(self, page: Page) -> bool:
        """Return whether records that follow on a page, not delivered yet, would still be of the slice."""
        return self.count + len(page.records) < self._plan.limit

    def before_bound(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records of a page before the one that ends the shard for this run; all, if none does."""
        return before_bound(records, self._plan.bound)

    def deliver(self, records: Sequence[Record], until: float) -> int:
        """Deal with records that follow on those before. Returns how many; the others were not reached."""
        if not records:
            return 0
        if self.first is None:
            self.first = records[0].sequence
            if self._plan.kind is not SliceKind.RETRY and not fits(self._plan.anchor, self.first):
                # The stored holes are of another history: deliver again what they claim (invariant 11).
                self._holes = ()
                self._attempts = {}
        before = self.count
        for run in self._runs(records[: self._plan.limit - self.count]):
            reached = self.deliver_run(run, until)
            if reached < len(run) or not self.room or self._settings.clock() >= until:
                break
        reached = self.count - before
        self._sample_ages(records[:reached], before)
        return reached

    def _sample_ages(self, records: Sequence[Record], first: int) -> None:
        failed, now = {failure.index for failure in self.failures}, time()
        for at, count in sampled(len(records)):
            arrived_at = self.arrival(records, at)
            if arrived_at is not None and first + at not in failed:
                self.ages.add(max(0.0, now - arrived_at), count)

    def result(self) -> WorkResult:
        return WorkResult(
            plan=self._plan,
            outcome=SliceOutcome(
                first=self.first, last=self.last, count=self.count, failures=tuple(self.failures)
            ),
            unfinished=tuple(self.unfinished),
            delivered=self.delivered,
            expired=self.expired,
            timed_out=self.timed_out,
            handling_seconds=self.handling_seconds,
            ages=self.ages.counted(),
        )

    def _runs(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """Split off what is not delivered, and what must be watched one by one; normally all is one run."""
        one_by_one = self._is_ordered
        age = self._age if self._age is not None and self._age.expires(self.oldest(records)) else None
        if not (one_by_one or self._holes or self._attempts or self._blocked or age):
            yield records
            return
        start = 0
        for at, record in enumerate(records):
            record.attempt = self._attempts.get(record.sequence, 0) + 1
            instead = self._instead_of_delivery(record, age, may_wait=one_by_one)
            if instead is None and not one_by_one:
                continue
            if at > start:
                yield records[start:at]
            start = at + 1
            if instead is None:
                yield records[at : at + 1]
                continue
            instead(record)
            if instead != self.pass_over and not self.room:
                return
        if start < len(records):
            yield records[start:]

    def _instead_of_delivery(
        self, record: Record, age: RecordAge | None, *, may_wait: bool
    ) -> Callable[[Record], None] | None:
        """Return what is done with a record in place of delivering it; None if it is delivered."""
        if self._holes and within(self._holes, record.sequence):
            return self.pass_over
        if age is not None and age.expires(record.arrival_timestamp):
            return self.pass_expired
        return self.hold if may_wait and self._must_wait(record) else None

    def arrival(self, records: Sequence[Record], at: int) -> float | None:
        return records[at].arrival_timestamp

    def oldest(self, records: Sequence[Record]) -> float | None:
        """When the earliest record arrived; None if none has a time."""
        arrivals = (record.arrival_timestamp for record in records)
        return min((at for at in arrivals if at is not None), default=None)

    def pass_expired(self, record: Record) -> None:
        age = self._age
        assert age is not None
        self.expired += 1
        if not age.skips:
            self.failures.append(
                UnackedRecord(
                    index=self.count,
                    sequence=record.sequence,
                    previous=self.last,
                    attempt=record.attempt - 1,
                    partition_key=record.partition_key,
                    fate=Fate.EXPIRED,
                )
            )
            self.unfinished.append(Unfinished(record=record, error=age.error(record)))
        self.pass_over(record)

    def _must_wait(self, record: Record) -> bool:
        if not self._is_ordered or not self._blocked:
            return False
        return record.partition_key in self._blocked

    @abstractmethod
    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        """Deliver consecutive records, in order, and enter them into the books. Returns how many."""

    def hold(self, record: Record, *, suspected: bool = False) -> None:
        """Enter a record that is not delivered, or whose outcome is unknown; it comes again."""
        self.note_held(record, suspected=suspected)
        self.pass_over(record)

    def note_failed(
        self, record: Record, failure: Failure, at: int = 0, previous: Record | None = None
    ) -> None:
        """Note that a record failed, ``at`` after those that are entered; ``previous``: the one before it."""
        self.timed_out += failure.timed_out
        self._note(
            record,
            failed_record(record, failure, index=self.count + at, previous=self._sequence_before(previous)),
            Unfinished(record=record, error=failure.error_text, raised=failure.raised),
        )

    def note_held(
        self,
        record: Record,
        at: int = 0,
        previous: Record | None = None,
        *,
        suspected: bool = False,
    ) -> None:
        """Note that a record is held."""
        held = UnackedRecord(
            index=self.count + at,
            sequence=record.sequence,
            previous=self._sequence_before(previous),
            attempt=record.attempt - 1,
            fate=Fate.SUSPECTED if suspected else Fate.HELD,
            partition_key=record.partition_key,
        )
        self._note(record, held, Unfinished(record=record, error=""))

    def _note(self, record: Record, failed: UnackedRecord, unfinished: Unfinished) -> None:
        self.failures.append(failed)
        self.unfinished.append(unfinished)
        self._stops_shard = self._settings.order is Order.SHARD
        if self._settings.order is Order.KEY and record.partition_key is not None:
            self._blocked.add(record.partition_key)

    def _sequence_before(self, previous: Record | None) -> SequenceNumber | None:
        return self.last if previous is None else previous.sequence

    def pass_over(self, record: Record) -> None:
        self.count += 1
        self.last = record.sequence


class HandlerDelivery(SliceDelivery):
    """Delivers to the user's handler, record after record. Mutable."""

    def __init__(self, plan: SlicePlan, handler: Handler, settings: DeliverySettings) -> None:
        super().__init__(plan, settings)
        self._handler = handler
        self._notes = settings.notes
        self.handling_seconds: float = 0.0

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        plan, notes, clock, reached = self._plan, self._notes, self._settings.clock, 0
        while reached < len(run) and self.room and not notes.must_stop:
            # Every record can fail, so no more are handed over at a time than failures can be kept.
            most = plan.max_failures - len(self.failures)
            most = min(plan.portion or most, most, plan.most_deliveries - self.delivered)
            part = run[reached : reached + most]
            notes.begin(self.count)
            began = clock()
            delivered, failed = self._handler(part, until, notes)
            now = clock()
            self.handling_seconds += now - began
            rows = (
                part if len(failed) <= len(part) // _ROWS_FOR_ONE else list(part)
            )  # they can be rows of Arrow
            for at, failure in failed:
                self.note_failed(rows[at], failure, at, rows[at - 1] if at else None)
            self.delivered += delivered
            self.count += delivered
            self.last = rows[delivered - 1].sequence
            notes.reached(self.count)
            reached += delivered
            if delivered < len(part) or now >= until:
                break
        return reached
