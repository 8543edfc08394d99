import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest

from kinesis_spout import Reject, RetryLater
from kinesis_spout.model.record import Record
from kinesis_spout.spark.per_record.delivery import DeliverRecords, Failed, Round, TaskEnd, table_of
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.handlers import AnyHandler, record_handler
from shard_state import Fate


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


def delivered(
    function: Callable[[Any], object],
    *batches: pa.RecordBatch,
    scheme: Callable[[Record], Any] = lambda record: record,
    concurrency: int = 1,
    max_failed_bytes: int | None = None,
) -> tuple[list[Failed], TaskEnd]:
    """The failed records, and what the task says at its end."""
    handler = record_handler(function, scheme, concurrency=concurrency, timeout_seconds=None)
    outcomes = DeliverRecords(in_place(handler), max_failed_bytes)(batches)
    of_round = Round.of(pa.Table.from_batches(outcomes))
    (end,) = of_round.ends
    return of_round.failures, end


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
    failures, end = delivered(seen.append, batch("a", "b"), batch("c"))

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
    assert failures == []
    assert (end.delivered, end.overflowed_by) == (3, None)


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

    failures, end = delivered(handle, batch("a", "b", "c"), again("d", "e", "f", attempt=2))

    assert end.delivered == 6
    assert [
        (row.record.data, row.record.attempt, row.error, failed.fate is Fate.REJECTED, failed.delay_seconds)
        for row, failed in failures
    ] == [
        (b"b", 1, "ValueError: bad", False, None),
        (b"c", 1, "never", True, None),
        (b"d", 2, "RetryLater: busy", False, 7.0),
        (b"e", 2, "SystemExit: 3", False, None),
        (b"f", 2, "KeyboardInterrupt", False, None),
    ]


def test_the_scheme_prepares_what_the_handler_is_given_and_fails_the_record_if_it_raises() -> None:
    failures, _ = delivered(_negative, batch("7", "-7", "seven"), scheme=_number)

    assert [row.error for row, _ in failures] == [
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

    failures, _ = delivered(handle, batch("a", zone="Asia/Tokyo"))

    assert seen[0].arrival_timestamp == 1.5
    assert failures[0][0].record.arrival_timestamp == 1.5


def test_a_task_in_which_too_much_fails_stops_calling_the_handler_and_says_why() -> None:
    seen: list[bytes] = []

    def handle(record: Record) -> None:
        seen.append(record.data)
        raise ValueError(f"no database for {record.data.decode()}")

    failures, end = delivered(handle, batch("a"), batch("b", "c", "d"), batch("e"), max_failed_bytes=2_000)

    assert seen == [b"a", b"b", b"c"]
    assert [row.record.data for row, _ in failures] == [b"a"]
    assert (end.delivered, end.overflowed_by) == (3, "ValueError: no database for c")


def test_records_that_came_back_are_delivered_without_a_bound() -> None:
    handler = record_handler(refuse, lambda record: record, concurrency=1, timeout_seconds=None)
    outcomes = DeliverRecords(in_place(handler), 1).again()([again("a", "b", "c", attempt=2)])

    assert len(Round.of(pa.Table.from_batches(outcomes)).failures) == 3


def refuse(record: Record) -> None:
    raise ValueError(f"not {record.data!r}")


def test_a_task_without_rows_says_that_it_delivered_none() -> None:
    assert delivered(refuse)[1].delivered == 0


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

    failures, end = delivered(fail, aggregated(0, 1), aggregated(None, numbers="8"))

    assert [record.message_id for record in seen] == ["shard:7:0", "shard:7:1", "shard:8"]
    assert [record.explicit_hash_key for record in seen] == ["0", "1", None]
    assert [(row.record.sub_sequence_number, row.record.explicit_hash_key) for row, _ in failures] == [
        (0, "0"),
        (1, "1"),
        (None, None),
    ]
    assert end.ambiguous is None


@pytest.mark.parametrize("batches", [[(0, 1)], [(0,), (1,)]], ids=["in one batch", "in two"])
def test_rows_of_one_aggregate_that_nothing_tells_apart_are_not_delivered(
    batches: list[tuple[int, ...]],
) -> None:
    seen: list[bytes] = []
    rows = [aggregated(*subs).drop_columns(["subSequenceNumber", "explicitHashKey"]) for subs in batches]

    failures, end = delivered(lambda record: seen.append(record.data), batch("a"), *rows, batch("b"))

    assert end.ambiguous == "shard:7"
    assert len(seen) < 3
    assert not failures


def test_several_rows_are_handled_at_a_time_and_what_failed_comes_back_in_order() -> None:
    both = threading.Barrier(2, timeout=60)

    def handle(record: Record) -> None:
        both.wait()
        if record.data in {b"b", b"c"}:
            raise ValueError("no")

    failures, end = delivered(handle, batch("a", "b"), batch("c", "d"), concurrency=2)

    assert [(row.record.data, row.error) for row, _ in failures] == [
        (b"b", "ValueError: no"),
        (b"c", "ValueError: no"),
    ]
    assert end.delivered == 4


def test_of_several_at_a_time_no_more_begin_when_too_much_has_failed() -> None:
    async def handle(_: Record) -> None:
        raise ValueError("no")

    failures, end = delivered(handle, batch(*"abcdefgh"), batch("i"), concurrency=2, max_failed_bytes=1_000)

    assert (failures, end.overflowed_by) == ([], "ValueError: no")
    assert end.delivered <= 4
