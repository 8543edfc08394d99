import pickle
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any

import pyarrow as pa

from kinesis_spout import Reject, RetryLater
from kinesis_spout.model.record import Record
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.record_outcomes import DeliverRecords, table_of
from kinesis_spout.spark.tasks.handlers import AnyHandler, record_handler
from kinesis_spout.spark.tasks.work import Unfinished, WorkResult
from shard_state import Fate, UnackedRecord


def number_of(payload: str) -> str:
    return str(int.from_bytes(payload.encode()))


def batch(*payloads: str, zone: str = "UTC") -> pa.RecordBatch:
    rows = len(payloads)
    columns: dict[str, pa.Array] = {
        "partitionKey": pa.array(["key", *[None] * (rows - 1)][:rows], pa.string()),
        "data": pa.array([payload.encode() for payload in payloads], pa.binary()),
        "stream": pa.array(["orders"] * rows, pa.string()),
        "shardId": pa.array(["shard"] * rows, pa.string()),
        "sequenceNumber": pa.array([number_of(payload) for payload in payloads], pa.string()),
        "approximateArrivalTimestamp": pa.array([1_500_000] * rows, pa.timestamp("us", tz=zone)),
    }
    return pa.RecordBatch.from_pydict(columns)


def again(*payloads: str, attempt: int) -> pa.RecordBatch:
    records = [
        Record(data=payload.encode(), sequence_number=number_of(payload), attempt=attempt)
        for payload in payloads
    ]
    (rows,) = table_of(records).to_batches()
    return rows


@dataclass(slots=True)
class Outcomes:
    failures: list[tuple[Unfinished, UnackedRecord]] = field(default_factory=list)
    delivered: int = 0
    overflowed_by: str | None = None


def delivered(
    function: Callable[[Any], object],
    *batches: pa.RecordBatch,
    scheme: Callable[[Record], Any] = lambda record: record,
    concurrency: int = 1,
    max_failed_bytes: float = inf,
) -> Outcomes:
    handler = record_handler(function, scheme, concurrency=concurrency, timeout_seconds=None)
    return outcomes_of(DeliverRecords(in_place(handler), max_failed_bytes)(batches))


def outcomes_of(rows: Iterable[pa.RecordBatch]) -> Outcomes:
    outcomes = Outcomes()
    for pickled in (each.as_py() for batch in rows for each in batch.column(0)):
        outcome: WorkResult | str = pickle.loads(pickled)
        if isinstance(outcome, str):
            outcomes.overflowed_by = outcome
        else:
            outcomes.delivered += outcome.delivered
            outcomes.failures += zip(outcome.unfinished, outcome.outcome.failures, strict=True)
    return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace(PickledHandler[AnyHandler]):
    """A handler that stays in this process, with the test's own lists in it."""

    handler: AnyHandler

    def load(self, clock: Callable[[], float] = monotonic) -> AnyHandler:  # noqa: ARG002
        return self.handler


def in_place(handler: AnyHandler) -> PickledHandler[AnyHandler]:
    return InPlace(pickled=b"", digest="", handler=handler)


def test_every_row_is_handed_over_as_a_record_in_order() -> None:
    seen: list[Record] = []
    outcomes = delivered(seen.append, batch("a", "b"), batch("c"))

    assert [record.data for record in seen] == [b"a", b"b", b"c"]
    assert seen[0] == Record(
        data=b"a",
        sequence_number=number_of("a"),
        partition_key="key",
        arrival_timestamp=1.5,
        stream="orders",
        shard_id="shard",
        attempt=1,
    )
    assert outcomes.failures == []
    assert (outcomes.delivered, outcomes.overflowed_by) == (3, None)


def test_what_failed_comes_back_with_its_data_and_what_its_handler_said() -> None:
    errors: dict[bytes, BaseException] = {
        b"b": ValueError("bad"),
        b"c": Reject("never"),
        b"d": RetryLater(7, "busy"),
        b"e": SystemExit(3),
        b"f": KeyboardInterrupt(),
    }

    def handle(record: Record) -> None:
        if record.data in errors:
            raise errors[record.data]

    outcomes = delivered(handle, batch("a", "b", "c"), again("d", "e", "f", attempt=2))

    assert outcomes.delivered == 6
    assert [
        (row.record.data, row.record.attempt, row.error, failed.fate is Fate.REJECTED, failed.delay_seconds)
        for row, failed in outcomes.failures
    ] == [
        (b"b", 1, "ValueError: bad", False, None),
        (b"c", 1, "never", True, None),
        (b"d", 2, "RetryLater: busy", False, 7.0),
        (b"e", 2, "SystemExit: 3", False, None),
        (b"f", 2, "KeyboardInterrupt", False, None),
    ]


