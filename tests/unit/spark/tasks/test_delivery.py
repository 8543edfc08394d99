"""The books of one slice: what is delivered, held or passed over, and that the tracker can take them in."""

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_spout.model.handler import Failure, Reject
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks.delivery import DeliverySettings, Failed, HandlerDelivery
from kinesis_spout.spark.tasks.handlers import RecordHandler
from kinesis_spout.spark.tasks.journal import SliceNotes
from shard_state import (
    Capacity,
    Checkpoint,
    Fate,
    LocalShardState,
    Order,
    Position,
    Redelivery,
    RetryPolicy,
    Shard,
    SliceKind,
    SliceOutcome,
    SlicePlan,
)
from shard_state.local_shard.slice_settling import settle_fresh
from tests.unit.spark.tasks.slices import NEVER, Handler, delivery_of, plan, record, records, seq, shown

pytestmark = pytest.mark.no_second_run


class Recording:
    """A handler that fails what it is told to fail. Mutable."""

    def __init__(self, fails: Collection[int] = (), stop_after: int | None = None) -> None:
        self._fails = fails
        self._stop_after = stop_after
        self.seen: list[tuple[int, int]] = []
        """(sequence number, attempt)"""

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.seen]

    def __call__(
        self, records: Sequence[Record], until: float, notes: SliceNotes
    ) -> tuple[int, list[Failed]]:
        del until, notes
        part = records[: self._stop_after]
        self.seen += [(int(each.sequence_number), each.attempt) for each in part]
        failure = Failure(error_text="no")
        failed = [(at, failure) for at, each in enumerate(part) if int(each.sequence_number) in self._fails]
        return len(part), failed


def deliver(
    slice_plan: SlicePlan,
    given_records: Sequence[Record],
    handler: Recording | RecordHandler,
    order: Order = Order.UNORDERED,
    now: float = 0.0,
) -> tuple[HandlerDelivery, int]:
    delivery = HandlerDelivery(slice_plan, handler, DeliverySettings(order=order, clock=lambda: now))
    return delivery, delivery.deliver(given_records, NEVER)


@pytest.fixture(params=[None, 4], ids=["one at a time", "several at a time"])
def concurrency(request: pytest.FixtureRequest) -> int | None:
    made: int | None = request.param
    return made


def test_all_records_are_delivered_and_the_failed_are_entered_in_their_order(concurrency: int | None) -> None:
    handler = Handler(2, 5, 6)
    delivery = delivery_of(handler, plan(), concurrency=concurrency)

    assert delivery.deliver(records(*["k"] * 7), NEVER) == 7
    assert (delivery.count, delivery.delivered) == (7, 7)
    assert (delivery.first, delivery.last) == (seq(1), seq(7))
    assert handler.numbers == [1, 2, 3, 4, 5, 6, 7]
    assert shown(delivery.failures) == [(2, 1, False, 1), (5, 4, False, 1), (6, 5, False, 1)]
    assert [failure.index for failure in delivery.failures] == [1, 4, 5]
    assert {each.error for each in delivery.unfinished} == {"ValueError: no"}


def test_a_rejected_record_is_entered_as_such(concurrency: int | None) -> None:
    delivery = delivery_of(Handler(1, error=Reject("never")), plan(), concurrency=concurrency)
    delivery.deliver(records("a", "b"), NEVER)

    assert [failure.fate for failure in delivery.failures] == [Fate.REJECTED]


def test_holes_are_passed_over_attempts_go_on_and_neither_holds_up_what_follows(
    concurrency: int | None,
) -> None:
    handler = Handler(5)
    slice_plan = plan(holes=((seq(1), seq(3)),), anchor=seq(1), attempts=((seq(1), 2), (seq(5), 1)))
    delivery = delivery_of(handler, slice_plan, concurrency=concurrency)
    delivery.deliver(records(*"abcde"), NEVER)

    assert sorted(handler.seen) == [(1, 3), (4, 1), (5, 2)]
    assert (delivery.count, delivery.delivered) == (5, 3)
    assert shown(delivery.failures) == [(5, 4, False, 2)]


def test_with_the_order_of_keys_later_records_of_a_failed_key_are_held(concurrency: int | None) -> None:
    handler = Handler(2)
    delivery = delivery_of(handler, plan(), Order.KEY, concurrency=concurrency)
    delivery.deliver(records("a", "b", "a", "b", None, "b"), NEVER)

    assert handler.numbers == [1, 2, 3, 5]
    assert shown(delivery.failures) == [(2, 1, False, 1), (4, 3, True, 0), (6, 5, True, 0)]
    assert [each.error for each in delivery.unfinished] == ["ValueError: no", "", ""]
    assert delivery.delivered == 4


