"""What a door that coalesces hands over, and what it says of the rest."""

from collections.abc import Collection, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks import journal
from kinesis_spout.spark.tasks.coalescing import CoalescingKey, KeyFunction
from kinesis_spout.spark.tasks.coalescing_delivery import CoalescingDelivery
from kinesis_spout.spark.tasks.delivery import DeliverySettings, Failed, HandlerDelivery, SliceDelivery
from kinesis_spout.spark.tasks.handlers import RecordHandler, delivery_to
from kinesis_spout.spark.tasks.journal import UNDER_WAY, Journal, SliceNotes
from kinesis_spout.spark.tasks.recovery import recover
from kinesis_spout.spark.tasks.task import run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import Fate, Order, Position, Redelivery, SequenceNumber, SliceKind, SlicePlan
from tests.unit.spark.driver.world import FIRST, KillsWorker, StreamClient, task_settings

pytestmark = pytest.mark.no_second_run

NEVER = 1e9


def records(text: str) -> list[Record]:
    """One for each letter, which is its partition key; its number is that of its place, from 1."""
    return [
        Record(data=b"", sequence_number=str(number), partition_key=key, shard_id=FIRST)
        for number, key in enumerate(text, 1)
    ]


def plan(kind: SliceKind = SliceKind.CARRIED, **changes: object) -> SlicePlan:
    fields: dict[str, object] = {
        "limit": 1_000,
        "max_failures": 1_000,
        "position": Position.trim_horizon(),
        **changes,
    }
    return SlicePlan(shard_id=FIRST, epoch=1, kind=kind, **fields)  # type: ignore[arg-type]


class Recording:
    """A handler that fails what it is told to fail, by number. Mutable."""

    def __init__(self, fails: Collection[int] = (), stop_after: int | None = None) -> None:
        self._fails = fails
        self._stop_after = stop_after
        self.seen: list[int] = []

    def __call__(
        self, records: Sequence[Record], until: float, notes: SliceNotes
    ) -> tuple[int, list[Failed]]:
        del until, notes
        part = [int(each.sequence_number) for each in records[: self._stop_after]]
        self.seen += part
        return len(part), [
            (at, Failure(error_text="no")) for at, each in enumerate(part) if each in self._fails
        ]


def deliver(
    text: str,
    handler: Recording,
    order: Order = Order.KEY,
    key: KeyFunction | str = "partition_key",
    **changes: object,
) -> tuple[HandlerDelivery, int]:
    rules = DeliverySettings(
        order=order, clock=lambda: 0.0, coalescing=CoalescingKey.of(key, Order.UNORDERED.value)
    )
    delivery = delivery_to(handler, plan(**changes), rules)  # type: ignore[arg-type]
    assert isinstance(delivery, CoalescingDelivery)
    return delivery, delivery.deliver(records(text), NEVER)


def unfinished(delivery: SliceDelivery) -> list[tuple[int, bool, int | None]]:
    """(number, held, stand-in's index)"""
    return [(each.sequence.number, each.held, each.stand_in) for each in delivery.failures]


def test_only_the_newest_record_of_each_key_is_handled() -> None:
    handler = Recording()
    delivery, reached = deliver("abacab", handler)

    assert handler.seen == [4, 5, 6]
    assert (reached, delivery.count, delivery.delivered, delivery.coalesced) == (6, 6, 3, 3)
    assert delivery.last == SequenceNumber(6)
    assert delivery.failures == []


def test_the_earlier_records_are_held_with_a_newest_one_that_fails() -> None:
    handler = Recording(fails=[5])
    delivery, _ = deliver("abacab", handler)

    assert unfinished(delivery) == [(1, True, 4), (3, True, 4), (5, False, None)]
    assert [each.attempt for each in delivery.failures] == [0, 0, 1]
    assert [each.previous for each in delivery.failures] == [None, SequenceNumber(2), SequenceNumber(4)]
    assert delivery.coalesced == 1  # the first b


def test_the_records_whose_newest_was_not_reached_are_held() -> None:
    handler = Recording(stop_after=1)
    delivery, reached = deliver("abacab", handler)

    assert handler.seen == [4]
    assert reached == 4
    assert unfinished(delivery) == [(1, True, None), (2, True, None), (3, True, None)]
    assert delivery.coalesced == 0


def test_later_records_of_a_key_wait_for_a_record_that_failed_before() -> None:
    handler = Recording(fails=[2])
    delivery, _ = deliver("abaaab", handler, max_failures=2)

    # Two are at hand at first, as both may fail; then one at a time.
    assert handler.seen == [1, 2, 3, 4, 5]
    assert unfinished(delivery) == [(2, False, None), (6, True, None)]
    delivery, _ = deliver("abab", Recording(), blocked_keys=frozenset("b"))
    assert unfinished(delivery) == [(2, True, None), (4, True, None)]
    assert (delivery.delivered, delivery.coalesced) == (1, 1)


def test_what_the_handler_takes_is_measured() -> None:
    key = CoalescingKey.of("partition_key", "unordered")
    rules = DeliverySettings(order=Order.KEY, clock=map(float, count()).__next__, coalescing=key)
    delivery = delivery_to(Recording(), plan(), rules)
    delivery.deliver(records("aba"), NEVER)
    assert delivery.handling_seconds == 1.0


