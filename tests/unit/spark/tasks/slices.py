"""Slices of one shard, and a handler that fails what it is told to fail, for tests of deliveries."""

from collections.abc import Callable, Sequence
from typing import Any

from kinesis_spout.model.record import Record
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.handlers import RecordHandler, delivery_to
from shard_state import Order, Position, SequenceNumber, SliceKind, SlicePlan, UnackedRecord

NEVER = 1e9


def seq(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def record(number: int, key: str | None = None) -> Record:
    return Record(data=b"", sequence_number=str(number), partition_key=key, shard_id="shard")


def records(*keys: str | None) -> list[Record]:
    """Make records 1, 2, 3 and so on, with these keys."""
    return [record(number, key) for number, key in enumerate(keys, 1)]


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


def delivery_of(
    handler: Callable[[Record], Any],
    slice_plan: SlicePlan,
    order: Order = Order.UNORDERED,
    *,
    concurrency: int | None = None,
) -> SliceDelivery:
    """Make the delivery of a slice; with a ``concurrency`` by threads or an event loop."""
    made = (
        RecordHandler(handler, _unchanged)
        if concurrency is None
        else ConcurrentCalls(handler, _unchanged, concurrency=concurrency)
    )
    return delivery_to(made, slice_plan, DeliverySettings(order=order, clock=lambda: 0.0))


def _unchanged(record: Record) -> Record:
    return record


def shown(failures: Sequence[UnackedRecord]) -> list[tuple[int, int, bool, int]]:
    """Show failures as (number, the one before, held, attempt)."""
    return [
        (each.sequence.number, 0 if each.previous is None else each.previous.number, each.held, each.attempt)
        for each in failures
    ]