def test_a_key_that_failed_before_is_held_in_this_slice_and_in_its_next_page(concurrency: int | None) -> None:
    handler, page = Handler(1), records("a", "b", "c", "a", "c")
    delivery = delivery_of(handler, plan(blocked_keys=frozenset("b")), Order.KEY, concurrency=concurrency)
    delivery.deliver(page[:3], NEVER)
    delivery.deliver(page[3:], NEVER)

    assert handler.numbers == [1, 3, 5]
    assert shown(delivery.failures) == [(1, 0, False, 1), (2, 1, True, 0), (4, 3, True, 0)]


def test_retries_of_a_key_are_delivered_in_order_and_held_behind_one_that_fails(
    concurrency: int | None,
) -> None:
    handler = Handler(1)
    retries = tuple(Redelivery(sequence=seq(number), attempt=2) for number in (1, 2, 3))
    slice_plan = plan(SliceKind.RETRY, retries=retries, limit=3)
    delivery = delivery_of(handler, slice_plan, Order.KEY, concurrency=concurrency)
    delivery.deliver(records("a", "a", "b"), NEVER)

    assert sorted(handler.seen) == [(1, 2), (3, 2)]
    assert shown(delivery.failures) == [(1, 0, False, 2), (2, 1, True, 1)]


def test_no_more_fail_than_can_be_kept(concurrency: int | None) -> None:
    handler = Handler(*range(1, 100))
    delivery = delivery_of(handler, plan(max_failures=3), concurrency=concurrency)

    assert delivery.deliver(records(*["k"] * 50), NEVER) == 3
    assert (delivery.count, len(delivery.failures), handler.numbers) == (3, 3, [1, 2, 3])
    assert not delivery.room


def test_a_probe_delivers_one_record(concurrency: int | None) -> None:
    handler = Handler()
    delivery = delivery_of(handler, plan(deliveries=1), concurrency=concurrency)

    assert delivery.deliver(records("a", "b", "c"), NEVER) == 1
    assert handler.seen == [(1, 1)]
    assert delivery.failures == []


# One record at a time


def test_everything_is_handed_over_at_once_when_nothing_must_be_watched() -> None:
    handler = Recording()
    delivery, reached = deliver(plan(), records(*[None] * 3), handler)

    assert (reached, delivery.count, delivery.delivered) == (3, 3, 3)
    assert (delivery.first, delivery.last) == (seq(1), seq(3))
    assert handler.seen == [(1, 1), (2, 1), (3, 1)]


def test_another_first_record_than_the_anchor_drops_holes_and_attempts() -> None:
    handler = Recording()
    slice_plan = plan(holes=((seq(2), seq(3)),), anchor=seq(1), attempts=((seq(2), 7),))
    deliver(slice_plan, [record(2), record(3)], handler)

    assert handler.seen == [(2, 1), (3, 1)]


def test_held_records_count_against_the_bound_on_failures() -> None:
    handler = Recording()
    given_records = [record(number, "b") for number in range(1, 11)]
    delivery, reached = deliver(
        plan(blocked_keys=frozenset("b"), max_failures=4), given_records, handler, Order.KEY
    )

    assert (reached, len(delivery.failures), delivery.room) == (4, 4, False)


def test_a_failure_stops_the_slice_of_an_ordered_shard() -> None:
    handler = Recording(fails=[2])
    delivery, reached = deliver(plan(), records(*[None] * 3), handler, Order.SHARD)

    assert (handler.numbers, reached, delivery.room) == ([1, 2], 2, False)


def test_a_slice_ends_at_its_limit() -> None:
    handler = Recording()
    delivery, reached = deliver(plan(limit=2), records(*[None] * 3), handler)

    assert (handler.numbers, reached, delivery.room) == ([1, 2], 2, False)


def test_a_handler_whose_time_is_up_leaves_the_rest() -> None:
    handler = Recording(stop_after=2)
    delivery, reached = deliver(plan(), records(*[None] * 4), handler)

    assert (reached, delivery.count, delivery.last) == (2, 2, seq(2))


def test_no_run_begins_after_the_time_is_up() -> None:
    handler = Recording()
    _, reached = deliver(plan(), records(*[None] * 3), handler, Order.KEY, now=NEVER)

    assert reached == 1


def test_retries_that_were_not_reached_are_held_uncounted() -> None:
    handler = Recording(stop_after=1)
    retries = (Redelivery(sequence=seq(1), attempt=2), Redelivery(sequence=seq(2), attempt=4))
    given_records = records(*[None] * 2)
    delivery, reached = deliver(plan(SliceKind.RETRY, retries=retries), given_records, handler)
    for each in given_records[reached:]:
        delivery.hold(each)

    assert handler.seen == [(1, 2)]
    assert [(f.sequence, f.held, f.attempt) for f in delivery.failures] == [(seq(2), True, 3)]


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3)])
def test_whatever_a_handler_raises_fails_its_record_only(error: BaseException) -> None:
    def handle(each: Record) -> None:
        if each.sequence_number == "2":
            raise error

    delivery, reached = deliver(plan(), records(*[None] * 3), RecordHandler(handle, lambda each: each))

    assert reached == 3
    assert [failed.sequence for failed in delivery.failures] == [seq(2)]


