"""A task's rows: all on their streams, or dead letters, or an error that says how far it came."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from kinesis_spout.kinesis.aggregated_record import UserRecord, take_apart
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, CallLimits, PutOrder
from kinesis_spout.kinesis.write.record_putter import MAX_BUFFERED_BYTES, MAX_BUFFERED_RECORDS
from kinesis_spout.model.errors import AccessDenied, DeadLetterError, Throttled
from kinesis_spout.structured.write.row_putter import (
    APPLICATION,
    RejectedRows,
    RowPutter,
    UnwritableRow,
)
from kinesis_spout.structured.write.written_columns import RowValues, Written
from kinesis_spout.testing import InMemoryDeadLetterSink, ManualClock
from tests.support.kinesis.in_memory_client import client_error
from tests.support.kinesis.writable import THROTTLED, WritableKinesis

pytestmark = pytest.mark.no_second_run


class Task:
    """A task of partition 3. Mutable: its clock moves."""

    def __init__(
        self,
        kinesis: WritableKinesis,
        *,
        dead: Any = None,
        call: int = 500,
        aggregate_bytes: int | None = None,
        order: PutOrder = PutOrder.UNORDERED,
    ) -> None:
        self.clock = ManualClock()
        rejected = RejectedRows(dead, 3, self.clock)
        self.putter = RowPutter(
            kinesis.client,
            retry_policy=CallRetryPolicy(clock=self.clock),
            limits=CallLimits(records=call),
            rejected=rejected,
            order=order,
            aggregate_bytes=aggregate_bytes,
        )

    def write(self, rows: Sequence[RowValues]) -> Written:
        return self.putter.write(rows, 3)


def row(number: int, stream: str | None = "a", key: str | None = None) -> RowValues:
    return RowValues(stream, f"key-{number}" if key is None else key, None, str(number).encode())


BAD = RowValues("a", None, None, b"keyless")


def test_a_task_reports_what_it_wrote() -> None:
    kinesis = WritableKinesis(a=2)
    written = Task(kinesis).write([row(number) for number in range(1_100)])
    size = sum(len(f"key-{number}{number}") for number in range(1_100))
    assert written == Written(records=1_100, size_bytes=size)
    assert [len(call) for call in kinesis.calls] == [500, 500, 100]


def test_a_partition_without_rows_makes_no_call() -> None:
    kinesis = WritableKinesis(a=2)
    assert Task(kinesis).write([]) == Written()
    assert kinesis.calls == []


def test_each_row_goes_to_its_stream_in_full_calls() -> None:
    kinesis = WritableKinesis(a=1, b=1)
    Task(kinesis).write([row(number, "a" if number % 3 else "b") for number in range(1_500)])
    assert list(map(int, kinesis.taken("a"))) == [number for number in range(1_500) if number % 3]
    assert list(map(int, kinesis.taken("b"))) == list(range(0, 1_500, 3))
    assert [len(call) for call in kinesis.calls] == [500, 500, 500]


def test_what_was_refused_counts_as_put_again_and_a_row_counts_once() -> None:
    kinesis = WritableKinesis(a=1)
    task = Task(kinesis)
    kinesis.refuses = lambda _stream, _shard, record: (
        THROTTLED if record["Data"] in (b"3", b"4") and len(kinesis.calls) < 2 else None
    )
    assert task.write([row(number) for number in range(10)]) == Written(records=10, size_bytes=60, retried=4)


def test_a_stream_that_throttles_holds_up_no_other_until_the_buffer_is_full() -> None:
    kinesis = WritableKinesis(a=1, b=1)
    task = Task(kinesis)
    most = 0

    def refuses(stream: str, _shard: str, _record: Any) -> str | None:
        nonlocal most
        most = max(most, task.putter._waiting)
        return THROTTLED if stream == "a" and task.clock.monotonic() < 30 else None

    kinesis.refuses = refuses
    rows = [row(number, "a" if number % 2 else "b") for number in range(60_000)]
    assert task.write(rows).records == 60_000
    assert most <= MAX_BUFFERED_RECORDS + 1
    taken_before = [call for call in kinesis.calls if call[0].taken]
    assert {sent.stream for call in taken_before[:15] for sent in call} == {"b"}


def test_at_the_end_too_a_stream_that_throttles_holds_up_no_other() -> None:
    kinesis = WritableKinesis(a=1, b=1)
    task = Task(kinesis)
    put_at: dict[str, float] = {}

    def refuses(stream: str, _shard: str, _record: Any) -> str | None:
        if stream == "a" and task.clock.monotonic() < 10:
            return THROTTLED
        put_at.setdefault(stream, task.clock.monotonic())
        return None

    kinesis.refuses = refuses
    task.write([row(number, "a" if number % 3 else "b") for number in range(99)])
    assert [call[0].stream for call in kinesis.calls][:2] == ["a", "b"]
    assert put_at["b"] == 0
    assert put_at["a"] >= 10


def test_many_streams_share_one_buffer() -> None:
    names = [f"s{number}" for number in range(100)]
    kinesis = WritableKinesis(**dict.fromkeys(names, 1))
    task = Task(kinesis)
    most = 0

    def note(*_: Any) -> None:
        nonlocal most
        most = max(most, task.putter._waiting)

    kinesis.before_call = note
    assert task.write([row(number, names[number % 100]) for number in range(30_000)]).records == 30_000
    assert MAX_BUFFERED_RECORDS // 2 < most <= MAX_BUFFERED_RECORDS + 1


def test_rows_are_aggregated_by_stream_and_counted_one_by_one() -> None:
    kinesis = WritableKinesis(a=2, b=1)
    rows = [row(number, "a" if number % 3 else "b") for number in range(6_000)]
    written = Task(kinesis, aggregate_bytes=51_200).write(rows)
    assert written == Written(
        records=6_000, size_bytes=sum(len(each.data or b"") + 4 + len(each.data or b"") for each in rows)
    )
    assert len(kinesis.taken("a")) + len(kinesis.taken("b")) < 10
    for stream, count in (("a", 4_000), ("b", 2_000)):
        found = [int(part.data) for data in kinesis.taken(stream) for part in take_apart(data) or ()]
        assert sorted(found) == [number for number in range(6_000) if (number % 3 > 0) == (stream == "a")]
        assert len(found) == count


def test_aggregates_in_memory_are_within_the_bound_too() -> None:
    names = [f"s{number}" for number in range(50)]
    kinesis = WritableKinesis(**dict.fromkeys(names, 8))
    task = Task(kinesis, aggregate_bytes=1_000_000)
    most = 0

    def note(*_: Any) -> None:
        nonlocal most
        most = max(most, task.putter._waiting_bytes)

    kinesis.before_call = note
    rows = [RowValues(names[number % 50], f"key-{number}", None, bytes(1_000)) for number in range(60_000)]
    assert task.write(rows).records == 60_000
    assert MAX_BUFFERED_BYTES // 2 < most <= MAX_BUFFERED_BYTES + 10_000


def test_a_row_that_can_never_be_a_record_is_an_error_with_its_position() -> None:
    kinesis = WritableKinesis(a=1)
    with pytest.raises(UnwritableRow) as caught:
        Task(kinesis, call=2).write([row(0), row(1), row(2), BAD, row(4)])
    text = str(caught.value)
    assert text.startswith("partition 3, row 3 (counted from 0): partitionKey: expected a key, got null; ")
    assert "set the option deadLetters" in text
    assert "Of the first 4 rows of partition 3, 2 are on Kinesis, 2 are not known to be" in text
    assert "keyless" not in text


def test_rows_that_can_never_be_records_are_dead_letters_and_the_others_are_written() -> None:
    kinesis, dead = WritableKinesis(a=1), InMemoryDeadLetterSink()
    task = Task(kinesis, dead=dead)
    assert task.write([row(0), BAD, row(2), row(3, None), row(4)]) == Written(
        records=3, size_bytes=18, dead_lettered=2
    )
    assert list(map(int, kinesis.taken("a"))) == [0, 2, 4]
    first, second = dead.read()
    assert (first.application, first.stream, first.message_id) == (APPLICATION, "a", "partition-3:1")
    assert (first.data, first.partition_key, first.attempts, first.reason) == (
        b"keyless",
        None,
        1,
        "rejected",
    )
    assert first.error == "partitionKey: expected a key, got null"
    assert first.died_at == task.clock.time()
    assert (second.stream, second.message_id) == ("", "partition-3:3")


def test_a_dead_letter_of_a_row_keeps_its_explicit_hash_key() -> None:
    dead = InMemoryDeadLetterSink()
    Task(WritableKinesis(a=1), dead=dead).write(
        [RowValues("a", "k", "no number", b"x"), RowValues("a", None, "7", b"y")]
    )
    assert [letter.explicit_hash_key for letter in dead.read()] == ["no number", "7"]


def test_a_record_larger_than_its_stream_takes_is_a_dead_letter() -> None:
    kinesis, dead = WritableKinesis(a=1), InMemoryDeadLetterSink()

    def fail(_stream: str, records: list[dict[str, Any]]) -> None:
        if len(records[0]["Data"]) > COMMON_RECORD_BYTES:
            raise client_error("ValidationException", "PutRecords")

    kinesis.before_call = fail
    large = RowValues("a", "k", "5", bytes(2 * COMMON_RECORD_BYTES))
    written = Task(kinesis, dead=dead).write([row(0), large, row(2)])
    assert written == Written(records=2, size_bytes=12, dead_lettered=1)
    (letter,) = dead.read()
    assert letter.message_id == "partition-3:1"
    assert letter.error.startswith("a does not take a record of 2097153 bytes: ")


def test_without_dead_letters_a_record_larger_than_its_stream_takes_is_an_error_with_its_position() -> None:
    kinesis = WritableKinesis(a=1)

    def fail(*_: Any) -> None:
        raise client_error("InvalidArgumentException", "PutRecords")

    kinesis.before_call = fail
    large = RowValues("a", "k", None, bytes(2 * COMMON_RECORD_BYTES))
    with pytest.raises(
        UnwritableRow, match=r"partition 3, row 0 .*a does not take a record of 2097153 bytes"
    ):
        Task(kinesis).write([large])


def test_dead_letters_are_written_in_batches_and_before_the_task_reports() -> None:
    class Counting(InMemoryDeadLetterSink):
        sizes: list[int]

        def write(self, letters: Sequence[Any]) -> None:
            self.sizes.append(len(letters))
            super().write(letters)

    dead = Counting()
    dead.sizes = []
    assert Task(WritableKinesis(a=1), dead=dead).write([BAD] * 1_200).dead_lettered == 1_200
    assert dead.sizes == [500, 500, 200]


def test_a_dead_letter_that_is_not_durable_fails_the_task() -> None:
    dead = InMemoryDeadLetterSink()
    dead.fail_writes(1)
    with pytest.raises(DeadLetterError):
        Task(WritableKinesis(a=1), dead=dead).write([BAD])


def test_at_the_deadline_the_error_says_how_many_rows_are_on_kinesis_and_how_many_are_not() -> None:
    kinesis = WritableKinesis(a=2)
    kinesis.refuses = lambda _stream, shard, _: THROTTLED if shard == "a-0-1" else None
    rows = [row(number) for number in range(1_000)]
    hot = sum(kinesis.shard_of("a", f"key-{number}") == "a-0-1" for number in range(1_000))
    with pytest.raises(
        Throttled,
        match=rf"PutRecords on a, a-0-1 .* {1_000 - hot} are on Kinesis, {hot} are not known to be, "
        "0 are rejected; when Spark tries the task again",
    ):
        Task(kinesis).write(rows)


def test_an_error_that_time_does_not_change_keeps_its_kind() -> None:
    kinesis = WritableKinesis(a=1)

    def fail(*_: Any) -> None:
        raise client_error("AccessDeniedException", "PutRecords")

    kinesis.before_call = fail
    with pytest.raises(AccessDenied, match="Of the first 2 rows of partition 3, 0 are on Kinesis, 2 are not"):
        Task(kinesis).write([row(0), row(1)])


# Order


def overtaken(kinesis: WritableKinesis, stream: str) -> int:
    """Count the rows on a stream that are behind a later one of their key."""
    count, newest = 0, dict[str, int]()
    for sent in (sent for call in kinesis.calls for sent in call if sent.taken and sent.stream == stream):
        for part in take_apart(sent.data) or (UserRecord(sent.key, sent.data),):
            number = int(part.data)
            newest[part.partition_key] = max(number, newest.get(part.partition_key, -1))
            count += number < newest[part.partition_key]
    return count


def refusing_heavily(seed: int) -> WritableKinesis:
    kinesis, chance = WritableKinesis(a=3, b=2), random.Random(seed)
    kinesis.refuses = lambda *_: THROTTLED if chance.random() < 0.5 else None
    return kinesis


@pytest.mark.parametrize("aggregate_bytes", [None, 1_000])
def test_unordered_a_refused_row_may_be_behind_later_ones_of_its_key(aggregate_bytes: int | None) -> None:
    kinesis = refusing_heavily(1)
    rows = [row(number, "ab"[number % 2], f"key-{number % 50}") for number in range(5_000)]
    assert Task(kinesis, aggregate_bytes=aggregate_bytes).write(rows).records == 5_000
    assert overtaken(kinesis, "a") > 25
    assert overtaken(kinesis, "b") > 25


@pytest.mark.parametrize("aggregate_bytes", [None, 1_000])
@pytest.mark.parametrize("seed", range(5))
def test_ordered_by_key_no_row_is_behind_a_later_one_of_its_key(
    seed: int, aggregate_bytes: int | None
) -> None:
    kinesis = refusing_heavily(seed)
    rows = [row(number, "ab"[number % 2], f"key-{number % 50}") for number in range(5_000)]
    task = Task(kinesis, aggregate_bytes=aggregate_bytes, order=PutOrder.KEY)
    assert task.write(rows).records == 5_000
    assert overtaken(kinesis, "a") == overtaken(kinesis, "b") == 0


def test_ordered_by_key_a_row_that_becomes_a_dead_letter_does_not_block_its_key() -> None:
    kinesis, dead = WritableKinesis(a=1), InMemoryDeadLetterSink()

    def fail(_stream: str, records: list[dict[str, Any]]) -> None:
        if len(records[0]["Data"]) > COMMON_RECORD_BYTES:
            raise client_error("ValidationException", "PutRecords")

    kinesis.before_call = fail
    large = RowValues("a", "k", None, bytes(2 * COMMON_RECORD_BYTES))
    never = RowValues("a", "k", None, None)
    task = Task(kinesis, dead=dead, order=PutOrder.KEY)
    rows = [row(0, key="k"), large, row(2, key="k"), never, row(4, key="k")]
    assert task.write(rows) == Written(records=3, size_bytes=6, dead_lettered=2)
    assert kinesis.taken("a") == [b"0", b"2", b"4"]
    assert sorted(letter.message_id for letter in dead.read()) == ["partition-3:1", "partition-3:3"]


def test_ordered_by_key_a_key_with_many_rows_holds_no_more_than_a_task_may() -> None:
    kinesis = WritableKinesis(a=1)
    task = Task(kinesis, order=PutOrder.KEY)
    most = 0

    def note(*_: Any) -> None:
        nonlocal most
        most = max(most, task.putter._waiting)

    kinesis.before_call = note
    rows = [row(number, key=f"key-{number % 20}") for number in range(25_000)]
    assert task.write(rows).records == 25_000
    assert MAX_BUFFERED_RECORDS // 2 < most <= MAX_BUFFERED_RECORDS + 1
    assert {len(call) for call in kinesis.calls} == {20}
