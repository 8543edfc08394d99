"""The contract of ``ShardGetter``: the fake, the real getter over the fake, and over each endpoint."""

import math

import pytest

from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.model.errors import (
    DataLoss,
    KeyUnavailable,
    KinesisError,
    ShardNotFound,
    StreamNotFound,
    Throttled,
    Unavailable,
)
from shard_state import Position, PositionType, SequenceNumber
from tests.support.kinesis.endpoints import (
    FILLS_CHILDREN,
    KEEPS_CLOSED,
    REFUSES_FOREIGN_NUMBERS,
    SHARD_END,
)
from tests.support.kinesis.streams_under_test import (
    FIRST_SHARD,
    POLLED,
    FakeStream,
    MakeStream,
    StreamUnderTest,
    read_all,
    read_to_end,
)

pytestmark = [pytest.mark.no_second_run, pytest.mark.endpoint]


@pytest.fixture
def stream(make_stream: MakeStream) -> StreamUnderTest:
    return make_stream()


def test_records_come_in_order_with_all_that_was_put(stream: StreamUnderTest) -> None:
    numbers = stream.put(b"\x00one", b"two", b"", b"three", key="schlüssel")

    records = read_all(stream.getter(Position.trim_horizon()), 4)

    assert [record.data for record in records] == [b"\x00one", b"two", b"", b"three"]
    assert [record.sequence for record in records] == numbers == sorted(numbers)
    for record in records:
        assert (record.partition_key, record.stream, record.shard_id, record.attempt) == (
            "schlüssel",
            stream.name,
            FIRST_SHARD,
            1,
        )
        assert record.arrival_timestamp == pytest.approx(stream.clock.time(), abs=60)


def test_a_page_holds_at_most_the_limit_and_says_its_size(stream: StreamUnderTest) -> None:
    stream.put(b"aaaa", b"bbbb", b"cccc", key="k")
    getter = stream.getter(Position.trim_horizon())

    page = getter.read(2)

    assert [record.data for record in page.records] == [b"aaaa", b"bbbb"]
    assert page.size_bytes == 2 * (4 + 1)
    assert [record.data for record in read_all(getter, 1)] == [b"cccc"]


def test_a_page_at_the_tip_is_empty_and_not_the_end(stream: StreamUnderTest) -> None:
    getter = stream.getter(Position.trim_horizon())

    page = getter.read(100)

    assert (len(page.records), page.millis_behind_latest, page.at_end, page.child_shards) == (0, 0, False, ())
    stream.put(b"later")
    assert [record.data for record in read_all(getter, 1)] == [b"later"]


def test_the_position_is_after_the_last_record_fetched(stream: StreamUnderTest) -> None:
    numbers = stream.put(b"one", b"two", b"three")
    getter = stream.getter(Position.trim_horizon())
    assert getter.position == Position.trim_horizon()

    getter.read(2)

    assert getter.position == Position.after(numbers[1])
    resumed = stream.getter(getter.position)
    assert [record.data for record in read_all(resumed, 1)] == [b"three"]


def test_at_begins_with_the_record_and_after_behind_it(stream: StreamUnderTest) -> None:
    numbers = stream.put(b"one", b"two", b"three")

    at = stream.getter(Position.at(numbers[1]))
    after = stream.getter(Position.after(numbers[1]))

    assert [record.data for record in read_all(at, 2)] == [b"two", b"three"]
    assert [record.data for record in read_all(after, 1)] == [b"three"]


def test_after_a_part_of_an_aggregate_begins_with_the_whole_aggregate(stream: StreamUnderTest) -> None:
    numbers = stream.put(b"aggregate", b"next")

    getter = stream.getter(Position.after(SequenceNumber(numbers[0].number, 4)))

    assert [record.data for record in read_all(getter, 2)] == [b"aggregate", b"next"]


AGGREGATE = aggregate([UserRecord("a", b"one"), UserRecord("b", b"two", "5"), UserRecord("a", b"three")])


def test_user_records_come_in_place_of_the_aggregated_record(stream: StreamUnderTest) -> None:
    before, number, _ = stream.put(b"before", AGGREGATE, b"after")

    records = read_all(stream.getter(Position.trim_horizon()), 5)

    assert [record.data for record in records] == [b"before", b"one", b"two", b"three", b"after"]
    assert records[0].sequence == before
    assert [record.sequence for record in records[1:4]] == [
        SequenceNumber(number.number, at) for at in range(3)
    ]
    assert [record.partition_key for record in records] == ["key", "a", "b", "a", "key"]
    assert [record.explicit_hash_key for record in records[1:4]] == [None, "5", None]
    assert {record.shard_id for record in records} == {FIRST_SHARD}


