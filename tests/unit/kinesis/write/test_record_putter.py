"""Everything that is added is put, full call by full call; who throttles holds up nobody else."""

import random
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from kinesis_spout.kinesis.aggregated_record import UserRecord, take_apart
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, CallLimits, Entry, PutOrder
from kinesis_spout.kinesis.write.record_putter import MAX_BUFFERED_RECORDS, RecordPutter, put_all
from kinesis_spout.model.errors import AccessDenied, KinesisError, StreamNotFound, Throttled, Unavailable
from kinesis_spout.testing import ManualClock
from tests.support.kinesis.in_memory_client import client_error
from tests.support.kinesis.writable import THROTTLED, WritableKinesis

pytestmark = pytest.mark.no_second_run

LOST = EndpointConnectionError(endpoint_url="memory:")


def entry(number: int, key: str | None = None) -> Entry:
    return Entry(key or f"key-{number}", str(number).encode(), row=number)


def putter(kinesis: WritableKinesis, clock: ManualClock, **options: Any) -> RecordPutter:
    deadline = options.pop("deadline_seconds", 60.0)
    retry_policy = CallRetryPolicy(clock=clock, deadline_seconds=deadline, jitter=random.Random(1).random)
    return RecordPutter(kinesis.client, "s", retry_policy=retry_policy, **options)


def add_all(to: RecordPutter, count: int) -> None:
    for number in range(count):
        to.add(entry(number))
    to.drain()


def taken(kinesis: WritableKinesis) -> list[int]:
    """What is on the stream, taken apart."""
    return [
        int(part.data) for data in kinesis.taken("s") for part in take_apart(data) or (UserRecord("", data),)
    ]


def test_calls_are_full_and_the_shards_are_not_listed_as_long_as_nothing_is_refused() -> None:
    kinesis = WritableKinesis(s=4)
    add_all(putter(kinesis, ManualClock()), 1_201)
    assert [len(call) for call in kinesis.calls] == [500, 500, 201]
    assert kinesis.taken("s") == [str(number).encode() for number in range(1_201)]
    assert kinesis.listings == 0


def test_a_call_stays_within_its_bytes_and_a_large_record_goes_alone() -> None:
    kinesis = WritableKinesis(s=1)
    to = putter(kinesis, ManualClock(), limits=CallLimits(records=500, size_bytes=2_000_000))
    sizes = [900_000, 900_000, 300_000, 3_000_000, 10, 10]
    for size in sizes:
        to.add(Entry("k", bytes(size)))
    to.drain()
    assert [[len(sent.data) for sent in call] for call in kinesis.calls] == [
        [900_000, 900_000],
        [300_000],
        [3_000_000],
        [10, 10],
    ]


def test_the_explicit_hash_key_decides_on_the_shard() -> None:
    kinesis = WritableKinesis(s=4)
    to = putter(kinesis, ManualClock())
    for number in range(4):
        to.add(Entry("same", b"", str(number << 126)))
    to.drain()
    assert [sent.shard for sent in kinesis.calls[0]] == ["s-0-0", "s-0-1", "s-0-2", "s-0-3"]


@pytest.mark.parametrize("aggregate_bytes", [None, 200])
def test_a_shard_that_throttles_holds_up_only_its_own_records(aggregate_bytes: int | None) -> None:
    kinesis, clock = WritableKinesis(s=4), ManualClock()
    hot = kinesis.shard_of("s", "key-0")
    kinesis.refuses = lambda _stream, shard, _: THROTTLED if shard == hot and clock.monotonic() < 20 else None
    to = putter(kinesis, clock, limits=CallLimits(records=50), aggregate_bytes=aggregate_bytes)
    for number in range(4_000):
        to.add(entry(number))
    others = [number for number in range(4_000) if kinesis.shard_of("s", f"key-{number}") != hot]
    assert clock.monotonic() == 0  # the others did not wait
    assert len(taken(kinesis)) > len(others) - 1_000
    to.drain()
    assert clock.monotonic() >= 20
    assert sorted(taken(kinesis)) == list(range(4_000))
    assert to.counts.taken == 4_000
    assert to.counts.sent > 4_000


def test_the_tries_at_a_throttled_shard_become_rarer() -> None:
    kinesis, clock = WritableKinesis(s=2), ManualClock()
    kinesis.refuses = lambda *_: THROTTLED if clock.monotonic() < 30 else None
    add_all(putter(kinesis, clock), 10)
    assert len(kinesis.calls) < 30