def test_the_scheme_prepares_what_the_handler_is_given_and_fails_the_record_if_it_raises() -> None:
    outcomes = delivered(_negative, batch("7", "-7", "seven"), scheme=_number)

    assert [row.error for row, _ in outcomes.failures] == [
        "ValueError: -7 is negative",
        "ValueError: invalid literal for int() with base 10: b'seven'",
    ]


def _number(record: Record) -> int:
    return int(record.data)


def _negative(number: int) -> None:
    if number < 0:
        raise ValueError(f"{number} is negative")


def test_arrival_is_the_same_moment_whatever_the_sessions_time_zone() -> None:
    seen: list[Record] = []

    def handle(record: Record) -> None:
        seen.append(record)
        raise ValueError

    outcomes = delivered(handle, batch("a", zone="Asia/Tokyo"))

    assert seen[0].arrival_timestamp == 1.5
    assert outcomes.failures[0][0].record.arrival_timestamp == 1.5


def test_a_task_in_which_too_much_fails_stops_calling_the_handler_and_says_why() -> None:
    seen: list[bytes] = []

    def handle(record: Record) -> None:
        seen.append(record.data)
        raise ValueError(f"no database for {record.data.decode()}")

    outcomes = delivered(handle, batch("a"), batch("b", "c", "d"), batch("e"), max_failed_bytes=2_000)

    assert seen == [b"a", b"b", b"c", b"d"], "it stops after the batch in which it was too much"
    assert [row.record.data for row, _ in outcomes.failures] == [b"a"]
    assert (outcomes.delivered, outcomes.overflowed_by) == (1, "ValueError: no database for d")


def test_records_that_came_back_are_delivered_without_a_bound() -> None:
    handler = record_handler(refuse, lambda record: record, concurrency=1, timeout_seconds=None)
    rows = DeliverRecords(in_place(handler), inf)([again("a", "b", "c", attempt=2)])

    assert len(outcomes_of(rows).failures) == 3


def refuse(record: Record) -> None:
    raise ValueError(f"not {record.data!r}")


def test_a_task_without_rows_says_that_it_delivered_none() -> None:
    assert delivered(refuse).delivered == 0


def aggregated(*subs: int | None, numbers: str = "7") -> pa.RecordBatch:
    rows = batch(*["user"] * len(subs)).set_column(4, "sequenceNumber", pa.array([numbers] * len(subs)))
    return rows.append_column("subSequenceNumber", pa.array(subs, pa.int64())).append_column(
        "explicitHashKey", pa.array([None if sub is None else str(sub) for sub in subs], pa.string())
    )


def test_user_records_keep_their_place_and_their_hash_key_also_when_they_fail() -> None:
    seen: list[Record] = []

    def fail(record: Record) -> None:
        seen.append(record)
        raise ValueError("bad")

    outcomes = delivered(fail, aggregated(0, 1), aggregated(None, numbers="8"))

    assert [record.message_id for record in seen] == ["shard:7:0", "shard:7:1", "shard:8"]
    assert [record.explicit_hash_key for record in seen] == ["0", "1", None]
    assert [
        (row.record.sub_sequence_number, row.record.explicit_hash_key) for row, _ in outcomes.failures
    ] == [
        (0, "0"),
        (1, "1"),
        (None, None),
    ]


def test_several_rows_are_handled_at_a_time_and_what_failed_comes_back_in_order() -> None:
    both = threading.Barrier(2, timeout=60)

    def handle(record: Record) -> None:
        both.wait()
        if record.data in {b"b", b"c"}:
            raise ValueError("no")

    outcomes = delivered(handle, batch("a", "b"), batch("c", "d"), concurrency=2)

    assert [(row.record.data, row.error) for row, _ in outcomes.failures] == [
        (b"b", "ValueError: no"),
        (b"c", "ValueError: no"),
    ]
    assert outcomes.delivered == 4