def test_a_record_whose_key_is_none_is_always_handled() -> None:
    handler = Recording()
    delivery, _ = deliver("aaa", handler, key=lambda _: None)
    assert (handler.seen, delivery.coalesced) == ([1, 2, 3], 0)


@pytest.mark.parametrize("key", [1.5, ["a"], ("a", None)])
def test_what_cannot_be_a_key_fails_its_record(key: object) -> None:
    handler = Recording()
    delivery, _ = deliver(
        "aba",
        handler,
        key=lambda record: key if record.partition_key == "b" else "a",  # type: ignore[return-value,arg-type]
    )

    assert handler.seen == [3]
    assert unfinished(delivery) == [(2, False, None)]
    assert delivery.unfinished[0].error.startswith("TypeError: coalesce: expected a key that is a str")
    assert (delivery.delivered, delivery.coalesced, delivery.count) == (2, 1, 3)


def test_a_key_may_have_parts() -> None:
    handler = Recording()
    deliver("abab", handler, key=lambda record: ("eu", 7, record.partition_key or ""))
    assert handler.seen == [3, 4]


def test_where_the_shard_waits_for_a_failure_nothing_behind_it_is_handled() -> None:
    handler = Recording(fails=[4])
    delivery, reached = deliver("abacab", handler, order=Order.SHARD)

    assert handler.seen == [4]
    assert reached == 4
    assert unfinished(delivery) == [(1, True, None), (2, True, None), (3, True, None), (4, False, None)]
    assert not delivery.room


def test_where_the_shard_waits_a_record_without_a_key_is_waited_for() -> None:
    handler = Recording()
    delivery, reached = deliver("aabaa", handler, order=Order.SHARD, key=_fails_at_b)
    assert (handler.seen, reached, delivery.failures) == ([2], 2, [])
    delivery, reached = deliver("baa", handler, order=Order.SHARD, key=_fails_at_b)
    assert (reached, unfinished(delivery)) == (1, [(1, False, None)])


def _fails_at_b(record: Record) -> str:
    if record.partition_key == "b":
        raise ValueError("no key")
    return "a"


@pytest.mark.parametrize("coalesce", ["key", 7, b"partition_key"])
def test_what_to_coalesce_by_is_a_function_or_the_partition_key(coalesce: object) -> None:
    with pytest.raises(InvalidConfig, match='coalesce: expected "partition_key", or a function'):
        CoalescingKey.of(coalesce, "unordered")  # type: ignore[arg-type]


def test_an_order_by_partition_key_does_not_go_with_another_key() -> None:
    with pytest.raises(InvalidConfig, match="got order='key'"):
        CoalescingKey.of(lambda _: "a", "key")
    assert CoalescingKey.of("partition_key", "key") is not None


def run_until_death(folder: Path, text: str, dies_at: int, **changes: object) -> WorkResult:
    """Let a task die in the handler of a record; gives what is recovered."""
    coalescing = CoalescingKey.of("partition_key", "unordered")
    settings = task_settings(
        StreamClient(InMemoryStream(clock=ManualClock())), order=Order.KEY, coalescing=coalescing
    )
    given = records(text)
    retries = tuple(Redelivery(sequence=each.sequence, attempt=2) for each in given)
    of_kind = plan(SliceKind.RETRY, retries=retries, **changes) if changes.pop("retry", False) else plan()
    work = WorkSlice(plan=of_kind, records=tuple(given))

    def handle(record: Record) -> None:
        if int(record.sequence_number) == dies_at:
            raise KillsWorker

    class Dying(RecordHandler):
        def __call__(
            self, records: Sequence[Record], until: float, notes: SliceNotes
        ) -> tuple[int, list[Failed]]:
            for at, record in enumerate(records):
                notes.words[UNDER_WAY] = notes.base + at
                handle(record)
            return super().__call__(records, until, notes)

    def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
        return delivery_to(Dying(lambda _: None, lambda record: record), plan, rules)

    file = folder / "notes"
    with pytest.raises(KillsWorker), closing(Journal(file, 1)) as notes:
        list(run_slices([work], settings, deliver, notes))
    remains = journal.read(file)
    assert remains is not None
    (result,) = recover([work], remains, settings, "the worker died")
    return result


def test_after_a_death_nothing_is_acked_whose_newest_had_not_finished(tmp_path: Path) -> None:
    result = run_until_death(tmp_path, "abcabc", dies_at=5)

    # a was handled at 4. b killed the worker, and c was not reached.
    failures = [(each.sequence.number, each.held, each.stand_in) for each in result.outcome.failures]
    assert failures == [(2, True, 4), (3, True, None), (5, False, None)]
    assert result.outcome.failures[-1].fate is Fate.KILLED_WORKER
    assert (result.outcome.count, result.delivered, result.coalesced) == (5, 2, 1)


def test_a_death_among_retries_is_as_one_among_fresh_records(tmp_path: Path) -> None:
    result = run_until_death(tmp_path, "aab", dies_at=2, retry=True)

    failures = [(each.sequence.number, each.held, each.stand_in) for each in result.outcome.failures]
    assert failures == [(1, True, 1), (2, False, None), (3, True, None)]
    assert result.coalesced == 0
