"""The books of a slice whose records are handled several at a time, also after the death of the worker."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.handler import Reject
from kinesis_spout.model.record import Record
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.tasks import journal
from kinesis_spout.spark.tasks.concurrent_delivery import ConcurrentDelivery
from kinesis_spout.spark.tasks.delivery import DeliverySettings, HandlerDelivery, SliceDelivery
from kinesis_spout.spark.tasks.handlers import AnyHandler, RecordHandler, delivery_to, record_handler
from kinesis_spout.spark.tasks.journal import MARKS, Journal, Remains, SliceNotes
from kinesis_spout.spark.tasks.recovery import recover
from kinesis_spout.spark.tasks.task import run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import Fate, Order, Position, Redelivery, SequenceNumber, SliceKind, SlicePlan, UnackedRecord
from tests.support.waiting import DEADLINE_SECONDS
from tests.unit.spark.driver.world import StreamClient, task_settings

pytestmark = pytest.mark.no_second_run

NEVER = 1e9


def seq(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def records(*keys: str | None) -> list[Record]:
    return [
        Record(data=b"", sequence_number=str(number), partition_key=key, shard_id="shard")
        for number, key in enumerate(keys, 1)
    ]


def plan(kind: SliceKind = SliceKind.READ, **changes: Any) -> SlicePlan:
    fields: dict[str, Any] = {
        "shard_id": "shard",
        "epoch": 1,
        "limit": 100_000,
        "position": Position.trim_horizon(),
        "max_failures": 1_000,
        **changes,
    }
    return SlicePlan(kind=kind, **fields)


def number_of(record: Record) -> int:
    return int(record.sequence_number)


class Handler:
    """Fails what it is told to fail, and remembers what it was given. Thread-safe. Mutable."""

    def __init__(self, *fails: int, error: Exception | None = None) -> None:
        self._fails = fails
        self._error = error or ValueError("no")
        self.seen: list[tuple[int, int]] = []
        """(sequence number, attempt)"""

    @property
    def numbers(self) -> list[int]:
        return sorted(number for number, _ in self.seen)

    def __call__(self, record: Record) -> None:
        self.seen.append((number_of(record), record.attempt))
        if number_of(record) in self._fails:
            raise self._error


def concurrent(handler: Callable[[Record], Any], concurrency: int = 4) -> ConcurrentCalls:
    return ConcurrentCalls(handler, lambda record: record, concurrency=concurrency)


def deliver(
    handler: Callable[[Record], Any],
    given: Sequence[Record],
    slice_plan: SlicePlan | None = None,
    *,
    order: Order = Order.UNORDERED,
    concurrency: int = 4,
    until: float = NEVER,
) -> tuple[SliceDelivery, int]:
    delivery = ConcurrentDelivery(
        slice_plan or plan(),
        concurrent(handler, concurrency),
        DeliverySettings(order=order, clock=lambda: 0.0),
    )
    return delivery, delivery.deliver(given, until)


def shown(failures: Sequence[UnackedRecord]) -> list[tuple[int, int, bool, int]]:
    """Show failures as (number, the one before, held, attempt)."""
    return [
        (each.sequence.number, 0 if each.previous is None else each.previous.number, each.held, each.attempt)
        for each in failures
    ]


def test_what_asks_for_nothing_is_called_as_before() -> None:
    def plain(
        handler: Callable[[Any], Any], concurrency: int = 1, seconds: float | None = None
    ) -> AnyHandler:
        return record_handler(handler, repr, concurrency=concurrency, timeout_seconds=seconds)

    async def later(_: str) -> None: ...

    rules = DeliverySettings(order=Order.UNORDERED, clock=lambda: 0.0)
    handler = plain(print)
    assert isinstance(handler, RecordHandler)
    assert isinstance(delivery_to(handler, plan(), rules), HandlerDelivery)
    for asked in (plain(print, 2), plain(print, 1, 5.0), plain(later)):
        assert isinstance(delivery_to(asked, plan(), rules), ConcurrentDelivery)


def test_all_records_are_delivered_and_the_failed_are_entered_in_their_order() -> None:
    handler = Handler(2, 5, 6)
    delivery, reached = deliver(handler, records(*["k"] * 7))

    assert (reached, delivery.count, delivery.delivered) == (7, 7, 7)
    assert (delivery.first, delivery.last) == (seq(1), seq(7))
    assert handler.numbers == [1, 2, 3, 4, 5, 6, 7]
    assert shown(delivery.failures) == [(2, 1, False, 1), (5, 4, False, 1), (6, 5, False, 1)]
    assert [failure.index for failure in delivery.failures] == [1, 4, 5]
    assert {each.error for each in delivery.unfinished} == {"ValueError: no"}


def test_a_rejected_record_is_entered_as_such() -> None:
    delivery, _ = deliver(Handler(1, error=Reject("never")), records("a", "b"))

    assert [failure.fate for failure in delivery.failures] == [Fate.REJECTED]


def test_more_records_than_there_are_marks_are_handed_over_run_by_run() -> None:
    handler = Handler()
    delivery, reached = deliver(handler, records(*["k"] * (MARKS + 10)))

    assert (reached, delivery.delivered, len(handler.seen)) == (MARKS + 10,) * 3


def test_holes_are_passed_over_attempts_go_on_and_neither_holds_up_what_follows() -> None:
    handler = Handler(5)
    slice_plan = plan(holes=((seq(1), seq(3)),), anchor=seq(1), attempts=((seq(1), 2), (seq(5), 1)))
    delivery, _ = deliver(handler, records(*"abcde"), slice_plan)

    assert sorted(handler.seen) == [(1, 3), (4, 1), (5, 2)]
    assert (delivery.count, delivery.delivered) == (5, 3)
    assert shown(delivery.failures) == [(5, 4, False, 2)]


def test_with_the_order_of_keys_later_records_of_a_failed_key_are_held() -> None:
    handler = Handler(2)
    delivery, _ = deliver(handler, records("a", "b", "a", "b", None, "b"), order=Order.KEY)

    assert handler.numbers == [1, 2, 3, 5]
    assert shown(delivery.failures) == [(2, 1, False, 1), (4, 3, True, 0), (6, 5, True, 0)]
    assert delivery.delivered == 4


def test_a_key_that_failed_before_is_held_in_this_slice_and_in_its_next_page() -> None:
    handler = Handler(1)
    delivery = ConcurrentDelivery(
        plan(blocked_keys=frozenset("b")),
        concurrent(handler),
        DeliverySettings(order=Order.KEY, clock=lambda: 0.0),
    )
    page = records("a", "b", "c", "a", "c")
    delivery.deliver(page[:3], NEVER)
    delivery.deliver(page[3:], NEVER)

    assert handler.numbers == [1, 3, 5]
    assert shown(delivery.failures) == [(1, 0, False, 1), (2, 1, True, 0), (4, 3, True, 0)]


def test_retries_of_a_key_are_delivered_in_order_and_held_behind_one_that_fails() -> None:
    handler = Handler(1)
    retries = tuple(Redelivery(sequence=seq(number), attempt=2) for number in (1, 2, 3))
    slice_plan = plan(SliceKind.RETRY, retries=retries, limit=3)
    delivery, _ = deliver(handler, records("a", "a", "b"), slice_plan, order=Order.KEY)

    assert sorted(handler.seen) == [(1, 2), (3, 2)]
    assert shown(delivery.failures) == [(1, 0, False, 2), (2, 1, True, 1)]


def test_no_more_fail_than_can_be_kept() -> None:
    handler = Handler(*range(1, 100))
    delivery, reached = deliver(handler, records(*["k"] * 50), plan(max_failures=3))

    assert (reached, delivery.count, len(delivery.failures), handler.numbers) == (3, 3, 3, [1, 2, 3])
    assert not delivery.room


def test_a_suspect_slice_has_no_more_under_way_than_its_portion() -> None:
    most: list[int] = []
    here: list[int] = []

    def handle(record: Record) -> None:
        here.append(number_of(record))
        most.append(len(here))
        here.remove(number_of(record))

    deliver(handle, records(*["k"] * 200), plan(portion=1))

    assert set(most) == {1}


def test_a_probe_delivers_one_record() -> None:
    handler = Handler()
    delivery, reached = deliver(handler, records("a", "b", "c"), plan(deliveries=1))

    assert (handler.seen, reached) == ([(1, 1)], 1)
    assert delivery.failures == []


def test_a_coroutine_one_at_a_time_keeps_the_order_of_the_shard() -> None:
    seen: list[int] = []

    async def handle(record: Record) -> None:
        seen.append(number_of(record))
        if number_of(record) == 3:
            raise ValueError("no")

    delivery, reached = deliver(handle, records(*"abcde"), order=Order.SHARD, concurrency=1)

    assert (seen, reached, delivery.count) == ([1, 2, 3], 3, 3)
    assert not delivery.room


def test_at_least_one_record_is_delivered_when_the_time_is_over() -> None:
    delivery, reached = deliver(Handler(), records("a", "b"), until=0.0)

    assert (reached, delivery.count, delivery.delivered) == (1, 1, 1)


# The death of the worker


class DyingTask:
    """A task in a process of its own, which ends in the middle of some of its records. Mutable.

    Args:
        folder: where it keeps its journal.
        order: of the query.
    """

    def __init__(self, folder: Path, order: Order = Order.UNORDERED) -> None:
        self.file = folder / "0.0"
        stream = InMemoryStream("orders", shards=1, clock=ManualClock())
        self.settings = task_settings(StreamClient(stream), order=order)

    def dies(
        self, work: WorkSlice, *, together: Sequence[int], failing: int = 0, concurrency: int = 4
    ) -> Remains:
        """Run a slice until exactly these of its records are under way, and all others that may be have ended."""
        child = os.fork()
        if child == 0:
            try:
                self._run(work, set(together), failing, concurrency)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        remains = journal.read(self.file)
        assert remains is not None
        return remains

    def _run(self, work: WorkSlice, together: set[int], failing: int, concurrency: int) -> None:
        entered = threading.Barrier(len(together))

        def handle(record: Record) -> None:
            number = number_of(record)
            if number == failing:
                raise ValueError("no")
            if number in together and entered.wait(DEADLINE_SECONDS) == 0:
                os._exit(3)
            if number in together:
                threading.Event().wait()

        deliver = partial(delivery_to, concurrent(handle, concurrency))
        list(run_slices([work], self.settings, deliver, Journal(self.file, 1, has_marks=True)))


def carried(*keys: str) -> WorkSlice:
    return WorkSlice(plan=plan(SliceKind.CARRIED), records=tuple(records(*keys)))


def states(result: WorkResult) -> list[tuple[int, str]]:
    return [
        (
            each.sequence.number,
            "killed"
            if each.fate is Fate.KILLED_WORKER
            else "suspected"
            if each.fate is Fate.SUSPECTED
            else "held"
            if each.held
            else "failed",
        )
        for each in result.outcome.failures
    ]


def test_those_under_way_at_a_death_are_suspected_and_what_had_ended_counts(tmp_path: Path) -> None:
    task, work = DyingTask(tmp_path), carried(*"abcdefgh")
    remains = task.dies(work, together=[4, 5, 6], failing=2, concurrency=3)
    (result,) = recover([work], remains, task.settings, "it died")

    assert states(result) == [(2, "failed"), (4, "suspected"), (5, "suspected"), (6, "suspected")]
    assert [each.error for each in result.unfinished] == ["ValueError: no", "", "", ""]
    assert [each.attempt for each in result.outcome.failures] == [1, 0, 0, 0]
    assert (result.outcome.count, result.delivered, result.outcome.last) == (6, 3, seq(6))


def test_one_that_was_under_way_alone_is_blamed(tmp_path: Path) -> None:
    task, work = DyingTask(tmp_path), carried(*"abcd")
    remains = task.dies(work, together=[3], concurrency=1)
    (result,) = recover([work], remains, task.settings, "it died")

    assert states(result) == [(3, "killed")]
    assert (result.outcome.count, result.delivered) == (3, 3)


def test_all_that_hang_are_blamed(tmp_path: Path) -> None:
    task, work = DyingTask(tmp_path), carried(*"abcd")
    remains = task.dies(work, together=[1, 2], concurrency=2)
    (result,) = recover([work], remains, task.settings, "it hangs", hangs=True)

    assert states(result) == [(1, "killed"), (2, "killed")]
    assert remains.hangs_since(remains.since + 1)
    assert not remains.hangs_since(remains.since - 1)


def test_when_something_else_ended_the_task_those_under_way_come_again_and_nobody_is_suspected(
    tmp_path: Path,
) -> None:
    task, work = DyingTask(tmp_path), carried(*"abcd")
    remains = task.dies(work, together=[1, 2], concurrency=2)
    (result,) = recover([work], remains, task.settings, None)

    assert states(result) == [(1, "held"), (2, "held")]


def test_what_waits_for_the_key_of_a_suspect_is_held_behind_it(tmp_path: Path) -> None:
    task, work = DyingTask(tmp_path, Order.KEY), carried(*"aababc")
    remains = task.dies(work, together=[1, 3, 6], concurrency=3)
    (result,) = recover([work], remains, task.settings, "it died")

    assert states(result) == [
        (1, "suspected"),
        (2, "held"),
        (3, "suspected"),
        (4, "held"),
        (5, "held"),
        (6, "suspected"),
    ]
    assert result.delivered == 0


def test_the_marks_of_a_run_that_is_over_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    notes = Journal(file, 2, has_marks=True)
    slice_notes = SliceNotes(notes, 0)
    marks = slice_notes.begin_run(0, 3)
    marks[0] = marks[1] = marks[2] = 2
    slice_notes.held(1)
    slice_notes.reached(3)
    remains = journal.read(file)
    notes.close()

    assert remains is not None
    assert (remains.marks, remains.counts, remains.failures) == (b"", (3, 0), {0: {1: None}})


@pytest.mark.parametrize("has_marks", [False, True])
def test_a_task_that_died_before_it_handed_anything_over_blames_nobody(
    tmp_path: Path,
    has_marks: bool,  # noqa: FBT001 - as one reads it
) -> None:
    file = tmp_path / "notes"
    notes = Journal(file, 1, has_marks=has_marks)
    remains = journal.read(file)
    notes.close()

    assert remains is not None
    assert (remains.under_way, remains.suspects, remains.failures) == (None, [], {})