def test_a_position_inside_an_aggregate_leaves_out_what_is_before_it(stream: StreamUnderTest) -> None:
    number = stream.put(AGGREGATE, b"next")[0].number

    for position, expected in (
        (Position.at(SequenceNumber(number, 1)), [b"two", b"three", b"next"]),
        (Position.after(SequenceNumber(number, 1)), [b"three", b"next"]),
        (Position.after(SequenceNumber(number, 2)), [b"next"]),
        (Position.after(SequenceNumber(number)), [b"next"]),
    ):
        assert [record.data for record in read_all(stream.getter(position), len(expected))] == expected


def test_a_limit_counts_an_aggregate_as_one_and_the_position_goes_behind_all_of_it(
    stream: StreamUnderTest,
) -> None:
    numbers = stream.put(AGGREGATE, AGGREGATE, b"next")
    getter = stream.getter(Position.after(SequenceNumber(numbers[0].number, 0)))

    page = getter.read(1)

    assert [record.data for record in page.records] == [b"two", b"three"]
    assert page.holds_at_least(1)
    assert getter.position == Position.after(numbers[0])
    resumed = stream.getter(getter.position)
    assert [record.data for record in read_all(resumed, 4)] == [b"one", b"two", b"three", b"next"]


def test_what_holds_nothing_or_is_damaged_does_not_stop_the_reading(stream: StreamUnderTest) -> None:
    damaged = AGGREGATE[:-1] + b"?"
    numbers = stream.put(aggregate(()), damaged, b"next")
    getter = stream.getter(Position.trim_horizon())

    records = read_all(getter, 2)

    assert [(record.data, record.sequence) for record in records] == [
        (damaged, numbers[1]),
        (b"next", numbers[2]),
    ]
    assert getter.position == Position.after(numbers[2])


def test_latest_begins_with_what_is_put_after_the_getter_was_made(stream: StreamUnderTest) -> None:
    stream.put(b"before")
    _let_a_millisecond_pass(stream)

    getter = stream.getter(Position.latest())
    stream.put(b"after")

    assert [record.data for record in read_all(getter, 1)] == [b"after"]


def test_latest_is_never_resolved_again(stream: StreamUnderTest) -> None:
    stream.put(b"before")
    _let_a_millisecond_pass(stream)
    pinned = stream.getter(Position.latest()).position
    stream.put(b"while nobody read")

    restarted = stream.getter(pinned)

    assert pinned.type is PositionType.AT_TIMESTAMP
    assert [record.data for record in read_all(restarted, 1)] == [b"while nobody read"]


def test_a_timestamp_begins_with_the_first_record_that_arrived_then(stream: StreamUnderTest) -> None:
    stream.put(b"before")
    _let_a_millisecond_pass(stream)
    moment = stream.clock.time()
    stream.put(b"after")

    getter = stream.getter(Position.at_timestamp(moment))

    assert [record.data for record in read_all(getter, 1)] == [b"after"]


def test_a_timestamp_before_everything_is_the_trim_horizon(stream: StreamUnderTest) -> None:
    stream.put(b"one")

    getter = stream.getter(Position.at_timestamp(stream.clock.time() - 3600))

    assert [record.data for record in read_all(getter, 1)] == [b"one"]


def test_the_end_comes_with_the_page_that_drains_a_closed_shard(stream: StreamUnderTest) -> None:
    stream.needs(SHARD_END, KEEPS_CLOSED)
    stream.put(b"one", b"two")
    stream.split(FIRST_SHARD)
    getter = stream.getter(Position.trim_horizon())

    first = getter.read(1)
    rest = read_to_end(getter)

    assert (first.at_end, first.child_shards) == (False, ())
    assert [record.data for page in rest for record in page.records] == [b"two"]
    children = rest[-1].child_shards
    assert [child.parents for child in children] == [(FIRST_SHARD,), (FIRST_SHARD,)]
    assert {child.hash_range for child in children} == {(0, 2**127 - 1), (2**127, 2**128 - 1)}


def test_after_the_end_the_end_is_said_again(stream: StreamUnderTest) -> None:
    stream.needs(SHARD_END, KEEPS_CLOSED)
    stream.put(b"one")
    stream.split(FIRST_SHARD)
    getter = stream.getter(Position.trim_horizon())
    last = read_to_end(getter)[-1]

    again = getter.read(10)

    assert (list(again.records), again.at_end, again.child_shards) == ([], True, last.child_shards)


