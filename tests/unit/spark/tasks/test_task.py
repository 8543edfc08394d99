"""What a task does with its slices: reads, delivers, and says how far it came."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace as replaced

from kinesis_spout.consumer.limits.record_age import RecordAge
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.kinesis.pace import ReadPace
from kinesis_spout.kinesis.read.polled_getter import Cursor
from kinesis_spout.model.columns import HANDLED_SCHEMA
from kinesis_spout.model.errors import (
    DataLoss,
    KeyUnavailable,
    KinesisError,
    ShardNotFound,
    Throttled,
    Unavailable,
)
from kinesis_spout.model.record import Record
from kinesis_spout.spark.dataframe.cached_rows import CachingDelivery
from kinesis_spout.spark.tasks.arrow_delivery import ArrowDelivery, records_of
from kinesis_spout.spark.tasks.delivery import DeliverySettings, HandlerDelivery, SliceDelivery
from kinesis_spout.spark.tasks.handlers import ArrowCollector, ArrowHandler, RecordHandler, delivery_to
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import Fate, Order, Position, RunBounds, SliceKind, SlicePlan
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, StreamClient, task_settings


def read_slice(shard_id: str = FIRST, position: Position | None = None, **changes: Any) -> WorkSlice:
    cursor = changes.pop("cursor", Cursor())
    fields: dict[str, Any] = {"limit": 100_000, "max_failures": 20_000, **changes}
    plan = SlicePlan(
        shard_id=shard_id,
        epoch=1,
        kind=SliceKind.READ,
        position=position or Position.trim_horizon(),
        **fields,
    )
    return WorkSlice(plan=plan, cursor=cursor)


def run(
    settings: TaskSettings, *pack: WorkSlice, handle: Callable[[Record], None] = lambda _: None
) -> Iterator[WorkResult]:
    def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
        return HandlerDelivery(plan, RecordHandler(handle, lambda record: record), rules)

    return run_slices(pack, settings, deliver)


class World:
    def __init__(self, shards: int = 1) -> None:
        self.stream = InMemoryStream("orders", shards=shards, clock=ManualClock())
        self.client = StreamClient(self.stream)

    def put(self, count: int, key: str = "key") -> list[Record]:
        return [self.stream.put(str(number).encode(), key) for number in range(count)]


@pytest.fixture
def world() -> World:
    return World()


def data_of(records: Sequence[Record]) -> list[bytes]:
    return [record.data for record in records]


def test_a_slice_is_read_page_by_page_to_the_tip(world: World) -> None:
    records = world.put(5)
    seen: list[Record] = []
    (result,) = run(task_settings(world.client, records_per_fetch=2), read_slice(), handle=seen.append)

    assert data_of(seen) == data_of(records)
    outcome = result.outcome
    assert (outcome.first, outcome.last, outcome.count) == (records[0].sequence, records[-1].sequence, 5)
    assert (outcome.at_tip, outcome.at_end, result.delivered, result.error) == (True, False, 5, None)
    assert result.millis_behind_latest == 0
    assert result.bytes_read == sum(len(record.data) + 3 for record in records)


def test_an_empty_shard_is_at_its_tip(world: World) -> None:
    (result,) = run(task_settings(world.client), read_slice())

    assert (result.outcome.at_tip, result.outcome.count, result.outcome.first) == (True, 0, None)


def test_the_next_slice_goes_on_with_the_iterator_it_is_given(world: World) -> None:
    records = world.put(4)
    settings = task_settings(world.client, records_per_fetch=2, bytes_per_slice=1)
    (first,) = run(settings, read_slice())
    asked = len(world.client.iterator_requests)
    assert first.outcome.count == 2
    assert first.outcome.last is not None

    seen: list[Record] = []
    position = Position.after(first.outcome.last)
    cursor = replace(first.cursor, pace=ReadPace(interval_seconds=60.0))
    (second,) = run(settings, read_slice(position=position, cursor=cursor), handle=seen.append)

    assert data_of(seen) == data_of(records[2:])
    assert len(world.client.iterator_requests) == asked
    assert 30.0 < second.cursor.wait_seconds <= 60.0


def test_a_slice_that_was_read_further_than_it_was_handled_gives_no_iterator(world: World) -> None:
    world.put(10)
    (result,) = run(task_settings(world.client), read_slice(limit=3))

    assert (result.outcome.count, result.outcome.at_tip) == (3, False)
    assert result.cursor.iterator is None


def test_a_slice_fetches_little_more_than_it_may_handle(world: World) -> None:
    records = world.put(2_000)
    (small,) = run(task_settings(world.client, max_left_bytes=1 << 20), read_slice(limit=3))
    assert data_of(small.left) == data_of(records[3:1_000])
    (result,) = run(task_settings(world.client), read_slice(limit=1_500))

    assert (result.outcome.count, result.outcome.last) == (1_500, records[1_499].sequence)
    assert result.left == ()
    assert result.cursor.iterator is not None


def test_the_end_of_a_closed_shard_is_told_only_when_all_before_it_is_handled(world: World) -> None:
    world.put(4)
    world.stream.split(FIRST)
    (cut,) = run(task_settings(world.client), read_slice(limit=3))
    (whole,) = run(task_settings(world.client), read_slice())

    assert (cut.outcome.at_end, cut.outcome.at_tip) == (False, False)
    assert (whole.outcome.at_end, whole.outcome.count) == (True, 4)


@pytest.mark.parametrize("error", [Unavailable("down"), KeyUnavailable("key disabled")])
def test_an_error_amid_a_slice_keeps_what_was_read_before(world: World, error: KinesisError) -> None:
    world.put(6)
    settings = task_settings(world.client, records_per_fetch=2)
    started = threading.Event()

    def handle(_: Record) -> None:
        if not started.is_set():
            started.set()
            world.stream.fail_next(error, times=5)

    (result,) = run(settings, read_slice(), handle=handle)

    assert isinstance(result.error, type(error))
    assert result.outcome.count in (2, 4)
    assert not result.outcome.at_tip or result.outcome.count == 6


def test_a_throttle_is_counted_and_keeps_the_iterator(world: World) -> None:
    world.put(2)
    world.stream.throttle()
    (result,) = run(task_settings(world.client), read_slice())

    assert isinstance(result.error, Throttled)
    assert (result.throttles, result.outcome.count, result.outcome.at_tip) == (1, 0, False)
    assert result.cursor.iterator is not None


def to(kind: type[SliceDelivery], seen: list[Record]) -> Callable[..., SliceDelivery]:
    """Deliver as one of the doors does: to a function of a record, of columns, or into a DataFrame."""

    def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
        if kind is CachingDelivery:
            return CachingDelivery(plan, rules)
        if kind is ArrowDelivery:
            return ArrowDelivery(plan, ArrowHandler(lambda batch, _: seen.extend(records_of(batch))), rules)
        return HandlerDelivery(plan, RecordHandler(seen.append, lambda record: record), rules)

    return deliver


KINDS = [HandlerDelivery, ArrowDelivery, CachingDelivery]


@pytest.mark.parametrize("kind", KINDS)
def test_lost_data_is_an_error_of_the_slice(world: World, kind: type[SliceDelivery]) -> None:
    records = world.put(3)
    world.stream.trim(FIRST, records[2].sequence)
    work = read_slice(position=Position.after(records[0].sequence))
    (result,) = run_slices([work], task_settings(world.client), to(kind, []))

    assert isinstance(result.error, DataLoss)
    assert result.outcome.count == 0


@pytest.mark.parametrize("kind", KINDS)
def test_lost_data_that_may_be_lost_is_counted_and_the_rest_is_handled(
    world: World, kind: type[SliceDelivery]
) -> None:
    records = world.put(4)
    world.stream.trim(FIRST, records[2].sequence)
    work = read_slice(position=Position.after(records[0].sequence))
    settings = task_settings(world.client, fail_on_data_loss=False)
    (result,) = run_slices([work], settings, to(kind, []))

    assert (result.error, result.data_losses, result.outcome.count) == (None, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_that_is_gone_is_an_error_too_and_its_end_was_not_read(kind: type[SliceDelivery]) -> None:
    world = World(shards=2)
    del world.stream._logs[FIRST]
    (result,) = run_slices([read_slice()], task_settings(world.client), to(kind, []))

    assert isinstance(result.error, ShardNotFound)
    assert not result.outcome.at_end


def test_a_slow_shard_does_not_hold_up_a_fast_one() -> None:
    """Invariant 15. The slow one's read hangs until the fast one's result is there."""
    world = World(shards=2)
    fast_is_done = threading.Event()

    class SlowClient(StreamClient):
        def get_records(self, **request: Any) -> dict[str, Any]:
            if request["ShardIterator"].startswith(FIRST):
                assert fast_is_done.wait(60)
            return super().get_records(**request)

    results = run(task_settings(SlowClient(world.stream)), read_slice(FIRST), read_slice(SECOND))
    first_result = next(results)
    fast_is_done.set()

    assert first_result.plan.shard_id == SECOND
    assert [result.plan.shard_id for result in results] == [FIRST]


def test_no_slice_goes_on_after_its_time(world: World) -> None:
    world.put(10)
    settings = task_settings(world.client, records_per_fetch=2, max_seconds=0.0)
    (result,) = run(settings, read_slice())

    assert result.outcome.count >= 1
    assert not result.outcome.at_tip or result.outcome.count == 2
    assert world.client.calls == 1


def test_a_slice_ends_when_its_shard_must_rest_longer_than_the_slice_may_go_on(world: World) -> None:
    """A page of 8 MB keeps its shard at rest for 4 s; a batch that waits for it holds up all its shards."""
    for size in (8_000_000, 1):
        world.stream.put(b"x" * size, "key")
    settings = task_settings(world.client, records_per_fetch=1, max_seconds=1.0)
    (result,) = run(settings, read_slice())

    assert (result.outcome.count, world.client.calls) == (1, 1)
    assert not result.outcome.at_tip


def test_carried_records_and_retries_are_delivered_without_reading(world: World) -> None:
    records = world.put(3)
    plan = SlicePlan(
        shard_id=FIRST,
        epoch=1,
        kind=SliceKind.CARRIED,
        limit=3,
        max_failures=9,
        position=Position.trim_horizon(),
    )
    seen: list[Record] = []
    (result,) = run(
        task_settings(world.client), WorkSlice(plan=plan, records=tuple(records)), handle=seen.append
    )

    assert data_of(seen) == data_of(records)
    assert (result.outcome.count, result.delivered, world.client.calls) == (3, 3, 0)


def test_an_order_that_stops_a_slice_leaves_the_rest_of_its_page(world: World) -> None:
    records = world.put(4)

    def handle(record: Record) -> None:
        if record.sequence == records[1].sequence:
            raise ValueError("no")

    (result,) = run(task_settings(world.client, order=Order.SHARD), read_slice(), handle=handle)

    assert (result.outcome.count, result.outcome.at_tip, result.cursor.iterator) == (2, False, None)
    assert [unfinished.error for unfinished in result.unfinished] == ["ValueError: no"]


def test_all_shards_of_a_task_are_read_at_the_same_time() -> None:
    """Eight shards of two pages each: each read hangs until the other seven are under way, too."""
    together = threading.Barrier(8, timeout=60)

    class MeetingClient(StreamClient):
        def get_records(self, **request: Any) -> dict[str, Any]:
            together.wait()
            return super().get_records(**request)

    world = World(shards=8)
    keys = {world.stream._log_for(key).shard.shard_id: key for key in map(str, range(200))}
    for key in keys.values():
        world.put(20, key)
    settings = task_settings(MeetingClient(world.stream), records_per_fetch=10)
    pack = [read_slice(shard_id) for shard_id in keys]

    assert [result.outcome.count for result in run(settings, *pack)] == [20] * 8


# Time


class SlowClient(StreamClient):
    """Each page comes after longer than a task may handle, which is long enough for a busy machine."""

    SECONDS = 1.0

    def get_records(self, **request: Any) -> dict[str, Any]:
        began = monotonic()
        page = super().get_records(**request)
        wait_until(lambda: monotonic() > began + 2 * self.SECONDS, "the page is here")
        return page


def test_a_page_that_came_late_is_handled_all_the_same(world: World) -> None:
    """The fetch takes longer than ``max_seconds``: the time for handling begins when the page is there."""
    world.put(1_000)
    settings = task_settings(SlowClient(world.stream), max_seconds=SlowClient.SECONDS, records_per_fetch=500)
    (result,) = run(settings, read_slice())

    assert result.outcome.count >= 500


def test_of_several_pages_that_came_late_each_has_its_share_of_the_time() -> None:
    world = World(shards=2)
    for number in range(400):
        world.stream.put(b"x", str(number))
    settings = task_settings(SlowClient(world.stream), max_seconds=SlowClient.SECONDS)
    results = list(run(settings, read_slice(FIRST), read_slice(SECOND)))

    assert sum(result.outcome.count for result in results) == 400


def test_what_is_left_of_a_page_is_given_back_with_the_place_behind_it(world: World) -> None:
    records = world.put(10)
    settings = task_settings(world.client, max_seconds=0.0, records_per_fetch=5, max_left_bytes=1_000)
    (result,) = run(settings, read_slice())

    assert result.outcome.count == 1
    assert [record.data for record in result.left] == data_of(records[1:5])
    assert result.cursor.iterator is not None
    seen: list[Record] = []
    behind = read_slice(position=Position.after(records[4].sequence), cursor=result.cursor)
    list(run(task_settings(world.client), behind, handle=seen.append))
    assert data_of(seen) == data_of(records[5:])


def test_where_there_is_no_room_for_all_that_is_left_the_place_behind_it_is_not_given(world: World) -> None:
    records = world.put(10)
    settings = task_settings(world.client, max_seconds=0.0, max_left_bytes=120).of_one_task(tasks=10)
    (result,) = run(settings, read_slice())

    assert [record.data for record in result.left] == data_of(records[1:4])
    assert result.cursor.iterator is None


# The end of a run


def bounded(position: Position, **changes: Any) -> WorkSlice:
    bound = RunBounds.of(position, {}, began_at=0.0, margin_seconds=0.0).default
    return read_slice(bound=bound, **changes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["time", "number"])
def test_a_slice_ends_before_the_record_that_ends_its_shard(
    world: World, kind: type[SliceDelivery], by: str
) -> None:
    records = world.put(5)
    assert isinstance(world.stream.clock, ManualClock)
    world.stream.clock.advance(10.0)
    late = world.put(3)
    world.stream.clock.jump(-10.0)
    world.put(1)  # behind the end, whenever it arrived
    end = Position.at(late[0].sequence) if by == "number" else Position.at_timestamp(1_700_000_010.0)
    (result,) = run_slices([bounded(end)], task_settings(world.client, records_per_fetch=7), to(kind, []))
    outcome = result.outcome
    assert (outcome.count, outcome.last, result.delivered) == (5, records[-1].sequence, 5)
    assert (outcome.at_bound, outcome.at_tip, outcome.at_end) == (True, False, False)
    assert result.cursor.iterator is None, "it leads behind what the next run is to read"
    assert not result.left


def test_records_that_were_not_reached_come_back_before_the_bound_is_told(world: World) -> None:
    world.put(6)
    late = world.put(2)
    limit = {"limit": 4, "max_failures": 4}
    settings = task_settings(world.client, max_left_bytes=1 << 20)
    (result,) = run(settings, bounded(Position.at(late[0].sequence), **limit))
    assert result.outcome.count == 4
    assert not result.outcome.at_bound
    assert data_of(result.left) == [b"4", b"5"]
    assert result.cursor.iterator is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skips", [True, False])
def test_records_that_are_too_old_are_passed_over_wherever_they_stand(
    world: World, kind: type[SliceDelivery], *, skips: bool
) -> None:
    clock = world.stream.clock
    assert isinstance(clock, ManualClock)
    world.put(2)
    for seconds in (100.0, -100.0, 100.0):
        clock.jump(seconds)
        world.put(2)
    age = RecordAge(arrived_from=1_700_000_050.0, maximum_seconds=50.0, skips=skips)
    seen: list[Record] = []
    work = replace(read_slice(), age=age)
    (result,) = run_slices([work], task_settings(world.client), to(kind, seen))
    assert (result.outcome.count, result.delivered, result.expired) == (8, 4, 4)
    failed = [(failure.index, failure.attempt, failure.fate) for failure in result.outcome.failures]
    assert failed == ([] if skips else [(at, 0, Fate.EXPIRED) for at in (0, 1, 4, 5)])
    assert len(seen) == (0 if kind is CachingDelivery else 4)


@pytest.mark.parametrize("share", [2, 100], ids=["many fail", "few fail"])
@pytest.mark.parametrize("restored", [False, True], ids=["as at first", "after a restart"])
def test_the_columns_of_a_page_mean_what_its_records_would_to_an_arrow_handler(
    world: World, share: int, *, restored: bool
) -> None:
    records = world.put(200)
    world.stream.put(aggregate([UserRecord("one", b"a"), UserRecord("two", b"b")]), "carrier")
    attempts = ((records[0].sequence, 3),) if restored else ()
    seen: dict[type, list[pa.RecordBatch]] = {}

    def result_of(kind: type[HandlerDelivery]) -> WorkResult:
        batches = seen.setdefault(kind, [])

        def handle(batch: pa.RecordBatch, collector: ArrowCollector) -> None:
            batches.append(batch)
            collector.fail([*range(0, batch.num_rows, share), batch.num_rows - 1], "bad")

        def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
            return kind(plan, ArrowHandler(handle), rules)

        (result,) = run_slices([read_slice(attempts=attempts)], task_settings(world.client), deliver)
        return result

    by_record, by_column = result_of(HandlerDelivery), result_of(ArrowDelivery)
    assert by_column.outcome == by_record.outcome
    assert by_column.delivered == 202
    assert by_column.outcome.failures[0].attempt == (4 if restored else 1)
    without_encryption = [replaced(each.record, encryption_type=None) for each in by_record.unfinished]
    assert [each.record for each in by_column.unfinished] == without_encryption
    assert pa.Table.from_batches(seen[ArrowDelivery]) == pa.Table.from_batches(seen[HandlerDelivery])
    assert seen[ArrowDelivery][0].schema == HANDLED_SCHEMA


def test_an_arrow_handler_is_given_columns_unless_it_looks_for_trace_contexts() -> None:
    rules = DeliverySettings(order=Order.UNORDERED, clock=monotonic)
    plain, traced = ArrowHandler(print), ArrowHandler(print)
    traced.takes_columns = False
    kinds = [type(delivery_to(handler, read_slice().plan, rules)) for handler in (plain, traced)]
    assert kinds == [ArrowDelivery, HandlerDelivery]
