"""What it costs the driver to know what became of each record: handing out and acking, per record.

A slice that comes back without failures is one step, however many records it has; one with failures costs a
step for each of them; the plain-Python door acks one by one, in any order. What that may cost is told by a
plain linked list, measured in the same run.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from figures import Figure, cpu_seconds
from plain_list import PlainList

from shard_state import (
    Capacity,
    Checkpoint,
    Guarantee,
    InflightRecordTracker,
    Order,
    Position,
    RecordEvent,
    RecordState,
    RunBounds,
    SequenceNumber,
    Shard,
    StateManager,
)
from shard_state.tracker.span import Carved

SLICE_RECORDS = 10_000
IN_FLIGHT = 20_000
"""What a shard may have in flight by default."""
BY_RECORD_IN_FLIGHT = 100_000
"""For the comparison with the plain list."""
LOST_SHARDS, LOST_IN_FLIGHT = 200, 2_000
"""Lost at once, and in flight in each of them."""
_SPACING = 16
_TIMEOUT_SECONDS = 300.0


def figures(*, quick: bool) -> Iterator[Figure]:
    repeats = 5 if quick else 15
    single = _nanoseconds(_single_acks(), IN_FLIGHT, repeats)
    reference = "single acks"

    def figure(what: str, value: float, limit: float | None = None) -> Figure:
        return Figure(
            what=what,
            value=value,
            unit="ns CPU/record",
            reference=reference,
            ratio=single / value,
            at_most=limit,
        )

    slices = 1_000
    whole = _nanoseconds(_slices(slices, ()), slices * SLICE_RECORDS, repeats)
    yield figure("whole slices of 10,000 records", whole, 1.0)
    failing = _nanoseconds(_slices(slices // 10, _failures(10)), slices // 10 * SLICE_RECORDS, repeats)
    yield figure("slices of 10,000, 0.1 % fail once, are retried and acked", failing)
    yield Figure(
        what=f"single acks in random order, {IN_FLIGHT:,} in flight",
        value=single,
        unit="ns CPU/record",
        at_most=1_000.0,
    )
    in_order = _nanoseconds(_single_acks(shuffled=False), IN_FLIGHT, repeats)
    yield figure("single acks in order", in_order)
    yield from _against_the_plain_list(5 if quick else 15)
    yield Figure(
        what=f"losing {LOST_SHARDS} shards with {LOST_IN_FLIGHT:,} records in flight each",
        value=_losing_shards() * 1e3,
        unit="ms CPU",
        at_most=200.0,
    )


def _against_the_plain_list(repeats: int) -> Iterator[Figure]:
    """Emit and ack one by one, with a message time-out: all take turns, and the best run of each counts.

    The goal of the manager is at most twice the plain list where memory decides, else three times.
    """
    plain: dict[str, Runs] = {"plain list": (_plain_list, None)}
    whole = plain | {"tracker": (_tracker, None), "manager": (_manager(), 2)}
    yield from _turns(whole, BY_RECORD_IN_FLIGHT, repeats)
    yield from _turns(plain | {"manager": (_manager(), 3)} | _OTHERS, IN_FLIGHT, repeats)


Runs = tuple[Callable[[], "Verbs"], int | None]
"""What to run, and at most how many times the plain list it may cost."""


def _turns(runs: Mapping[str, Runs], in_flight: int, repeats: int) -> Iterator[Figure]:
    for order, shuffled in (("in order", False), ("in random order", True)):
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(repeats):
            for name, (run, _) in runs.items():
                best[name] = min(best[name], _emit_and_ack(run, in_flight, shuffled=shuffled))
        for name, nanoseconds in best.items():
            at_most = runs[name][1]
            yield Figure(
                what=f"{name}: emit and ack {order}, {in_flight:,} in flight",
                value=nanoseconds,
                unit="ns CPU/record",
                reference="plain list",
                ratio=best["plain list"] / nanoseconds,
                cheaper_at_least=None if at_most is None else 1 / at_most,
            )


Verbs = tuple[Callable[[SequenceNumber], object], Callable[[SequenceNumber], object], Callable[[], object]]
"""Emit, ack, and the base."""


def _plain_list() -> Verbs:
    plain = PlainList()
    return lambda sequence: plain.emit(sequence, 1.0 + _TIMEOUT_SECONDS), plain.ack, lambda: plain.base


def _tracker() -> Verbs:
    tracker = InflightRecordTracker(Checkpoint(start=Position.trim_horizon()))
    return (
        lambda sequence: tracker.emitted(sequence, deadline=1.0 + _TIMEOUT_SECONDS),
        tracker.acked,
        lambda: tracker.base,
    )


def _manager(
    order: Order = Order.UNORDERED,
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
    bounds: RunBounds | None = None,
) -> Callable[[], Verbs]:
    def verbs() -> Verbs:
        manager = _owner_of("shard", order=order, guarantee=guarantee, bounds=bounds)
        state = manager.shard("shard")
        assert state is not None
        return (
            lambda sequence: manager.emit("shard", sequence, "key", 1.0),
            lambda sequence: manager.ack("shard", sequence, 2.0),
            lambda: state.tracker.base,
        )

    return verbs


def _bounds(until: Position) -> RunBounds:
    return RunBounds.of(until, {}, began_at=0.0, margin_seconds=1.0)


_OTHERS: Final[Mapping[str, Runs]] = {
    'manager, order="key"': (_manager(order=Order.KEY), 3),
    'manager, order="shard"': (_manager(order=Order.SHARD), 3),
    'manager, guarantee="at_most_once"': (_manager(guarantee=Guarantee.AT_MOST_ONCE), 3),
    'manager, guarantee="none"': (_manager(guarantee=Guarantee.NONE), 3),
    "manager, until a time": (_manager(bounds=_bounds(Position.at_timestamp(1e10))), 3),
    "manager, until a number": (_manager(bounds=_bounds(Position.at(SequenceNumber(10**60)))), 3),
}


def _owner_of(
    *shard_ids: str,
    order: Order = Order.UNORDERED,
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
    bounds: RunBounds | None = None,
) -> StateManager:
    manager = StateManager(
        app_instance="benchmark",
        random=random.random,
        capacity=Capacity(records=BY_RECORD_IN_FLIGHT, holes=BY_RECORD_IN_FLIGHT),
        message_timeout_seconds=_TIMEOUT_SECONDS,
        order=order,
        guarantee=guarantee,
        bounds=bounds,
    )
    manager.listed([Shard(shard_id=shard_id) for shard_id in shard_ids], {})
    for shard_id in shard_ids:
        manager.acquired(shard_id, Checkpoint(start=Position.trim_horizon(), epoch=1))
    return manager


def _emit_and_ack(verbs: Callable[[], Verbs], in_flight: int, *, shuffled: bool) -> float:
    """Give the nanoseconds of CPU time for a record."""
    emitted = [_number(at) for at in range(in_flight)]
    acked = list(emitted)
    if shuffled:
        random.Random(1).shuffle(acked)
    emit, ack, base = verbs()
    started = time.process_time()
    for sequence in emitted:
        emit(sequence)
    for sequence in acked:
        ack(sequence)
    taken = time.process_time() - started
    assert base() == emitted[-1]
    return taken / len(emitted) * 1e9


def _losing_shards() -> float:
    """Give the seconds of CPU time that ``lost`` takes, which a shell calls under its lock."""
    shard_ids = [f"shardId-{at:012}" for at in range(LOST_SHARDS)]
    manager = _owner_of(*shard_ids)
    for at in range(LOST_IN_FLIGHT):
        sequence = _number(at)
        for shard_id in shard_ids:
            manager.emit(shard_id, sequence, "key", 1.0)
    started = time.process_time()
    manager.lost(shard_ids)
    return time.process_time() - started


def _nanoseconds(work: Callable[[], object], records: int, repeats: int) -> float:
    seconds: float = cpu_seconds(work, repeats=repeats)
    return seconds / records * 1e9


def _number(at: int) -> SequenceNumber:
    return SequenceNumber(10**55 + at * _SPACING)


def _failures(count: int) -> tuple[int, ...]:
    return tuple(range(SLICE_RECORDS // count // 2, SLICE_RECORDS, SLICE_RECORDS // count))


def _slices(slices: int, failing: tuple[int, ...]) -> Callable[[], None]:
    """Make a run of slices, of each of which the records at ``failing`` fail once."""
    bounds = [
        (at * SLICE_RECORDS, _number(at * SLICE_RECORDS), _number((at + 1) * SLICE_RECORDS - 1))
        for at in range(slices)
    ]
    carved = [
        [
            Carved(
                index=index,
                sequence=_number(start + index),
                previous=_number(start + index - 1),
                state=RecordState.WAITING,
                attempts=1,
            )
            for index in failing
        ]
        for start, _, _ in bounds
    ]

    def work() -> None:
        tracker = InflightRecordTracker(Checkpoint(start=Position.trim_horizon()))
        for (_, first, last), failures in zip(bounds, carved, strict=True):
            tracker.emitted_span(first, last, SLICE_RECORDS)
            tracker.settle(first, failures)
            for failure in failures:
                tracker.apply(failure.sequence, RecordEvent.REDELIVER)
                tracker.apply(failure.sequence, RecordEvent.ACK)
        assert tracker.base == bounds[-1][2]

    return work


def _single_acks(*, shuffled: bool = True) -> Callable[[], None]:
    emitted = [_number(at) for at in range(IN_FLIGHT)]
    acked = list(emitted)
    if shuffled:
        random.Random(1).shuffle(acked)

    def work() -> None:
        tracker = InflightRecordTracker(Checkpoint(start=Position.trim_horizon()))
        for sequence in emitted:
            tracker.emitted(sequence)
        for sequence in acked:
            tracker.acked(sequence)
        assert tracker.base == emitted[-1]

    return work