# The tracker takes the books in


@settings(max_examples=200)
@given(st.data())
def test_the_tracker_agrees_with_a_plain_account_of_what_was_acked(data: st.DataObject) -> None:
    """Random slices over random records, keys, holes, limits and failures, with every order."""
    order = data.draw(st.sampled_from(Order))
    numbers = sorted(data.draw(st.sets(st.integers(1, 60), min_size=1, max_size=30)))
    shard_records = [record(number, data.draw(st.sampled_from(["a", "b", None]))) for number in numbers]
    finished_before = data.draw(st.sets(st.sampled_from(numbers))) - {numbers[0]}
    holes = tuple((seq(number - 1), seq(number)) for number in sorted(finished_before))
    state = LocalShardState(
        Shard(shard_id="shard"),
        Checkpoint(start=Position.trim_horizon(), holes=holes, anchor=seq(numbers[0]), epoch=1),
        random=lambda: 0.0,
        retry=RetryPolicy(limit=None, backoff_seconds=1.0, jitter=0.0),
        order=order,
        capacity=Capacity(records=1_000, holes=1_000),
    )
    acked = set(finished_before)
    rest = shard_records
    while rest and state.may_read:
        slice_plan = plan(
            limit=data.draw(st.integers(1, 40)),
            max_failures=data.draw(st.integers(1, 10)),
            holes=state.tracker.restored_holes,
            anchor=state.tracker.anchor if state.tracker.last_emitted == state.tracker.base else None,
            blocked_keys=state.retries.blocked_keys,
        )
        fails = data.draw(st.sets(st.sampled_from(numbers)))
        handler = Recording(fails, data.draw(st.integers(1, 40)))
        delivery, reached = deliver(slice_plan, rest, handler, order)
        failed = {int(each.sequence.number) for each in delivery.failures}
        acked |= set(handler.numbers) - failed
        settle_fresh(
            state,
            SliceOutcome(
                first=delivery.first,
                last=delivery.last,
                count=delivery.count,
                failures=tuple(delivery.failures),
            ),
            0.0,
        )

        assert 1 <= reached <= slice_plan.limit
        assert len(delivery.failures) <= slice_plan.max_failures
        assert not set(handler.numbers) & finished_before
        rest = rest[reached:]

    read = numbers[: len(numbers) - len(rest)]
    open_ones = [number for number in read if number not in acked]
    prefix = read[: read.index(open_ones[0])] if open_ones else read
    assert state.tracker.base == (
        seq(prefix[-1]) if prefix else Checkpoint(start=Position.trim_horizon()).base
    )
    assert state.tracker.waiting == len(open_ones)
    if order is Order.KEY:
        keys = {int(each.sequence_number): each.partition_key for each in shard_records}
        assert state.retries.blocked_keys == {keys[number] for number in open_ones} - {None}


def test_a_probe_delivers_one_record_and_passes_over_what_is_finished() -> None:
    handler = Recording()
    slice_plan = plan(holes=((seq(1), seq(3)),), attempts=((seq(4), 1),), deliveries=1)
    delivery, reached = deliver(slice_plan, [record(number) for number in range(2, 7)], handler)

    assert handler.seen == [(4, 2)]
    assert (reached, delivery.count, delivery.delivered) == (3, 3, 1)
    assert not delivery.room


def test_a_probe_that_met_only_what_is_finished_goes_on_with_the_next_page() -> None:
    handler = Recording()
    slice_plan = plan(holes=((seq(0), seq(3)),), deliveries=1)
    delivery, reached = deliver(slice_plan, records(*[None] * 2), handler)

    assert (reached, delivery.delivered, delivery.room) == (2, 0, True)
    assert delivery.deliver([record(number) for number in range(3, 6)], NEVER) == 2
    assert handler.seen == [(4, 1)]


def test_a_probe_in_order_by_key_passes_over_what_waits_behind_a_record_that_failed() -> None:
    handler = Recording()
    slice_plan = plan(blocked_keys=frozenset("a"), deliveries=1)
    given_records = [record(1, "a"), record(2, "a"), record(3, "b"), record(4, "c")]
    delivery, _ = deliver(slice_plan, given_records, handler, Order.KEY)

    assert handler.numbers == [3]
    assert [each.sequence for each in delivery.failures] == [seq(1), seq(2)]
