"""What a Spark task does: read its slices' shards concurrently, call the handler, return the outcomes.

Pages are fetched by threads, one ahead of the handler for each slice; the handler itself runs on the task's
own thread only, so user code needs no locks. The first pages to arrive are handled first: an idle or throttled
shard holds up nobody (invariant 15). After ``max_seconds`` no slice goes on, so a batch is never held for long
by its largest slice; the rest is planned again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic

from kinesis_spout.errors import KinesisError, ShardNotFound
from kinesis_spout.kinesis import KinesisClientSettings, KinesisShardLister, PollingShardGetter
from kinesis_spout.ports import Page
from kinesis_spout.spark.delivery import DeliverySettings, HandlerDelivery, SliceDelivery
from kinesis_spout.spark.handlers import HandlerBytes
from kinesis_spout.spark.work import Cursor, WorkResult, WorkSlice
from kinesis_spout.worker_memory import set_aside_imports
from shard_state import Order, SliceKind, SliceOutcome

_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """What every task of a query needs to know."""

    stream: str
    client: KinesisClientSettings
    order: Order
    fail_on_data_loss: bool
    records_per_fetch: int
    bytes_per_slice: int
    max_seconds: float
    """How long slices go on."""


class RunSlices:
    """The function that Spark runs over the packed slices. Picklable."""

    def __init__(self, settings: TaskSettings, handler: HandlerBytes) -> None:
        self._settings = settings
        self._handler = handler

    def __call__(self, packs: Iterable[Sequence[WorkSlice]]) -> Iterator[WorkResult]:
        """Carry out the slices of one task."""
        handler = self._handler.load()

        def deliver(work: WorkSlice, rules: DeliverySettings) -> SliceDelivery:
            return HandlerDelivery(work, handler, rules)

        for pack in packs:
            yield from run_slices(pack, self._settings, deliver)


def run_slices(
    pack: Sequence[WorkSlice],
    settings: TaskSettings,
    deliver: Callable[[WorkSlice, DeliverySettings], SliceDelivery],
) -> Iterator[WorkResult]:
    """Carry out slices together; each result is given as soon as its slice ends."""
    rules = DeliverySettings(order=settings.order, clock=monotonic)
    until = monotonic() + settings.max_seconds
    reading: dict[Future[Page], _Read] = {}
    with ThreadPoolExecutor(max_workers=min(_THREADS, max(1, len(pack)))) as threads:
        carried = []
        for work in pack:
            delivery = deliver(work, rules)
            if work.plan.kind is SliceKind.READ:
                read = _Read(work, delivery, settings)
                reading[threads.submit(read.fetch)] = read
            else:
                carried.append((work, delivery))
        for work, delivery in carried:
            yield _deliver_carried(work, delivery, until)
        while reading:
            for done in wait(reading, return_when=FIRST_COMPLETED).done:
                read = reading.pop(done)
                following = read.take(done)
                if following is None:
                    yield read.result()
                    continue
                # The next page is on its way while this one is handled.
                ahead = threads.submit(read.fetch) if read.reads_on(following, until) else None
                if read.handle(following, until) and ahead is not None:
                    reading[ahead] = read
                else:
                    if ahead is not None:
                        read.give_back(ahead)
                    yield read.result()
    set_aside_imports()


def _deliver_carried(work: WorkSlice, delivery: SliceDelivery, until: float) -> WorkResult:
    reached = delivery.deliver(work.records, until)
    if work.plan.kind is SliceKind.RETRY:
        delivery.hold_rest(work.records[reached:])
    return WorkResult(
        plan=work.plan,
        outcome=SliceOutcome(
            first=delivery.first,
            last=delivery.last,
            count=delivery.count,
            failures=tuple(delivery.failures),
        ),
        unfinished=tuple(delivery.unfinished),
        delivered=delivery.delivered,
    )


class _Read:
    """One READ slice under way. Mutable; ``fetch`` runs on a fetching thread, one call at a time."""

    def __init__(self, work: WorkSlice, delivery: SliceDelivery, settings: TaskSettings) -> None:
        self._work = work
        self._delivery = delivery
        self._settings = settings
        self._getter: PollingShardGetter | None = None
        self._bytes = 0
        self._at_end = False
        self._at_tip = False
        self._whole = True
        """Whether everything fetched was also dealt with; if not, the getter is further than the slice."""
        self._millis_behind: int | None = None
        self._trimmed = False
        self._error: KinesisError | None = None

    def fetch(self) -> Page:
        """Read the next page, waiting for the shard's read limits."""
        if self._getter is None:
            self._getter = self._open()
        return self._delivery.fetch(self._getter, self._settings.records_per_fetch)

    def take(self, done: Future[Page]) -> Page | None:
        """Look at a fetched page. None: the slice ends here."""
        try:
            page = done.result()
        except ShardNotFound:
            self._trimmed = self._at_end = True
            return None
        except KinesisError as error:
            self._error = error
            return None
        self._bytes += page.size_bytes
        self._millis_behind = page.millis_behind_latest
        self._at_end = page.at_end
        self._at_tip = page.at_end or page.millis_behind_latest == 0
        return page

    def reads_on(self, page: Page, until: float) -> bool:
        """Tell whether the page after this one is wanted, as far as one can tell before handling this one."""
        return (
            not self._at_tip
            and self._bytes < self._settings.bytes_per_slice
            and self._delivery.wants_more_than(page)
            and monotonic() < until
            and self._getter is not None
            and self._getter.ready_at < until
        )

    def handle(self, page: Page, until: float) -> bool:
        """Deliver a page. Returns whether the slice goes on."""
        reached = self._delivery.deliver(page.records, until)
        if reached < len(page.records):
            self._whole = self._at_end = self._at_tip = False
        return self._whole and self._delivery.room and monotonic() < until

    def give_back(self, ahead: Future[Page]) -> None:
        """Forget a page that was fetched ahead and is not wanted any more."""
        if not ahead.cancel():
            ahead.exception()
            self._whole = False

    def result(self) -> WorkResult:
        """Close the books."""
        delivery, getter = self._delivery, self._getter
        cursor = Cursor()
        if getter is not None:
            cursor = Cursor(
                iterator=getter.iterator if self._whole else None,
                iterator_obtained_at=getter.iterator_obtained_at,
                not_before=getter.not_before,
            )
        return WorkResult(
            plan=self._work.plan,
            outcome=SliceOutcome(
                first=delivery.first,
                last=delivery.last,
                count=delivery.count,
                failures=tuple(delivery.failures),
                at_end=self._at_end,
                at_tip=self._at_tip,
            ),
            unfinished=tuple(delivery.unfinished),
            cursor=cursor,
            delivered=delivery.delivered,
            bytes_read=self._bytes,
            millis_behind_latest=self._millis_behind,
            throttles=0 if getter is None else getter.throttles,
            trimmed=self._trimmed,
            error=self._error,
        )

    def _open(self) -> PollingShardGetter:
        client = self._settings.client.connect()
        cursor = self._work.cursor
        return PollingShardGetter(
            client,
            stream=self._settings.stream,
            shard_id=self._work.plan.shard_id,
            position=self._work.plan.position,
            lister=KinesisShardLister(client, self._settings.stream),
            fail_on_data_loss=self._settings.fail_on_data_loss,
            iterator=cursor.iterator,
            iterator_obtained_at=cursor.iterator_obtained_at,
            not_before=cursor.not_before,
        )
