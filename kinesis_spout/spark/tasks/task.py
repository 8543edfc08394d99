"""A Spark task: it reads its slices' shards concurrently, calls the handler, and returns the outcomes.

Pages are fetched by threads, one ahead of the handler for each slice; the handler itself runs on the task's
own thread only, so user code needs no locks. The first pages to arrive are handled first: an idle or
throttled shard holds up no other (invariant 15).

A batch is never held for long by its largest slice: after ``max_seconds`` of handling no slice reads on. The
time counts from when there is something to handle, and a page that was fetched gets its share of time,
however long the fetch took. The rest of a page then travels back to the driver, and the next slices carry it,
so it is not fetched again.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from time import monotonic
from typing import Self

from kinesis_spout.kinesis import KinesisClientSettings, PollingShardGetter, ReadSettings, ShardGetters
from kinesis_spout.kinesis.read.polled_getter import Cursor
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from kinesis_spout.processes.executor_python import set_aside_imports
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.journal import Journal, SliceNotes
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import Order, SequenceNumber, SliceKind, SlicePlan

_THREADS = 8
_FEWEST_RECORDS = 1_000
"""A fetch asks for no fewer: what a small slice leaves of them goes back to the driver, for the next ones."""

Deliver = Callable[[SlicePlan, DeliverySettings], SliceDelivery]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    stream: str
    client: KinesisClientSettings
    read: ReadSettings
    order: Order
    bytes_per_slice: int
    max_seconds: float
    """The time for which a task handles records. It ends before twice that, but for one record and one fetch."""
    max_left_bytes: int = 0
    """The most bytes of fetched and unhandled records that the tasks of a job together return to the driver."""

    def of_one_task(self, tasks: int) -> Self:
        """The settings of one of so many tasks: its share of what they have together."""
        return replace(self, max_left_bytes=self.max_left_bytes // tasks)


class _HandlingTime:
    def __init__(self, seconds: float, slices: int) -> None:
        self._seconds = seconds
        self._share = seconds / (2 * max(1, slices))
        self._until: float | None = None

    @property
    def is_over(self) -> bool:
        return self._until is not None and monotonic() >= self._until

    @property
    def until(self) -> float:
        """When the time is over; it begins with the first records."""
        if self._until is None:
            self._until = monotonic() + self._seconds
        return self._until

    def of_page(self) -> float:
        """Until when to handle records handed over now: the two last pages of a slice get a share, too."""
        return max(self.until, monotonic() + self._share)


def run_slices(
    pack: Sequence[WorkSlice], settings: TaskSettings, deliver: Deliver, journal: Journal | None = None
) -> Iterator[WorkResult]:
    """Carry out slices together; yields each result as soon as its slice ends."""
    time = _HandlingTime(settings.max_seconds, len(pack))
    left = _Left(settings.max_left_bytes)
    reading: dict[Future[Page], _Read] = {}
    with ThreadPoolExecutor(max_workers=min(_THREADS, max(1, len(pack)))) as threads:
        carried = []
        for number, work in enumerate(pack):
            notes = SliceNotes(journal, number)
            rules = DeliverySettings(
                order=settings.order,
                clock=monotonic,
                notes=notes,
                age=work.age,
            )
            delivery = deliver(work.plan, rules)
            if work.plan.kind is SliceKind.READ:
                read = _Read(work, delivery, settings, notes)
                reading[threads.submit(read.fetch)] = read
            else:
                carried.append((work, delivery, notes))
        for work, delivery, notes in carried:
            reached = delivery.deliver(work.records, time.of_page())
            if work.plan.kind is SliceKind.RETRY:
                for record in work.records[reached:]:
                    delivery.hold(record)
            yield notes.ended(delivery.result())
        while reading:
            for done in wait(reading, return_when=FIRST_COMPLETED).done:
                read = reading.pop(done)
                following = read.take(done)
                if following is None:
                    yield read.result()
                    continue
                page_until = time.of_page()
                # The next page is on its way while this one is handled.
                ahead = threads.submit(read.fetch) if read.reads_on(following, time) else None
                goes_on = read.handle(following, page_until)
                if goes_on and ahead is not None:
                    reading[ahead] = read
                else:
                    read.keep(left, ahead)
                    yield read.result()
    set_aside_imports()


class _Left:
    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes

    def take(self, records: Sequence[Record]) -> tuple[Record, ...]:
        taken = 0
        for record in records:
            self._room -= record.size_bytes
            if self._room < 0:
                break
            taken += 1
        return tuple(records[:taken])


class _Read:
    """One READ slice under way. Mutable; ``fetch`` runs on a fetching thread, one call at a time."""

    def __init__(
        self, work: WorkSlice, delivery: SliceDelivery, settings: TaskSettings, notes: SliceNotes
    ) -> None:
        self._work = work
        self._delivery = delivery
        self._settings = settings
        self._notes = notes
        self._getter: PollingShardGetter | None = None
        self._bytes = 0
        self._fetched = 0
        """Records on all pages; written by the fetching thread."""
        self._damaged_aggregates = self._records_outside_shard = self._data_losses = 0
        self._reached: tuple[SequenceNumber | None, float] | None = None
        self._at_end = False
        self._at_tip = False
        self._at_bound = False
        self._whole = True
        """True if everything fetched was dealt with, or goes back; if not, the getter is too far."""
        self._rest: Sequence[Record] = ()
        """The unreached records of the page handled last."""
        self._left: tuple[Record, ...] = ()
        self._millis_behind: int | None = None
        self._error: KinesisError | None = None

    def fetch(self) -> Page:
        """Read the next page, waiting for the shard's read limits."""
        if self._getter is None:
            self._getter = self._open()
        wanted = max(_FEWEST_RECORDS, self._work.plan.limit - self._fetched)
        page = self._delivery.fetch(self._getter, min(wanted, self._settings.read.max_records_per_fetch))
        self._fetched += len(page.records)
        return page

    def take(self, done: Future[Page]) -> Page | None:
        try:
            page = done.result()
        except KinesisError as error:
            self._error = error
            return None
        self._count(page)
        if page.since is not None:
            self._reached = page.records[-1].sequence if page.records else None, page.since
        self._millis_behind = page.millis_behind_latest
        self._at_end = page.at_end
        self._at_tip = page.at_end or page.millis_behind_latest == 0
        if self._work.plan.bound is None:
            return page
        records = self._delivery.before_bound(page.records)
        if len(records) == len(page.records):
            return page
        # The iterator is behind what is left for a later run.
        self._at_bound, self._at_end, self._whole = True, False, False
        return replace(page, records=records, at_end=False)

    def _count(self, page: Page) -> None:
        self._bytes += page.size_bytes
        self._damaged_aggregates += page.damaged_aggregates
        self._records_outside_shard += page.records_outside_shard
        self._data_losses += page.data_losses

    def reads_on(self, page: Page, time: _HandlingTime) -> bool:
        """Return whether the page after this one is wanted, as judged before handling this one."""
        return (
            not (self._at_tip or self._at_bound)
            and self._bytes < self._settings.bytes_per_slice
            and self._delivery.wants_more_than(page)
            and not time.is_over
            and self._getter is not None
            and self._getter.ready_at < time.until
        )

    def handle(self, page: Page, until: float) -> bool:
        """Deliver a page. Returns whether the slice continues, with the page ahead if there is one."""
        reached = self._delivery.deliver(page.records, until)
        self._rest = page.records[reached:]
        if self._rest:
            self._at_end = self._at_tip = self._at_bound = False
        return not self._rest and self._delivery.room

    def keep(self, left: _Left, ahead: Future[Page] | None) -> None:
        """Keep what was fetched and not handled, while there is room, for the driver to carry."""
        self._left = left.take(self._rest)
        self._whole = self._whole and len(self._left) == len(self._rest)
        if ahead is None or ahead.cancel():
            return
        if ahead.exception() is None:
            page = ahead.result()
            self._count(page)
            kept = left.take(self._delivery.before_bound(page.records)) if self._whole else ()
            self._left += kept
            self._whole = self._whole and len(kept) == len(page.records)
        else:
            self._whole = False

    def result(self) -> WorkResult:
        delivery, getter = self._delivery, self._getter
        cursor = Cursor()
        if getter is not None:
            cursor = getter.cursor if self._whole else replace(getter.cursor, iterator=None)
        result = delivery.result()
        outcome = replace(result.outcome, at_end=self._at_end, at_tip=self._at_tip, at_bound=self._at_bound)
        return self._notes.ended(
            replace(
                result,
                outcome=outcome,
                cursor=cursor,
                bytes_read=self._bytes,
                millis_behind_latest=self._millis_behind,
                throttles=0 if getter is None else getter.throttles,
                damaged_aggregates=self._damaged_aggregates,
                records_outside_shard=self._records_outside_shard,
                data_losses=self._data_losses,
                reached=self._reached,
                error=self._error,
                left=self._left,
            )
        )

    def _open(self) -> PollingShardGetter:
        settings, work = self._settings, self._work
        read = replace(settings.read, extra_columns=tuple(self._delivery.extra_columns))
        getters = ShardGetters(settings.client.connect(), settings.stream, read)
        return getters.polled(
            work.plan.shard_id, work.plan.position, hash_keys=work.hash_keys, cursor=work.cursor
        )