def test_a_shard_closed_while_it_is_read_ends_after_its_last_record(stream: StreamUnderTest) -> None:
    stream.needs(SHARD_END, KEEPS_CLOSED)
    stream.put(b"one")
    getter = stream.getter(Position.trim_horizon())
    read_all(getter, 1)
    stream.put(b"two")
    stream.split(FIRST_SHARD)

    pages = read_to_end(getter)

    assert [record.data for page in pages for record in page.records] == [b"two"]


def test_both_parents_of_a_merge_name_the_child_and_it_names_both(make_stream: MakeStream) -> None:
    stream = make_stream(shards=2)
    stream.needs(SHARD_END, KEEPS_CLOSED)
    low, high = sorted(shard.shard_id for shard in stream.lister().list_shards())
    stream.merge(low, high)

    children = [
        read_to_end(stream.getter(Position.trim_horizon(), shard_id=parent))[-1].child_shards
        for parent in (low, high)
    ]

    assert children[0] == children[1]
    assert [set(child.parents) for child in children[0]] == [{low, high}]


def test_a_child_is_read_from_its_first_record(stream: StreamUnderTest) -> None:
    stream.needs(FILLS_CHILDREN)
    stream.split(FIRST_SHARD)
    child = next(shard for shard in stream.lister().list_shards() if shard.hash_range[0] == 2**127)
    stream.put(b"before it was noticed", key="1")  # the MD5 of "1" begins with c4: the upper half

    getter = stream.getter(Position.trim_horizon(), shard_id=child.shard_id)

    assert [record.data for record in read_all(getter, 1)] == [b"before it was noticed"]


def test_reads_are_paced_to_five_a_second(stream: StreamUnderTest) -> None:
    stream.needs(POLLED)
    getter = stream.getter(Position.trim_horizon())
    started = stream.clock.monotonic()

    getter.read(1)
    assert getter.ready_at >= started + 0.2
    getter.read(1)

    assert stream.clock.monotonic() >= started + 0.2


@pytest.mark.parametrize("limit", [0, 10_001])
def test_a_limit_that_the_api_refuses_is_refused_at_once(stream: StreamUnderTest, limit: int) -> None:
    with pytest.raises(ValueError, match="limit of 1 to 10000"):
        stream.getter(Position.trim_horizon()).read(limit)


def test_a_shard_that_is_not_there_is_not_found_and_not_ended(stream: StreamUnderTest) -> None:
    with pytest.raises(ShardNotFound):
        stream.getter(Position.trim_horizon(), shard_id="shardId-000000000077").read(10)


def test_a_deleted_stream_is_not_found(stream: StreamUnderTest) -> None:
    getter = stream.getter(Position.trim_horizon())
    getter.read(10)
    stream.delete()

    with pytest.raises(StreamNotFound):
        getter.read(10)


def test_an_expired_iterator_goes_on_after_the_last_record_fetched(fake_stream: FakeStream) -> None:
    fake_stream.put(b"one", b"two", b"three")
    getter = fake_stream.getter(Position.trim_horizon())
    getter.read(2)
    fake_stream.expire_iterators()

    assert [record.data for record in read_all(getter, 1)] == [b"three"]


def test_an_iterator_expired_before_anything_was_read_goes_on_at_the_pinned_start(
    fake_stream: FakeStream,
) -> None:
    fake_stream.put(b"before")
    _let_a_millisecond_pass(fake_stream)
    getter = fake_stream.getter(Position.latest())
    getter.read(10)
    fake_stream.put(b"while it expired")
    fake_stream.expire_iterators()

    assert [record.data for record in read_all(getter, 1)] == [b"while it expired"]


def test_a_position_behind_retention_is_data_loss(fake_stream: FakeStream) -> None:
    numbers = fake_stream.put(b"one", b"two", b"three")
    fake_stream.trim(numbers[1])
    getter = fake_stream.getter(Position.after(numbers[0]))

    with pytest.raises(DataLoss):
        getter.read(10)
    with pytest.raises(DataLoss):
        getter.read(10)


def test_a_position_behind_retention_may_be_given_up_for_the_oldest_record(fake_stream: FakeStream) -> None:
    numbers = fake_stream.put(b"one", b"two", b"three")
    fake_stream.trim(numbers[1])

    getter = fake_stream.getter(Position.after(numbers[0]), fail_on_data_loss=False)

    assert [record.data for record in read_all(getter, 1)] == [b"three"]