def test_slow_progress_of_a_shard_is_not_given_up() -> None:
    kinesis, clock = WritableKinesis(s=1), ManualClock()

    def one_a_call(_stream: str, _shard: str, record: dict[str, Any]) -> str | None:
        return None if int(record["Data"]) == len(kinesis.taken("s")) else THROTTLED

    kinesis.refuses = one_a_call
    add_all(putter(kinesis, clock, deadline_seconds=0.5), 50)
    assert clock.monotonic() > 1
    assert kinesis.taken("s") == [str(number).encode() for number in range(50)]


@pytest.mark.parametrize("aggregate_bytes", [None, 1_000])
def test_a_shard_that_takes_nothing_until_the_deadline_is_an_error_although_others_go_on(
    aggregate_bytes: int | None,
) -> None:
    kinesis, clock = WritableKinesis(s=2), ManualClock()
    kinesis.refuses = lambda _stream, shard, _: THROTTLED if shard == "s-0-1" else None
    to = putter(kinesis, clock, deadline_seconds=10.0, aggregate_bytes=aggregate_bytes)

    def add_for_a_day() -> None:
        for number in range(8_640_000):
            clock.advance(0.01)
            to.add(entry(number))

    with pytest.raises(Throttled, match=r"PutRecords on s, s-0-1 to succeed within 10 s, got \d+ failures"):
        add_for_a_day()
    assert to.counts.taken == len(taken(kinesis))


def test_time_that_the_owner_takes_between_records_is_not_counted_against_the_deadline() -> None:
    kinesis, clock = WritableKinesis(s=1), ManualClock()
    errors = [LOST, LOST]

    def fail(*_: Any) -> None:
        if errors:
            raise errors.pop()

    to = putter(kinesis, clock, deadline_seconds=5.0)
    clock.advance(1_000)
    kinesis.before_call = fail
    add_all(to, 3)
    assert kinesis.taken("s") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("aggregate_bytes", [None, 1_000])
def test_an_answer_that_is_lost_has_its_call_made_again(aggregate_bytes: int | None) -> None:
    kinesis = WritableKinesis(s=1)
    errors: list[Exception] = [LOST]

    def lose() -> None:
        if errors:
            raise errors.pop()

    kinesis.after_call = lose
    to = putter(kinesis, ManualClock(), aggregate_bytes=aggregate_bytes)
    add_all(to, 3)
    assert taken(kinesis) == [0, 1, 2] * 2
    assert (to.counts.taken, to.counts.sent) == (3, 6)


def test_an_answer_for_fewer_records_than_were_put_is_none() -> None:
    class Short(WritableKinesis):
        def put_records(self, **request: Any) -> dict[str, Any]:
            reply = super().put_records(**request)
            return reply if len(self.calls) > 1 else {**reply, "Records": reply["Records"][1:]}

    kinesis = Short(s=1)
    add_all(putter(kinesis, ManualClock()), 3)
    assert len(kinesis.calls) == 2


def test_calls_that_fail_until_the_deadline_are_an_error(caplog: pytest.LogCaptureFixture) -> None:
    kinesis = WritableKinesis(s=1)

    def fail(*_: Any) -> None:
        raise LOST

    kinesis.before_call = fail
    with pytest.raises(Unavailable, match="PutRecords on s to succeed within 60 s") as caught:
        add_all(putter(kinesis, ManualClock()), 3)
    assert caught.value.__cause__ is LOST
    assert caplog.messages[0].startswith(
        "PutRecords on s is tried again in 0."
    )  # visibly, from the first time


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessDeniedException", AccessDenied),
        ("ResourceNotFoundException", StreamNotFound),
        ("InvalidArgumentException", KinesisError),
    ],
)
def test_what_time_does_not_change_is_an_error_at_once(code: str, kind: type[KinesisError]) -> None:
    kinesis, clock = WritableKinesis(s=1), ManualClock()

    def fail(*_: Any) -> None:
        raise client_error(code, "PutRecords")

    kinesis.before_call = fail
    with pytest.raises(KinesisError, match="PutRecords on s failed: ") as caught:
        add_all(putter(kinesis, clock), 3)
    assert type(caught.value) is kind
    assert clock.monotonic() == 0


