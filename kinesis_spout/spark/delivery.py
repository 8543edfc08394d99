"""Hands the records of one slice to the user's handler, and keeps the books of what came of them.

The books name only what was *not* acked: the tracker on the driver finishes everything else in one step. A
delivery may end before its slice does (the time is up, too much has failed, an earlier record must come
first); what was not reached is read, or carried, again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kinesis_spout.handler import Failure
from kinesis_spout.ports import Page
from kinesis_spout.record import Record
from kinesis_spout.spark.work import Unfinished, WorkSlice
from shard_state import FailedRecord, Order, SequenceNumber, SliceKind
from shard_state.inflight_record_tracker import within

if TYPE_CHECKING:
    from kinesis_spout.kinesis import PollingShardGetter

Failed = tuple[int, Failure]
"""The index of a record in what was handed over, and what its handler said."""


class Handler(Protocol):
    """Calls the user's code, on an executor."""

    def __call__(self, records: Sequence[Record], until: float) -> tuple[int, list[Failed]]:
        """Deliver records in order, stopping at the monotonic time ``until``.

        Returns:
            How many were delivered, counted from the first (at least one), and which of those failed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """The rules of a delivery that are the same for every slice."""

    order: Order
    clock: Callable[[], float]
    """Monotonic."""


class SliceDelivery(ABC):
    """The books of one slice. Mutable. How a run of records is delivered is left to the kinds of it."""

    def __init__(self, work: WorkSlice, settings: DeliverySettings) -> None:
        self._plan = work.plan
        self._settings = settings
        self._holes = work.plan.holes
        self._attempts = dict(work.plan.attempts)
        self._attempts.update((retry.sequence, retry.attempt - 1) for retry in work.plan.retries)
        self._blocked = set(work.plan.blocked_keys)
        self.first: SequenceNumber | None = None
        self.last: SequenceNumber | None = None
        self.count = 0
        """How many records of the slice were dealt with: delivered, held, or passed over."""
        self.delivered = 0
        self.failures: list[FailedRecord] = []
        self.unfinished: list[Unfinished] = []

    @property
    def room(self) -> bool:
        """Whether more may be delivered: neither the limit nor the bound on failures is reached."""
        if self._settings.order is Order.SHARD and self.failures:
            return False
        return self.count < self._plan.limit and len(self.failures) < self._plan.max_failures

    def fetch(self, getter: "PollingShardGetter", limit: int) -> Page:
        """Read a page of the slice, of at most ``limit`` records, on a fetching thread."""
        return getter.read(limit)

    def wants_more_than(self, page: Page) -> bool:
        """Tell whether records that follow on a page, not delivered yet, would still be of the slice."""
        return self.count + len(page.records) < self._plan.limit

    def deliver(self, records: Sequence[Record], until: float) -> int:
        """Deal with records that follow on those before. Returns how many; the others were not reached."""
        if not records:
            return 0
        if self.first is None:
            self._check_anchor(records[0])
        before = self.count
        for run in self._runs(records[: self._plan.limit - self.count]):
            reached = self.deliver_run(run, until)
            if reached < len(run) or not self.room or self._settings.clock() >= until:
                break
        return self.count - before

    def hold_rest(self, records: Sequence[Record]) -> None:
        """Give back the records of a slice of retries that were not reached."""
        for record in records:
            self._hold(record)

    def _check_anchor(self, first: Record) -> None:
        self.first = first.sequence
        if self._plan.kind is not SliceKind.RETRY and self._plan.anchor not in (None, self.first):
            # The stored holes speak of another history: deliver again what they claim (invariant 11).
            self._holes = ()
            self._attempts = {}

    def _runs(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """Split off what is not delivered, and what must be watched one by one; normally all is one run."""
        one_by_one = self._settings.order is not Order.UNORDERED
        if not (one_by_one or self._holes or self._attempts or self._blocked):
            yield records
            return
        start = 0
        for at, record in enumerate(records):
            sequence = record.sequence
            record.attempt = self._attempts.get(sequence, 0) + 1
            passed_over = bool(self._holes) and within(self._holes, sequence)
            if passed_over or one_by_one:
                if at > start:
                    yield records[start:at]
                start = at + 1
                if passed_over:
                    self.pass_over(record)
                elif record.partition_key is not None and record.partition_key in self._blocked:
                    self._hold(record)
                    if not self.room:
                        return
                else:
                    yield records[at : at + 1]
        if start < len(records):
            yield records[start:]

    @abstractmethod
    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        """Deliver consecutive records, in order, and enter them into the books. Returns how many."""

    def _hold(self, record: Record) -> None:
        self.note_failed(record, "", self.count, None, None)
        self.pass_over(record)

    def note_failed(
        self, record: Record, error: str, index: int, previous: Record | None, failure: Failure | None
    ) -> None:
        """Enter a record that was not acked; without a ``failure`` it was held."""
        self.failures.append(
            FailedRecord(
                index=index,
                sequence=record.sequence,
                previous=self.last if previous is None else previous.sequence,
                attempt=record.attempt - (failure is None),
                held=failure is None,
                partition_key=record.partition_key,
                rejected=failure is not None and failure.rejected,
                delay_seconds=None if failure is None else failure.delay_seconds,
            )
        )
        self.unfinished.append(Unfinished(record=record, error=error))

    def pass_over(self, record: Record) -> None:
        """Enter a record that is dealt with."""
        self.count += 1
        self.last = record.sequence


class HandlerDelivery(SliceDelivery):
    """Delivers to the user's handler, there and then. Mutable."""

    def __init__(self, work: WorkSlice, handler: Handler, settings: DeliverySettings) -> None:
        super().__init__(work, settings)
        self._handler = handler

    def deliver_run(self, run: Sequence[Record], until: float) -> int:
        """See ``SliceDelivery``."""
        reached = 0
        while reached < len(run) and self.room:
            # Every record may fail, so no more are handed over at a time than failures can be kept.
            part = run[reached : reached + self._plan.max_failures - len(self.failures)]
            delivered, failed = self._handler(part, until)
            for at, failure in failed:
                self._note(part[at], at, part[at - 1] if at else None, failure)
            self.delivered += delivered
            self.count += delivered
            self.last = part[delivered - 1].sequence
            reached += delivered
            if delivered < len(part):
                break
        return reached

    def _note(self, record: Record, at: int, previous: Record | None, failure: Failure) -> None:
        self.note_failed(record, failure.error_text, self.count + at, previous, failure)
        if self._settings.order is Order.KEY and record.partition_key is not None:
            self._blocked.add(record.partition_key)
