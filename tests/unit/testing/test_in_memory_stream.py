"""The stand-in does what the service does where other stand-ins differ."""

import hashlib
import threading

import pytest

from kinesis_spout.kinesis.aggregated_record import UserRecord, take_apart
from kinesis_spout.model.errors import (
    DataLoss,
    ExpiredIterator,
    InvalidIterator,
    ShardNotFound,
    Throttled,
    Unavailable,
)
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import Position

pytestmark = pytest.mark.no_second_run

FIRST = "shardId-000000000000"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stream(clock: ManualClock) -> InMemoryStream:
    return InMemoryStream(clock=clock)


def test_a_record_goes_to_the_shard_that_holds_the_md5_of_its_key(clock: ManualClock) -> None:
    stream = InMemoryStream(shards=4, clock=clock)
    ranges = {shard.shard_id: shard.hash_range for shard in stream.list_shards()}

    for number in range(50):
        key = f"key-{number}"
        first, last = ranges[stream.put(b"x", key).shard_id]
        assert first <= int(hashlib.md5(key.encode()).hexdigest(), 16) <= last


def test_records_without_a_key_go_to_the_open_shards_in_turn(clock: ManualClock) -> None:
    stream = InMemoryStream(shards=2, clock=clock)

    records = [stream.put(b"x") for _ in range(4)]

    assert len({record.shard_id for record in records}) == 2
    assert records[0].partition_key is None


def test_sequence_numbers_do_not_order_as_text(stream: InMemoryStream) -> None:
    numbers = [stream.put(b"x", "key").sequence_number for _ in range(40)]

    assert numbers == sorted(numbers, key=int)
    assert numbers != sorted(numbers)


def test_an_iterator_can_be_used_again(stream: InMemoryStream) -> None:
    stream.put(b"one", "key")
    iterator = stream.shard_iterator(FIRST, Position.trim_horizon())

    pages = [stream.get_records(iterator, 10)[0] for _ in range(3)]

    assert [[record.data for record in page.records] for page in pages] == [[b"one"]] * 3


def test_a_page_says_how_far_behind_the_tip_it_ends(stream: InMemoryStream, clock: ManualClock) -> None:
    stream.put(b"old", "key")
    clock.advance(60)
    stream.put(b"new", "key")
    iterator = stream.shard_iterator(FIRST, Position.trim_horizon())

    behind, _ = stream.get_records(iterator, 1)
    at_tip, _ = stream.get_records(iterator, 2)

    assert behind.millis_behind_latest == pytest.approx(60_000, abs=2)
    assert at_tip.millis_behind_latest == 0


def test_a_closed_shard_keeps_its_records_until_retention(clock: ManualClock) -> None:
    stream = InMemoryStream(clock=clock, retention_seconds=3600)
    stream.put(b"one", "key")
    stream.split(FIRST)
    assert [record.data for record in stream.records(FIRST)] == [b"one"]

    clock.advance(3601)

    assert FIRST not in [shard.shard_id for shard in stream.list_shards()]
    with pytest.raises(ShardNotFound):
        stream.shard_iterator(FIRST, Position.trim_horizon())


def test_a_closed_shard_can_be_neither_split_nor_merged(stream: InMemoryStream) -> None:
    low, _ = stream.split(FIRST)

    with pytest.raises(ValueError, match="closed"):
        stream.split(FIRST)
    with pytest.raises(ValueError, match="closed"):
        stream.merge(FIRST, low.shard_id)


def test_an_iterator_lives_five_minutes(stream: InMemoryStream, clock: ManualClock) -> None:
    iterator = stream.shard_iterator(FIRST, Position.trim_horizon())
    clock.advance(300)
    stream.get_records(iterator, 10)
    clock.advance(1)

    with pytest.raises(ExpiredIterator):
        stream.get_records(iterator, 10)


def test_an_iterator_of_no_stream_is_invalid(stream: InMemoryStream) -> None:
    with pytest.raises(InvalidIterator):
        stream.get_records("nonsense", 10)


def test_a_position_outside_of_the_shard_is_refused(stream: InMemoryStream) -> None:
    record = stream.put(b"one", "key")
    low, _ = stream.split(FIRST)

    with pytest.raises(DataLoss):
        stream.shard_iterator(low.shard_id, Position.after(record.sequence))


def test_the_position_right_after_what_retention_took_loses_nothing(stream: InMemoryStream) -> None:
    first, second = (stream.put(payload, "key") for payload in (b"one", b"two"))
    stream.trim(FIRST, first.sequence)

    page, _ = stream.get_records(stream.shard_iterator(FIRST, Position.after(first.sequence)), 10)

    assert [record.sequence for record in page.records] == [second.sequence]


def test_injected_faults_hit_their_shard_and_then_pass(clock: ManualClock) -> None:
    stream = InMemoryStream(shards=2, clock=clock)
    first, second = (
        stream.shard_iterator(shard.shard_id, Position.trim_horizon()) for shard in stream.list_shards()
    )
    stream.throttle(shard_id=FIRST)

    stream.get_records(second, 1)
    with pytest.raises(Throttled):
        stream.get_records(first, 1)
    stream.get_records(first, 1)

    stream.make_unavailable()
    with pytest.raises(Unavailable):
        stream.get_records(second, 1)


def test_threads_may_put_at_the_same_time(stream: InMemoryStream) -> None:
    threads = [
        threading.Thread(target=lambda: [stream.put(b"x", "key") for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    numbers = [record.sequence for record in stream.records(FIRST)]
    assert len(numbers) == len(set(numbers)) == 800
    assert numbers == sorted(numbers)


def test_user_records_are_put_as_one_record_where_the_first_of_them_belongs() -> None:
    stream = InMemoryStream(shards=2, clock=ManualClock())
    second = stream.list_shards()[1].shard_id
    inside = [UserRecord("a", b"one", str(2**128 - 1)), UserRecord("b", b"two")]

    given = stream.put_aggregated(inside)

    (carrier,) = stream.records(second)
    assert take_apart(carrier.data) == tuple(inside)
    assert [record.data for record in given] == [b"one", b"two"]
    assert [str(record.sequence) for record in given] == [
        f"{carrier.sequence_number}:0",
        f"{carrier.sequence_number}:1",
    ]
    with pytest.raises(ValueError, match="expected at least one user record"):
        stream.put_aggregated([])


def test_what_is_unread_is_counted_in_user_records(stream: InMemoryStream) -> None:
    first, second = stream.put_aggregated([UserRecord("key", b"one"), UserRecord("key", b"two")])
    stream.put(b"three", "key")

    for position, expected in (
        (Position.trim_horizon(), 3),
        (Position.at(second.sequence), 2),
        (Position.after(first.sequence), 2),
        (Position.after(second.sequence), 1),
    ):
        assert stream.unread(FIRST, position) == expected
