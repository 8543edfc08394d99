"""What coalescing costs: a turn of a queue coordinator, and each record of a door where nothing coalesces.

The record door is measured with and without `coalesce` in turns, on the same records, by the same handler. That
does nothing, so what is left is the work of the task for each record.
"""

import random
import statistics
from collections.abc import Callable, Iterator

from figures import Figure, cpu_seconds

from kinesis_spout.model.record import Record
from kinesis_spout.recipes import QueueCoordinator
from kinesis_spout.spark.tasks.coalescing import CoalescingKey, KeyFunction
from kinesis_spout.spark.tasks.delivery import DeliverySettings
from kinesis_spout.spark.tasks.handlers import RecordHandler, delivery_to
from shard_state import Order, Position, SliceKind, SlicePlan

RECORDS = 2_000
"""As many as are at hand together by default."""
TURNS = 20_000
"""Of a coordinator."""


def figures(*, quick: bool) -> Iterator[Figure]:
    repeats = 5 if quick else 25
    for what, work in (("a turn of QueueCoordinator", _turn), ("a declined request", _declined)):
        seconds = cpu_seconds(work, repeats=repeats)
        yield Figure(what=what, value=seconds / TURNS * 1e9, unit="ns CPU/request")
    every, some = _records(RECORDS), _records(RECORDS // 10)
    works = [
        _door(every, None),
        _door(every, "partition_key"),
        _door(every, _key),
        _door(some, "partition_key"),
    ]
    # In turns: whatever disturbs one disturbs the others.
    taken = [[cpu_seconds(work, repeats=1) for work in works] for _ in range(repeats * 4)]
    plain, by_key, by_function, newest = (statistics.median(each) for each in zip(*taken, strict=True))
    doors = {
        "a record of the door, without coalescing": plain,
        "with coalesce=partition_key, nothing coalesces": by_key,
        "with a function, nothing coalesces": by_function,
        "with coalesce=partition_key, 9 of 10 coalesce": newest,
    }
    for what, seconds in doors.items():
        yield Figure(
            what=what,
            value=seconds / RECORDS * 1e9,
            unit="ns CPU/record",
            reference="without coalescing",
            ratio=plain / seconds,
        )


def _turn() -> None:
    coordinator: QueueCoordinator[str, int] = QueueCoordinator()
    for number in range(TURNS):
        with coordinator.request("key", number) as turn:
            for _ in turn:
                pass


def _declined() -> None:
    """Each comes while one works and one waits."""
    coordinator: QueueCoordinator[str, int] = QueueCoordinator()
    lines = coordinator._shell._lines  # noqa: SLF001 - one that waits would need a thread
    lines.request("key", 0, 0.0)
    lines.request("key", 1, 0.0)
    lines._deadlines.clear()  # noqa: SLF001 - by another clock
    for number in range(TURNS):
        with coordinator.request("key", number):
            pass


def _records(keys: int) -> list[Record]:
    choice = random.Random(1)
    names = [f"key-{number}" for number in range(keys)] * (RECORDS // keys)
    choice.shuffle(names)
    return [
        Record(data=b"x" * 100, sequence_number=str(number), partition_key=name, shard_id="shard")
        for number, name in enumerate(names, 1)
    ]


def _key(record: Record) -> str:
    return record.partition_key or ""


def _door(records: list[Record], coalesce: KeyFunction | str | None) -> Callable[[], None]:
    plan = SlicePlan(
        shard_id="shard",
        epoch=1,
        kind=SliceKind.CARRIED,
        limit=RECORDS,
        position=Position.trim_horizon(),
        max_failures=RECORDS,
    )
    handler = RecordHandler(lambda _: None, lambda record: record)
    key = CoalescingKey.of(coalesce, "unordered")
    order = Order.UNORDERED if key is None else Order.KEY
    rules = DeliverySettings(order=order, clock=lambda: 0.0, coalescing=key)

    def deliver() -> None:
        delivery = delivery_to(handler, plan, rules)
        assert delivery.deliver(records, float("inf")) == RECORDS

    return deliver