@pytest.mark.parametrize("order", PutOrder)
def test_a_large_record_that_the_stream_never_takes_is_given_back_and_the_others_of_its_key_go_on(
    order: PutOrder,
) -> None:
    kinesis = WritableKinesis(s=1)

    def fail(_stream: str, records: list[dict[str, Any]]) -> None:
        if any(len(record["Data"]) > COMMON_RECORD_BYTES for record in records):
            raise client_error("ValidationException", "PutRecords")

    kinesis.before_call = fail
    refused: list[int] = []
    to = putter(
        kinesis, ManualClock(), order=order, on_refused=lambda entry, _error: refused.append(entry.row)
    )
    to.add(entry(0, "k"))
    to.add(Entry("k", bytes(2 * COMMON_RECORD_BYTES), row=1))
    to.add(entry(2, "k"))
    to.drain()
    assert refused == [1]
    assert kinesis.taken("s") == [b"0", b"2"]
    assert (to.counts.taken, to.counts.refused, to.waiting, to.waiting_bytes) == (2, 1, 0, 0)


def test_a_stream_that_may_not_be_listed_waits_as_a_whole(caplog: pytest.LogCaptureFixture) -> None:
    kinesis, clock = WritableKinesis(s=4), ManualClock()
    kinesis.may_list = False
    hot = kinesis.shard_of("s", "key-0")
    kinesis.refuses = lambda _stream, shard, _: THROTTLED if shard == hot and clock.monotonic() < 5 else None
    add_all(putter(kinesis, clock), 1_000)
    assert sorted(map(int, kinesis.taken("s"))) == list(range(1_000))
    assert kinesis.listings == 1
    assert "The shards of s cannot be listed" in caplog.text


def test_the_shards_are_listed_again_when_an_answer_names_a_new_one() -> None:
    kinesis, clock = WritableKinesis(s=1), ManualClock()
    kinesis.refuses = lambda *_: THROTTLED if clock.monotonic() < 3 else None
    to = putter(kinesis, clock)
    add_all(to, 10)
    kinesis.reshard("s", 4)
    hot = kinesis.shard_of("s", "key-0")
    until = clock.monotonic() + 10
    kinesis.refuses = lambda _stream, shard, _: (
        THROTTLED if shard == hot and clock.monotonic() < until else None
    )
    for number in range(3_000):
        clock.advance(0.001)
        to.add(entry(number))
    assert kinesis.listings == 2
    assert kinesis.taken_count > 1_600
    assert clock.monotonic() < until  # the new shards that took records waited for nobody
    to.drain()
    assert to.counts.taken == 3_010


def test_putting_all_holds_no_more_than_a_task_may() -> None:
    kinesis, clock = WritableKinesis(s=2), ManualClock()
    kinesis.refuses = lambda _stream, shard, _: (
        THROTTLED if shard == "s-0-0" and clock.monotonic() < 30 else None
    )
    given = 0

    def entries() -> Any:
        nonlocal given
        for number in range(30_000):
            given += 1
            assert given - kinesis.taken_count <= MAX_BUFFERED_RECORDS + 2
            yield entry(number)

    put_all(kinesis.client, "s", entries(), CallRetryPolicy(clock=clock))
    assert len(kinesis.taken("s")) == 30_000


# Ordered by key


def test_ordered_by_key_a_call_has_one_record_of_each_key() -> None:
    kinesis = WritableKinesis(s=2)
    to = putter(kinesis, ManualClock(), order=PutOrder.KEY)
    for number in range(12):
        to.add(entry(number, "often" if number < 8 else None))
    to.drain()
    assert [sorted(int(sent.data) for sent in call) for call in kinesis.calls] == [
        [0, 8, 9, 10, 11],
        *([number] for number in range(1, 8)),
    ]


def test_ordered_by_key_calls_are_full_where_there_are_keys_enough() -> None:
    kinesis = WritableKinesis(s=2)
    to = putter(kinesis, ManualClock(), order=PutOrder.KEY)
    for number in range(10_000):
        to.add(entry(number, f"key-{number % 700}"))
    to.drain()
    assert [len(call) for call in kinesis.calls] == [500] * 20


def test_ordered_by_key_what_a_refused_record_holds_back_counts_as_waiting() -> None:
    kinesis, clock = WritableKinesis(s=1), ManualClock()
    kinesis.refuses = lambda *_: THROTTLED if clock.monotonic() < 5 else None
    to = putter(kinesis, clock, order=PutOrder.KEY)
    for number in range(10):
        to.add(Entry("k", bytes(99), row=number))
    to.put()
    assert (to.waiting, to.waiting_bytes) == (10, 1_000)
    assert to.ready_at > clock.monotonic()
    to.drain()
    assert (to.waiting, to.waiting_bytes, to.counts.taken) == (0, 0, 10)
