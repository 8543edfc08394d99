"""The books of one slice: what is delivered, held or passed over, and that the tracker can take them in."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks.delivery import DeliverySettings, Failed, HandlerDelivery
from kinesis_spout.spark.tasks.handlers import RecordHandler
from kinesis_spout.spark.tasks.journal import SliceNotes
from shard_state import (
    Capacity,
    Checkpoint,
    LocalShardState,
    Order,
    Position,
    Redelivery,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SliceKind,
    SliceOutcome,
    SlicePlan,
)
from shard_state.local_shard.slice_settling import settle_fresh

pytestmark = pytest.mark.no_second_run

NEVER = 1e9


def seq(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def record(number: int, key: str | None = None) -> Record:
    return Record(data=b"", sequence_number=str(number), partition_key=key, shard_id="shard")


def records(*numbers: int) -> list[Record]:
    return [record(number) for number in numbers]


def plan(kind: SliceKind = SliceKind.READ, **changes: Any) -> SlicePlan:
    fields: dict[str, Any] = {
        "shard_id": "shard",
        "epoch": 1,
        "limit": 1_000,
        "position": Position.trim_horizon(),
        "max_failures": 1_000,
        **changes,
    }
    return SlicePlan(kind=kind, **fields)


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


def test_everything_is_handed_over_at_once_when_nothing_must_be_watched() -> None:
    handler = Recording()
    delivery, reached = deliver(plan(), records(1, 2, 3), handler)

    assert (reached, delivery.count, delivery.delivered) == (3, 3, 3)
    assert (delivery.first, delivery.last) == (seq(1), seq(3))
    assert handler.seen == [(1, 1), (2, 1), (3, 1)]


def test_holes_are_passed_over_and_attempts_go_on() -> None:
    handler = Recording(fails=[5])
    slice_plan = plan(holes=((seq(1), seq(3)),), anchor=seq(1), attempts=((seq(1), 2), (seq(5), 1)))
    delivery, _ = deliver(slice_plan, records(1, 2, 3, 4, 5), handler)

    assert handler.seen == [(1, 3), (4, 1), (5, 2)]
    assert (delivery.count, delivery.delivered) == (5, 3)
    (failed,) = delivery.failures
    assert (failed.index, failed.sequence, failed.previous, failed.attempt) == (4, seq(5), seq(4), 2)


def test_another_first_record_than_the_anchor_drops_holes_and_attempts() -> None:
    handler = Recording()
    slice_plan = plan(holes=((seq(2), seq(3)),), anchor=seq(1), attempts=((seq(2), 7),))
    deliver(slice_plan, records(2, 3), handler)

    assert handler.seen == [(2, 1), (3, 1)]


def test_later_records_of_a_failed_key_are_held() -> None:
    handler = Recording(fails=[2])
    given_records = [record(1, "a"), record(2, "b"), record(3, "a"), record(4, "b"), record(5, None)]
    delivery, _ = deliver(plan(), given_records, handler, Order.KEY)

    assert handler.numbers == [1, 2, 3, 5]
    assert [(f.sequence, f.held, f.attempt, f.previous) for f in delivery.failures] == [
        (seq(2), False, 1, seq(1)),
        (seq(4), True, 0, seq(3)),
    ]
    assert [each.error for each in delivery.unfinished] == ["no", ""]


def test_records_of_keys_that_were_blocked_before_are_held() -> None:
    handler = Recording()
    delivery, _ = deliver(
        plan(blocked_keys=frozenset("b")), [record(1, "a"), record(2, "b")], handler, Order.KEY
    )

    assert handler.numbers == [1]
    assert [(f.sequence, f.held) for f in delivery.failures] == [(seq(2), True)]


def test_held_records_count_against_the_bound_on_failures() -> None:
    handler = Recording()
    given_records = [record(number, "b") for number in range(1, 11)]
    delivery, reached = deliver(
        plan(blocked_keys=frozenset("b"), max_failures=4), given_records, handler, Order.KEY
    )

    assert (reached, len(delivery.failures), delivery.room) == (4, 4, False)


def test_a_failure_stops_the_slice_of_an_ordered_shard() -> None:
    handler = Recording(fails=[2])
    delivery, reached = deliver(plan(), records(1, 2, 3), handler, Order.SHARD)

    assert (handler.numbers, reached, delivery.room) == ([1, 2], 2, False)


def test_a_slice_ends_when_so_many_have_failed_as_can_be_kept() -> None:
    handler = Recording(fails=range(100))
    delivery, reached = deliver(plan(max_failures=3), records(*range(1, 11)), handler)

    assert (handler.numbers, reached, len(delivery.failures)) == ([1, 2, 3], 3, 3)


def test_a_slice_ends_at_its_limit() -> None:
    handler = Recording()
    delivery, reached = deliver(plan(limit=2), records(1, 2, 3), handler)

    assert (handler.numbers, reached, delivery.room) == ([1, 2], 2, False)


def test_a_handler_whose_time_is_up_leaves_the_rest() -> None:
    handler = Recording(stop_after=2)
    delivery, reached = deliver(plan(), records(1, 2, 3, 4), handler)

    assert (reached, delivery.count, delivery.last) == (2, 2, seq(2))


def test_no_run_begins_after_the_time_is_up() -> None:
    handler = Recording()
    _, reached = deliver(plan(), records(1, 2, 3), handler, Order.KEY, now=NEVER)

    assert reached == 1


def test_retries_that_were_not_reached_are_held_uncounted() -> None:
    handler = Recording(stop_after=1)
    retries = (Redelivery(sequence=seq(1), attempt=2), Redelivery(sequence=seq(2), attempt=4))
    given_records = records(1, 2)
    delivery, reached = deliver(plan(SliceKind.RETRY, retries=retries), given_records, handler)
    for record in given_records[reached:]:
        delivery.hold(record)

    assert handler.seen == [(1, 2)]
    assert [(f.sequence, f.held, f.attempt) for f in delivery.failures] == [(seq(2), True, 3)]


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3)])
def test_whatever_a_handler_raises_fails_its_record_only(error: BaseException) -> None:
    def handle(each: Record) -> None:
        if each.sequence_number == "2":
            raise error

    delivery, reached = deliver(plan(), records(1, 2, 3), RecordHandler(handle, lambda each: each))

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
    delivery, reached = deliver(slice_plan, records(2, 3, 4, 5, 6), handler)

    assert handler.seen == [(4, 2)]
    assert (reached, delivery.count, delivery.delivered) == (3, 3, 1)
    assert not delivery.room


def test_a_probe_that_met_only_what_is_finished_goes_on_with_the_next_page() -> None:
    handler = Recording()
    slice_plan = plan(holes=((seq(0), seq(3)),), deliveries=1)
    delivery, reached = deliver(slice_plan, records(1, 2), handler)

    assert (reached, delivery.delivered, delivery.room) == (2, 0, True)
    assert delivery.deliver(records(3, 4, 5), NEVER) == 2
    assert handler.seen == [(4, 1)]


def test_a_probe_in_order_by_key_passes_over_what_waits_behind_a_record_that_failed() -> None:
    handler = Recording()
    slice_plan = plan(blocked_keys=frozenset("a"), deliveries=1)
    given_records = [record(1, "a"), record(2, "a"), record(3, "b"), record(4, "c")]
    delivery, _ = deliver(slice_plan, given_records, handler, Order.KEY)

    assert handler.numbers == [3]
    assert [each.sequence for each in delivery.failures] == [seq(1), seq(2)]