DAY = 24 * 3600.0


@pytest.mark.parametrize(("known_days_ago", "is_loss"), [(None, True), (2.0, True), (0.5, False)])
@pytest.mark.parametrize("is_empty", [False, True])
def test_where_the_record_before_a_position_is_gone_only_time_tells_whether_others_are(
    aging_stream: FakeStream, known_days_ago: float | None, *, is_loss: bool, is_empty: bool
) -> None:
    number = aging_stream.put(b"one")[0]
    aging_stream.clock.sleep(2.5 * DAY)
    since = None if known_days_ago is None else aging_stream.clock.time() - known_days_ago * DAY
    expected = [] if is_empty else [b"two"]
    aging_stream.put(*expected)
    position = Position.after(number).known_since(since)

    if is_loss:
        getter = aging_stream.getter(position)
        for _ in range(2):
            with pytest.raises(DataLoss):
                read_all(getter, 1)
    getter = aging_stream.getter(position, fail_on_data_loss=not is_loss)
    pages = [getter.read(10)]
    while pages[-1].says_nothing:
        pages.append(getter.read(10))

    assert [record.data for page in pages for record in page.records] == expected
    if not is_empty:
        assert pages[-1].data_losses == is_loss


def test_what_came_earlier_than_it_could_shows_that_a_clock_was_wrong(aging_stream: FakeStream) -> None:
    number = aging_stream.put(b"one")[0]
    aging_stream.clock.sleep(2.5 * DAY)
    aging_stream.put(b"two")
    aging_stream.clock.sleep(3600.0)
    getter = aging_stream.getter(Position.after(number).known_since(aging_stream.clock.time()))

    with pytest.raises(DataLoss):
        read_all(getter, 1)


def test_a_shard_is_known_to_be_whole_since_its_tip_was_seen_or_its_last_record_arrived(
    aging_stream: FakeStream,
) -> None:
    aging_stream.put(b"one", b"two")
    put_at = aging_stream.clock.time()
    aging_stream.clock.sleep(100.0)
    getter = aging_stream.getter(Position.trim_horizon())

    read_all(getter, 2)
    aging_stream.clock.sleep(100.0)
    page = getter.read(10)

    assert page.since is not None
    assert page.since >= put_at + 98.0
    assert getter.position.since == page.since


def test_a_position_of_another_shard_is_data_loss(make_stream: MakeStream) -> None:
    stream = make_stream(shards=2)
    stream.needs(REFUSES_FOREIGN_NUMBERS, KEEPS_CLOSED)
    numbers = stream.put(b"one")
    low, high = sorted(shard.shard_id for shard in stream.lister().list_shards())
    stream.merge(low, high)
    child = next(shard for shard in stream.lister().list_shards() if shard.parents)

    with pytest.raises(DataLoss):
        stream.getter(Position.after(numbers[0]), shard_id=child.shard_id).read(10)


def test_a_position_that_is_refused_but_not_trimmed_gives_no_record_from_before_it(
    fake_stream: FakeStream,
) -> None:
    numbers = fake_stream.put(b"one", b"two", b"three")
    fake_stream.refuse_sequence_numbers()
    getter = fake_stream.getter(Position.after(numbers[1]), fail_on_data_loss=False)
    assert [record.data for record in getter.read(10).records] == [b"three"]


@pytest.mark.parametrize(
    ("error", "seconds"), [(Throttled("x"), 1.0), (Unavailable("x"), 0.2), (KeyUnavailable("x"), 1.0)]
)
def test_a_retriable_error_moves_ready_at_and_keeps_the_place(
    fake_stream: FakeStream, error: KinesisError, seconds: float
) -> None:
    fake_stream.put(b"one", b"two")
    getter = fake_stream.getter(Position.trim_horizon())
    records = list(getter.read(1).records)
    fake_stream.fail_next(error)

    def read_on() -> None:
        while True:  # what was pushed before the error comes before it
            records.extend(getter.read(1).records)

    with pytest.raises(type(error)):
        read_on()

    assert getter.ready_at >= fake_stream.clock.monotonic() + 0.9 * seconds
    records.extend(read_all(getter, 2 - len(records)))
    assert [record.data for record in records] == [b"one", b"two"]


def _let_a_millisecond_pass(stream: StreamUnderTest) -> None:
    """Arrivals are told apart by whole milliseconds only."""
    before = math.floor(stream.clock.time() * 1000)
    while math.floor(stream.clock.time() * 1000) <= before + 1:
        stream.clock.sleep(0.001)
