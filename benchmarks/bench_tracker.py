"""What it costs the driver to know what became of each record: handing out and acking, per record.

A slice that comes back without failures is one step, however many records it has; one with failures costs a
step for each of them; the plain-Python door acks one by one, in any order.
"""

import random
from collections.abc import Callable, Iterator

from figures import Figure, cpu_seconds

from shard_state import Checkpoint, InflightRecordTracker, Position, RecordEvent, RecordState, SequenceNumber
from shard_state.inflight_record_tracker import Carved

SLICE_RECORDS = 10_000
IN_FLIGHT = 20_000
"""What a shard may have in flight by default."""
_SPACING = 16


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
            tracker.apply(sequence, RecordEvent.ACK)
        assert tracker.base == emitted[-1]

    return work
